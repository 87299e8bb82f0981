//! The share of a file that the baseline compiler covers, found without compiling or running any of
//! it.
//!
//! Each function is checked as for its first version: counted, with loops that OSR can leave; first
//! from the module's bytes, and if these do not suffice, from LLVM's memory.

use std::collections::BTreeMap;
use std::path::Path;

use uruk_baseline::{Options, covers};
use uruk_codegen::plan::plan_alone;
use uruk_codegen::{
    Bitcode, Compile, Counters, NotPlain, Numbered, Placement, Plain, Reader, SymbolId,
};

use crate::error::Error;
use crate::host::llvm;
use crate::load::source::InputSource;
use crate::version::baseline::{UNREAD, features};

/// Coverage of a file by the baseline compiler; see [`baseline_coverage`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BaselineCoverage {
    /// Functions that the file defines, and that are compiled one by one.
    pub functions: u64,
    /// Those that the baseline compiler covers.
    pub covered: u64,
    /// Reasons for which LLVM compiles the others, with counts: the most frequent first.
    pub uncovered: Vec<(&'static str, u64)>,
}

/// Checks for each function of a file of bitcode or IR text whether the baseline compiler covers
/// it.
///
/// # Errors
/// A file that cannot be read or is neither.
pub fn baseline_coverage(file: &Path) -> Result<BaselineCoverage, Error> {
    llvm::open()?;
    let bitcode = match InputSource::read(file)? {
        InputSource::Bitcode(bitcode) => bitcode,
        InputSource::Text { file, text } => Bitcode::from_ir_text(&file, &text)?,
        InputSource::Object { file, .. } | InputSource::Undefined(file) => {
            return Err(Error::UnknownFormat { file });
        }
        InputSource::Archive(archive) => {
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
