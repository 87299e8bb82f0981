//! The bounded queue between signal handlers and the thread that drains it.
//!
//! Vyukov's bounded queue of many producers: each slot has a turn number, which says
//! whether it is free for, or holds, the element of position `p` (`turn == p`: free;
//! `turn == p + 1`: filled). A producer takes a position by a compare-exchange and
//! then fills the slot. Fields are atomics, so the queue needs no unsafe code.
//!
//! # Invariants
//! - `push` takes no lock, allocates nothing, calls nothing: it is async-signal-safe.
//!   It may interrupt another `push` of its own thread.
//! - A full queue drops the new sample and counts it.
//! - One thread pops at a time (`head` is a counter of the consumer; others would only
//!   duplicate samples, not break memory).
//!
//! | field | written by | ordering | partner |
//! |---|---|---|---|
//! | tail | producers | relaxed | none: the turn carries the data |
//! | turn, filled | producer | release | acquire load in `pop_all` |
//! | turn, free | consumer | release | acquire load in `push` |
//! | head | consumer | relaxed | none |

use crate::sample::Sample;
use crate::sync::{self, AtomicU64, Ordering};

#[derive(Debug)]
struct Slot {
    turn: AtomicU64,
    pc: AtomicU64,
    tid: AtomicU64,
    time: AtomicU64,
    weight: AtomicU64,
}

/// A queue of samples.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: Box<[Slot]>,
    tail: AtomicU64,
    head: AtomicU64,
    lost: AtomicU64,
}

impl Queue {
    /// A queue of `capacity` samples, rounded up to a power of two, at least 2.
    pub(crate) fn new(capacity: usize) -> Queue {
        let capacity = capacity.max(2).next_power_of_two() as u64;
        let slot = |turn| Slot {
            turn: AtomicU64::new(turn),
            pc: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            time: AtomicU64::new(0),
            weight: AtomicU64::new(0),
        };
        Queue {
            slots: (0..capacity).map(slot).collect(),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Adds a sample; if the queue is full, counts it as lost and returns false.
    pub(crate) fn push(&self, sample: Sample) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            // Partner: the release store in `pop_all`.
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < position {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            if turn > position {
                position = self.tail.load(Ordering::Relaxed);
                continue;
            }
            let taken = self.tail.compare_exchange_weak(
                position,
                position + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Err(now) => position = now,
                Ok(_) => {
                    slot.pc.store(sample.pc, Ordering::Relaxed);
                    slot.tid.store(sample.tid as u64, Ordering::Relaxed);
                    slot.time.store(sample.time, Ordering::Relaxed);
                    slot.weight.store(sample.weight, Ordering::Relaxed);
                    sync::turn();
                    // Partner: the acquire load in `pop_all`.
                    slot.turn.store(position + 1, Ordering::Release);
                    return true;
                }
            }
        }
    }

    /// Passes all queued samples to `sink`, in order, up to the capacity; stops at a slot that is
    /// being filled.
    pub(crate) fn pop_all(&self, sink: &mut dyn FnMut(Sample)) {
        let mut position = self.head.load(Ordering::Relaxed);
        for _ in 0..self.slots.len() {
            let slot = self.slot(position);
            sync::turn();
            // Partner: the release store in `push`.
            if slot.turn.load(Ordering::Acquire) != position + 1 {
                break;
            }
            let sample = Sample {
                pc: slot.pc.load(Ordering::Relaxed),
                tid: slot.tid.load(Ordering::Relaxed) as i32,
                time: slot.time.load(Ordering::Relaxed),
                weight: slot.weight.load(Ordering::Relaxed),
            };
            // Partner: the acquire load in `push`.
            slot.turn
                .store(position + self.slots.len() as u64, Ordering::Release);
            position += 1;
            self.head.store(position, Ordering::Relaxed);
            sink(sample);
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// Samples dropped since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Empties the queue, also of slots whose producer does not exist any more. No other thread may
    /// use the queue: the child of a fork has one thread.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        for (turn, slot) in self.slots.iter().enumerate() {
            slot.turn.store(turn as u64, Ordering::Relaxed);
        }
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
    }
}
