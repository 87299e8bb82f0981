//! Samples from POSIX timers, one on each thread's CPU clock: for containers and
//! kernels that forbid perf events.
//!
//! Threads do not inherit timers: [`Source::refresh`] finds new ones by the number of
//! threads, and now and then by the whole list. The kernel looks at these timers in
//! its tick, so rates above the tick's (often 250 Hz) are not reached; overruns make
//! up for it in the weight.
//!
//! Limits: a thread that blocks all signals is not sampled (the signal would only stay
//! pending, and a thread that waits for all signals would receive ours). Stacks need room
//! for a signal frame (3 KiB with AVX-512); an alternate stack is used where there is one.
//! A program that resets all signals to their default while it runs is ended by the next sample.
//!
//! # Invariants
//! - No system call of the program returns `EINTR` because of us (`handler`).
//! - Timers of a parent are never deleted in the child of a fork.
//! - If the program takes our signal for itself, another one is used.
//! - A pause disarms timers; a signal that is pending then still makes a sample.

mod handler;
mod timer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exclude::Excluded;
use crate::queue::Queue;
use crate::sample::{Kind, Sample};
use crate::source::{Coverage, Drained, Rates, Sizes, Source, SourceError};
use crate::threads;
use crate::timers::timer::Timer;

/// Threads that get a timer in one refresh: looking at one costs about 30 us.
const NEW_PER_REFRESH: usize = 256;

/// Refreshes between two reads of the whole list, if the number did not change.
const REFRESHES_PER_LIST: u32 = 16;

/// Signals sent to the own thread to measure the cost of one.
const TRIALS: usize = 32;

/// Factor of the measured cost: one part for signal and handler, and about as much for the tick's
/// work, which cannot be measured.
const COST_FACTOR: u64 = 2;

/// Cost of a sample if the kernel forbids the trial.
const ASSUMED_COST_NS: u64 = 5_000;

/// Whether a source exists: the handler's queue has one consumer.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The source of samples by thread timers.
#[derive(Debug)]
pub(crate) struct Timers {
    signal: i32,
    cost_ns: u64,
    queue: &'static Queue,
    most: usize,
    excluded: Arc<Excluded>,
    running: Option<RunningTimers>,
    paused: bool,
}

#[derive(Debug)]
struct RunningTimers {
    process: i32,
    interval_ns: u64,
    timers: HashMap<i32, Timer>,
    uncovered: usize,
    /// Number of threads at the last read of the list.
    listed: u64,
    refreshes: u32,
    /// Whether the last refresh left threads without timers, above its limit.
    more: bool,
}

impl Timers {
    /// Installs the handler, for `signal` if given.
    pub(crate) fn open(
        sizes: Sizes,
        signal: Option<i32>,
        excluded: Arc<Excluded>,
    ) -> Result<Timers, SourceError> {
        handler::never_interrupts()?;
        if IN_USE.swap(true, Ordering::Acquire) {
            return Err(SourceError::Busy);
        }
        let installed = handler::install(signal);
        let installed = installed.inspect_err(|_| IN_USE.store(false, Ordering::Release))?;
        let queue = handler::queue(sizes.queue_samples);
        Ok(Timers {
            signal: installed,
            cost_ns: measure(installed, queue),
            queue,
            most: sizes.timers,
            excluded,
            running: None,
            paused: false,
        })
    }

