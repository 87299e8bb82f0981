//! Findable code: for the unwinder, backtraces, samples and tools.
//!
//! | known to | from | to |
//! |---|---|---|
//! | unwinder (`Compiler::region`) | [`Compiler::make_findable`], [`Compiler::make_copies_findable`] | [`Compiler::forget_code`] |
//! | backtraces, `dladdr` (`Compiler::bodies`) | the same | the same |
//! | tools | the same | the same |
//! | samples | the version's record, which names its owner; copies the same | the same |
//!
//! # Invariants
//! - All entries exist before the code can run, and are removed when no thread can be in it any
//!   more, before its memory is reused.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ops::Range;

use uruk_base::Tier;
use uruk_link::{FdeRow, Linked};
use uruk_unwind::Row;

use crate::code::blocks::{VersionShape, View};
use crate::code::tools::LinkedBody;
use crate::error::Error;
use crate::version::compiler::Compiler;

/// New code in its place.
pub(crate) struct NewCode<'a> {
    pub(crate) name: &'static CStr,
    pub(crate) tier: Tier,
    /// Whether it only starts the production of the function's first body: a debugger that waits
    /// for the function by its name does not stop there.
    pub(crate) stands_in: bool,
    /// The range of the function itself.
    pub(crate) body: Range<u64>,
    /// The range including code that was compiled with it.
    pub(crate) code: Range<u64>,
    /// The object file that it was linked from, if any, and the result.
    pub(crate) object: Option<&'a [u8]>,
    pub(crate) linked: &'a Linked,
    /// The name of its symbol in the object.
    pub(crate) symbol: &'a str,
}

impl Compiler {
    /// Makes new code findable, before any of it can run.
    pub(crate) fn make_findable(&self, new: &NewCode<'_>) -> Result<(), Error> {
        self.register_rows(&new.linked.fdes, new.name)?;
        self.add_body(new.body.start, new.code.end, new.name);
        self.tools
            .add_stubs(&self.heap.stub_region(), self.stubs.page());
        let name = new.name.to_str().unwrap_or("?");
        let name = match new.stands_in {
            true => Cow::Owned(format!("uruk first call of {name}")),
            false => Cow::Borrowed(name),
        };
        self.tools.add(&LinkedBody {
            name: &name,
            tier: new.tier,
            entry: new.body.start,
            end: new.body.end,
            code: new.code.start,
            linked: new.linked,
            object: new.object,
            symbol: new.symbol,
        });
        Ok(())
    }

    /// Makes copies findable, before any of them can run. `originals` are the blocks that were
    /// copied, in the same order.
    pub(crate) fn make_copies_findable(
        &self,
        copies: &[View<'_>],
        originals: &[Option<View<'_>>],
    ) -> Result<(), Error> {
        self.register_copies(copies)?;
        let body = |copy: &View<'_>| (copy.entry(), copy.body_end(), copy.shape.name);
        self.add_bodies(copies.iter().map(body));
        let born = |copy: &View<'_>| {
            let VersionShape {
                function, version, ..
            } = *copy.shape;
            Some((copy.range(), function?, version))
        };
        self.sampled.insert_all(copies.iter().filter_map(born));
        if self.tools.any() {
            let pairs = copies.iter().zip(originals);
            for (&copy, original) in pairs.filter_map(|(copy, from)| Some((copy, (*from)?))) {
                self.tools.moved(original, copy);
            }
        }
        Ok(())
    }

    /// Removes the entries of dead code: all that lies in `runs`, which are `blocks`.
    pub(crate) fn forget_code<'v>(
        &self,
        runs: Vec<Range<u64>>,
        blocks: impl IntoIterator<Item = View<'v>>,
    ) {
        self.region.remove_all(&runs);
        self.sampled.retire_all(&runs);
        self.remove_bodies(runs);
        if self.tools.any() {
            blocks.into_iter().for_each(|code| self.tools.remove(code));
        }
    }

    /// Registers unwind rows, before any of the code can run.
    pub(crate) fn register_rows(&self, rows: &[FdeRow], name: &CStr) -> Result<(), Error> {
        let rows: Vec<Row> = rows
            .iter()
            .map(|row| Row {
                start: row.start,
                end: row.end,
                fde: row.fde,
            })
            .collect();
        let names = vec![name.to_str().unwrap_or_default(); rows.len()];
        // SAFETY: the records lie in sealed memory, which is freed only after the rows were
        // removed.
        unsafe { self.region.insert(&rows, &names)? };
        Ok(())
    }

    fn register_copies(&self, copies: &[View<'_>]) -> Result<(), Error> {
        let mut rows = Vec::with_capacity(copies.len());
        let ends: Vec<usize> = copies
            .iter()
            .map(|copy| {
                rows.extend(copy.rows());
                rows.len()
            })
            .collect();
        let mut start = 0;
        let objects = copies.iter().zip(ends).map(|(copy, end)| {
            let name = copy.shape.name.to_str().unwrap_or_default();
            (&rows[std::mem::replace(&mut start, end)..end], name)
        });
        // SAFETY: as in `register_rows`.
        unsafe { self.region.insert_all(objects)? };
        Ok(())
    }
}
