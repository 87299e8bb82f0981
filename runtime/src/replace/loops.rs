//! On-stack replacement of loops in replaced functions: threads continue in the new body.
//!
//! The old frame stays: code of tier 1 calls, at the head of a loop, the continuation that is
//! offered there (`crate::loops`). After a replacement that is a continuation of the *new* body, at
//! a head where all values that it needs live across the old one (`uruk_leaving::matching` decides
//! that). The old frame stays below and returns the continuation's result, so its code stays. Its
//! thread is listed by [`Replaced::activations`](super::Replaced::activations) until then.
//!
//! ```text
//! before: which versions of members, and of their continuations, passed heads of loops
//! commit: their loops are closed, so nothing of the old body is offered
//! after:  of the versions on a stack: heads of both bodies -- matching -- compile -- offer
//! ```
//!
//! Continuations are made at tier 1, with OSR exits at their own loops. The policy promotes them
//! like other code, and the next replacement, or a rollback, finds them looping.
//!
//! A frame that left a loop stays on the stack, and cannot be told from one that is in the loop:
//! its loop is offered the new body too, and listed as running.
//!
//! Nothing here is part of the commit. A loop that does not match or cannot be compiled continues
//! in the old body, as without OSR, and is listed with the reason ([`OldLoop`]).
//!
//! # Why
//! - Only versions on a stack get continuations: a function that ended has no frame to continue,
//!   and each continuation costs a compile.
//! - Not a part of [`Level::Quiescent`](super::Level::Quiescent): it promises that no thread
//!   returns into old code, which the frame below does.

use std::fmt;
use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Described, Mismatch, Start, matching};

use super::Replacement;
use super::old::{OldCode, ReplacedCode};
use super::quiet::{OnStacks, SCAN};
use crate::code::body::Body;
use crate::code::body::ModuleFunction;
use crate::code::loops::Loops;
use crate::code::module::Module;
use crate::error::Error;
use crate::fork::gate;
use crate::replace::state::Replacing;
use crate::version::{calls, exits};

/// Largest number of scans until all threads have answered one.
const SCANS: u32 = 5;

/// A loop of a function that was replaced with [`Replacement::osr`] while a thread may have been in
/// it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OldLoop {
    /// The function.
    pub function: String,
    /// The name of the loop's first block, or its number; none if that is not known.
    pub head: Option<String>,
    /// Why threads in it continue in the old body; `None`: they continue in the new one from the
    /// next pass of the head.
    pub stays: Option<LoopStays>,
}

/// Why a loop continues in its old body.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LoopStays {
    /// The code has no OSR exit at loops: it is optimized, or the session counts nothing, or the
    /// loop is one that cannot be left ([`ContinuationStats::refused`](crate::ContinuationStats)).
    NoWayOut,
    /// No loop of the new body can continue with the values that live across it; the reason as
    /// text.
    Mismatch(String),
    /// OSR is forbidden ([`Dylib::forbid_osr`](crate::Dylib::forbid_osr)).
    Forbidden,
    /// The new code is not compiled from a body: it is an object's, or a unit's.
    NoBody,
    /// The continuation could not be compiled.
    Failed(Error),
}

impl fmt::Display for OldLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OldLoop {
            function,
            head,
            stays,
        } = self;
        match head {
            Some(head) => write!(f, "{function}, loop {head}: ")?,
            None => write!(f, "{function}: ")?,
        }
        match stays {
            None => write!(f, "goes on in the new body"),
            Some(why) => write!(f, "goes on in the old body: {why}"),
        }
    }
}

impl fmt::Display for LoopStays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopStays::NoWayOut => write!(f, "its code has no way out of a loop"),
            LoopStays::Mismatch(why) => write!(f, "{why}"),
            LoopStays::Forbidden => write!(f, "it is forbidden"),
            LoopStays::NoBody => write!(f, "the new code is not compiled here"),
            LoopStays::Failed(cause) => write!(f, "{cause}"),
        }
    }
}

