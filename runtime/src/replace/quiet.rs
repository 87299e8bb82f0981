//! Finds threads that still run replaced code, and waits until none does.
//!
//! The gate before the set is closed, so no call of a member begins. The remaining activations are
//! threads whose stack or registers hold an address in *old code*: that is every version of a
//! member and every version that depends on one. Rounds of:
//!
//! | a thread | is |
//! |---|---|
//! | at the gate, holds old code | let through: it must go on to leave |
//! | at the gate, holds none | left there |
//! | elsewhere, holds old code | waited for |
//! | not answering | waited for: nothing is known of it |
//! | that cannot answer (`/proc` hides it) | a reason to give up at once |
//!
//! Between two rounds, threads that arrive at the gate are checked at once ([`Replacing::attend`]). Old
//! code on its way out passes the gate each time it calls a member, and a signal handler that calls
//! members comes on top. If each call waited for the next round, a timer's signals would come
//! faster than their handlers end, and the code below would never go on.
//!
//! When a complete scan finds no old code, no thread can enter any: the gate is closed, and no slot
//! or table leads there. The return addresses of a thread that sleeps on its own stack are found by
//! unwind tables (`uruk_roots`, `Wanted::by_frames`). Every other scan is conservative: a number on
//! a stack that looks like old code delays the commit, which then fails at its deadline.
//!
//! The caller waits meanwhile, and a thread of the session replaces and scans. So the code
//! addresses that it computes lie on a stack that does not count. (New code may begin where old
//! code ends, and a return address may be the end of its code.) An immediate replacement or
//! rollback computes them on the stack of its caller. That thread may soon wait for its next turn,
//! above the remains: these are overwritten at the end ([`scrub_stack`]). And frames have holes,
//! which show the earlier contents: a thread that waits for a quiescent set clears its stack first,
//! and blocks signals from there until its frames are made.
//!
//! Threads of the session never run code of the program and are left out.

use std::arch::asm;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_base::FunctionId;
use uruk_roots::{How, Report, Wanted};
use uruk_stubs::Gate;
use uruk_stubs::StubError;

use crate::error::Error;
use crate::fork::gate;
use crate::fork::panics::caught;
use crate::fork::threads;
use crate::replace::state::Replacing;

use super::old::OldCode;
use super::withdrawal::Withdrawal;
use crate::error::replace::{Activation, ReplaceError, merged};

/// Time for one scan, at least and at most: a running thread answers when it gets a
/// processor.
pub(super) const SCAN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Time between two scans: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));
/// Time that a set waits longer for threads of the runtime that start.
const STARTS: Duration = Duration::from_secs(1);
/// Time between two looks at the gate meanwhile.
const LOOK: Duration = Duration::from_micros(100);

/// Functions whose code was seen on stacks.
#[derive(Debug, Default)]
pub(super) struct OnStacks {
    pub(super) found: HashSet<FunctionId>,
    /// All threads were seen: functions that are not in `found` are on no stack.
    pub(super) whole: bool,
}

/// The frame description entry of JIT'd code.
fn entry_of(pc: u64) -> Option<u64> {
    let found = uruk_unwind::find(pc)?;
    (found.fde != 0).then_some(found.fde)
}

/// Overwrites the remains of this thread's calls on its stack, below the caller, and in vector
/// registers, by which memory is copied. Else addresses of code would lie in the frames of the next
/// call, or of a handler that is held up at the gate, for as long as it waits.
#[inline(never)]
pub(super) fn scrub_stack() {
    std::hint::black_box(&mut [0_u64; 4096]);
    // SAFETY: no call keeps a vector register for its caller, and each instruction is one the
    // processor has. Those of AVX-512 that are not named by the ABI are unknown to code that
    // was not compiled for it.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            asm!(
                "vpxord zmm16, zmm16, zmm16",
                "vpxord zmm17, zmm17, zmm17",
                "vpxord zmm18, zmm18, zmm18",
                "vpxord zmm19, zmm19, zmm19",
                "vpxord zmm20, zmm20, zmm20",
                "vpxord zmm21, zmm21, zmm21",
                "vpxord zmm22, zmm22, zmm22",
                "vpxord zmm23, zmm23, zmm23",
                "vpxord zmm24, zmm24, zmm24",
                "vpxord zmm25, zmm25, zmm25",
                "vpxord zmm26, zmm26, zmm26",
                "vpxord zmm27, zmm27, zmm27",
                "vpxord zmm28, zmm28, zmm28",
                "vpxord zmm29, zmm29, zmm29",
                "vpxord zmm30, zmm30, zmm30",
                "vpxord zmm31, zmm31, zmm31",
                options(nomem, nostack, preserves_flags),
            );
        }
        if is_x86_feature_detected!("avx") {
            asm!("vzeroall", clobber_abi("C"), options(nomem, nostack));
        } else {
            asm!(
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15",
                clobber_abi("C"),
                options(nomem, nostack),
            );
        }
    }
}

