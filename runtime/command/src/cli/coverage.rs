//! `uruk baseline`: coverage of the baseline compiler for files.

use std::path::PathBuf;

use uruk::{BaselineCoverage, EXIT_FAILURE, baseline_coverage};

#[derive(clap::Args)]
pub(crate) struct Coverage {
    /// Print how many functions are covered, and why the others are not. The only question there
    /// is so far.
    #[arg(long, required = true)]
    coverage: bool,
    /// Bitcode (.bc) and IR text (.ll).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn main(asked: &Coverage) -> i32 {
    let mut status = 0;
    for file in &asked.files {
        match baseline_coverage(file) {
            Ok(coverage) => {
                let text = format!("{}: {}", file.display(), table(&coverage));
                // A closed standard output is not an error.
                let _ = uruk_files::print(&text);
            }
            Err(error) => {
                uruk_files::say!("uruk: {error}");
                status = EXIT_FAILURE;
            }
        }
    }
    status
}

fn table(coverage: &BaselineCoverage) -> String {
    let share = 100.0 * coverage.covered as f64 / (coverage.functions.max(1)) as f64;
    let mut text = format!(
        "{} of {} functions ({share:.1} %)\n",
        coverage.covered, coverage.functions
    );
    for (what, count) in &coverage.uncovered {
        text += &format!("{count:8} {what}\n");
    }
    text
}
