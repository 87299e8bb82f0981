//! Eight threads in mixed code while its functions are recompiled, removed, added again
//! and moved as fast as possible; what was left is closed, and every result is checked.
//!
//! Functions that stay recurse, sort through the C library's `qsort`, throw and catch C++
//! exceptions, and sleep. Those that go sleep inside code that is removed meanwhile, then
//! read data of the same module. All is chosen by one seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uruk::{Error, Freed, Func, HeapConfig, Jit, ReclaimConfig, ReclaimKind, Tier, Tracker};

/// Functions that stay.
const STAYING: u64 = 32;

/// Modules that come and go.
const GOING: u64 = 4;

const THREADS: u64 = 8;

/// What is asked for.
pub struct Plan {
    /// Versions to publish, those that move counted.
    pub publications: u64,
    pub seed: u64,
    /// Ends earlier then.
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

/// What happened.
#[derive(Debug)]
#[allow(dead_code, reason = "printed")]
pub struct Outcome {
    pub compiled: u64,
    pub moved: u64,
    pub removed: u64,
    pub calls: u64,
    pub cycles: (u64, u64),
    pub freed: u64,
    pub longest_handshake: Duration,
    /// At the start, in the middle, and in the end.
    pub memory: [Memory; 3],
}

/// splitmix64: a step for each number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// What function `i` of `x` is, as [`staying`] has it.
fn right(i: u64, x: u64) -> u64 {
    match i % 4 {
        0 => (1..=x & 31).fold(i, |sum, depth| sum.wrapping_mul(31) ^ depth),
        1 => {
            let mut values: Vec<u64> = (0..16)
                .map(|k| (x ^ i).wrapping_mul(2 * k + 1) >> 8)
                .collect();
            values.sort_unstable();
            (0..16).fold(0, |sum: u64, k| {
                sum.wrapping_add(values[k as usize].wrapping_mul(k + 1))
            })
        }
        2 => ((x & 0xffff) + i) * 3,
        _ => right(i - 3, x).wrapping_add(1),
    }
}

fn staying(i: u64) -> String {
    match i % 4 {
        0 => format!(
            "define i64 @f{i}(i64 %x) {{
  %n = and i64 %x, 31
  %r = call i64 @deep{i}(i64 %n)
  ret i64 %r
}}
define i64 @deep{i}(i64 %n) {{
  %end = icmp eq i64 %n, 0
  br i1 %end, label %last, label %more
last:
  ret i64 {i}
more:
  %m = sub i64 %n, 1
  %y = call i64 @deep{i}(i64 %m)
  %z = mul i64 %y, 31
  %r = xor i64 %z, %n
  ret i64 %r
}}\n"
        ),
        1 => format!(
            "define i64 @f{i}(i64 %x) {{
entry:
  %a = alloca [16 x i64]
  %seed = xor i64 %x, {i}
  br label %fill
fill:
  %k = phi i64 [ 0, %entry ], [ %k1, %fill ]
  %k2 = shl i64 %k, 1
  %odd = add i64 %k2, 1
  %v = mul i64 %seed, %odd
  %w = lshr i64 %v, 8
  %p = getelementptr i64, ptr %a, i64 %k
  store i64 %w, ptr %p
  %k1 = add i64 %k, 1
  %c = icmp ult i64 %k1, 16
  br i1 %c, label %fill, label %sort
sort:
  call void @qsort(ptr %a, i64 16, i64 8, ptr @compare{i})
  br label %sum
sum:
  %j = phi i64 [ 0, %sort ], [ %j1, %sum ]
  %s = phi i64 [ 0, %sort ], [ %s1, %sum ]
  %q = getelementptr i64, ptr %a, i64 %j
  %u = load i64, ptr %q
  %j1 = add i64 %j, 1
  %t = mul i64 %u, %j1
  %s1 = add i64 %s, %t
  %d = icmp ult i64 %j1, 16
  br i1 %d, label %sum, label %done
done:
  ret i64 %s1
}}
define i32 @compare{i}(ptr %p, ptr %q) {{
  %a = load i64, ptr %p
  %b = load i64, ptr %q
  %less = icmp ult i64 %a, %b
  %more = icmp ugt i64 %a, %b
  %l = zext i1 %less to i32
  %m = zext i1 %more to i32
  %r = sub i32 %m, %l
  ret i32 %r
}}\n"
        ),
        2 => format!(
            "define i64 @f{i}(i64 %x) uwtable personality ptr @__gxx_personality_v0 {{
  %n = and i64 %x, 7
  invoke void @thrower{i}(i64 %n, i64 %x) to label %normal unwind label %pad
normal:
  ret i64 0
pad:
  %landed = landingpad {{ ptr, i32 }} catch ptr null
  %pointer = extractvalue {{ ptr, i32 }} %landed, 0
  %object = call ptr @__cxa_begin_catch(ptr %pointer)
  %value = load i64, ptr %object
  call void @__cxa_end_catch()
  %r = mul i64 %value, 3
  ret i64 %r
}}
define void @thrower{i}(i64 %n, i64 %x) uwtable personality ptr @__gxx_personality_v0 {{
  %end = icmp eq i64 %n, 0
  br i1 %end, label %throw, label %more
throw:
  %exception = call ptr @__cxa_allocate_exception(i64 8)
  %low = and i64 %x, 65535
  %value = add i64 %low, {i}
  store i64 %value, ptr %exception
  call void @__cxa_throw(ptr %exception, ptr @_ZTIm, ptr null)
  unreachable
more:
  %m = sub i64 %n, 1
  invoke void @thrower{i}(i64 %m, i64 %x) to label %normal unwind label %pad
normal:
  ret void
pad:
  %landed = landingpad {{ ptr, i32 }} cleanup
  %t = call i32 @usleep(i32 1)
  resume {{ ptr, i32 }} %landed
}}\n"
        ),
        _ => format!(
            "define i64 @f{i}(i64 %x) {{
  %n = and i64 %x, 8191
  %t = trunc i64 %n to i32
  %e = call i32 @usleep(i32 %t)
  %y = call i64 @f{}(i64 %x)
  %r = add i64 %y, 1
  ret i64 %r
}}\n",
            i - 3
        ),
    }
}

