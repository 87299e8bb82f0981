//! Lists under loom: what is in one is taken out once, and nothing gets lost.

use loom::sync::Arc;
use loom::thread;

use super::{function, model};
use crate::cell::Cells;
use crate::requests::TaggedList;
use crate::sync::{Ordering, turn};

struct Lists {
    cells: Cells,
    list: TaggedList,
}

impl Lists {
    fn new() -> Arc<Lists> {
        // As for a table.
        turn();
        Arc::new(Lists {
            cells: Cells::new(3),
            list: TaggedList::default(),
        })
    }

    fn put(&self, first: u32, last: u32) {
        let [first, last] = [first, last].map(function);
        self.list.prepend(&self.cells, first, last);
    }

    fn take(&self) -> Option<u32> {
        self.list.pop(&self.cells).map(|function| function.index())
    }

    /// The rest, with what was taken before: each of `all` once.
    fn assert_complete(&self, taken: impl IntoIterator<Item = u32>, all: &[u32]) {
        let rest = std::iter::from_fn(|| self.take());
        // Twice the same would go round for ever.
        let mut found: Vec<u32> = taken.into_iter().chain(rest.take(4)).collect();
        found.sort_unstable();
        assert_eq!(found, all);
    }
}

/// Whoever holds the first of a list while others take it, and put it back, must not
/// take it with the successor it had: that is gone.
#[test]
fn what_is_put_back_has_another_successor() {
    model(|| {
        let lists = Lists::new();
        lists.put(1, 1);
        lists.put(0, 0);
        let other = thread::spawn({
            let lists = lists.clone();
            move || lists.take()
        });
        let mut own = vec![lists.take(), lists.take()];
        if let Some(first) = own[0].take() {
            lists.put(first, first);
        }
        let taken = own.into_iter().chain([other.join().unwrap()]).flatten();
        lists.assert_complete(taken, &[0, 1]);
    });
}

/// Taking beside putting: of one, and of a chain before it.
#[test]
fn a_chain_is_seen_whole() {
    model(|| {
        let lists = Lists::new();
        let other = thread::spawn({
            let lists = lists.clone();
            move || [lists.take(), lists.take()]
        });
        lists.put(2, 2);
        lists
            .cells
            .get(function(0))
            .next
            .store(2, Ordering::Relaxed);
        lists.put(0, 1);
        let taken = other.join().unwrap().into_iter().flatten();
        lists.assert_complete(taken, &[0, 1, 2]);
    });
}

/// Taking beside putting before what is there: whoever finds a new head finds its successor.
#[test]
fn a_new_head_has_its_successor() {
    model(|| {
        let lists = Lists::new();
        lists.put(0, 0);
        let other = thread::spawn({
            let lists = lists.clone();
            move || lists.take()
        });
        lists.put(1, 1);
        lists.assert_complete(other.join().unwrap(), &[0, 1]);
    });
}

/// Two put, one takes: what the first put is seen by who takes what the second put.
#[test]
fn two_chains_follow_each_other() {
    model(|| {
        let lists = Lists::new();
        let [first, second] = [0, 1].map(|i| {
            let lists = lists.clone();
            thread::spawn(move || lists.put(i, i))
        });
        let taken = [lists.take(), lists.take()];
        first.join().unwrap();
        second.join().unwrap();
        lists.assert_complete(taken.into_iter().flatten(), &[0, 1]);
    });
}
