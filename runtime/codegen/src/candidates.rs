//! Chooses the callees that an optimized unit copies along, so that they can be inlined and facts
//! about them can be inferred from their bodies.
//!
//! Candidates are functions that are called directly, or that a small constant lists (tables of
//! methods). Their definition must be the one calls really reach. The callers are the root,
//! `alwaysinline` functions it calls, and candidates. They are found breadth-first, nearest first,
//! until a bound is met: the estimated cost of one, instructions of all together (a multiple of the
//! root's), and depth. Tiny functions are free. Of functions that are rarely called
//! ([`Rare`](crate::Rare)) only tiny ones are taken: a call that passes the address of a local
//! should still disappear. All bodies are read before anything is copied, see
//! [`Planning::read_bodies`].
//!
//! A candidate is taken from the `library`, where it was simplified with its own candidates. A
//! candidate with a profile of its own is taken unsimplified, so that its counts are used. It is
//! defined under its link name, as `weak_odr`: it can be inlined, but passes infer nothing from it.
//! From an *exact* definition they would infer attributes and dead arguments, on the basis of a
//! simplified body. But a call that remains may reach tier 1 code, which still executes the removed
//! parts. Before code generation every candidate becomes a declaration again, so that remaining
//! calls go through their slots (see `optimize`).
//!
//! The `noinline` of functions compiled at -O0 is ignored, whether clang or the source set it. Of
//! these, functions whose results depend on being inlined are no candidates: those that ask for
//! addresses in their frame, and those that require a stack protector.
//!
//! # Why
//! Nothing is inferred from candidates' bodies. They are `weak_odr`, or taken from the library. A
//! fact that a simplified body shows need not hold for tier 1 code, which a remaining call may
//! reach.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use uruk_base::{CALLEES, Inlining, Tier};

use crate::error::CodegenError;
use crate::handles::{FunctionRef, ValueRef};
use crate::library::Entry;
use crate::planning::{Member, Planning, Profiled};
use crate::summary::SymbolId;
use crate::survey::{self, Scan, scan};

/// Limits of the search for candidates. Processor time of the program with all functions at tier 2,
/// one run each on a loaded machine (seconds; input of -O3 without passes). Steady speed differed
/// by up to a tenth either way, which is within the noise of those runs:
///
/// | | sqlite | Lua |
/// |---|---|---|
/// | every unit simplifies its candidates | 14.4 | 4.3 |
/// | the library | 11.8 | 4.0 |
///
/// A third to a half of a unit's time is code generation of inlined code. With `each` at 250 and
/// `kept` at 45 Lua's compiles take 0.85 of the time and sqlite's 0.88. But C n-body runs at 0.84
/// of its speed, most likely as `attract` is not inlined. With `least` at 1,000 the budget ended
/// half-way through Rust's layers: hash-mix took 26.6 ms an iteration at tier 2, 16.6 at 2,000,
/// 15.8 at 5,000 and 15.1 at 15,000.
struct Bounds {
    /// [`Scan::cost`] of one candidate.
    each: u32,
    /// Instructions of one candidate after simplification.
    kept: u32,
    /// Instructions of all that one unit wants simplified, in multiples of the root's.
    factor: u32,
    /// Least and most instructions of all together, for any size of the root.
    least: u32,
    most: u32,
}

impl Bounds {
    fn budget(&self, instructions: u32) -> u32 {
        instructions
            .saturating_mul(self.factor)
            .clamp(self.least, self.most)
    }
}

/// LLVM inlines a callee of cost 225, or more where arguments are constants.
const OPTIMIZED: Bounds = Bounds {
    each: 450,
    kept: 100,
    factor: 4,
    least: 5_000,
    most: 15_000,
};

/// Larger bounds, for a call that is known to be hot, and one that is inlined eagerly.
const GUIDED: Bounds = Bounds {
    each: 1_000,
    kept: 300,
    factor: 4,
    least: 5_000,
    most: 40_000,
};

/// [`Scan::cost`] of candidates that no budget counts.
const TINY: u32 = 60;

/// Instructions of bodies from other modules that no budget counts.
const TINY_KEPT: u32 = 15;

/// Calls between the root and a candidate.
const DEPTH: u32 = 24;

/// The bodies to simplify: the candidates of a function, or its own body and its candidates.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    CalleesOf(SymbolId),
    Body(SymbolId),
}

/// A callee to simplify.
pub(crate) struct FoundCandidate<'r> {
    pub(crate) callee: Profiled<'r>,
    /// The candidates it calls.
    pub(crate) callees: Vec<FunctionRef<'r>>,
}

/// The candidates that a unit needs simplified.
#[derive(Default)]
pub(crate) struct Missing<'r> {
    pub(crate) found: Vec<FoundCandidate<'r>>,
    /// Candidates that were left out because the budget was spent.
    pub(crate) left_out: FxHashSet<FunctionRef<'r>>,
    /// Candidates that were left out because they are rare.
    pub(crate) rare: FxHashSet<FunctionRef<'r>>,
}