/// Runs `work`, and clears the addresses that it leaves on the stack: they would keep the code.
pub(crate) fn scrubbed<R>(work: impl FnOnce() -> R) -> R {
    let result = work();
    scrub_stack();
    result
}

impl Replacing {
    /// The part of `code` that was not freed.
    fn still_there(&self, code: &OldCode) -> OldCode {
        let _pass = gate::enter();
        let there = self.blocks();
        let mut left = code.clone();
        left.ranges
            .retain(|(_, _, block)| block.is_none_or(|block| there.contains(&block)));
        left
    }

    /// Functions of `code` that may be on a stack, as far as threads answer within that time.
    pub(super) fn functions_on_stacks(
        &self,
        code: &OldCode,
        within: Duration,
    ) -> Result<OnStacks, Error> {
        let code = &self.still_there(code);
        let mut seen = OnStacks::default();
        if code.ranges.is_empty() {
            seen.whole = true;
            return Ok(seen);
        }
        let Some(report) = self.scan_for(code, within)? else {
            return Ok(seen);
        };
        let ours = threads::idle();
        let mut threads = report.threads.iter();
        let silent = threads.any(|it| !it.how.answered() && !ours.contains(&it.tid));
        seen.whole = !silent && report.trouble.is_none();
        let threads = report.threads.iter().filter(|it| !ours.contains(&it.tid));
        let keeps = threads.flat_map(|it| &it.keeps);
        let keeps = keeps.chain(report.stacks.iter().flat_map(|it| &it.keeps));
        let keeps = keeps.chain(report.memory.iter().flat_map(|it| &it.keeps));
        seen.found.extend(keeps.map(|&at| code.ranges[at].1));
        Ok(seen)
    }

    /// Asks for activations: of sleeping threads only return addresses count, unless the program switches
    /// stacks by itself.
    fn called(&self, code: &OldCode) -> Result<Wanted, Error> {
        let wanted = code.wanted()?;
        let roots = self.roots().map_err(Arc::new)?;
        // A library may have come that switches them.
        self.look_for_switches();
        let switches = self.searches_stacks() || roots.has_stacks();
        Ok(match switches {
            true => wanted,
            false => wanted.by_frames(entry_of),
        })
    }

    fn scan_for(&self, code: &OldCode, within: Duration) -> Result<Option<Report>, Error> {
        let roots = self.roots().map_err(Arc::new)?;
        Ok(self.scan_stacks(roots, &self.called(code)?, within))
    }

    /// Threads that may run `code`; threads that do not answer are listed without functions.
    pub(super) fn activations(
        &self,
        code: &OldCode,
        within: Duration,
    ) -> Result<Vec<Activation>, Error> {
        // Code that was freed meanwhile is nowhere, and other code may be in its place.
        let code = &self.still_there(code);
        if code.ranges.is_empty() {
            return Ok(Vec::new());
        }
        let (native, compiled) = code.apart();
        let mut found = self.native_activations(native, within)?;
        let code = &compiled;
        if code.ranges.is_empty() {
            return Ok(found);
        }
        let wanted = self.called(code)?;
        let roots = self.roots().map_err(Arc::new)?;
        match self.scan_stacks(roots, &wanted, within) {
            Some(report) => found.extend(self.activations_in(&report, code)),
            None => found.push(Activation::unknown("stacks that were never registered")),
        }
        Ok(merged(found))
    }

    /// Like the search above, for native code.
    fn native_activations(
        &self,
        code: OldCode,
        within: Duration,
    ) -> Result<Vec<Activation>, Error> {
        let Some(hull) = code.hull() else {
            return Ok(Vec::new());
        };
        let roots = self.roots_of(hull).map_err(Arc::new)?;
        let wanted = self.called(&code)?;
        let before = self.searches_stacks();
        let report = self.scan_searching(&roots, &wanted, within);
        let mut found = self.activations_in(&report, &code);
        if self.searches_stacks() != before {
            found.push(Activation::unknown("stacks that were never registered"));
        }
        Ok(found)
    }

