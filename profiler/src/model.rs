//! The lock-free parts under loom: every interleaving of small programs.

use loom::sync::Arc;
use loom::thread;

use crate::map::{AddressMap, Found};
use crate::queue::Queue;
use crate::sample::Sample;
use crate::sync::turn;

const BASE: u64 = 0x10000;

/// Tries all interleavings with at most three preemptions, and checks that there were at least
/// `least`.
fn explore(least: u32, body: impl Fn() + Send + Sync + 'static) {
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = tries.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    let tries = tries.load(std::sync::atomic::Ordering::Relaxed);
    eprintln!("{tries} interleavings");
    assert!(tries >= least, "only {tries} interleavings");
}

fn map(limit: usize) -> Arc<AddressMap> {
    // Initializes the counter of turns, which publishes all earlier writes: here there are none.
    turn();
    Arc::new(AddressMap::new(BASE, 2 << 12, limit))
}

#[test]
fn a_reused_range_is_never_mistaken() {
    explore(20, || {
        let map = map(2);
        map.insert(BASE..BASE + 16, 1, 10).unwrap();
        let writer = map.clone();
        let change = thread::spawn(move || {
            writer.retire(BASE..BASE + 16, 20);
            writer.insert(BASE..BASE + 16, 2, 30).unwrap();
        });
        assert_eq!(map.find(BASE, 15), Found::Tag(1));
        // Until the reader sees the end, the first use still answers for later times.
        assert_ne!(map.find(BASE, 9), Found::Tag(1));
        assert_ne!(map.find(BASE, 15), Found::Tag(2));
        change.join().unwrap();
        assert_eq!(map.find(BASE, 30), Found::Tag(2));
        assert_eq!(map.find(BASE, 20), Found::Stale);
    });
}

#[test]
fn an_entry_moves_to_another_page_under_a_reader() {
    explore(20, || {
        // One free entry only: the second insert reuses the entry of the first.
        let map = map(2);
        map.insert(BASE + 32..BASE + 48, 3, 0).unwrap();
        map.insert(BASE..BASE + 16, 1, 0).unwrap();
        let writer = map.clone();
        let change = thread::spawn(move || {
            writer.retire(BASE..BASE + 16, 5);
            writer.insert(BASE + 0x1000..BASE + 0x1010, 2, 5).unwrap();
        });
        // This piece is behind the moving entry in its list. A reader that stands on that entry
        // finds it only by noticing the move.
        assert_eq!(map.find(BASE + 32, 1), Found::Tag(3));
        assert!(matches!(map.find(BASE, 1), Found::Tag(1) | Found::Unknown));
        change.join().unwrap();
        assert_eq!(map.find(BASE + 0x1000, 5), Found::Tag(2));
        assert_eq!(map.find(BASE, 1), Found::Unknown);
    });
}

/// A piece that stays is found behind pieces that are added and removed before it in its list.
#[test]
fn what_comes_and_goes_hides_nothing_behind_it() {
    explore(20, || {
        let map = map(4);
        map.insert(BASE + 32..BASE + 48, 3, 0).unwrap();
        let writer = map.clone();
        let change = thread::spawn(move || {
            writer.insert(BASE..BASE + 16, 1, 0).unwrap();
            writer.insert(BASE + 16..BASE + 32, 2, 0).unwrap();
            writer.retire(BASE + 16..BASE + 32, 5);
            writer.forget_before(5);
        });
        assert_eq!(map.find(BASE + 32, 1), Found::Tag(3));
        change.join().unwrap();
        assert_eq!(map.find(BASE, 1), Found::Tag(1));
    });
}

fn sample(pc: u64) -> Sample {
    Sample {
        pc,
        tid: pc as i32,
        time: pc + 1,
        weight: pc + 2,
    }
}

#[test]
fn samples_come_out_whole_and_once() {
    explore(20, || {
        turn();
        let queue = Arc::new(Queue::new(2));
        let producers = [1, 2].map(|pc| {
            let queue = queue.clone();
            thread::spawn(move || {
                assert!(queue.push(sample(pc)));
            })
        });
        let mut got = Vec::new();
        queue.pop_all(&mut |sample| got.push(sample));
        for producer in producers {
            producer.join().unwrap();
        }
        queue.pop_all(&mut |sample| got.push(sample));
        got.sort_by_key(|sample| sample.pc);
        assert_eq!(got, [sample(1), sample(2)]);
    });
}

#[test]
fn a_full_queue_counts_what_it_drops() {
    explore(20, || {
        turn();
        let queue = Arc::new(Queue::new(2));
        assert!(queue.push(sample(1)));
        let other = queue.clone();
        let producer = thread::spawn(move || u64::from(!other.push(sample(2))));
        let mut dropped = u64::from(!queue.push(sample(3)));
        dropped += producer.join().unwrap();
        assert_eq!(dropped, 1);
        assert_eq!(queue.take_lost(), 1);
        let mut got = 0;
        queue.pop_all(&mut |_| got += 1);
        assert_eq!(got, 2);
        assert!(queue.push(sample(4)));
    });
}
