//! Eight threads in mixed code while its functions are recompiled, replaced, removed, added
//! again and moved as fast as possible; what was left is closed, and every result is
//! checked.
//!
//! Functions that stay recurse, sort through the C library's `qsort`, throw and catch C++
//! exceptions, and sleep. Functions that go sleep inside code that is removed meanwhile, then read
//! data of the same module. Functions that are replaced come in sets, at one instant or when no
//! thread is inside, and go back. A call of the first sees one set only, and its generation is one
//! that was there while the call ran. A wide set is linked code, of which hundreds of functions are
//! exchanged at a time. One seed chooses everything.

#[path = "text.rs"]
mod text;
#[path = "wide.rs"]
mod wide;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uruk::{
    Error, Freed, Func, HeapConfig, Jit, Level, ReclaimConfig, ReclaimKind, ReplaceError,
    Replacement, Tier, Tracker,
};

use text::{STAYING, going, replaced, right, text};
use uruk_testing::Random;
use wide::{WIDTH, Wide};

/// Modules that come and go.
const GOING: u64 = 4;

/// Sets of functions that are replaced.
const SETS: u64 = 4;

const THREADS: u64 = 8;

/// Sets that the library keeps to roll back.
const KEPT: usize = 8;

/// The parameters of a run.
pub struct Plan {
    /// Versions to publish, those that move counted.
    pub publications: u64,
    pub seed: u64,
    /// Sets to exchange for each 8 recompiles and one removal.
    pub sets: u64,
    /// Wide sets, likewise.
    pub wide: u64,
    /// Functions to replace, at least.
    pub replacements: u64,
    /// Ends earlier then, but not before the replacements are done.
    pub limit: Duration,
}

/// The memory of code at one moment, in bytes.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "printed")]
pub struct Memory {
    pub live: u64,
    pub retired: u64,
    pub held: u64,
}

/// The counts of a run.
#[derive(Debug)]
#[allow(dead_code, reason = "printed")]
pub struct Outcome {
    pub compiled: u64,
    pub moved: u64,
    pub removed: u64,
    pub replaced: Replaced,
    pub calls: u64,
    pub cycles: (u64, u64),
    pub freed: u64,
    pub longest_handshake: Duration,
    /// At the start, in the middle, and in the end.
    pub memory: [Memory; 3],
}

/// Sets that were exchanged.
#[derive(Clone, Copy, Debug, Default)]
#[allow(dead_code, reason = "printed")]
pub struct Replaced {
    pub immediate: u64,
    pub quiescent: u64,
    /// Waited for old code in vain.
    pub given_up: u64,
    pub rolled_back: u64,
    /// Functions of these, in all.
    pub functions: u64,
    /// Wide sets, put in place or rolled back.
    pub wide: u64,
}

impl Replaced {
    /// Functions whose code was exchanged, each as often as it was.
    pub fn all(&self) -> u64 {
        self.functions + self.wide * WIDTH
    }
}

type Staying = Func<extern "C" fn(u64) -> u64>;
type Going = Func<extern "C" fn(u64, u64) -> u64>;

/// A module that is there now.
struct Present {
    tracker: Tracker,
    function: Arc<Going>,
    generation: u64,
    /// Calls that took the function and did not enter it.
    entering: Arc<AtomicU64>,
}

/// Functions that are replaced, and the generations that may run: from the oldest that a
/// call may still be of, to the newest that is being put in place.
struct Exchanged {
    function: Staying,
    /// Even numbers are at rest; one is added before an exchange and one after.
    changes: AtomicU64,
    generation: AtomicU64,
}

struct Scene {
    jit: Jit,
    staying: Vec<Staying>,
    exchanged: Vec<Exchanged>,
    wide: Wide,
    /// The latest generation of any set.
    newest: AtomicU64,
    /// Sets that can be rolled back, with the generations before them.
    history: Mutex<Vec<(u64, u64)>>,
    going: Vec<Mutex<Option<Present>>>,
    stop: AtomicBool,
}