    /// The parts of `code` that these threads hold; nothing is learnt of others.
    fn activations_of(&self, code: &OldCode, tids: &[i32]) -> Result<Vec<Activation>, Error> {
        let (native, compiled) = self.still_there(code).apart();
        let mut found = Vec::new();
        if let Some(hull) = native.hull() {
            let roots = self.roots_of(hull).map_err(Arc::new)?;
            let report = roots.scan_threads(tids, &self.called(&native)?, SCAN.0);
            found = self.activations_in(&report, &native);
        }
        if compiled.hull().is_some() {
            let roots = self.roots().map_err(Arc::new)?;
            let report = roots.scan_threads(tids, &self.called(&compiled)?, SCAN.0);
            found.extend(self.activations_in(&report, &compiled));
        }
        Ok(merged(found))
    }

    /// Until the deadline, lets threads through that arrive at the gate and hold old code.
    fn attend(&self, gate: &Gate, code: &OldCode, until: Instant) -> Result<(), Error> {
        let mut known = Vec::new();
        loop {
            let parked = gate.parked();
            let new = parked.iter().filter(|it| !known.contains(*it));
            let new: Vec<i32> = new.map(|it| it.tid()).collect();
            known = parked;
            if !new.is_empty() {
                let scan = || self.activations_of(code, &new);
                gate.round(scan, |held, tid| is_held(held, tid))?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(left));
        }
    }

    fn activations_in(&self, report: &Report, code: &OldCode) -> Vec<Activation> {
        let names = |keeps: &[usize]| {
            let mut names: Vec<String> = Vec::new();
            for &index in keeps {
                let name = self.name_of(code.ranges[index].1).to_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let ours = threads::idle();
        let mut found: Vec<Activation> = report
            .threads
            .iter()
            .filter(|thread| !ours.contains(&thread.tid))
            .filter(|thread| !thread.keeps.is_empty() || !thread.how.answered())
            .map(|thread| Activation {
                tid: thread.tid,
                thread: thread.name.clone(),
                functions: names(&thread.keeps),
                why: match thread.how {
                    How::Unanswered { why } => Some(why.to_string()),
                    _ => None,
                },
                lasting: matches!(thread.how, How::Unanswered { why } if why.is_lasting()),
            })
            .collect();
        found.extend(report.stacks.iter().map(|stack| Activation {
            tid: 0,
            thread: format!("stack at {:#x}", stack.range.start),
            functions: names(&stack.keeps),
            why: None,
            lasting: false,
        }));
        if let Some(memory) = report.memory.as_ref().filter(|m| !m.keeps.is_empty()) {
            found.push(Activation {
                tid: 0,
                thread: String::from("memory that may be a stack"),
                functions: names(&memory.keeps),
                why: None,
                lasting: false,
            });
        }
        if let Some(trouble) = &report.trouble {
            found.push(Activation::unknown(&format!("{trouble:?}")));
        }
        found
    }

    /// Waits until no thread runs old code of `members`. False, at once, if a first body waits for
    /// the turn (its thread may be one that runs old code), if a fork waits, or if the set behind
    /// the gate `is_short` of a function.
    pub(super) fn wait_until_quiet(
        &self,
        gate: &Gate,
        members: &HashSet<FunctionId>,
        deadline: Instant,
        withdrawal: Option<&Withdrawal>,
        is_short: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut pause = PAUSE.0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let within = left.clamp(SCAN.0, SCAN.1);
            let code = OldCode::of_members(self, members);
            let held = gate.round(
                || self.activations(&code, within),
                |held, tid| is_held(held, tid),
            )?;
            if held.is_empty() {
                return Ok(true);
            }
            if caught(|| Ok(withdrawal.is_some_and(Withdrawal::is_given)))? {
                return Err(ReplaceError::Withdrawn.into());
            }
            let now = Instant::now();
            // A thread of the runtime that starts runs no code of the program. On a busy machine it may
            // take long until it is known as one.
            let is_known = !threads::is_any_starting() || held.iter().any(|it| !it.is_silent());
            let deadline = if is_known {
                deadline
            } else {
                deadline + STARTS
            };
            if now >= deadline || held.iter().any(|it| it.lasting) {
                return Err(Error::from(ReplaceError::StillRunning {
                    activations: held,
                }));
            }
            // The set cannot be committed any more.
            if let Some(gone) = members.iter().find(|id| self.body(**id).is_none()) {
                return Err(StubError::Released(*gone).into());
            }
            // A fork would wait as long as this does: its child has no thread that opens the gate again.
            let is_in_the_way = self.is_turn_wanted() || gate::is_fork_awaited();
            if is_in_the_way || is_short() {
                return Ok(false);
            }
            self.attend(gate, &code, now + pause.min(deadline - now))?;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Whether a thread was seen to hold old code.
fn is_held(held: &[Activation], tid: i32) -> bool {
    let mut held = held.iter().filter(|held| !held.functions.is_empty());
    held.any(|held| held.tid == tid)
}