fn text() -> String {
    let mut text = String::from(
        "@_ZTIm = external constant ptr
declare void @qsort(ptr, i64, i64, ptr)
declare i32 @usleep(i32)
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_allocate_exception(i64)
declare void @__cxa_throw(ptr, ptr, ptr)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()\n",
    );
    text.extend((0..STAYING).map(staying));
    text
}

/// A module that goes: tells that it was entered, sleeps, reads its own data.
fn going(place: u64, generation: u64) -> String {
    format!(
        "@data{place} = global i64 {generation}
declare i32 @usleep(i32)
define i64 @g{place}(i64 %x, i64 %entering) {{
  %p = inttoptr i64 %entering to ptr
  %o = atomicrmw sub ptr %p, i64 1 seq_cst
  %n = and i64 %x, 4095
  %t = trunc i64 %n to i32
  %e = call i32 @usleep(i32 %t)
  %d = load volatile i64, ptr @data{place}
  %y = mul i64 %x, {}
  %r = add i64 %y, %d
  ret i64 %r
}}\n",
        generation * 2 + 1
    )
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

struct Scene {
    jit: Jit,
    staying: Vec<Staying>,
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
        let going = (0..GOING).map(|_| Mutex::new(None)).collect();
        let stop = AtomicBool::new(false);
        Ok(Scene {
            jit,
            staying,
            going,
            stop,
        })
    }

    /// Calls at random until told to stop; the number of calls.
    fn call(&self, mut random: Random) -> u64 {
        let mut calls = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let x = random.next();
            if random.below(8) == 0 {
                self.call_going(random.below(GOING), x);
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
            // SAFETY: nobody will call it; those inside use its data through its code.
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
    fn change(&self, plan: &Plan) -> Result<(u64, u64, [Memory; 3]), Error> {
        let mut random = Random(!plan.seed);
        let (mut compiled, mut removed) = (0, 0);
        let began = Instant::now();
        let start = self.memory();
        let mut middle = None;
        loop {
            let moved = self.jit.stats().memory.moved.0;
            let part = (compiled + moved) as f64 / plan.publications as f64;
            let part = part.max(began.elapsed().as_secs_f64() / plan.limit.as_secs_f64());
            if part >= 0.5 && middle.is_none() {
                middle = Some(self.memory());
            }
            if part >= 1.0 {
                let middle = middle.unwrap_or(start);
                return Ok((compiled, removed, [start, middle, self.memory()]));
            }
            for _ in 0..8 {
                let name = Self::name(&mut random);
                let tier = Tier::ALL[random.below(3) as usize];
                match self.jit.compile_at(&name, tier) {
                    Ok(()) => compiled += 1,
                    Err(Error::Version { late: true, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            removed += 1;
            assert!(!self.stop.load(Ordering::Relaxed), "a caller is gone");
            self.replace(random.below(GOING), removed)?;
        }
    }
}

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
                let (scene, random) = (&scene, Random(plan.seed << 8 | thread));
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
    let (compiled, removed, memory) = changes?;
    let stats = scene.jit.stats().memory;
    Ok(Outcome {
        compiled,
        moved: stats.moved.0,
        removed,
        calls,
        cycles: stats.cycles,
        freed: stats.freed,
        longest_handshake: stats.longest_handshake,
        memory,
    })
}

/// Whoever ends, or panics, ends all.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
