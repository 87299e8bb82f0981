//! Lists under loom: each element is taken out once, and none is lost.

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
        // Initializes the counter of turns, as for a table.
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

    /// Checks that the rest of the list, with the elements taken before, holds each of `all` once.
    fn assert_complete(&self, taken: impl IntoIterator<Item = u32>, all: &[u32]) {
        let rest = std::iter::from_fn(|| self.take());
        // A duplicate element would make the list endless.
        let mut found: Vec<u32> = taken.into_iter().chain(rest.take(4)).collect();
        found.sort_unstable();
        assert_eq!(found, all);
    }
}

/// A thread reads the first element while others take it and put it back. It must not pop it with
/// the old successor, which is gone.
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

/// Popping beside prepending one element, and a chain before it.
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

/// Popping beside prepending to a filled list: a thread that finds a new head finds its successor.
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

/// Two threads prepend, one pops: the pop that acquires the second prepend also sees the first.
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
