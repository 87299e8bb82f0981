//! The order of locks: a debug build checks that a thread takes locks by ascending ranks.
//!
//! A thread that holds a lock may wait only for locks of higher ranks. So no circle of threads can
//! wait for each other. A thread cannot wait by a failed attempt: an attempt is not checked, but a
//! lock that it took counts as held.
//!
//! # Signal handlers
//! The table of a thread is constant-initialized and has no destructor, so it works in each handler
//! and in each thread. A handler that interrupts a change of the table empties its own entries
//! before it returns, and one entry is one word. So the interrupted change continues correctly.

use std::any::type_name;
use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;

use super::count::give_up;

/// The rank of a lock, as a type: ranks need no space in a lock.
pub trait Rank: Debug + 'static {
    /// Position in the order. Locks of lower ranks are taken first.
    const NUMBER: u8;
    /// Name of the lock in `docs/threads.md`.
    const NAME: &'static str;
}

/// The rank of a lock under which no other lock is taken. Messages name such a lock by the type of
/// its value.
#[derive(Debug)]
pub enum Leaf {}

impl Rank for Leaf {
    const NUMBER: u8 = u8::MAX;
    const NAME: &'static str = "";
}

/// A kind of lock, as an entry of the table.
#[derive(Debug)]
struct Kind {
    rank: u8,
    name: &'static str,
    value: fn() -> &'static str,
}

impl Kind {
    fn describe(&self) -> String {
        if self.name.is_empty() {
            format!("the leaf of `{}`", (self.value)())
        } else {
            format!("`{}` (rank {})", self.name, self.rank)
        }
    }
}

/// The kind of a lock with rank `R` around a `T`.
struct KindOf<T: ?Sized, R>(PhantomData<(R, T)>);

impl<T: ?Sized, R: Rank> KindOf<T, R> {
    const KIND: &'static Kind = &Kind {
        rank: R::NUMBER,
        name: R::NAME,
        value: type_name::<T>,
    };
}

/// Most locks that a thread may hold at once.
const MOST: usize = 16;

thread_local! {
    /// Locks that this thread holds, in no order.
    static TAKEN: [Cell<Option<&'static Kind>>; MOST] = const { [const { Cell::new(None) }; MOST] };
}

/// Records that the calling thread holds a lock, while it lives. Empty without `debug_assertions`.
///
/// [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock) contain one; locks of other kinds need
/// their own.
#[derive(Debug)]
pub struct Ordered {
    #[cfg(debug_assertions)]
    entry: usize,
    _stays: PhantomData<*const ()>,
}

impl Ordered {
    /// Checks that the calling thread may wait for the lock of a `T` with rank `R`, and records it.
    /// To be called before the lock is taken.
    #[inline]
    pub fn wait<T: ?Sized, R: Rank>() -> Ordered {
        if cfg!(debug_assertions) {
            check(KindOf::<T, R>::KIND);
        }
        Ordered::tried::<T, R>()
    }

    /// Records the lock without a check: for attempts, and for locks that a fork takes while all
    /// other threads are outside.
    #[inline]
    pub fn tried<T: ?Sized, R: Rank>() -> Ordered {
        Ordered {
            #[cfg(debug_assertions)]
            entry: record(KindOf::<T, R>::KIND),
            _stays: PhantomData,
        }
    }

    /// Checks that the thread may unlock this lock and wait for it again, as a condition does.
    #[inline]
    pub fn wait_again(&self) {
        #[cfg(debug_assertions)]
        TAKEN.with(|taken| {
            let entry = &taken[self.entry];
            if let Some(kind) = entry.replace(None) {
                check(kind);
                entry.set(Some(kind));
            }
        });
    }
}

#[cfg(debug_assertions)]
impl Drop for Ordered {
    fn drop(&mut self) {
        TAKEN.with(|taken| taken[self.entry].set(None));
    }
}

fn check(next: &'static Kind) {
    let above = |held: &&Kind| held.rank >= next.rank;
    let Some(held) = TAKEN.with(|taken| taken.iter().filter_map(Cell::get).find(above)) else {
        return;
    };
    give_up(
        &format!("{} is locked under {}", next.describe(), held.describe()),
        "docs/threads.md lists the order of locks",
    )
}

#[cfg(debug_assertions)]
fn record(kind: &'static Kind) -> usize {
    let free = TAKEN.with(|taken| {
        let free = taken.iter().position(|entry| entry.get().is_none());
        free.inspect(|&free| taken[free].set(Some(kind)))
    });
    free.unwrap_or_else(|| {
        give_up(
            &format!("more than {MOST} locks are held"),
            "the table of held locks is full",
        )
    })
}
