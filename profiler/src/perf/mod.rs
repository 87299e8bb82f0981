//! Samples from perf events.
//!
//! A ring cannot be mapped for an inherited event that follows a thread over all CPUs. So each
//! thread that exists at the start gets one event for each CPU, and all events of a CPU share a
//! ring. Threads made later inherit the events. Rings are thus as many as CPUs, for any number of
//! threads.
//!
//! Events are opened by the `perf-event` crate (its builder knows the versions of the kernel's
//! structure). It has no rings. `perf-event2` has, but copies every record into an owned value,
//! cannot connect events to a shared ring, and was last released in 2024. So the ring reader is
//! ours (`ring`, `records`: 150 lines).
//!
//! # Rates
//! The kernel changes the period of an event, but not of events inherited from it, which have no
//! descriptor here; enabling and disabling does reach them. So there are two sets of events of
//! fixed rates. The *burst* set is opened beside the *steady* set and closed when the burst is
//! over. An inherited event adds 4 us to the cost of a thread (7 us with the burst), for each CPU;
//! without descriptors enough for both sets there is no burst. Rates below the steady one switch
//! the steady set on for a share of the intervals between drains, spread evenly; weights make up
//! for it, so the ring is to be drained before the rate is changed.
//!
//! A pause disables the set in use. A disabled event keeps the rest of its interval. An event
//! inherited during the pause is disabled, too, until its parent is enabled.
//!
//! # Invariants
//! - A set of events covers a thread on all CPUs or not at all.
//! - Samples of another process are dropped: before Linux 5.13 children of a fork
//!   inherit events, too.
//! - In the child of a fork no ring is touched (`ring`); descriptors are closed, which
//!   leaves the parent's events alone.
//!
//! Threads that other threads make while `start` walks over the list may or may not have inherited
//! events; the kernel does not tell. They become suspects: one that has run for
//! [`SUSPECT_PERIODS`] without a sample gets events of its own at a `refresh`.

mod event;
mod filter;
mod records;
mod ring;
mod set;

use std::sync::Arc;

use crate::calibrate::{self, ASSUMED_COST_NS, WATCH_PERIOD_NS};
use crate::exclude::Excluded;
pub(crate) use crate::perf::event::reserve_descriptors;
use crate::perf::event::{Counts, Event, Plan};
use crate::perf::ring::Ring;
use crate::perf::set::{Lane, Set};
use crate::sample::{Kind, Sample};
use crate::source::{Coverage, Drained, Rates, Sizes, Source, SourceError};
use crate::threads;

/// CPU time, in sampling periods, after which a suspect without a sample is taken to have no
/// events.
const SUSPECT_PERIODS: u64 = 50;

/// Most threads looked at as suspects.
const MAX_SUSPECTS: usize = 64;

/// Samples that must arrive while the cost is measured; about 15 are expected.
const DELIVERED: u64 = 3;

/// The source of samples by perf events.
#[derive(Debug)]
pub(crate) struct Perf {
    kind: Kind,
    counts: Counts,
    /// Units that the event counts in a second of CPU time.
    units_per_second: u64,
    cost_ns: u64,
    sizes: Sizes,
    excluded: Arc<Excluded>,
    running: Option<RunningEvents>,
    paused: bool,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct RunningEvents {
    process: i32,
    rates: Rates,
    /// The sets before the lanes: events are closed before the rings they write to.
    burst: Option<Set>,
    steady: Set,
    lanes: Vec<Lane>,
    threads: usize,
    uncovered: usize,
    suspects: Vec<Suspect>,
    /// Wanted rate over the rate of the set in use, 0 to 1.
    share: f64,
    /// Intervals owed to sampling, below 1 (see `next_interval`).
    owed: f64,
    /// Whether the present interval is to be sampled; a pause does not change it.
    chosen: bool,
}

/// A thread that may have no events.
#[derive(Debug)]
struct Suspect {
    tid: i32,
    /// The thread's clock when it became a suspect, moved on by pauses.
    cpu_ns: u64,
    /// The thread's clock when the present pause began.
    paused_ns: u64,
}

impl Suspect {
    fn new(tid: i32) -> Suspect {
        let cpu_ns = threads::read_clock(threads::cpu_clock(tid)).unwrap_or(0);
        Suspect {
            tid,
            cpu_ns,
            paused_ns: cpu_ns,
        }
    }

