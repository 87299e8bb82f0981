//! Shared native code: a local function that is compiled again with its callers only, so that it
//! belongs to several functions. Samples in it are attributed to one caller at a time: native
//! samples do not show the caller.
//!
//! # Why So callers get the samples in turns. Once a caller has code of its own it does not run
//! that native code any more; if samples still fall there, they are another caller's. The embedder
//! decides which functions are callers: of all that lead to SQLite's hot functions, at any
//! distance, 800 were compiled in 10 s and the program ran at two thirds of its speed; `uruk live`
//! names the nearest.

mod turns;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use uruk_base::{FunctionId, VersionId};

/// Functions that get samples of a piece in turns.
const MOST: usize = 8;

/// Pieces of code, by start address, and the functions that run them.
#[derive(Default)]
pub(super) struct SharedCode {
    pieces: BTreeMap<u64, SharedPiece>,
    /// Function -> starts of the pieces whose samples it gets.
    lent: HashMap<u32, Vec<u64>>,
}

struct SharedPiece {
    code: Range<u64>,
    callers: Vec<FunctionId>,
    /// Index of the function that gets its samples.
    at: usize,
    /// The function whose native code the piece is.
    whose: Option<FunctionId>,
    /// Samples that fell into it.
    samples: u32,
}

impl SharedCode {
    /// Adds a function that runs `code` of `whose`, after all that were added before; returns
    /// whether it is the first one.
    pub(super) fn add(
        &mut self,
        code: Range<u64>,
        whose: Option<FunctionId>,
        id: FunctionId,
    ) -> bool {
        let start = code.start;
        let piece = self.pieces.entry(start).or_insert_with(|| SharedPiece {
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

    /// Counts a sample in a piece.
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

    /// Whether a function gets the samples of any piece.
    fn has(&self, id: FunctionId) -> bool {
        self.lent.contains_key(&id.index())
    }

    /// Passes the samples that `id` got on to the next functions in turn that run the code; a
    /// function that `native` has a version of gets them.
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
                // All of them have code of their own.
                None => id,
            };
            self.lent.entry(next.index()).or_default().push(start);
        }
        passed
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
        let mut shared = SharedCode::default();
        let all = [FunctionId(3), FunctionId(5), FunctionId(7)];
        assert_eq!(
            all.map(|id| shared.add(CODE, None, id)),
            [true, false, false]
        );
        let native = |id: FunctionId| (id == FunctionId(7)).then_some(version(9));
        let passed = shared.pass_on(FunctionId(3), native);
        assert_eq!(passed, [(CODE, FunctionId(7), version(9))]);
        assert!(!shared.has(FunctionId(3)) && shared.has(FunctionId(7)));
        // None is native any more: the samples stay with the same function.
        assert_eq!(shared.pass_on(FunctionId(7), |_| None), []);
        assert!(shared.has(FunctionId(7)));
        // One is native again, under another number.
        let again = |id: FunctionId| (id == FunctionId(7)).then_some(version(12));
        let passed = shared.pass_on(FunctionId(7), again);
        assert_eq!(passed, [(CODE, FunctionId(7), version(12))]);
    }

    #[test]
    fn who_is_told_twice_is_one() {
        let mut shared = SharedCode::default();
        assert!(shared.add(CODE, None, FunctionId(3)) && shared.add(CODE, None, FunctionId(3)));
        assert_eq!(shared.pieces[&64].callers.len(), 1);
        assert_eq!(shared.lent[&3].len(), 1);
    }

    #[test]
    fn samples_are_known_by_whose_code_it_is() {
        let mut shared = SharedCode::default();
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
