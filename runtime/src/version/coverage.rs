//! How much of a file the baseline compiler covers, without compiling or running anything.
//!
//! Each function is asked for as for its first version: counted, with loops that can be left; of
//! the module's bytes first, and in LLVM's memory where that does not do.

use std::collections::BTreeMap;
use std::path::Path;

use uruk_baseline::{Options, covers};
use uruk_codegen::fuzz::plan_alone;
use uruk_codegen::{
    Bitcode, Compile, Counters, NotPlain, Numbered, Placement, Plain, Reader, SymbolId,
};

use super::baseline::{UNREAD, features};
use crate::api::error::Error;
use crate::guest::llvm;
use crate::load::Source;

/// What of a file the baseline compiler covers; see [`baseline_coverage`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BaselineCoverage {
    /// Functions that the file defines, and that are compiled one by one.
    pub functions: u64,
    /// Those that the baseline compiler covers.
    pub covered: u64,
    /// Why the others are LLVM's, and how many: the most frequent reason first.
    pub uncovered: Vec<(&'static str, u64)>,
}

/// Asks of each function of a file of bitcode or IR text whether the baseline compiler covers it.
///
/// # Errors
/// A file that cannot be read or is neither.
pub fn baseline_coverage(file: &Path) -> Result<BaselineCoverage, Error> {
    llvm::open()?;
    let bitcode = match Source::read(file)? {
        Source::Bitcode(bitcode) => bitcode,
        Source::Text { file, text } => Bitcode::from_ir_text(&file, &text)?,
        Source::Object { file, .. } | Source::Undefined(file) => {
            return Err(Error::UnknownFormat { file });
        }
        Source::Archive(archive) => {
            let file = archive.name.clone();
            return Err(Error::UnknownFormat { file });
        }
    };
    let summary = Reader::new(&bitcode)?.summary().clone();
    let numbered = Numbered::read(&bitcode, &summary);
    let mut plain = Plain::default();
    let plan = plan_alone(&summary);
    let mut how = Compile::baseline().counting(Counters::Entry);
    how.leaves = true;
    let options = Options {
        features: features(),
    };
    let mut coverage = BaselineCoverage::default();
    let mut uncovered: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (index, symbol) in (0..).zip(&summary.symbols) {
        if symbol.placement != Placement::Own {
            continue;
        }
        coverage.functions += 1;
        let function = SymbolId(index);
        let read = match &numbered {
            Some(numbered) => numbered
                .read_into(function, &mut plain)
                .and_then(|()| numbered.baseline(&plan, function, &how, &mut plain)),
            None => Err(NotPlain::Unread(UNREAD)),
        };
        let covered = read.and_then(|read| Ok(covers(&read.function, &options)?));
        match covered {
            Ok(()) => coverage.covered += 1,
            Err(reason) => *uncovered.entry(reason.what()).or_default() += 1,
        }
    }
    coverage.uncovered = uncovered.into_iter().collect();
    coverage
        .uncovered
        .sort_by_key(|&(what, count)| (std::cmp::Reverse(count), what));
    Ok(coverage)
}