impl Scene {
    fn new() -> Result<Scene, Error> {
        let mut heap = HeapConfig::default();
        heap.freed = Freed::Protect {
            quarantine: 4 << 20,
        };
        let mut reclaim = ReclaimConfig::default();
        for (name, value) in [
            ("evacuate_every", "16"),
            ("sweep_floor", "0"),
            ("interval", "0ns"),
            ("cpu_fraction", "1"),
            ("backoff_min", "1ms"),
            ("backoff_max", "20ms"),
        ] {
            reclaim.set(name, value).expect("a setting");
        }
        let jit = Jit::builder().heap(heap).reclaim(reclaim).build()?;
        jit.add_ir("staying", &text())?;
        // SAFETY: functions of the text above.
        let named = |i| unsafe { jit.function(&format!("f{i}")) };
        let staying = (0..STAYING).map(named).collect::<Result<_, _>>()?;
        let mut exchanged = Vec::new();
        for place in 0..SETS {
            jit.add_ir("set", &replaced(place, 0))?;
            // SAFETY: a function of the text above.
            let function = unsafe { jit.function(&format!("r{place}"))? };
            exchanged.push(Exchanged {
                function,
                changes: AtomicU64::new(0),
                generation: AtomicU64::new(0),
            });
        }
        let wide = Wide::new(&jit)?;
        let going = (0..GOING).map(|_| Mutex::new(None)).collect();
        let stop = AtomicBool::new(false);
        Ok(Scene {
            jit,
            staying,
            exchanged,
            wide,
            newest: AtomicU64::new(0),
            history: Mutex::default(),
            going,
            stop,
        })
    }

