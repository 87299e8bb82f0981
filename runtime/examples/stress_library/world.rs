//! The session that is called and changed, progress of the threads, and the watchdog.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Error, GuestThread, Jit, ReclaimConfig, ReplaceError, Stacks, Tiers, Trap, TrapKind};

use super::{fibers, texts};

/// A thread that makes no progress for so long hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ends the process with a message.
pub fn fail(message: &str) -> ! {
    eprintln!("stress: {message}");
    std::process::abort();
}

/// All that the threads share.
pub struct World {
    pub jit: Jit,
    /// The latest generation that was made. None is used twice.
    generations: AtomicU64,
    stop: AtomicBool,
    progress: Vec<Progress>,
    /// Threads that are in guarded calls.
    pub guests: Mutex<Vec<GuestThread>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

#[derive(Default)]
struct Progress {
    operations: AtomicU64,
    doing: Mutex<&'static str>,
    done: AtomicBool,
}

impl World {
    /// Stacks of fibers are registered. With an even `seed` all memory is searched nevertheless, as
    /// for a program that does not say so: words of long ago keep most quiescent sets from their
    /// instant then.
    pub fn new(threads: usize, seed: u64) -> World {
        let mut reclaim = ReclaimConfig::default();
        if seed % 2 == 1 {
            reclaim.stacks = Stacks::Told;
        }
        let builder = Jit::builder().jobs(2).tiers(Tiers::default()).tune(true);
        let builder = builder.reclaim(reclaim);
        let jit = builder.build().expect("a session");
        jit.define_fn("nap", |n: i64| match n {
            0 => {}
            1 => std::thread::yield_now(),
            n => std::thread::sleep(Duration::from_micros(n.unsigned_abs())),
        })
        .expect("defined");
        jit.define_fn("rest", fibers::rest).expect("defined");
        jit.main().allow_missing(true);
        jit.add_ir("first", &texts::first()).expect("valid IR");
        World {
            jit,
            generations: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            progress: (0..threads).map(|_| Progress::default()).collect(),
            guests: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// A number for new code. It is noted before the code is there.
    pub fn generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Ends the process unless a generation was made.
    pub fn check_generation(&self, generation: u64) {
        if generation == 0 || generation > self.generations.load(Ordering::SeqCst) {
            fail(&format!("no generation {generation} was made"));
        }
    }

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Has a thread begin an operation.
    pub fn begin(&self, thread: usize, what: &'static str) {
        let progress = &self.progress[thread];
        *progress.doing.lock().expect("no panic") = what;
        progress.operations.fetch_add(1, Ordering::Relaxed);
        self.count(what);
    }

    pub fn end(&self, thread: usize) {
        self.progress[thread].done.store(true, Ordering::Relaxed);
    }

    pub fn count(&self, what: &str) {
        let mut counts = self.counts.lock().expect("no panic");
        match counts.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(counts.insert(what.to_owned(), 1)),
        }
    }

    /// Waits until `end`; a thread that hangs ends the process.
    pub fn watch(&self, end: Instant) {
        let mut watch = Watch::new(self);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(200));
            watch.look(self);
        }
    }

    /// Ends the process unless all threads have ended by themselves.
    pub fn done(&self) {
        for (index, progress) in self.progress.iter().enumerate() {
            if !progress.done.load(Ordering::Relaxed) {
                fail(&format!("thread {index} did not end"));
            }
        }
    }

    pub fn summary(&self) -> String {
        let counts = self.counts.lock().expect("no panic");
        let lines = counts
            .iter()
            .map(|(what, count)| format!("{count:>12} {what}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Ends the process unless a replacement did what it should, or failed as one may.
    pub fn check_replaced<T>(&self, what: &str, done: Result<T, Error>) -> Option<T> {
        match done {
            Ok(done) => {
                self.count(&format!("{what}: published"));
                Some(done)
            }
            Err(cause) => {
                let why = match &cause {
                    Error::Replace(why) => match &**why {
                        ReplaceError::StillRunning { .. } => "still running",
                        ReplaceError::NotLatest { .. } => "not the latest",
                        ReplaceError::Nothing { .. } => "nothing to replace",
                        _ => fail(&format!("{what}: {cause}")),
                    },
                    _ => fail(&format!("{what}: {cause:?}")),
                };
                self.count(&format!("{what}: {why}"));
                None
            }
        }
    }

    /// The result of a guarded call, unless it was interrupted or met its limit.
    pub fn unless_ended<T>(&self, done: Result<T, Trap>) -> Option<Result<T, Trap>> {
        match done {
            Err(trap) if matches!(trap.kind, TrapKind::Interrupted) => {
                self.count("calls that were interrupted");
                None
            }
            Err(trap) if matches!(trap.kind, TrapKind::Deadline(_)) => {
                self.count("calls that met their limit");
                None
            }
            other => Some(other),
        }
    }
}

/// When each thread was last seen to have made progress.
struct Watch(Vec<(u64, Instant)>);

impl Watch {
    fn new(world: &World) -> Watch {
        Watch(vec![(0, Instant::now()); world.progress.len()])
    }

    fn look(&mut self, world: &World) {
        for (index, (seen, since)) in self.0.iter_mut().enumerate() {
            let progress = &world.progress[index];
            let now = progress.operations.load(Ordering::Relaxed);
            if now != *seen || progress.done.load(Ordering::Relaxed) {
                (*seen, *since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                let doing = *progress.doing.lock().expect("no panic");
                fail(&format!(
                    "thread {index} hangs in: {doing}\n{}",
                    world.summary()
                ));
            }
        }
    }
}