impl Replacement {
    /// Moves running loops of replaced functions to the new body (OSR). A thread continues there at
    /// the next head of a loop that is in both bodies, if all values that the new body needs there
    /// live in the old one, by the same names and types. Names are those of the IR, or, where
    /// compilers left them out, those of the debug information; unnamed values match in bodies of
    /// the same operations. Other threads continue in the old body; [`Replaced::loops`] lists them
    /// with the reason.
    ///
    /// The caller guarantees that equal names mean the same in both bodies: a variable that got
    /// another meaning keeps its old value. A rollback moves loops back in the same way.
    ///
    /// Takes effect where code counts at its loops ([`Tiers::Auto`](crate::Tiers::Auto)), for code
    /// of tier 1, and at [`Level::Immediate`](super::Level::Immediate). Off by default. Native code
    /// has no OSR exit at its loops; over it, code replaced in this way starts at tier 1, so that
    /// the next replacement finds one.
    ///
    /// [`Replaced::loops`]: super::Replaced::loops
    #[must_use]
    pub fn osr(mut self, change: bool) -> Replacement {
        self.osr = change;
        self
    }
}

/// Loops of a body that is about to be replaced, and that threads may be in.
pub(super) struct Looping {
    loops: Arc<Loops>,
    /// The module it was compiled from: the replacement may drop the last other reference.
    _module: Option<Arc<Module>>,
}

/// A loop head that continues in the new body.
struct Led {
    at: usize,
    place: usize,
    /// Index in the list of outcomes.
    told: usize,
    start: Start,
    /// The function with the new body.
    function: ModuleFunction,
}

impl Replacing {
    /// The loops of `members` with OSR exits, before they are replaced; none unless `wanted`.
    pub(super) fn looping(&self, wanted: bool, members: &[FunctionId]) -> Vec<Looping> {
        if !wanted {
            return Vec::new();
        }
        let _pass = gate::enter();
        let all = members.iter().flat_map(|&id| self.continuations.of(id));
        let held = all.map(|loops| {
            if loops.passes() != 0 {
                // Before the commit: frames in them are listed as those of old code.
                if let Err(cause) = exits::make(self, &loops) {
                    tracing::info!(%cause, "no exits");
                }
            }
            Looping {
                _module: loops.of.upgrade().map(|function| function.module),
                loops,
            }
        });
        held.collect()
    }

    /// Moves threads in the replaced loops `looping` to the new bodies, if `wanted`. `old` is the
    /// code of `members` before. Returns the outcome for each loop.
    pub(super) fn lead(
        self: &Arc<Self>,
        wanted: bool,
        members: Vec<FunctionId>,
        looping: Vec<Looping>,
        old: &ReplacedCode,
    ) -> Vec<OldLoop> {
        if !wanted {
            return Vec::new();
        }
        let looping = Arc::new(looping);
        let what = String::from("who loops in what was replaced");
        let matched = {
            let (looping, old) = (Arc::clone(&looping), old.clone());
            self.on_compile_thread(what, move |replacing| {
                let runs = replacing.running(&members, &old.code(replacing));
                Ok(replacing.matched(&members, &looping, &runs))
            })
        };
        let (mut told, led) = match matched {
            Ok(matched) => matched,
            Err(cause) => {
                tracing::info!(%cause, "loops go on in the old body");
                return Vec::new();
            }
        };
        for led in led {
            let told = &mut told[led.told].stays;
            if let Err(cause) = self.lead_one(&looping[led.at].loops, led) {
                *told = Some(LoopStays::Failed(cause));
            }
        }
        self.pay_for_reclaim();
        told
    }

    /// Compiles a continuation of the new body, and offers it.
    fn lead_one(self: &Arc<Self>, loops: &Arc<Loops>, led: Led) -> Result<(), Error> {
        let id = {
            let _pass = gate::enter();
            self.new_continuation(loops, led.place, led.function, Some(led.start))?
        };
        let made = calls::compile_now(self, id, Some(self.tier_to_leave()));
        let _pass = gate::enter();
        let stub = self.stubs.stub_address(id);
        if made.is_err() || !loops.lead(led.place, id, stub) {
            self.drop_continuation(id);
        }
        made
    }

    /// The tier of first code whose loops may be left.
    pub(super) fn tier_to_leave(&self) -> Tier {
        match self.choices.is_over_native() {
            true => Tier::Baseline,
            false => self.choices.first(),
        }
    }

    /// Finds the functions whose code is `old`, and continuations of `members`, that may be on a
    /// stack. On a busy machine a thread may not answer within the time of one scan: the scan is
    /// repeated.
    fn running(&self, members: &[FunctionId], old: &OldCode) -> OnStacks {
        let whose = |id| self.origin_of(id).map(|origin| origin.whose);
        let beyond = self.code_of_functions(|id| whose(id).is_some_and(|it| members.contains(&it)));
        let code = old.with(beyond);
        let mut seen = OnStacks::default();
        for _ in 0..SCANS {
            let Ok(again) = self.functions_on_stacks(&code, SCAN.1) else {
                break;
            };
            seen = again;
            if seen.whole {
                break;
            }
        }
        seen
    }