    fn pause(&mut self) {
        self.paused_ns = self.clock().unwrap_or(self.paused_ns);
    }

    fn resume(&mut self) {
        let now = self.clock().unwrap_or(self.paused_ns);
        self.cpu_ns += now.saturating_sub(self.paused_ns);
    }

    fn clock(&self) -> Option<u64> {
        threads::read_clock(threads::cpu_clock(self.tid))
    }
}

impl Perf {
    /// Opens an event on the calling thread, to check that samples arrive and to measure the cost
    /// of one.
    pub(crate) fn open(
        kind: Kind,
        sizes: Sizes,
        excluded: Arc<Excluded>,
    ) -> Result<Perf, SourceError> {
        filter::check()?;
        let counts = match kind {
            Kind::Cycles => Counts::Cycles,
            _ => Counts::CpuClock,
        };
        let mut perf = Perf {
            kind,
            counts,
            units_per_second: 1_000_000_000,
            cost_ns: ASSUMED_COST_NS,
            sizes,
            excluded,
            running: None,
            paused: false,
            scratch: Vec::new(),
        };
        perf.calibrate()?;
        Ok(perf)
    }

    fn calibrate(&mut self) -> Result<(), SourceError> {
        let plan = |period| Plan {
            counts: self.counts,
            period,
            inherit: false,
        };
        let tid = threads::current_tid();
        if self.kind == Kind::Cycles {
            // Count without interrupts, to measure the speed of the counter.
            let event = Event::open(plan(1 << 40), tid, None)?;
            event.set_enabled(true);
            let cpu_ns = calibrate::watch().cpu_ns.max(1);
            let cycles = event.read().unwrap_or(0);
            self.units_per_second =
                (u128::from(cycles) * 1_000_000_000 / u128::from(cpu_ns)) as u64;
            if self.units_per_second < 1_000_000 {
                let kind = self.kind;
                return Err(SourceError::Silent { kind, cpu_ns });
            }
        }
        let event = Event::open(plan(self.units(WATCH_PERIOD_NS)), tid, None)?;
        let mut ring = Ring::map(std::os::fd::AsFd::as_fd(&event), 4096)?;
        event.set_enabled(true);
        let watch = calibrate::watch();
        event.set_enabled(false);
        ring.take(&mut self.scratch);
        let mut samples = 0;
        let lost = records::walk(&self.scratch, &mut |_| samples += 1);
        samples += lost;
        if samples < DELIVERED {
            return Err(SourceError::Silent {
                kind: self.kind,
                cpu_ns: watch.cpu_ns,
            });
        }
        self.cost_ns = watch.cost_ns(samples);
        Ok(())
    }

    /// An error if the threads that exist now need more descriptors than allowed.
    pub(crate) fn check_descriptors(&self) -> Result<(), SourceError> {
        let (threads, cpus) = (threads::list().len(), threads::cpus().len());
        let limit = self.descriptor_limit();
        if cpus + threads * cpus > limit {
            return Err(SourceError::Descriptors {
                threads,
                cpus,
                limit,
            });
        }
        Ok(())
    }

    /// Restarts at the steady rate, after the program closed our descriptors.
    fn reopen(&mut self) {
        if let Some(running) = self.running.take() {
            let steady_hz = running.rates.steady_hz;
            drop(running);
            let rates = Rates {
                burst_hz: steady_hz,
                steady_hz,
            };
            // If the kernel now forbids it, sampling is over; the coverage shows it.
            let _ = self.start(rates);
        }
    }

