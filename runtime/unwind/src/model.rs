//! The index under loom: every interleaving of small programs.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::index::{Index, Writer};
use crate::node::{Node, Row};
use crate::readers::Readers;
use crate::sync::turn;

struct Model {
    index: Index,
    readers: Readers,
    writer: Mutex<Writer>,
}

const BASE: u64 = 0x10000;

impl Model {
    fn new() -> Arc<Model> {
        // Initializes the counter of turns, which publishes all earlier writes: here there are
        // none.
        turn();
        Arc::new(Model {
            index: Index::new(BASE, 2 << 12).unwrap(),
            readers: Readers::new(),
            writer: Mutex::new(Writer::default()),
        })
    }

    fn node(&self, start: u64, end: u64) -> Box<Node> {
        let row = Row {
            start: BASE + start,
            end: BASE + end,
            fde: start + 1,
        };
        Node::new(self.index.range(), &[row], &[]).unwrap().unwrap()
    }

    fn insert(&self, start: u64, end: u64) {
        let node = self.node(start, end);
        let mut writer = self.writer.lock().unwrap();
        self.index.insert(&mut writer, node);
    }

    fn remove(&self, start: u64, end: u64) -> usize {
        let mut writer = self.writer.lock().unwrap();
        let removed = self.index.remove(&mut writer, BASE + start..BASE + end);
        writer.collect(&self.readers);
        removed
    }

    fn find(&self, pc: u64) -> Option<u64> {
        let reading = self.readers.enter();
        self.index.find(&reading, BASE + pc, |found, _| found.fde)
    }

    /// Frees the rest, so that loom sees that it is not read any more.
    fn finish(&self) {
        self.remove(0, 2 << 12);
        let mut writer = self.writer.lock().unwrap();
        writer.collect(&self.readers);
        assert_eq!(writer.waiting(), 0);
    }
}

#[test]
fn an_insert_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let model = Model::new();
        model.insert(0, 16);
        let writer = model.clone();
        let thread = thread::spawn(move || writer.insert(16, 0x1010));
        let near = model.find(16);
        assert!(near.is_none() || near == Some(17));
        assert_eq!(model.find(8), Some(1));
        thread.join().unwrap();
        assert_eq!(model.find(0x1000), Some(17));
        model.finish();
    });
}

#[test]
fn a_lookup_never_reads_a_freed_node() {
    loom::model(|| {
        let model = Model::new();
        model.insert(0, 16);
        model.insert(16, 32);
        let writer = model.clone();
        let thread = thread::spawn(move || {
            assert_eq!(writer.remove(16, 32), 1);
            assert_eq!(writer.remove(0, 16), 1);
        });
        assert!(matches!(model.find(8), None | Some(1)));
        thread.join().unwrap();
        assert_eq!(model.find(8), None);
        model.finish();
    });
}

#[test]
fn removing_and_reinserting_under_two_lookups() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        model.insert(0, 16);
        model.insert(32, 48);
        let writer = model.clone();
        let change = thread::spawn(move || {
            writer.remove(32, 48);
            writer.insert(32, 40);
        });
        let reader = model.clone();
        let look = thread::spawn(move || assert_eq!(reader.find(0), Some(1)));
        assert!(matches!(model.find(36), None | Some(33)));
        change.join().unwrap();
        look.join().unwrap();
        assert_eq!(model.find(36), Some(33));
        assert_eq!(model.find(44), None);
        model.finish();
    });
}

/// A reader reaches an object through the place of an unlinked neighbour: of the page, or of the
/// link before it. It began before either was there, so only its reads order it.
#[test]
fn what_is_behind_an_unlinked_object_is_seen_whole() {
    for another_before_it in [false, true] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let model = Model::new();
            let reader = model.clone();
            // Neither frees nor takes the lock meanwhile: the fence of the one, and loom's model of
            // the other, order more than a store does.
            let mut writer = model.writer.lock().unwrap();
            let look = thread::spawn(move || reader.find(8));
            model.index.insert(&mut writer, model.node(0, 16));
            model.index.insert(&mut writer, model.node(32, 48));
            if another_before_it {
                model.index.insert(&mut writer, model.node(16, 32));
            }
            let range = BASE + 32..BASE + 48;
            assert_eq!(model.index.remove(&mut writer, range), 1);
            assert!(matches!(look.join().unwrap(), None | Some(1)));
            drop(writer);
            model.finish();
        });
    }
}
