//! Chooses the loop that is to be left, by the counts.
//!
//! A long activation shows as a version whose loops are passed while it is not entered. Between two
//! looks of the controller's thread
//!
//! ```text
//! busy   = time for which heads were passed at every look, and entries were few
//! share  = min(1, passes * time of a pass / time between the looks)
//! few    = share / entries >= LONG
//! ```
//!
//! and a continuation is made when the policy finds it worth its compile (`Controller::is_worth`).
//! It is for the outermost loop around the most passed one that itself comes round at least every
//! [`ROUND`]: the further out, the more of the nest is optimized. While one activation runs on and
//! could be left, the passes are not reported to the controller. They are no reason to compile the
//! function itself, which may never be called again, and whose compile the continuation would wait
//! for. If it is entered after an offer, it is requested; if the activation ends before, the passes
//! are reported. If an offer was made [`PATIENCE`] ago and the loop inside it still runs here, the
//! next loop further in is tried.
//!
//! Once better code took the function's slot, its entries are counted no more. The entries between
//! the last look before that and the exchange are unknown, so passes up to the first look after it
//! say nothing: they would look like one long activation. (Of `hash-mix`, two of the first five
//! compiles at tier 2 were loops of functions that had just moved up.)

use std::sync::{Arc, Weak};
use std::time::Duration;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::Compiled;
use uruk_reclaim::IdMap;
use uruk_tiering::{Controller, Facts};

use crate::code::loops::Loops;
use crate::host::clock::nanos;
use crate::loops::state::Continuations;

/// A head that is passed less often is not worth the wait.
const ROUND: Duration = Duration::from_millis(4);

/// An entry begins a long activation if it takes this share of the time between two looks.
const LONG: f64 = 0.25;

/// How long an offer waits for a thread to pass before one further in is made.
const PATIENCE: Duration = Duration::from_millis(10);

/// After this time without a pass an activation has ended, or is blocked. Before that its thread
/// may have had no processor.
const STANDS: Duration = Duration::from_millis(200);

/// A request without a result, cancelled perhaps, is repeated after this.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// The loops of a version, and their passes up to the last look.
pub(super) struct WatchedLoops {
    pub(super) function: FunctionId,
    pub(super) loops: Weak<Loops>,
    facts: Facts,
    /// Passes since the version is busy, by loop.
    passes: Box<[u64]>,
    /// Passes between the last two looks, by loop.
    last: Box<[u64]>,
    busy: Duration,
    /// Time without a pass of any head, and without an entry.
    still: Duration,
    /// Passes that were not reported to the controller.
    held: u64,
    /// At the last look it had just been entered.
    began: bool,
    /// The last request.
    asked: Option<RequestedContinuation>,
    /// Whether the function itself was requested.
    whole: bool,
    /// Whether better code of the function was published at the last look.
    moved_up: bool,
    /// When the version was made: no thread was in it before.
    since: Duration,
}

/// A continuation that was requested.
#[derive(Clone, Copy)]
struct RequestedContinuation {
    place: usize,
    /// How long the version ran on before the offer.
    making: Duration,
    /// And since the first look that found the offer: looks may be as far apart as the compile
    /// took.
    waited: Option<Duration>,
}

impl WatchedLoops {
    pub(super) fn new(loops: &Arc<Loops>, compiled: &Compiled, now: Duration) -> WatchedLoops {
        let count = loops.heads.len();
        WatchedLoops {
            function: loops.function,
            loops: Arc::downgrade(loops),
            facts: Facts {
                instructions: compiled.instructions,
                loops: compiled.loops,
                nested: compiled.nested,
                calls: compiled.calls,
            },
            passes: vec![0; count].into(),
            last: vec![0; count].into(),
            busy: Duration::ZERO,
            still: Duration::ZERO,
            held: 0,
            began: false,
            asked: None,
            whole: false,
            moved_up: false,
            since: now,
        }
    }

    /// Passes since the last time.
    fn read(&mut self, loops: &Loops) -> u64 {
        loops.read_passes(&mut self.last);
        for (all, added) in self.passes.iter_mut().zip(&self.last) {
            *all += added;
        }
        self.last.iter().sum()
    }

    /// Drops all passes up to now.
    fn begin_anew(&mut self) {
        self.busy = Duration::ZERO;
        self.still = Duration::ZERO;
        self.held = 0;
        self.asked = None;
        self.passes.fill(0);
        self.last.fill(0);
    }

    /// Notes the result of one look; returns the share of a processor that is spent in the loops.
    fn note(
        &mut self,
        controller: &Controller,
        loops: &Loops,
        now: Duration,
        between: Duration,
        passes: u64,
        entries: u64,
    ) -> f64 {
        let between = between.min(now.saturating_sub(self.since));
        self.still = match passes == 0 && entries == 0 {
            true => self.still + between,
            false => Duration::ZERO,
        };
        if self.may_go_on() {
            return 0.0;
        }
        let time = controller.time_of(&self.facts, passes).as_f64();
        let share = (time / nanos(between).as_f64().max(1.0)).min(1.0);
        if passes == 0 || (entries != 0 && share / (entries as f64) < LONG) {
            self.busy = Duration::ZERO;
            self.passes.fill(0);
            self.asked = None;
            return share;
        }
        self.busy += between;
        if let Some(asked) = &mut self.asked {
            match loops.is_offered(asked.place) {
                true => {
                    asked.waited = Some(asked.waited.map_or(Duration::ZERO, |it| it + between));
                }
                false => asked.making += between,
            }
            if asked.making > GIVEN_UP {
                self.asked = None;
            }
        }
        share
    }

