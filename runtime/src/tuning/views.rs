//! The state of tuning as embedders see it.

use std::fmt;
use std::time::Duration;
use uruk_base::{Nanos, Tier, Variant};
use uruk_tiering::tuning::{Interval, TuningUnit, Verdict};

/// A tried candidate of a function.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TrialView {
    /// Its tier.
    pub tier: Tier,
    /// Its settings.
    pub variant: Variant,
    /// The result.
    pub verdict: Verdict,
    /// Speed relative to the current code at that time, with its confidence interval.
    pub ratio: Interval,
    /// Number of measured pairs of slices.
    pub pairs: u32,
    /// The unit of the measured times.
    pub unit: TuningUnit,
    /// Processor time that it cost, as charged to the budget; zero if it won.
    pub lost: Duration,
}

/// The state of a tuned function.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuningView {
    /// The function.
    pub function: String,
    /// The tier of the best code so far, which is current.
    pub tier: Tier,
    /// Its settings.
    pub variant: Variant,
    /// Speed relative to the first version, of an earlier run if there was one: the product of the
    /// intervals of won trials.
    pub ratio: Interval,
    /// All trials, in order.
    pub trials: Vec<TrialView>,
    /// Whether no candidate is left.
    pub settled: bool,
    /// Whether it is settled and its usual time is known, so that a change of its load
    /// ([`Event::Drifted`](crate::Event::Drifted)) is detected.
    pub watched: bool,
    /// The reason if it is not tuned.
    pub left: Option<&'static str>,
}

/// Counts of the tuner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuningStats {
    /// Whether the tuner is on.
    pub on: bool,
    /// Functions it examined.
    pub functions: usize,
    /// Trials that ended.
    pub trials: u32,
    /// Those whose candidate was faster.
    pub won: u32,
    /// Candidates not tried, as their code is current or was tried before.
    pub equal: u32,
    /// Number of times that a function was reopened because its load changed.
    pub drifted: u32,
    /// Processor time of trials that did not win.
    pub lost: Duration,
    /// Processor time of the program, as far as the tuner measured it.
    pub ran: Duration,
    /// Whether the results of an earlier run were used.
    pub before: Option<String>,
}

impl fmt::Display for TuningView {
    /// A line for the function, and one for each trial.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TuningView {
            function,
            tier,
            variant,
            ratio,
            ..
        } = self;
        let state = match (self.left, self.settled) {
            (Some(why), _) => why,
            (None, true) => "settled",
            (None, false) => "open",
        };
        writeln!(
            f,
            "{function}: {tier} {variant}, {ratio} times as fast; {state}"
        )?;
        for trial in &self.trials {
            let TrialView {
                tier,
                variant,
                verdict,
                ratio,
                pairs,
                unit,
                ..
            } = trial;
            let unit = match unit {
                TuningUnit::Entries => "",
                TuningUnit::Work => " by work done",
            };
            writeln!(
                f,
                "  {tier} {variant}: {verdict}, {ratio} in {pairs} pairs{unit}"
            )?;
        }
        Ok(())
    }
}

impl TuningStats {
    /// Share of the program's time that unsuccessful trials took.
    pub fn share(&self) -> f64 {
        self.lost.as_secs_f64() / self.ran.as_secs_f64().max(1e-9)
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"on\":{},\"functions\":{},\"trials\":{},\"won\":{},\"equal\":{},\"drifted\":{},\"lost_ms\":{:.3},\"share\":{:.5}}}",
            self.on,
            self.functions,
            self.trials,
            self.won,
            self.equal,
            self.drifted,
            Nanos(self.lost.as_nanos() as u64).as_ms(),
            self.share(),
        )
    }

    /// Lines of the table, each with its newline.
    pub(crate) fn table(&self) -> String {
        if !self.on {
            return String::new();
        }
        let mut text = format!(
            "functions tuned          {:>10}\n\
             \x20 trials                {:>10}\n\
             \x20 won                   {:>10}\n\
             \x20 equal code            {:>10}\n\
             \x20 load changed          {:>10}\n\
             \x20 lost in others        {:>10.1} ms = {:.2} % of the program's time\n",
            self.functions,
            self.trials,
            self.won,
            self.equal,
            self.drifted,
            self.lost.as_secs_f64() * 1e3,
            self.share() * 100.0,
        );
        if let Some(before) = &self.before {
            text += &format!("  what was known        {before}\n");
        }
        text
    }
}
