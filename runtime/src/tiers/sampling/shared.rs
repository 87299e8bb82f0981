//! Native code that belongs to none of the functions that run it alone: a local function, which is
//! compiled again with its callers only. Samples in it are one caller's at a time, and nobody knows
//! whose they are natively.
//!
//! # Why
//! So callers are asked in turns. Once a caller has code of its own it does not
//! run that native code any more; if samples go on to fall there, they are another one's. Who is a
//! caller at all is the embedder's affair: of all that lead to SQLite's hot functions, at any
//! distance, 800 were compiled in 10 s and the program ran at two thirds of its speed; `uruk live`
//! names the nearest.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use uruk_base::{FunctionId, Tier, VersionId};

use super::{Choice, Sampling, State};
use crate::core::Core;

/// Functions that are asked.
const MOST: usize = 8;

/// Pieces of code, by where they begin, and who runs them.
#[derive(Default)]
pub(super) struct Shared {
    pieces: BTreeMap<u64, Piece>,
    /// Function -> where the pieces begin whose samples are its.
    lent: HashMap<u32, Vec<u64>>,
}

struct Piece {
    code: Range<u64>,
    callers: Vec<FunctionId>,
    /// Whose its samples are.
    at: usize,
    /// The function whose native code it is.
    whose: Option<FunctionId>,
    /// Samples that fell into it.
    samples: u32,
}

impl Shared {
    /// A function that runs `code` of `whose`, after all that were told before; whether it is the
    /// first one.
    pub(super) fn add(
        &mut self,
        code: Range<u64>,
        whose: Option<FunctionId>,
        id: FunctionId,
    ) -> bool {
        let start = code.start;
        let piece = self.pieces.entry(start).or_insert_with(|| Piece {
            code,
            callers: Vec::new(),
            at: 0,
            whose,
            samples: 0,
        });
        if piece.callers.len() < MOST && !piece.callers.contains(&id) {
            piece.callers.push(id);
        }
        let first = piece.callers.len() == 1;
        if first {
            let lent = self.lent.entry(id.index()).or_default();
            if !lent.contains(&start) {
                lent.push(start);
            }
        }
        first
    }

    /// A sample fell there.
    pub(super) fn count(&mut self, pc: u64) {
        let before = self.pieces.range_mut(..=pc).next_back();
        if let Some((_, piece)) = before.filter(|(_, piece)| piece.code.contains(&pc)) {
            piece.samples = piece.samples.saturating_add(1);
        }
    }

    /// Samples in the native code of a function that is compiled with its callers only; none if it
    /// has no such code.
    fn samples_of(&self, id: FunctionId) -> Option<u32> {
        let mut pieces = self.pieces.values().filter(|it| it.whose == Some(id));
        let first = pieces.next()?.samples;
        Some(pieces.fold(first, |sum, it| sum.saturating_add(it.samples)))
    }

    /// Whether any samples are a function's of such code.
    fn has(&self, id: FunctionId) -> bool {
        self.lent.contains_key(&id.index())
    }

    /// Who runs the code whose samples were `id`'s, after that one and in turns; a function that
    /// `native` has a version of gets them.
    fn pass_on(
        &mut self,
        id: FunctionId,
        native: impl Fn(FunctionId) -> Option<VersionId>,
    ) -> Vec<(Range<u64>, FunctionId, VersionId)> {
        let mut passed = Vec::new();
        for start in self.lent.remove(&id.index()).unwrap_or_default() {
            let Some(piece) = self.pieces.get_mut(&start) else {
                continue;
            };
            let count = piece.callers.len();
            let mut turns = (1..=count).map(|turn| (piece.at + turn) % count);
            let found = turns.find_map(|at| Some((at, native(piece.callers[at])?)));
            let next = match found {
                Some((at, version)) => {
                    piece.at = at;
                    passed.push((piece.code.clone(), piece.callers[at], version));
                    piece.callers[at]
                }
                // All have code of their own.
                None => id,
            };
            self.lent.entry(next.index()).or_default().push(start);
        }
        passed
    }
}

impl Sampling {
    /// Says that a version runs native code at `range` that others run, too: at first, samples are
    /// those of who was told first.
    pub(crate) fn add_shared(
        &self,
        range: Range<u64>,
        whose: Option<FunctionId>,
        id: FunctionId,
        version: VersionId,
    ) {
        let first = self.choice != Choice::Off && self.lock().shared.add(range.clone(), whose, id);
        if first {
            self.maps.insert(range, id, version);
        }
    }
}

impl Sampling {
    /// Samples in the native code of a function that is compiled with its callers only; none if it
    /// has no such code, as it was inlined.
    pub(crate) fn native_samples(&self, id: FunctionId) -> Option<u32> {
        self.lock().shared.samples_of(id)
    }
}

impl Core {
    /// Samples fell into the native code of `id`, of that version: if it runs other code now, they
    /// are another one's in what it shares.
    pub(super) fn pass_samples_on(&self, state: &mut State, id: FunctionId, version: VersionId) {
        if !state.shared.has(id) {
            return;
        }
        let published = |id| self.tiers.versions.seen(id).published();
        if published(id).is_none_or(|view| view.id == version) {
            return;
        }
        let native = |id| {
            let view = published(id).filter(|view| view.tier == Tier::Native)?;
            Some(view.id)
        };
        for (code, id, version) in state.shared.pass_on(id, native) {
            self.tiers.sampling.maps.insert(code, id, version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: Range<u64> = 64..128;

    fn version(number: u64) -> VersionId {
        VersionId(number)
    }

    #[test]
    fn samples_go_from_caller_to_caller_that_is_native() {
        let mut shared = Shared::default();
        let all = [FunctionId(3), FunctionId(5), FunctionId(7)];
        assert_eq!(
            all.map(|id| shared.add(CODE, None, id)),
            [true, false, false]
        );
        let native = |id: FunctionId| (id == FunctionId(7)).then_some(version(9));
        let passed = shared.pass_on(FunctionId(3), native);
        assert_eq!(passed, [(CODE, FunctionId(7), version(9))]);
        assert!(!shared.has(FunctionId(3)) && shared.has(FunctionId(7)));
        // None is native any more: they stay where they are.
        assert_eq!(shared.pass_on(FunctionId(7), |_| None), []);
        assert!(shared.has(FunctionId(7)));
        // One is native again, under another number.
        let again = |id: FunctionId| (id == FunctionId(7)).then_some(version(12));
        let passed = shared.pass_on(FunctionId(7), again);
        assert_eq!(passed, [(CODE, FunctionId(7), version(12))]);
    }

    #[test]
    fn who_is_told_twice_is_one() {
        let mut shared = Shared::default();
        assert!(shared.add(CODE, None, FunctionId(3)) && shared.add(CODE, None, FunctionId(3)));
        assert_eq!(shared.pieces[&64].callers.len(), 1);
        assert_eq!(shared.lent[&3].len(), 1);
    }

    #[test]
    fn samples_are_known_by_whose_code_it_is() {
        let mut shared = Shared::default();
        let (inner, other) = (FunctionId(1), FunctionId(2));
        shared.add(CODE, Some(inner), FunctionId(3));
        shared.add(CODE.end..256, Some(other), FunctionId(3));
        for pc in [63, 64, 127, 128, 256] {
            shared.count(pc);
        }
        assert_eq!(shared.samples_of(inner), Some(2));
        assert_eq!(shared.samples_of(other), Some(1));
        assert_eq!(shared.samples_of(FunctionId(3)), None);
    }
}
