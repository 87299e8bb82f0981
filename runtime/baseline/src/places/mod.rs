//! Assigns a place to each value, for its whole life: linear scan.
//!
//! Invariants:
//! - Two lives that overlap have different places.
//! - A value that lives across a call is in a callee-saved register, or in the frame.
//!
//! # How
//! Lives are taken in the order of their starts. Each gets a free register: the one of its hint,
//! else a caller-saved one if it crosses no call, else one that is saved already. Without a free
//! one, the life of least weight for its length is spilled whole. A second walk assigns slots of
//! the frame, because the spilled lives are known only after the first one.
//!
//! Poletto and Sarkar, Linear Scan Register Allocation, 1999; weights as in LLVM's
//! `CalcSpillWeights`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::asm::{Gpr, Xmm};

/// Callee-saved registers: `rbx`, `r12` to `r15`. `rbp` is the frame's.
pub(crate) const SAVED: u32 = 1 << 3 | 0xf << 12;

/// Caller-saved registers that values get: `rsi`, `rdi`, `r8` to `r11`. The others, `rax`, `rcx`
/// and `rdx`, are scratch registers of single instructions.
const CHANGED: u32 = 1 << 6 | 1 << 7 | 0xf << 8;

/// Vector registers that values get; all are caller-saved. `xmm14` and `xmm15` are scratch
/// registers.
const VECTORS: u32 = 0x3fff;

/// The order in which free registers are taken: argument registers come last.
const PREFERRED: [u8; 11] = [10, 11, 9, 8, 6, 7, 3, 12, 13, 14, 15];

/// The weight of saving and restoring a register: a life of less weight is spilled instead.
const SAVING: u32 = 2;

/// No hint.
pub(crate) const NO_HINT: u32 = u32::MAX;

/// The register class of a value.
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

/// A request of a life for a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The first write.
    pub(crate) from: u32,
    /// The last read, greater than `from`; another value may be written there.
    pub(crate) to: u32,
    /// The weight of its uses.
    pub(crate) weight: u32,
    /// The register class.
    pub(crate) class: Class,
    /// Whether it crosses a call.
    pub(crate) crosses: bool,
    /// A request whose place is preferred, or [`NO_HINT`].
    pub(crate) hint: u32,
    /// The number of the preferred register, or more than 15.
    pub(crate) register: u8,
    /// Its offset in the frame from `rbp` on entry; 0 if it has none.
    pub(crate) home: i32,
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a general register.
    Gpr(Gpr),
    /// In a vector register.
    Xmm(Xmm),
    /// An offset in bytes from `rbp`.
    Slot(i32),
    /// Not assigned yet, or not needed.
    None,
}

/// Registers of one kind while lives are walked.
#[derive(Debug, Default)]
struct Bank {
    /// The registers in use.
    busy: u32,
    /// The request in each register.
    who: [u32; 16],
    /// The end of the life in each register.
    ends: [u32; 16],
    /// The least of the ends.
    first_end: u32,
}

/// Places by request, and the frame's needs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// In the order of the requests.
    pub(crate) places: Vec<Place>,
    /// Registers of [`SAVED`] that are used, by number.
    pub(crate) saved: u32,
    /// Bytes below `rbp` of saved registers and slots.
    pub(crate) frame: u32,
    ints: Bank,
    vectors: Bank,
    /// Slots in use: the end of the life, and the slot.
    slots: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Places {
    /// Assigns places to requests, which are sorted by `from`. With `alone`, all are in the frame
    /// and share no slot.
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

    /// Assigns slots of a size to requests without a register.
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

    /// Frees registers of ended lives.
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

    /// The register of the lightest life among some registers, if it is lighter than the given one.
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
