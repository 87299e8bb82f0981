//! Views, events and settings of the tuner.

use std::io;
use std::time::Duration;

use uruk_files::OutputPath;
use uruk_tiering::tuning::{Advice, Memory, Region, RootPhase};

use super::TuningState;
use crate::tuning::Tuning;
use crate::tuning::views::TrialView;
use crate::tuning::views::TuningStats;
use crate::tuning::views::TuningView;

impl Tuning {
    /// The tuner's results for each function, those with the most trials first. Under a pass.
    pub(crate) fn tuning_views(&self) -> Vec<TuningView> {
        let mut views: Vec<_> = {
            let state = self.state();
            let all = state.regions.iter();
            all.map(|(&index, region)| (index, view(region))).collect()
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
        let state = self.state();
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
        let state = self.state();
        TuningStats {
            on: self.on,
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

/// The view of a region, without its function's name.
fn view(region: &Region) -> TuningView {
    let trials = region.trials().iter().map(|tried| TrialView {
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
        tier: region.tier(),
        variant: region.variant(),
        ratio: region.ratio(),
        trials: trials.collect(),
        settled: matches!(region.phase(), RootPhase::Settled { .. }),
        watched: region.is_watched(),
        left: match region.phase() {
            RootPhase::Left(why) => Some(why),
            _ => None,
        },
    }
}

impl TuningState {
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
