//! A place for each value, for its whole life: linear scan.
//!
//! Invariants:
//! - Two lives that overlap have different places.
//! - What lives across a call is in a register that calls keep, or in the frame.
//!
//! # How
//! Lives are taken by where they begin. Each gets a free register: one that a hint names, else one
//! that calls change if it crosses none, else one that is saved already. Without a free one, the
//! life of least weight for its length goes to the frame, whole. Slots of the frame are given in a
//! second walk, because who goes there is known only when the first one is over.
//!
//! Poletto and Sarkar, Linear Scan Register Allocation, 1999; weights as in LLVM's
//! `CalcSpillWeights`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::asm::{Gpr, Xmm};

/// Registers that calls keep: `rbx`, `r12` to `r15`. `rbp` is the frame's.
pub(crate) const SAVED: u32 = 1 << 3 | 0xf << 12;

/// Registers that calls change and that values get: `rsi`, `rdi`, `r8` to `r11`. The others, `rax`,
/// `rcx` and `rdx`, are for the making of single instructions.
const CHANGED: u32 = 1 << 6 | 1 << 7 | 0xf << 8;

/// Vector registers that values get; all are changed by calls. `xmm14` and `xmm15` are for single
/// instructions.
const VECTORS: u32 = 0x3fff;

/// The order in which free registers are taken: those in which arguments are passed last.
const PREFERRED: [u8; 11] = [10, 11, 9, 8, 6, 7, 3, 12, 13, 14, 15];

/// What saving and restoring a register weighs: a life of less is not worth it.
const SAVING: u32 = 2;

/// No hint.
pub(crate) const NO_HINT: u32 = u32::MAX;

/// What holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A general register, or 8 bytes.
    Int,
    /// A vector register, or 8 bytes.
    Scalar,
    /// A vector register, or 16 bytes at a multiple of 16.
    Vector,
    /// 16 bytes at a multiple of 16.
    Memory,
}

/// A life that wants a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Where it is written first.
    pub(crate) from: u32,
    /// Where it is read last, greater than `from`; something else may be written there.
    pub(crate) to: u32,
    /// How much it is used.
    pub(crate) weight: u32,
    /// What may hold it.
    pub(crate) class: Class,
    /// Whether something is called in between.
    pub(crate) crosses: bool,
    /// A request whose place is welcome, or [`NO_HINT`].
    pub(crate) hint: u32,
    /// The number of a register that is welcome, or more than 15.
    pub(crate) register: u8,
    /// Where it is in the frame before it begins, from `rbp`; 0 if it is not.
    pub(crate) home: i32,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a general register.
    Gpr(Gpr),
    /// In a vector register.
    Xmm(Xmm),
    /// So many bytes from `rbp`.
    Slot(i32),
    /// Not given yet, or none is needed.
    None,
}

/// Registers of one kind while lives are walked.
#[derive(Debug, Default)]
struct Bank {
    /// Those in use.
    busy: u32,
    /// Who is in them.
    who: [u32; 16],
    /// Until when.
    ends: [u32; 16],
    /// The least of those.
    first_end: u32,
}