/// Verdict on a candidate.
enum CandidateVerdict<'r> {
    Taken(Scan<'r>),
    /// It cannot be one, or is larger than any may be.
    Never,
    /// The unit has no budget for it.
    Spent,
    /// It is seldom called, and not tiny.
    Rare,
}

impl<'r> Planning<'r> {
    /// Looks at the function a unit is made for, whose body was read.
    pub(crate) fn scan_root(&mut self, root: FunctionRef<'r>) -> Scan<'r> {
        let mut scan = scan(root);
        // Before targets from a profile are prepended: their places are the same in each compile.
        self.direct = self.callees(&scan);
        self.prefer(&mut scan, root);
        scan
    }

    /// The functions defined beside the root: candidates from the library, candidates with a
    /// profile of their own unsimplified, and offered bodies, as far as the budget goes.
    pub(crate) fn members(
        &mut self,
        root: FunctionRef<'r>,
        scan: &Scan<'r>,
    ) -> Result<Vec<Member<'r>>, CodegenError> {
        let mut members = Vec::new();
        if self.how.alone || root.has(self.source.reader.kinds().presplit_coroutine) {
            return Ok(members);
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut defined = FxHashSet::default();
        let variant = self.how.variant;
        let apart = self.direct.iter().zip(0..CALLEES);
        let apart = apart.filter(|&(_, number)| variant.is_apart(number));
        let mut seen: FxHashSet<_> = apart.map(|(&callee, _)| callee).collect();
        seen.insert(root);
        let mut found: VecDeque<FunctionRef<'r>> = self.callees(scan).into();
        while let Some(old) = found.pop_front() {
            let Some(id) = self.source.id(*old).filter(|_| seen.insert(old)) else {
                continue;
            };
            if !self.has_profile(id) {
                if let Some(entry) = self.kept(id) {
                    members.push(Member::Kept(id, entry));
                    defined.insert(*old);
                    if variant.inlining == Inlining::Eager && self.read_bodies(old).is_ok() {
                        // Callees too large to be inlined into it are inlined into the root along
                        // with it.
                        found.extend(self.callees(&survey::scan(old)));
                    }
                }
                continue;
            }
            let CandidateVerdict::Taken(mut scan) = self.look_at(id, old, &bounds, &mut budget)
            else {
                continue;
            };
            self.prefer(&mut scan, old);
            found.extend(self.callees(&scan));
            defined.insert(*old);
            members.push(Member::Profiled(Profiled {
                id,
                function: old,
                wide: scan.wide,
                instructions: scan.instructions,
            }));
        }
        defined.insert(*root);
        self.add_offers(&defined, &mut budget, &mut members);
        Ok(members)
    }

    /// Wanted candidates that the library lacks, or has only in a worse form.
    pub(crate) fn missing_candidates(
        &mut self,
        wanted: Wanted,
    ) -> Result<Missing<'r>, CodegenError> {
        let mut missing = Missing::default();
        let (Wanted::CalleesOf(root) | Wanted::Body(root)) = wanted;
        let root = self.source.reader.function(root)?;
        self.read_bodies(root)?;
        let scan = self.scan_root(root);
        if root.has(self.source.reader.kinds().presplit_coroutine) {
            return Ok(missing);
        }
        let bounds = self.bounds();
        let mut budget = bounds.budget(scan.instructions);
        let mut seen = FxHashSet::default();
        let first = match wanted {
            Wanted::Body(_) => vec![root],
            Wanted::CalleesOf(_) => {
                seen.insert(root);
                self.callees(&scan)
            }
        };
        let mut open: VecDeque<(FunctionRef<'r>, u32)> =
            first.into_iter().map(|old| (old, 1)).collect();
        while let Some((old, depth)) = open.pop_front() {
            let Some(found) = self.find(old, &bounds, &mut budget, &mut seen, &mut missing) else {
                continue;
            };
            if depth < DEPTH {
                let deeper = found.callees.iter().map(|&callee| (callee, depth + 1));
                open.extend(deeper);
            }
            if !self.has_profile(found.callee.id) {
                missing.found.push(found);
            }
        }
        Ok(missing)
    }

    /// Looks at one candidate that may be missing; notes in `missing` why it is left out.
    fn find(
        &mut self,
        old: FunctionRef<'r>,
        bounds: &Bounds,
        budget: &mut u32,
        seen: &mut FxHashSet<FunctionRef<'r>>,
        missing: &mut Missing<'r>,
    ) -> Option<FoundCandidate<'r>> {
        let id = self.source.id(*old)?;
        let library = self.source.reader.library();
        if !seen.insert(old) || library.knows(id, &self.how.rare) {
            return None;
        }
        let mut scan = match self.look_at(id, old, bounds, budget) {
            CandidateVerdict::Taken(scan) => scan,
            CandidateVerdict::Never => return None,
            CandidateVerdict::Spent => {
                missing.left_out.insert(old);
                return None;
            }
            CandidateVerdict::Rare => {
                missing.rare.insert(old);
                return None;
            }
        };
        if self.has_profile(id) {
            self.prefer(&mut scan, old);
        }
        Some(FoundCandidate {
            callee: Profiled {
                id,
                function: old,
                wide: scan.wide,
                instructions: scan.instructions,
            },
            callees: self.callees(&scan),
        })
    }