    /// Makes timers for threads that have none, and drops those of threads that ended
    /// or are excluded by now.
    fn look_at_threads(&mut self) -> Result<(), SourceError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let tids = threads::list();
        running.listed = tids.len() as u64;
        let alive: HashSet<i32> = tids.iter().copied().collect();
        let gone = |tid: &i32, _: &mut Timer| !alive.contains(tid) || self.excluded.contains(*tid);
        for (_, timer) in running.timers.extract_if(gone) {
            timer.delete();
        }
        let (mut fresh, mut refused) = (0, None);
        running.uncovered = 0;
        running.more = false;
        for &tid in &tids {
            if running.timers.contains_key(&tid) || self.excluded.contains(tid) {
                continue;
            }
            fresh += 1;
            if fresh > NEW_PER_REFRESH {
                running.more = true;
                break;
            }
            if running.timers.len() == self.most {
                running.uncovered += 1;
                continue;
            }
            // A new thread blocks all signals until its C library has set it up.
            if threads::blocks(tid, self.signal) != Some(false) {
                running.uncovered += 1;
                continue;
            }
            match Timer::create(tid, self.signal) {
                Ok(mut timer) => {
                    if !self.paused {
                        timer.arm(running.interval_ns);
                    }
                    running.timers.insert(tid, timer);
                }
                Err(error) => {
                    running.uncovered += 1;
                    refused = Some(error);
                }
            }
        }
        match refused {
            Some(error) if running.timers.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The running state, if this process started it. In a fork's child the timers' numbers are
    /// unused, or belong to timers of the program.
    fn own(&mut self) -> Option<&mut RunningTimers> {
        let running = self.running.as_mut();
        running.filter(|running| running.process == threads::process_id())
    }

    fn delete_all(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        for (_, timer) in running.timers.drain() {
            if running.process == threads::process_id() {
                timer.delete();
            }
        }
    }

    /// Moves to another signal if the program took ours.
    fn keep_signal(&mut self) {
        if handler::is_ours(self.signal) {
            return;
        }
        self.delete_all();
        match (handler::install(None), &mut self.running) {
            (Ok(signal), running) => {
                self.signal = signal;
                if let Some(running) = running {
                    running.more = true;
                }
            }
            // No free signal is left: go on without timers.
            (Err(_), running) => *running = None,
        }
    }
}

/// CPU time of one sample, nanoseconds.
fn measure(signal: i32, queue: &Queue) -> u64 {
    let tid = threads::current_tid();
    let mut info = handler::made_up(signal, tid);
    let mut costs = Vec::new();
    // SAFETY: the mask is made by the calls before it is used, and put back; the
    // signal's data is a whole structure that says the truth about its sender.
    unsafe {
        let (mut only, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, &mut before);
        for _ in 0..TRIALS {
            let begin = threads::now();
            let sent = libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                threads::process_id(),
                tid,
                signal,
                &raw mut info,
            );
            if sent == 0 {
                costs.push(threads::now() - begin);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
    queue.pop_all(&mut |_| ());
    costs.sort_unstable();
    match costs.get(costs.len() / 2) {
        Some(median) => COST_FACTOR * median,
        None => ASSUMED_COST_NS,
    }
}

fn interval_ns(hz: u32) -> u64 {
    1_000_000_000u64.checked_div(u64::from(hz)).unwrap_or(0)
}

impl Source for Timers {
    fn kind(&self) -> Kind {
        Kind::Timers
    }

    fn cost_ns(&self) -> u64 {
        self.cost_ns
    }

    fn start(&mut self, rates: Rates) -> Result<(), SourceError> {
        if self.running.is_some() {
            return Ok(());
        }
        self.queue.pop_all(&mut |_| ());
        self.queue.take_lost();
        let interval_ns = interval_ns(rates.burst_hz);
        handler::set_interval(interval_ns);
        self.running = Some(RunningTimers {
            process: threads::process_id(),
            interval_ns,
            timers: HashMap::new(),
            uncovered: 0,
            listed: 0,
            refreshes: 0,
            more: false,
        });
        self.keep_signal();
        let started = self.look_at_threads();
        started.inspect_err(|_| self.stop())
    }

    fn stop(&mut self) {
        self.delete_all();
        self.running = None;
    }

    fn set_rate(&mut self, hz: u32) -> u32 {
        let Some(running) = &mut self.running else {
            return 0;
        };
        let interval_ns = interval_ns(hz);
        if running.interval_ns != interval_ns {
            running.interval_ns = interval_ns;
            handler::set_interval(interval_ns);
            if !self.paused {
                for timer in running.timers.values_mut() {
                    timer.arm(interval_ns);
                }
            }
        }
        hz
    }

    fn pause(&mut self) {
        if !std::mem::replace(&mut self.paused, true)
            && let Some(running) = self.own()
        {
            running.timers.values_mut().for_each(Timer::break_off);
        }
    }

    fn resume(&mut self) {
        if !std::mem::replace(&mut self.paused, false) || self.own().is_none() {
            return;
        }
        // Check the signal before timers send it: the program may have taken it meanwhile.
        self.keep_signal();
        if let Some(running) = self.own() {
            let interval_ns = running.interval_ns;
            let timers = running.timers.values_mut();
            timers.for_each(|timer| timer.arm(interval_ns));
            // An equal number of threads may be other threads.
            running.more = true;
        }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Sample)) -> Drained {
        let mut drained = Drained::default();
        self.queue.pop_all(&mut |sample| {
            if self.excluded.contains(sample.tid) {
                drained.excluded += 1;
            } else {
                drained.samples += 1;
                sink(sample);
            }
        });
        drained.lost = self.queue.take_lost();
        drained
    }

    fn refresh(&mut self) {
        self.keep_signal();
        let Some(running) = &mut self.running else {
            return;
        };
        running.refreshes += 1;
        let changed = threads::count().is_none_or(|count| count != running.listed);
        if changed || running.more || running.refreshes.is_multiple_of(REFRESHES_PER_LIST) {
            // Threads refused now are counted as uncovered, and tried again.
            let _ = self.look_at_threads();
        }
    }

    fn coverage(&self) -> Coverage {
        let Some(running) = &self.running else {
            return Coverage::default();
        };
        Coverage {
            threads: running.timers.len(),
            uncovered: running.uncovered,
            descriptors: 0,
            ring_bytes: self.queue.bytes(),
        }
    }

    fn after_fork_child(&mut self) {
        self.delete_all();
        self.running = None;
        self.queue.reset();
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.stop();
        // Partner: the acquire of the swap in `open`.
        IN_USE.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    static THEIRS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn plain(_: i32) {
        THEIRS.fetch_add(1, Ordering::Relaxed);
    }

    extern "C" fn with_info(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's data.
        let pid = unsafe { (*info).si_pid() };
        THEIRS.fetch_add(u32::from(pid == threads::process_id()), Ordering::Relaxed);
    }

    /// Installs a handler, ours over it, and counts samples and the handler's signals.
    fn chain(signal: i32, address: usize, flags: i32) -> (u64, u32) {
        // SAFETY: zero bytes are a valid structure; the handlers only count.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = address;
            action.sa_flags = flags;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        let mut timers = Timers::open(Sizes::default(), Some(signal), Arc::default()).unwrap();
        let rates = Rates {
            burst_hz: 250,
            steady_hz: 250,
        };
        timers.start(rates).unwrap();
        let before = THEIRS.load(Ordering::Relaxed);
        let clock = || threads::read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap();
        let mut samples = 0;
        // On a busy machine few ticks come while the thread is on a processor.
        for _ in 0..1000 {
            let begin = clock();
            while clock() - begin < 50_000_000 {}
            samples += timers.drain(&mut |_| ()).samples;
            if samples >= 3 {
                break;
            }
        }
        for _ in 0..3 {
            // SAFETY: has a handler.
            unsafe { libc::raise(signal) };
        }
        samples += timers.drain(&mut |_| ()).samples;
        (samples, THEIRS.load(Ordering::Relaxed) - before)
    }

    #[test]
    fn handlers_that_were_there_before_get_their_signals() {
        let (samples, theirs) = chain(libc::SIGPROF, plain as *const () as usize, 0);
        assert!(samples >= 3 && theirs == 3, "{samples} {theirs}");
        let address = with_info as *const () as usize;
        let (samples, theirs) = chain(libc::SIGUSR2, address, libc::SA_SIGINFO);
        assert!(samples >= 3 && theirs == 3, "{samples} {theirs}");
        let (samples, theirs) = chain(libc::SIGVTALRM, libc::SIG_IGN, 0);
        assert!(samples >= 3 && theirs == 0, "{samples} {theirs}");
    }
}