    /// Pauses or resumes. In a fork's child events and rings are the parent's.
    fn switch_pause(&mut self, paused: bool) {
        let before = std::mem::replace(&mut self.paused, paused);
        let Some(running) = &mut self.running else {
            return;
        };
        if before == paused || running.process != threads::process_id() {
            return;
        }
        running.switch(paused);
        for suspect in &mut running.suspects {
            match paused {
                true => suspect.pause(),
                false => suspect.resume(),
            }
        }
    }

    fn descriptor_limit(&self) -> usize {
        let half = usize::try_from(event::descriptor_limit() / 2).unwrap_or(usize::MAX);
        self.sizes.descriptors.min(half)
    }

    /// Converts CPU time to units of the event.
    fn units(&self, ns: u64) -> u64 {
        let units = u128::from(ns) * u128::from(self.units_per_second) / 1_000_000_000;
        (units as u64).max(1)
    }

    fn set(&self, hz: u32) -> Set {
        let period = self.units(1_000_000_000 / u64::from(hz.max(1)));
        let plan = Plan {
            counts: self.counts,
            period,
            inherit: true,
        };
        Set::new(hz.max(1), plan)
    }

    /// Opens rings and the events of the threads that exist.
    fn open_all(&self, rates: Rates) -> Result<RunningEvents, SourceError> {
        let caller = threads::current_tid();
        let mut lanes = Vec::new();
        for cpu in threads::cpus() {
            lanes.extend(Lane::open(cpu, caller, self.sizes.ring_bytes)?);
        }
        let wanted = |tid: &i32| !self.excluded.contains(*tid);
        let first: Vec<i32> = threads::list().into_iter().filter(wanted).collect();
        let limit = self.descriptor_limit();
        let both_fit = lanes.len() * (1 + 2 * first.len()) <= limit;
        let burst = rates.burst_hz > rates.steady_hz && both_fit;
        let mut running = RunningEvents {
            process: threads::process_id(),
            rates,
            burst: burst.then(|| self.set(rates.burst_hz)),
            steady: self.set(rates.steady_hz),
            lanes,
            threads: 0,
            uncovered: 0,
            suspects: Vec::new(),
            share: 1.0,
            owed: 0.0,
            chosen: true,
        };
        let mut refused = None;
        for &tid in &first {
            if let Err(error) = running.cover(tid, limit) {
                running.uncovered += 1;
                refused = Some(error);
            }
        }
        if let Some(error) = refused.filter(|_| running.threads == 0) {
            return Err(error);
        }
        let late = |tid: &i32| wanted(tid) && !first.contains(tid);
        let suspects = threads::list().into_iter().filter(late).map(Suspect::new);
        running.suspects = suspects.take(MAX_SUSPECTS).collect();
        Ok(running)
    }
}

impl RunningEvents {
    fn descriptors(&self) -> usize {
        let burst = self.burst.as_ref().map_or(0, Set::descriptors);
        self.lanes.len() + burst + self.steady.descriptors()
    }

    fn cover(&mut self, tid: i32, limit: usize) -> Result<(), SourceError> {
        let sets = 1 + usize::from(self.burst.is_some());
        if self.descriptors() + sets * self.lanes.len() > limit {
            return Err(SourceError::Descriptors {
                threads: self.threads + 1,
                cpus: self.lanes.len(),
                limit,
            });
        }
        self.steady.cover(tid, &self.lanes)?;
        if let Some(burst) = &mut self.burst {
            burst.cover(tid, &self.lanes)?;
        }
        self.threads += 1;
        Ok(())
    }

    /// The set in use: the burst set as long as it exists.
    fn set(&mut self) -> &mut Set {
        self.burst.as_mut().unwrap_or(&mut self.steady)
    }

    /// Decides whether the next interval is sampled. Over many intervals the share of
    /// those that are is `share`, evenly spread (Bresenham's line).
    fn next_interval(&mut self, paused: bool) {
        self.owed += self.share;
        self.chosen = self.owed >= 1.0 - 1e-9;
        if self.chosen {
            self.owed -= 1.0;
        }
        self.switch(paused);
    }