    fn bounds(&self) -> Bounds {
        match self.how.tier {
            _ if self.how.variant.inlining == Inlining::Eager => GUIDED,
            Tier::Native | Tier::Baseline | Tier::Optimized => OPTIMIZED,
            Tier::Guided => GUIDED,
        }
    }

    /// Instructions of a simplified body that may be inlined.
    pub(crate) fn most_kept(&self) -> u32 {
        self.bounds().kept
    }

    /// The simplified body of a function, unless there is none or it is too large to be
    /// inlined.
    pub(crate) fn kept(&self, id: SymbolId) -> Option<&'r Entry> {
        let entry = self.source.reader.library().entry(self.source.plan, id)?;
        let count = entry.instructions;
        let is_taken = match self.how.rare.has(id) {
            true => count <= TINY_KEPT,
            false if count <= self.bounds().kept => true,
            false => count <= GUIDED.kept && self.source.is_sole(id, self.how.tier),
        };
        is_taken.then_some(entry)
    }

    fn has_profile(&self, id: SymbolId) -> bool {
        self.how.profiles.contains_key(&id)
    }

    /// Reads a candidate's body, and charges the budget for it.
    fn look_at(
        &mut self,
        id: SymbolId,
        old: FunctionRef<'r>,
        bounds: &Bounds,
        budget: &mut u32,
    ) -> CandidateVerdict<'r> {
        // A body that cannot be read is an error where it is compiled itself.
        if self.read_bodies(old).is_err() {
            return CandidateVerdict::Never;
        }
        let scan = scan(old);
        let each = match scan.cost > bounds.each && self.source.is_sole(id, self.how.tier) {
            true => GUIDED.each,
            false => bounds.each,
        };
        if scan.labels || scan.cost > each || (scan.frame && self.is_unoptimized(old)) {
            return CandidateVerdict::Never;
        }
        if scan.cost > TINY {
            if self.how.rare.has(id) {
                return CandidateVerdict::Rare;
            }
            let Some(left) = budget.checked_sub(scan.instructions) else {
                return CandidateVerdict::Spent;
            };
            *budget = left;
        }
        CandidateVerdict::Taken(scan)
    }

    /// True for functions that clang compiled at -O0, where it marks every function `noinline`: the
    /// source may have asked for it too.
    fn is_unoptimized(&self, old: FunctionRef<'r>) -> bool {
        old.has(self.source.reader.kinds().optnone)
    }

    /// The candidates a body calls, also from `alwaysinline` functions it calls, in the
    /// order of their first call.
    fn callees(&mut self, scan_of_caller: &Scan<'r>) -> Vec<FunctionRef<'r>> {
        let mut seen = FxHashSet::default();
        let mut callees = Vec::new();
        let mut left: VecDeque<ValueRef<'r>> = scan_of_caller.in_sight().collect();
        while let Some(callee) = left.pop_front() {
            if !seen.insert(callee) {
                continue;
            }
            match callee.as_function() {
                Some(inline) if self.source.is_inline_body(callee) => {
                    if self.read_bodies(inline).is_ok() {
                        left.extend(scan(inline).in_sight());
                    }
                }
                _ => callees.extend(self.source.candidate(callee)),
            }
        }
        callees
    }

    /// Puts the functions that `old` is known to call indirectly before the others.
    fn prefer(&mut self, scan: &mut Scan<'r>, old: FunctionRef<'r>) {
        let targets = self.take_profile(old);
        scan.callees.splice(0..0, targets);
    }

    /// Adds the offered bodies to `members`, except those already in `defined`.
    fn add_offers(
        &self,
        defined: &FxHashSet<ValueRef<'r>>,
        budget: &mut u32,
        members: &mut Vec<Member<'r>>,
    ) {
        let source = self.source;
        let link_name = |member: &Member<'r>| match member {
            Member::Profiled(Profiled { id, .. }) | Member::Kept(id, _) => {
                Some(&*source.plan.import(*id).name)
            }
            Member::Offered(..) => None,
        };
        let mut names: FxHashSet<&str> = members.iter().filter_map(link_name).collect();
        let mut bound = FxHashSet::default();
        for (index, offer) in self.how.offers.iter().enumerate() {
            let parcel = &offer.parcel;
            let Some(function) = source.reader.foreign().function(parcel) else {
                continue;
            };
            let taken = |&id: &SymbolId| bound.contains(&id) || defined.contains(&source.value(id));
            if parcel.instructions() > self.most_kept()
                || offer.symbols.iter().any(taken)
                || names.contains(parcel.name())
            {
                continue;
            }
            if parcel.instructions() > TINY_KEPT {
                match budget.checked_sub(parcel.instructions()) {
                    Some(left) => *budget = left,
                    None => continue,
                }
            }
            names.insert(parcel.name());
            bound.extend(offer.symbols.iter().copied());
            members.push(Member::Offered(index, function));
        }
    }
}
