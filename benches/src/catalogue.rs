//! All experiments, in the order of the table.

use anyhow::Result;

use crate::bench::Bench;
use crate::programs::Subject;
use crate::row::Row;
use crate::{first_call, generated, linking, programs, session, stubs};

type Measure = dyn Fn(&Bench) -> Result<Vec<Row>>;

/// Something that can be measured by itself.
pub struct Experiment {
    /// What `--only` compares with.
    pub name: String,
    measure: Box<Measure>,
}

impl Experiment {
    fn new(
        name: impl Into<String>,
        measure: impl Fn(&Bench) -> Result<Vec<Row>> + 'static,
    ) -> Experiment {
        Experiment {
            name: name.into(),
            measure: Box::new(measure),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// What the experiment reports.
    pub fn run(&self, bench: &Bench) -> Result<Vec<Row>> {
        (self.measure)(bench)
    }
}

/// Every experiment.
pub fn all() -> Vec<Experiment> {
    let mut all = vec![Experiment::new("noise", programs::measure_noise)];
    all.extend(Subject::ALL.map(|subject| {
        Experiment::new(subject.name(), move |bench| {
            programs::measure(bench, subject)
        })
    }));
    all.extend([
        Experiment::new("sparse module", programs::measure_sparse),
        Experiment::new("first call by module size", generated::measure_first_calls),
        Experiment::new("first call in sqlite", first_call::measure),
        Experiment::new("ready lookup", session::measure_lookups),
        Experiment::new("publish", session::measure_publish),
        Experiment::new("link", linking::measure),
        Experiment::new("stubs", stubs::measure),
    ]);
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_differ() {
        let mut names: Vec<String> = super::all().into_iter().map(|one| one.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
