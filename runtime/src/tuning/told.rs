//! Views, events and settings of the tuner.

use std::fmt;
use std::io;
use std::time::Duration;

use uruk_base::{Nanos, Tier, Variant};
use uruk_files::OutputPath;
use uruk_tiering::tuning::{Advice, Interval, Memory, Verdict};

use super::State;
use super::region::{Phase, Region};
use crate::core::Core;

/// The unit by which the program's time is divided when two codes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningUnit {
    /// Entries of the function.
    Entries,
    /// Units of work that the embedder [reports](crate::Jit::work_done).
    Work,
}

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

impl Core {
    /// The tuner's results for each function, those with the most trials first. Under a pass.
    pub(crate) fn tuning_views(&self) -> Vec<TuningView> {
        let mut views: Vec<_> = {
            let state = self.tuning.state();
            let all = state.regions.iter();
            all.map(|(&index, region)| (index, region.view())).collect()
        };
        views.sort_by_key(|(index, view)| (std::cmp::Reverse(view.trials.len()), *index));
        let name = |index| {
            let function = self.stubs.function(index);
            function.map_or_else(String::new, |id| self.name_of(id).to_owned())
        };
        let named = views.into_iter().map(|(index, view)| TuningView {
            function: name(index),
            ..view
        });
        named.collect()
    }

    pub(crate) fn tuning_text(&self) -> String {
        self.note_tiers();
        self.note_progress();
        let state = self.tuning.state();
        let mut advice = Advice::default();
        for (shape, change, lesson) in state.advice.lessons() {
            advice.add(shape, change, lesson);
        }
        let memory = Memory {
            functions: state.known.clone(),
            progress: state.progress.clone(),
            natives: state.natives.clone(),
            tiers: state.tiers.clone(),
            advice,
            skipped: 0,
        };
        drop(state);
        memory.write(&cpu())
    }

    /// Writes the results to `file` atomically: on failure the old contents stay.
    pub(crate) fn keep_tuning(&self, file: &OutputPath) -> io::Result<()> {
        file.write(self.tuning_text().as_bytes())
    }

    pub(crate) fn tuning_stats(&self) -> TuningStats {
        let state = self.tuning.state();
        TuningStats {
            on: self.tuning.on,
            functions: state.regions.len(),
            trials: state.trials,
            won: state.won,
            equal: state.equal,
            drifted: state.drifted,
            lost: Duration::from_nanos(state.account.spent().0),
            ran: Duration::from_nanos(state.account.time().0),
            before: state.before.clone(),
        }
    }
}

impl Region {
    fn view(&self) -> TuningView {
        let trials = self.trials.iter().map(|tried| TrialView {
            tier: tried.tier,
            variant: tried.variant,
            verdict: tried.verdict,
            ratio: tried.ratio,
            pairs: tried.pairs,
            unit: tried.unit,
            lost: Duration::from_nanos(tried.lost.0),
        });
        TuningView {
            function: String::new(),
            tier: self.tier,
            variant: self.variant,
            ratio: self.ratio,
            trials: trials.collect(),
            settled: self.phase == Phase::Settled,
            watched: self.phase == Phase::Settled && self.drift.is_known(),
            left: match self.phase {
                Phase::Left(why) => Some(why),
                _ => None,
            },
        }
    }
}

impl State {
    /// Reads the results of an earlier run, as far as they are usable.
    pub(super) fn remember(&mut self, text: &str) {
        match Memory::read(text, &cpu()) {
            Ok(memory) => {
                let mut known = format!("{} functions known", memory.functions.len());
                if !memory.natives.is_empty() {
                    known += &format!(", {} beside native code", memory.natives.len());
                }
                self.before = Some(match memory.skipped {
                    0 => known,
                    skipped => format!("{known}, {skipped} lines not readable"),
                });
                self.known = memory.functions;
                self.progress = memory.progress;
                self.natives = memory.natives;
                self.tiers = memory.tiers;
                for (shape, change, lesson) in memory.advice.lessons() {
                    self.advice.add(shape, change, lesson);
                }
            }
            Err(stale) => self.before = Some(format!("not used: it {stale}")),
        }
    }
}

/// The processor's name from the kernel: asking LLVM would open its library.
fn cpu() -> String {
    crate::events::recording::kernels_processor()
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
