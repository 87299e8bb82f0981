//! What the tuner tells, and how it is asked for.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use uruk_base::{Nanos, Tier, Variant};
use uruk_files::OutputPath;
use uruk_tiering::tuning::{Advice, Budget, Interval, Memory, Verdict};

use super::State;
use super::region::{Phase, Region};
use crate::api::builder::JitBuilder;
use crate::api::jit::Jit;
use crate::core::Core;
use crate::fork::gate;
use crate::tiers::nanos;

/// What the program's time is divided by where two codes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningUnit {
    /// Entries of the function.
    Entries,
    /// What the embedder [tells](Jit::work_done).
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

impl JitBuilder {
    /// Has hot functions compiled in several ways above tier 1, and the fastest stay: see
    /// [`Jit::tuning`]. Off by default.
    ///
    /// Trials that win nothing take at most 2 % of the program's processor time, after a first
    /// quarter of a second that a session has which [knows](JitBuilder::tuned_before) of no function;
    /// [`tuning_budget`](JitBuilder::tuning_budget) sets both. Code above tier 1 counts its entries, unless they are less than 25 ns apart.
    #[must_use]
    pub fn tune(mut self, tune: bool) -> JitBuilder {
        self.tiers.tuning.on = tune;
        self
    }

    /// For tests of the tuner: each candidate is compiled as what it is compared with.
    #[doc(hidden)]
    #[must_use]
    pub fn tune_same(mut self, same: bool) -> JitBuilder {
        self.tiers.tuning.same = same;
        self
    }

    /// How all functions are compiled above tier 1; where the session is
    /// [tuned](JitBuilder::tune), what it begins with.
    ///
    /// ```
    /// use uruk::{Jit, Tier, Tiers, Variant};
    ///
    /// let variant: Variant = "inline=none no-unroll vectors=none".parse()?;
    /// let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Optimized)).variant(variant).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// // SAFETY: `one` is the function above.
    /// let one = unsafe { jit.function::<extern "C" fn() -> i32>("one")? };
    /// assert_eq!(one.call(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn variant(mut self, variant: Variant) -> JitBuilder {
        self.tiers.variant = variant;
        self
    }

    /// What trials may cost: a part of the program's processor time, and how much in advance.
    #[must_use]
    pub fn tuning_budget(mut self, share: f64, credit: Duration) -> JitBuilder {
        self.tiers.tuning.budget = Some(Budget {
            share: share.clamp(0.0, 1e3),
            credit: nanos(credit),
        });
        self
    }

    /// Starts from what an earlier run had [learned](Jit::tuning_text); of use only where the
    /// session is [tuned](JitBuilder::tune). Text that is damaged, of another version or of another
    /// processor does no harm: [`TuningStats::before`] says what became of it.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).tuned_before("nonsense".into()).build()?;
    /// let before = jit.stats().tuning.before.expect("there was a text");
    /// assert!(before.starts_with("not used"), "{before}");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    #[must_use]
    pub fn tuned_before(mut self, text: String) -> JitBuilder {
        self.tiers.tuning.before = Some(text);
        self
    }
}

impl Jit {
    /// What the tuner found out so far, the functions with the most trials first; empty where
    /// the session is not [tuned](JitBuilder::tune).
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// assert!(jit.tuning().is_empty(), "nothing ran yet");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn tuning(&self) -> Vec<TuningView> {
        let _pass = gate::enter();
        let core = self.core();
        let mut views: Vec<_> = {
            let state = core.tuning.state();
            let all = state.regions.iter();
            all.map(|(&index, region)| (index, region.view())).collect()
        };
        views.sort_by_key(|(index, view)| (std::cmp::Reverse(view.trials.len()), *index));
        let named = views.into_iter().map(|(index, view)| TuningView {
            function: core
                .stubs
                .function(index)
                .map_or_else(String::new, |id| core.name_of(id).to_owned()),
            ..view
        });
        named.collect()
    }

    /// What the tuner found out, for [`JitBuilder::tuned_before`] of another run on this machine:
    /// the best variant of each function that was tried, and what helped functions like it.
    ///
    /// ```
    /// use uruk::Jit;
    ///
    /// let jit = Jit::builder().tune(true).build()?;
    /// let text = jit.tuning_text();
    /// let next = Jit::builder().tune(true).tuned_before(text).build()?;
    /// assert_eq!(next.stats().tuning.before.as_deref(), Some("0 functions known"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn tuning_text(&self) -> String {
        let _pass = gate::enter();
        self.core().tuning_text()
    }

    /// Writes [`tuning_text`](Jit::tuning_text) to a file: all of it, or what is there stays.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// let file = std::env::temp_dir().join(format!("uruk-tuning-{}", std::process::id()));
    /// jit.keep_tuning(&file).expect("there is room");
    /// assert_eq!(std::fs::read_to_string(&file).expect("it is there"), jit.tuning_text());
    /// # std::fs::remove_file(&file).expect("ours");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_tuning(&self, file: &Path) -> io::Result<()> {
        let file = OutputPath::new(file)?;
        let _pass = gate::enter();
        self.core().keep_tuning(&file)
    }

    /// Says that `units` of work were done: requests answered, frames drawn. From the first call
    /// on functions are [tuned](JitBuilder::tune) for processor time per unit instead of per
    /// entry of theirs. One atomic addition.
    ///
    /// ```
    /// let jit = uruk::Jit::builder().tune(true).build()?;
    /// jit.work_done(1);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn work_done(&self, units: u64) {
        self.core().tuning.work_done(units);
    }
}

impl Core {
    fn tuning_text(&self) -> String {
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