    /// Calls at random until told to stop; the number of calls.
    fn call(&self, mut random: Random) -> u64 {
        let mut calls = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let x = random.next();
            let kind = random.below(8);
            if kind == 0 {
                self.call_going(random.below(GOING), x);
            } else if kind <= 2 {
                self.call_exchanged(random.below(SETS), x);
            } else if kind == 3 {
                (0..64).for_each(|_| self.wide.call(random.next()));
            } else {
                let i = random.below(STAYING);
                let got = self.staying[i as usize].call(x);
                assert_eq!(got, right(i, x), "f{i}({x})");
            }
            calls += 1;
        }
        calls
    }

    fn call_going(&self, place: u64, x: u64) {
        let taken = {
            let held = self.present(place);
            held.as_ref().map(|present| {
                present.entering.fetch_add(1, Ordering::SeqCst);
                let entering = Arc::clone(&present.entering);
                (Arc::clone(&present.function), present.generation, entering)
            })
        };
        if let Some((function, generation, entering)) = taken {
            let got = function.call(x, entering.as_ptr() as u64);
            let right = x.wrapping_mul(generation * 2 + 1).wrapping_add(generation);
            assert_eq!(got, right, "g{place}({x}), generation {generation}");
        }
    }

    /// A call sees the set that was there when it began, if nothing was exchanged meanwhile.
    /// Otherwise `r` may have begun in one set and met another in `s`.
    fn call_exchanged(&self, place: u64, x: u64) {
        let set = &self.exchanged[place as usize];
        let before = set.changes.load(Ordering::SeqCst);
        let generation = set.generation.load(Ordering::SeqCst);
        let got = set.function.call(x);
        let after = set.changes.load(Ordering::SeqCst);
        if before == after && before.is_multiple_of(2) {
            assert_eq!(got, generation, "r{place}({x}) while nothing changed");
        } else {
            let known = got == u64::MAX || got <= self.newest.load(Ordering::SeqCst);
            assert!(known, "r{place}({x}) is {got}");
        }
    }

    /// Puts a set in place, or goes back to the latest that was.
    fn exchange(&self, random: &mut Random, done: &mut Replaced) -> Result<(), Error> {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if random.below(4) == 0
            && let Some((place, before)) = history.pop()
        {
            let Some(set) = self.exchanged.get(place as usize) else {
                done.wide += 1;
                return self.wide.roll_back(&self.jit, before);
            };
            set.changes.fetch_add(1, Ordering::SeqCst);
            let functions = self.jit.rollback()?.functions;
            set.generation.store(before, Ordering::SeqCst);
            set.changes.fetch_add(1, Ordering::SeqCst);
            done.rolled_back += 1;
            done.functions += functions.len() as u64;
            return Ok(());
        }
        let place = random.below(SETS);
        let set = &self.exchanged[place as usize];
        let generation = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let quiescent = random.below(4) == 0;
        let level = match quiescent {
            true => Level::Quiescent {
                wait: Duration::from_millis(20),
            },
            false => Level::Immediate,
        };
        let new = Replacement::ir("set", &replaced(place, generation)).level(level);
        set.changes.fetch_add(1, Ordering::SeqCst);
        let outcome = self.jit.main().replace(new);
        let done_now = match outcome {
            Ok(replaced) => {
                done.functions += (replaced.functions.len() + replaced.dependents.len()) as u64;
                let before = set.generation.swap(generation, Ordering::SeqCst);
                remember(&mut history, place, before);
                Ok(if quiescent {
                    &mut done.quiescent
                } else {
                    &mut done.immediate
                })
            }
            Err(Error::Replace(cause)) if matches!(*cause, ReplaceError::StillRunning { .. }) => {
                Ok(&mut done.given_up)
            }
            Err(cause) => Err(cause),
        };
        set.changes.fetch_add(1, Ordering::SeqCst);
        *done_now? += 1;
        Ok(())
    }

    /// Puts a wide set in place, and rolls back three of four at once.
    fn exchange_wide(&self, random: &mut Random, done: &mut Replaced) -> Result<(), Error> {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let before = self.wide.replace(&self.jit, generation)?;
        done.wide += 1;
        if random.below(4) == 0 {
            remember(&mut history, SETS, before);
            return Ok(());
        }
        self.wide.roll_back(&self.jit, before)?;
        done.wide += 1;
        // It took the place of the oldest that was kept.
        let surplus = (history.len() + 1).saturating_sub(KEPT);
        history.drain(..surplus);
        Ok(())
    }

    fn present(&self, place: u64) -> std::sync::MutexGuard<'_, Option<Present>> {
        let held = self.going[place as usize].lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is at `place` while threads are inside, and adds another there.
    fn replace(&self, place: u64, generation: u64) -> Result<(), Error> {
        let old = self.present(place).take();
        if let Some(old) = old {
            while old.entering.load(Ordering::SeqCst) != 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            // SAFETY: no thread will call it; the threads inside use its data through its code.
            unsafe { old.tracker.remove()? };
        }
        let tracker = self.jit.main().create_tracker()?;
        tracker.add_ir("going", &going(place, generation))?;
        // SAFETY: the function just added.
        let function = unsafe { self.jit.function(&format!("g{place}"))? };
        *self.present(place) = Some(Present {
            tracker,
            function: Arc::new(function),
            generation,
            entering: Arc::new(AtomicU64::new(0)),
        });
        Ok(())
    }

    fn name(random: &mut Random) -> String {
        let i = random.below(STAYING);
        match (i % 4, random.below(2)) {
            (0, 0) => format!("deep{i}"),
            (1, 0) => format!("compare{i}"),
            (2, 0) => format!("thrower{i}"),
            _ => format!("f{i}"),
        }
    }

    /// The least that is held within some cycles: what comes and goes between two of them
    /// depends on who got a processor.
    fn memory(&self) -> Memory {
        let samples = (0..20).map(|_| {
            self.jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(1));
            let memory = self.jit.stats().memory;
            Memory {
                live: memory.live,
                retired: memory.retired,
                held: memory.held,
            }
        });
        let least = samples.min_by_key(|memory| memory.held);
        least.expect("some samples")
    }

    /// Recompiles, removes and adds until `plan` is done.
    fn change(&self, plan: &Plan) -> Result<Changes, Error> {
        let mut random = Random::new(!plan.seed);
        let (mut compiled, mut removed) = (0, 0);
        let mut replaced = Replaced::default();
        let began = Instant::now();
        let start = self.memory();
        let mut middle = None;
        loop {
            let moved = self.jit.stats().memory.moved.0;
            let part = (compiled + moved + replaced.functions) as f64 / plan.publications as f64;
            let part = part.max(began.elapsed().as_secs_f64() / plan.limit.as_secs_f64());
            let part = match plan.replacements {
                0 => part,
                asked => part.min(replaced.all() as f64 / asked as f64),
            };
            if part >= 0.5 && middle.is_none() {
                middle = Some(self.memory());
            }
            if part >= 1.0 {
                let middle = middle.unwrap_or(start);
                let memory = [start, middle, self.memory()];
                return Ok((compiled, removed, replaced, memory));
            }
            for _ in 0..8 {
                let name = Self::name(&mut random);
                let tier = Tier::ALL[random.below(3) as usize];
                let set = random.below(4 * SETS);
                let name = match (set / SETS, set % SETS) {
                    (0, place) => format!("r{place}"),
                    (1, place) => format!("s{place}"),
                    _ => name,
                };
                match self.jit.compile_at(&name, tier) {
                    Ok(()) => compiled += 1,
                    Err(Error::Version { cause, .. }) if cause.is_late() => {}
                    Err(error) => return Err(error),
                }
            }
            for _ in 0..plan.sets {
                self.exchange(&mut random, &mut replaced)?;
            }
            for _ in 0..plan.wide {
                self.exchange_wide(&mut random, &mut replaced)?;
            }
            removed += 1;
            assert!(!self.stop.load(Ordering::Relaxed), "a caller is gone");
            self.replace(random.below(GOING), removed)?;
        }
    }
}