    /// True if an activation showed no pass for a time in which it may just have waited.
    fn may_go_on(&self) -> bool {
        self.busy > Duration::ZERO && self.still > Duration::ZERO && self.still < STANDS
    }

    /// The loop whose continuation is worth its compile.
    fn wants(
        &self,
        controller: &mut Controller,
        loops: &Loops,
        now: Duration,
        share: f64,
    ) -> Option<usize> {
        let busy = nanos(self.busy);
        let worth = self.busy > Duration::ZERO
            && !self.may_go_on()
            && controller.is_worth(nanos(now), &self.facts, busy, share);
        worth.then(|| self.choose(loops)).flatten()
    }

    /// The loop to be left: the outermost around the most passed one that comes round often enough,
    /// further in than one that was offered in vain. The most passed loop since the last look is
    /// where the frame is now: it may have left a loop with more passes behind.
    fn choose(&self, loops: &Loops) -> Option<usize> {
        let most = (0..self.last.len()).max_by_key(|&place| self.last[place])?;
        let mut nest = vec![most];
        while let Some(outer) = loops.heads[nest[nest.len() - 1]].around {
            nest.push(outer as usize);
        }
        let least = (self.busy.as_nanos() / ROUND.as_nanos()).max(1) as u64;
        let tried = self.asked.map(|asked| asked.place);
        let begin = tried.and_then(|tried| nest.iter().position(|&place| place == tried));
        nest.truncate(begin.unwrap_or(nest.len()));
        nest.into_iter()
            .rev()
            .find(|&place| self.passes[place] >= least)
    }

    /// Keeps passes that concern a continuation, or may; returns those for the controller.
    ///
    /// `may`: the loops may be left. `waits`: for a continuation.
    fn hold(&mut self, loops: &Loops, passes: u64, entries: u64, may: bool, waits: bool) -> u64 {
        self.held += passes;
        if self.may_go_on() {
            return 0;
        }
        // An activation that began shortly before the look may be long: the next look shows that.
        let few = entries != 0 && entries as f64 <= 1.0 / LONG;
        let begun = std::mem::replace(&mut self.began, few);
        let begins = few && !begun;
        let goes_on = self.busy > Duration::ZERO && self.choose(loops).is_some();
        match waits {
            true => self.held = 0,
            false if may && (begins || goes_on) => {}
            false => return std::mem::take(&mut self.held),
        }
        0
    }

    /// In the child of a fork: no requested continuation will be made.
    pub(super) fn forget(&mut self) {
        self.asked = None;
        self.whole = false;
    }

    /// True while a continuation is made, or waits for a thread to pass.
    fn waits(&self, loops: &Loops) -> bool {
        self.asked
            .is_some_and(|RequestedContinuation { place, waited, .. }| {
                let patient = waited.is_none_or(|it| it < PATIENCE);
                !loops.has_failed(place) && (!loops.is_offered(place) || patient)
            })
    }
}

impl Continuations {
    fn is_above_baseline(&self, id: FunctionId) -> bool {
        let published = self.versions.seen(id).published();
        published.is_some_and(|version| version.tier > Tier::Baseline)
    }

    /// Watches the loops of all versions, and requests continuations that are worth it; adds the
    /// passes for the controller to `added`, by function. Returns the loops that are to be asked to
    /// count until the next look.
    pub(crate) fn watch_loops(
        self: &Arc<Self>,
        controller: &mut Controller,
        between: Duration,
        added: &mut IdMap<u32, (FunctionId, u64, u64)>,
    ) -> Vec<Arc<Loops>> {
        let now = self.events.now();
        let (mut wanted, mut whole, mut read) = (Vec::new(), Vec::new(), Vec::new());
        let forbidden = self.forbidden().clone();
        self.watched().look(|watched| {
            let Some(loops) = watched.loops.upgrade() else {
                return false;
            };
            let passes = watched.read(&loops);
            read.push(Arc::clone(&loops));
            let id = watched.function;
            let moved_up = self.is_above_baseline(id);
            if moved_up && !std::mem::replace(&mut watched.moved_up, moved_up) {
                watched.begin_anew();
                return true;
            }
            let entries = added.get(&id.index()).map_or(0, |&(_, entries, _)| entries);
            let share = watched.note(controller, &loops, now, between, passes, entries);
            let own = !loops.is_closed() && loops.offers();
            if entries != 0 && !watched.whole && !controller.is_paused() && own {
                watched.whole = true;
                whole.push(id);
            }
            let may = !loops.is_closed() && !forbidden.contains(&loops.whose.index());
            let mut waits = watched.waits(&loops);
            if !waits
                && may
                && let Some(place) = watched.wants(controller, &loops, now, share)
            {
                watched.asked = Some(RequestedContinuation {
                    place,
                    making: Duration::ZERO,
                    waited: None,
                });
                wanted.push((Arc::clone(&loops), place, watched.facts));
                waits = true;
            }
            let held = watched.hold(&loops, passes, entries, may, waits);
            if held != 0 {
                let entry = added.entry(id.index()).or_insert((id, 0, 0));
                entry.2 += held;
            }
            passes != 0 || watched.held != 0 || watched.may_go_on()
        });
        for id in whole {
            controller.request(id, Tier::Optimized);
        }
        for (loops, place, facts) in wanted {
            match self.continuation(&loops, place) {
                // A continuation that was taken back still exists.
                Ok(Some(id)) if self.versions.seen(id).published().is_some() => {
                    self.continuation_made(id, true);
                }
                Ok(Some(id)) => {
                    controller.continuation(id, &facts);
                    controller.request(id, Tier::Optimized);
                }
                Ok(None) => {}
                Err(cause) => tracing::info!(%cause, "no continuation"),
            }
        }
        read
    }
}
