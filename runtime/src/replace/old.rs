//! The code that a set replaces: every version of a member, and every version that depends on one.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use uruk_base::{FunctionId, VersionId};
use uruk_reclaim::BlockId;
use uruk_roots::Wanted;

use crate::error::Error;
use crate::replace::state::Replacing;

/// Code that is, or was, replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct OldCode {
    /// Sorted, apart from each other.
    pub(super) ranges: Vec<OldRange>,
}

/// Code, and its function. Native code is in no block, and stays.
pub(super) type OldRange = (Range<u64>, FunctionId, Option<BlockId>);

/// The code that a set replaced, and code that depended on it: its versions are looked up when
/// they are asked for. To look them up in each replacement took 75 of 265 us of a line in a
/// read-eval-print loop, where hundreds of replaced versions wait to be freed.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplacedCode {
    members: HashSet<FunctionId>,
    elsewhere: Vec<OldRange>,
    /// Versions that the set published.
    new: Vec<VersionId>,
    /// Versions from this one on began after the set.
    end: VersionId,
}

impl ReplacedCode {
    /// The code that a set of `members` is about to replace. No version is published until
    /// [`ReplacedCode::published`] was called.
    pub(super) fn of(replacing: &Replacing, members: &HashSet<FunctionId>) -> ReplacedCode {
        ReplacedCode {
            elsewhere: elsewhere(replacing, members),
            members: members.clone(),
            new: Vec::new(),
            end: replacing.versions.ids.next(),
        }
    }

    /// The part that was not freed.
    pub(super) fn code(&self, replacing: &Replacing) -> OldCode {
        let mut ranges = self.elsewhere.clone();
        let is_old = |it: VersionId| it < self.end && !self.new.contains(&it);
        ranges.extend(of_versions(replacing, &self.members, is_old));
        OldCode::of(ranges)
    }

    /// Adds the versions that the set published.
    pub(super) fn published(&mut self, new: impl IntoIterator<Item = VersionId>) {
        self.new.extend(new);
    }
}

impl OldCode {
    /// All code of `members`, and of their dependents.
    pub(super) fn of_members(replacing: &Replacing, members: &HashSet<FunctionId>) -> OldCode {
        let mut ranges = elsewhere(replacing, members);
        ranges.extend(of_versions(replacing, members, |_| true));
        OldCode::of(ranges)
    }

    pub(super) fn wanted(&self) -> Result<Wanted, Error> {
        let ranges = self.ranges.iter().map(|(range, ..)| range.clone());
        Ok(Wanted::new(ranges.collect()).map_err(Arc::new)?)
    }

    /// Native code, and compiled code.
    pub(super) fn apart(&self) -> (OldCode, OldCode) {
        let ranges = self.ranges.iter().cloned();
        let (native, compiled) = ranges.partition(|(.., block)| block.is_none());
        (OldCode { ranges: native }, OldCode { ranges: compiled })
    }

    /// From the first range's start to the last one's end; none if there is no code.
    pub(super) fn hull(&self) -> Option<Range<u64>> {
        let (first, ..) = self.ranges.first()?;
        let (last, ..) = self.ranges.last()?;
        Some(first.start..last.end)
    }

    /// The code with `more` ranges, each equal to one of its own or disjoint from all.
    pub(super) fn with(&self, more: Vec<(Range<u64>, FunctionId, BlockId)>) -> OldCode {
        let mut ranges = self.ranges.clone();
        // Native code is left by no loop.
        ranges.retain(|(.., block)| block.is_some());
        ranges.extend(
            more.into_iter()
                .map(|(range, id, block)| (range, id, Some(block))),
        );
        OldCode::of(ranges)
    }

    fn of(mut ranges: Vec<OldRange>) -> OldCode {
        ranges.sort_by_key(|(range, ..)| (range.start, u64::MAX - range.end));
        // Functions of an object may share bytes.
        let mut end = 0;
        ranges.retain_mut(|(range, ..)| {
            range.start = range.start.max(end);
            end = end.max(range.end);
            !range.is_empty()
        });
        OldCode { ranges }
    }
}

/// Code of versions that `wanted` accepts.
fn of_versions(
    replacing: &Replacing,
    members: &HashSet<FunctionId>,
    wanted: impl Fn(VersionId) -> bool,
) -> impl Iterator<Item = OldRange> {
    let code = replacing.code_concerning(members, wanted).into_iter();
    code.map(|(range, id, block)| (range, id, Some(block)))
}

/// Native code, and code of objects.
fn elsewhere(replacing: &Replacing, members: &HashSet<FunctionId>) -> Vec<OldRange> {
    let is_old = |id: FunctionId, depends: &[FunctionId]| {
        members.contains(&id) || depends.iter().any(|id| members.contains(id))
    };
    let objects = of_objects(replacing, members).into_iter();
    let objects = objects.map(|(range, id, block)| (range, id, Some(block)));
    let native = replacing.native_code(is_old).into_iter();
    let native = native.map(|(range, id)| (range, id, None));
    objects.chain(native).collect()
}

/// Code of members that are functions of objects: all of the object, as its local
/// functions belong to those that call them; but only the members' own bytes of one that
/// is replaced in part.
fn of_objects(
    replacing: &Replacing,
    members: &HashSet<FunctionId>,
) -> Vec<(Range<u64>, FunctionId, BlockId)> {
    let codes = replacing.objects.code_of(|id| members.contains(&id));
    // Once for each object: it has as many functions as it likes.
    let mut seen = HashMap::new();
    let ranges = codes.into_iter().filter_map(|(id, code)| {
        let known = seen.entry(Arc::as_ptr(&code.holding));
        let (whole, all, block) = known
            .or_insert_with(|| {
                let (all, block) = replacing.block_of(code.holding.code()?)?;
                let functions = code.file.functions.get();
                let whole = functions.is_none_or(|ids| ids.iter().all(|id| members.contains(id)));
                Some((whole, all, block))
            })
            .clone()?;
        Some((if whole { all } else { code.range }, id, block))
    });
    ranges.collect()
}
