//! What the tuner tells, and how it is asked for.

use std::fmt;
use std::io;
use std::time::Duration;

use uruk_base::{Nanos, Tier, Variant};
use uruk_files::OutputPath;
use uruk_tiering::tuning::{Advice, Interval, Memory, Verdict};

use super::State;
use super::region::{Phase, Region};
use crate::core::Core;

/// What the program's time is divided by where two codes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningUnit {
    /// Entries of the function.
    Entries,
    /// What the embedder [tells](crate::Jit::work_done).
    Work,
}

/// One candidate that was tried on a function.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TrialView {
    /// Its tier.
    pub tier: Tier,
    /// How it was compiled.
    pub variant: Variant,
    /// What came out.
    pub verdict: Verdict,
    /// How many times as fast it was as what ran then, and what is not refuted.
    pub ratio: Interval,
    /// Pairs of slices that were measured.
    pub pairs: u32,
    /// What time was divided by.
    pub unit: TuningUnit,
    /// Processor time that it cost, which the budget was charged with; nothing if it won.
    pub lost: Duration,
}

/// What is known of a function that is tuned.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuningView {
    /// The function.
    pub function: String,
    /// The tier of the best code so far, which runs.
    pub tier: Tier,
    /// How that was compiled.
    pub variant: Variant,
    /// How many times as fast as what ran at first, in an earlier run if there was one: the intervals
    /// of trials that won, multiplied.
    pub ratio: Interval,
    /// All that was tried, in order.
    pub trials: Vec<TrialView>,
    /// Nothing is left to try.
    pub settled: bool,
    /// It is settled, and its usual time is known: a change of its load
    /// ([`Event::Drifted`](crate::Event::Drifted)) is seen.
    pub watched: bool,
    /// Why it is not tuned.
    pub left: Option<&'static str>,
}

/// Counts of the tuner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuningStats {
    /// Whether it is on.
    pub on: bool,
    /// Functions it looked at.
    pub functions: usize,
    /// Trials that ended.
    pub trials: u32,
    /// Those whose candidate was faster.
    pub won: u32,
    /// Candidates that were not tried, as their code is code that was, or what runs.
    pub equal: u32,
    /// Times that a function was looked at again because its load changed.
    pub drifted: u32,
    /// Processor time of trials that did not win.
    pub lost: Duration,
    /// Processor time of the program, as far as the tuner looked.
    pub ran: Duration,
    /// What became of what an earlier run had learned.
    pub before: Option<String>,
}

impl Core {
    /// What the tuner found out of each function, those with the most trials first. Under a pass.
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

    /// Writes what was learned to `file`: all of it, or what is there stays.
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
    /// Takes what an earlier run wrote, as far as it is of use.
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

/// The processor, as the system names it: LLVM's name would have its library opened.
fn cpu() -> String {
    crate::told::recording::kernels_processor()
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
    /// Part of the program's time that trials took which did not win.
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
