//! All experiments, in the order of the table.

use anyhow::Result;

use crate::bench::Bench;
use crate::findings::Findings;
use crate::programs::Subject;
use crate::reclaim::removal;
use crate::tiers::{envelope, overhead, promotion, steady, whole_run};
use crate::{
    compiling, counted, first_call, linking, live, once, programs, repl, session, soak, tuner, warm,
};

type Measure = dyn Fn(&Bench) -> Result<Findings>;

/// Something that can be measured by itself.
pub struct Experiment {
    /// The text that `--only` compares with.
    pub name: String,
    measure: Box<Measure>,
}

impl Experiment {
    fn new<F: Into<Findings>>(
        name: impl Into<String>,
        measure: impl Fn(&Bench) -> Result<F> + 'static,
    ) -> Experiment {
        Experiment {
            name: name.into(),
            measure: Box::new(move |bench| Ok(measure(bench)?.into())),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// What the experiment reports.
    pub fn run(&self, bench: &Bench) -> Result<Findings> {
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
        Experiment::new("compile sqlite", compiling::measure),
        Experiment::new("first call in sqlite", first_call::measure),
        Experiment::new("read-eval-print", repl::measure),
        Experiment::new("ready lookup", session::measure_lookups),
        Experiment::new("publish", session::measure_publish),
        Experiment::new("pending symbols", session::measure_pending),
        Experiment::new("alias chains", session::measure_aliases),
        Experiment::new("dependence graph", session::measure_graph),
        Experiment::new("graph of functions", session::measure_object_graph),
        Experiment::new("archive", session::measure_archive),
        Experiment::new("cycles of objects", session::measure_cycles),
        Experiment::new("live objects", session::measure_live_objects),
        Experiment::new("cheap modules", session::measure_cheap_modules),
        Experiment::new("lazy chain", session::measure_lazy_chain),
        Experiment::new("link", linking::measure),
        Experiment::new("steady state", steady::measure),
        Experiment::new("tuned workloads", steady::measure_tuned),
        Experiment::new("contracted", steady::measure_contracted),
        Experiment::new("other bitcode", steady::measure_other_bitcode),
        Experiment::new("fixed tiers", steady::measure_fixed_tiers),
        Experiment::new("whole run", whole_run::measure),
        Experiment::new("envelope", envelope::measure),
        Experiment::new("tuner", tuner::measure),
        Experiment::new("uruk live", live::measure),
        Experiment::new("uruk live, nothing to gain", live::measure_idle),
        Experiment::new("uruk live, lengths of run", live::measure_lengths),
        Experiment::new("uruk live, a server", live::measure_server),
        Experiment::new("loops entered once", once::measure),
        Experiment::new("counted passes", counted::measure),
        Experiment::new("time to tier 2", promotion::measure),
        Experiment::new("tier 2, warm", warm::measure),
        Experiment::new("overhead", overhead::measure),
        Experiment::new("reclaim: removal", removal::measure),
        Experiment::new("soak", soak::measure),
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