    /// The outcome for each loop, and the loops that continue in the new body. Uses LLVM, on its
    /// thread.
    fn matched(
        &self,
        members: &[FunctionId],
        looping: &[Looping],
        running: &OnStacks,
    ) -> (Vec<OldLoop>, Vec<Led>) {
        let (mut told, mut led) = (Vec::new(), Vec::new());
        let runs = |id: &FunctionId| !running.whole || running.found.contains(id);
        for (at, it) in looping.iter().enumerate() {
            if it.loops.passes() != 0 && runs(&it.loops.function) {
                self.match_heads(at, &it.loops, &mut told, &mut led);
            }
        }
        // Functions that run and have no heads. A function with heads that passed none is not in a
        // loop: a stack may hold stale addresses, that of the caller above all.
        let known = |id: &FunctionId| looping.iter().any(|it| it.loops.function == *id);
        let mut others: Vec<FunctionId> = running.found.iter().copied().collect();
        others.retain(|id| {
            let origin = self.origin_of(*id);
            members.contains(&origin.map_or(*id, |it| it.whose)) && !known(id)
        });
        others.sort_unstable_by_key(|id| id.index());
        told.extend(others.into_iter().map(|id| OldLoop {
            function: self.name_of(id).to_owned(),
            head: None,
            stays: Some(LoopStays::NoWayOut),
        }));
        (told, led)
    }

    /// Matches the loops of one version, as `matched` does.
    fn match_heads(&self, at: usize, loops: &Loops, told: &mut Vec<OldLoop>, led: &mut Vec<Led>) {
        let name = self.name_of(loops.whose).to_owned();
        let stays = |head: Option<String>, why: LoopStays| OldLoop {
            function: name.clone(),
            head,
            stays: Some(why),
        };
        if self.is_forbidden(loops.whose) {
            note(told, stays(None, LoopStays::Forbidden));
            return;
        }
        let Some(Body::Module(new)) = self.body(loops.whose) else {
            note(told, stays(None, LoopStays::NoBody));
            return;
        };
        let heads = loops.described(heads_of);
        let heads = heads.and_then(|old| Ok((old, heads_of(&new)?)));
        let (old_heads, new_heads) = match heads {
            Ok(heads) => heads,
            Err(cause) => {
                note(told, stays(None, LoopStays::Failed(cause)));
                return;
            }
        };
        for (place, head) in loops.heads.iter().enumerate() {
            if loops.count(place) == 0 {
                continue;
            }
            let start = loops.exits().start(place);
            let same = |it: &&Described| it.block == head.block && Some(it.fingerprint) == start;
            let Some(old) = old_heads.iter().find(same) else {
                note(told, stays(None, LoopStays::NoWayOut));
                continue;
            };
            let called = match &old.name {
                Some(name) => name.to_string(),
                None => old.block.to_string(),
            };
            match matching(old, &new_heads) {
                Ok((found, passed)) => {
                    let goes_on = OldLoop {
                        function: name.clone(),
                        head: Some(called),
                        stays: None,
                    };
                    led.push(Led {
                        at,
                        place,
                        told: note(told, goes_on),
                        start: Start {
                            block: new_heads[found].block,
                            fingerprint: new_heads[found].fingerprint,
                            passed: Some(passed.into()),
                        },
                        function: new.clone(),
                    });
                }
                Err(why) => {
                    note(told, stays(Some(called), LoopStays::of(&why)));
                }
            }
        }
    }

    fn is_forbidden(&self, id: FunctionId) -> bool {
        let _pass = gate::enter();
        self.continuations.forbidden().contains(&id.index())
    }
}

impl LoopStays {
    fn of(why: &Mismatch) -> LoopStays {
        LoopStays::Mismatch(why.to_string())
    }
}

/// Notes the outcome for a loop, once: a function has several versions, and a frame that left a
/// loop is on the stack below those that went on.
fn note(told: &mut Vec<OldLoop>, it: OldLoop) -> usize {
    let text = it.to_string();
    let known = told.iter().position(|known| known.to_string() == text);
    known.unwrap_or_else(|| {
        told.push(it);
        told.len() - 1
    })
}

fn heads_of(function: &ModuleFunction) -> Result<Vec<Described>, Error> {
    let module = &function.module;
    let mut reader = module.readers.reader()?;
    let heads = reader.heads_of(&module.plan(), function.symbol);
    heads.map_err(|cause| {
        reader.discard();
        cause.into()
    })
}