    /// Changes the share. A share below 1 begins with a sampled interval. If the share before was
    /// also below 1 (and not 0), the sequence of intervals goes on, so that a rate that wavers gets
    /// its full share.
    fn set_share(&mut self, share: f64) {
        let before = std::mem::replace(&mut self.share, share);
        let partial = |share: f64| share > 0.0 && share < 1.0;
        if !(partial(share) && partial(before)) {
            self.chosen = share > 0.0;
            self.owed = 0.0;
        }
    }

    /// Enables or disables the set in use, by the present interval and the pause.
    fn switch(&mut self, paused: bool) {
        let on = self.chosen && !paused;
        self.set().set_enabled(on);
    }
}

impl Source for Perf {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    fn start(&mut self, rates: Rates) -> Result<(), SourceError> {
        if self.running.is_none() {
            let mut running = self.open_all(rates)?;
            running.switch(self.paused);
            self.running = Some(running);
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn set_rate(&mut self, hz: u32) -> u32 {
        let Some(running) = &mut self.running else {
            return 0;
        };
        if hz <= running.steady.hz && hz > 0 {
            // Closes the events of the burst set and those inherited from them.
            running.burst = None;
        }
        let most = running.set().hz;
        running.set_share(f64::from(hz.min(most)) / f64::from(most));
        running.switch(self.paused);
        hz.min(most)
    }

    fn pause(&mut self) {
        self.switch_pause(true);
    }

    fn resume(&mut self) {
        self.switch_pause(false);
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Sample)) -> Drained {
        let mut drained = Drained::default();
        let Some(running) = &mut self.running else {
            return drained;
        };
        // At rate 0 no samples are taken; the present ones are from before.
        let share = if running.share > 0.0 {
            running.share
        } else {
            1.0
        };
        let scale = 1e9 / self.units_per_second as f64 / share;
        for lane in &mut running.lanes {
            lane.ring.take(&mut self.scratch);
            let lost = records::walk(&self.scratch, &mut |raw| {
                if raw.pid != running.process {
                    return;
                }
                running.suspects.retain(|suspect| suspect.tid != raw.tid);
                if self.excluded.contains(raw.tid) {
                    drained.excluded += 1;
                    return;
                }
                drained.samples += 1;
                sink(Sample {
                    pc: raw.ip,
                    tid: raw.tid,
                    time: raw.time,
                    weight: (raw.period as f64 * scale) as u64,
                });
            });
            drained.lost += lost;
        }
        // Clear old addresses: a search of all memory would take them for suspended calls.
        self.scratch.fill(0);
        if running.share < 1.0 && !self.paused {
            running.next_interval(false);
        }
        drained
    }

    fn refresh(&mut self) {
        let limit = self.descriptor_limit();
        let Some(running) = &mut self.running else {
            return;
        };
        if !running.lanes.iter().all(Lane::is_open) {
            self.reopen();
            return;
        }
        if self.paused {
            // All events are off, so a missing sample says nothing about a suspect.
            return;
        }
        let hz = f64::from(running.set().hz) * running.share.max(0.01);
        let believed = (SUSPECT_PERIODS as f64 * 1e9 / hz) as u64;
        for suspect in std::mem::take(&mut running.suspects) {
            let Some(cpu_ns) = suspect.clock() else {
                continue;
            };
            if cpu_ns.saturating_sub(suspect.cpu_ns) <= believed {
                running.suspects.push(suspect);
            } else if running.cover(suspect.tid, limit).is_err() {
                running.uncovered += 1;
            }
        }
    }

    fn coverage(&self) -> Coverage {
        let Some(running) = &self.running else {
            return Coverage::default();
        };
        let rings = running.lanes.iter().map(|lane| lane.ring.bytes());
        Coverage {
            threads: running.threads,
            uncovered: running.uncovered,
            descriptors: running.descriptors(),
            ring_bytes: rings.sum(),
        }
    }

    fn after_fork_child(&mut self) {
        // Rings know that they belong to the parent, and do not unmap their addresses.
        self.running = None;
    }
}