/// Places by request, and what the frame needs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// In the order of the requests.
    pub(crate) places: Vec<Place>,
    /// Registers of [`SAVED`] that are used, by number.
    pub(crate) saved: u32,
    /// Bytes below `rbp` that saved registers and slots take.
    pub(crate) frame: u32,
    ints: Bank,
    vectors: Bank,
    /// Slots that were given: until when, which.
    slots: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Places {
    /// Gives places to requests, which are sorted by `from`. With `alone`, all are in the frame
    /// and share nothing.
    pub(crate) fn assign(&mut self, requests: &[Request], alone: bool) {
        self.places.clear();
        self.places.resize(requests.len(), Place::None);
        self.saved = 0;
        if !alone {
            self.ints.clear();
            self.vectors.clear();
            for at in 0..requests.len() {
                self.register(requests, at);
            }
        }
        self.frame = 8 * self.saved.count_ones();
        let small = |class| matches!(class, Class::Int | Class::Scalar);
        self.give_slots(requests, alone, 8, small);
        self.give_slots(requests, alone, 16, |class| !small(class));
    }

    /// Finds a register for a request, or leaves it without.
    fn register(&mut self, requests: &[Request], at: usize) {
        let request = &requests[at];
        let (bank, allowed) = match (request.class, request.crosses) {
            (Class::Int, false) => (&mut self.ints, SAVED | CHANGED),
            (Class::Int, true) => (&mut self.ints, SAVED),
            (Class::Scalar | Class::Vector, false) => (&mut self.vectors, VECTORS),
            _ => return,
        };
        bank.expire(request.from);
        let free = allowed & !bank.busy;
        let is_int = request.class == Class::Int;
        let hinted = match self.places.get(request.hint as usize) {
            Some(Place::Gpr(register)) if is_int => register.number(),
            Some(Place::Xmm(register)) if !is_int => register.number(),
            _ => u8::MAX,
        };
        let is_free = |register: u8| register < 16 && free >> register & 1 != 0;
        let worth = |register: u8| {
            !is_int || 1 << register & (CHANGED | self.saved) != 0 || request.weight > SAVING
        };
        let register = if is_free(hinted) && worth(hinted) {
            hinted
        } else if is_free(request.register) && worth(request.register) {
            request.register
        } else if free != 0 {
            let register = if is_int {
                preferred(free, self.saved)
            } else {
                lowest(free)
            };
            if !worth(register) {
                return;
            }
            register
        } else {
            let Some(register) = bank.lightest(requests, allowed, request) else {
                return;
            };
            self.places[bank.who[usize::from(register)] as usize] = Place::None;
            register
        };
        bank.take(register, at as u32, request.to);
        self.places[at] = if is_int {
            self.saved |= 1 << register & SAVED;
            Place::Gpr(Gpr::new(register))
        } else {
            Place::Xmm(Xmm::new(register))
        };
    }

    /// Gives slots of a size to those without a register.
    fn give_slots(
        &mut self,
        requests: &[Request],
        alone: bool,
        size: u32,
        fits: impl Fn(Class) -> bool,
    ) {
        let base = self.frame.next_multiple_of(size);
        let mut count = 0;
        self.slots.clear();
        for (request, place) in requests.iter().zip(&mut self.places) {
            if *place != Place::None || !fits(request.class) {
                continue;
            }
            if request.home != 0 {
                *place = Place::Slot(request.home);
                continue;
            }
            let old = match self.slots.peek() {
                Some(Reverse((end, slot))) if *end <= request.from && !alone => Some(*slot),
                _ => None,
            };
            let slot = match old {
                Some(slot) => {
                    self.slots.pop();
                    slot
                }
                None => {
                    count += 1;
                    count - 1
                }
            };
            self.slots.push(Reverse((request.to, slot)));
            *place = Place::Slot(-((base + size * (slot + 1)) as i32));
        }
        if count > 0 {
            self.frame = base + size * count;
        }
    }
}

impl Bank {
    fn clear(&mut self) {
        self.busy = 0;
        self.first_end = u32::MAX;
    }

    /// Frees registers of lives that are over.
    fn expire(&mut self, now: u32) {
        if now < self.first_end {
            return;
        }
        self.first_end = u32::MAX;
        let mut left = self.busy;
        while left != 0 {
            let register = left.trailing_zeros() as usize;
            left &= left - 1;
            if self.ends[register] <= now {
                self.busy &= !(1 << register);
            } else {
                self.first_end = self.first_end.min(self.ends[register]);
            }
        }
    }

    fn take(&mut self, register: u8, who: u32, end: u32) {
        self.busy |= 1 << register;
        self.who[usize::from(register)] = who;
        self.ends[usize::from(register)] = end;
        self.first_end = self.first_end.min(end);
    }

    /// The register of the lightest life in some registers, if it is lighter than the one at hand.
    fn lightest(&self, requests: &[Request], among: u32, than: &Request) -> Option<u8> {
        let mut best = None;
        let mut least = *than;
        let mut left = self.busy & among;
        while left != 0 {
            let register = left.trailing_zeros() as u8;
            left &= left - 1;
            let other = &requests[self.who[usize::from(register)] as usize];
            if is_lighter(other, &least) {
                best = Some(register);
                least = *other;
            }
        }
        best
    }
}

/// Whether a life has less weight for its length.
fn is_lighter(a: &Request, b: &Request) -> bool {
    let length = |request: &Request| u64::from(request.to - request.from);
    u64::from(a.weight) * length(b) < u64::from(b.weight) * length(a)
}

fn lowest(free: u32) -> u8 {
    free.trailing_zeros() as u8
}

/// The free register to take: one that need not be saved, if there is one.
fn preferred(free: u32, saved: u32) -> u8 {
    let cheap = free & (CHANGED | saved);
    let from = if cheap != 0 { cheap } else { free };
    let found = PREFERRED
        .iter()
        .find(|&&register| from >> register & 1 != 0);
    found.copied().unwrap_or(lowest(free))
}

#[cfg(test)]
mod tests;