/// Notes a set that can be rolled back; of `SETS`, the wide one.
fn remember(history: &mut Vec<(u64, u64)>, place: u64, before: u64) {
    history.push((place, before));
    if history.len() > KEPT {
        history.remove(0);
    }
}

/// Compiled, removed, replaced, and the memory.
type Changes = (u64, u64, Replaced, [Memory; 3]);

/// Runs it.
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    let scene = Scene::new()?;
    // First code for all, and enough of it moved and removed that what follows is steady.
    for (i, function) in (0..).zip(&scene.staying) {
        assert_eq!(function.call(i), right(i, i), "f{i} at first");
    }
    for place in 0..GOING {
        scene.replace(place, 0)?;
    }
    scene
        .jit
        .reclaim(ReclaimKind::Evacuate, Duration::from_secs(5));
    let (calls, changes) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (scene, random) = (&scene, Random::new(plan.seed << 8 | thread));
                scope.spawn(move || {
                    let _stop = StopAtEnd(&scene.stop);
                    scene.call(random)
                })
            })
            .collect();
        let mover = scope.spawn(|| {
            while !scene.stop.load(Ordering::Relaxed) {
                scene
                    .jit
                    .reclaim(ReclaimKind::Evacuate, Duration::from_secs(1));
            }
        });
        let changer = scope.spawn(|| {
            let _stop = StopAtEnd(&scene.stop);
            scene.change(plan)
        });
        let changes = changer.join().expect("no panic");
        let calls = callers
            .into_iter()
            .map(|c| c.join().expect("right results"));
        let calls = calls.sum::<u64>();
        mover.join().expect("no panic");
        (calls, changes)
    });
    let (compiled, removed, replaced, memory) = changes?;
    let stats = scene.jit.stats().memory;
    Ok(Outcome {
        compiled,
        moved: stats.moved.0,
        removed,
        replaced,
        calls,
        cycles: stats.cycles,
        freed: stats.freed,
        longest_handshake: stats.longest_handshake,
        memory,
    })
}

/// A thread that ends, or panics, ends all.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
