//! A process that forks while its threads do everything a session can be asked to do; each
//! child does one of these things, to its end.
//!
//! `URUK_STRESS_SECONDS` is how long it goes on (4), `URUK_STRESS_SEED` the seed (1).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Func, Jit, ReclaimKind, Removal, Replacement, Tier};
use uruk_testing::{Random, in_own_process};

/// How long a child may take; beyond, it hangs.
const PATIENCE_S: u32 = 300;

/// Functions that change their tiers.
const MOVING: u64 = 6;

/// Functions for first calls in children.
const LATE: u64 = 40;

type Function = Func<extern "C" fn(u64) -> u64>;

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).map(|text| text.parse());
    value.map_or(otherwise, |number| number.expect("a number"))
}

fn function(jit: &Jit, name: &str) -> Function {
    // SAFETY: functions of this test, which only compute.
    unsafe { jit.function(name) }.expect("typed")
}

/// `NAME(x) = x * factor`, by a loop.
fn multiply(name: &str, factor: u64) -> String {
    format!(
        "define i64 @{name}(i64 %x) {{
        entry: br label %head
        head: %n = phi i64 [ 0, %entry ], [ %n1, %head ]
        %s = phi i64 [ 0, %entry ], [ %s1, %head ]
        %s1 = add i64 %s, %x %n1 = add i64 %n, 1
        %c = icmp ult i64 %n1, {factor} br i1 %c, label %head, label %end
        end: ret i64 %s1 }}\n"
    )
}

fn text() -> String {
    let mut text = pair(1);
    text += "define i64 @both(i64 %u) { %x = call i64 @left(i64 5) %y = call i64 @right(i64 5) \
        %z = sub i64 %x, %y ret i64 %z }\n";
    for i in 0..MOVING {
        text += &multiply(&format!("moving{i}"), i + 3);
    }
    for i in 0..LATE {
        text += &multiply(&format!("late{i}"), i + 2);
    }
    text
}

fn pair(factor: u64) -> String {
    multiply("left", factor) + &multiply("right", factor)
}

/// Something to do; the number is of this call and no other of the process.
type Act = fn(&Jit, &mut Random, u64);

const ALL: [(&str, Act); 13] = [
    ("call", |jit, random, _| {
        let i = random.below(MOVING);
        let moving = function(jit, &format!("moving{i}"));
        for x in 0..200 {
            assert_eq!(moving.call(x), x * (i + 3));
        }
    }),
    ("first call", |jit, random, _| {
        let i = random.below(LATE);
        assert_eq!(function(jit, &format!("late{i}")).call(3), 3 * (i + 2));
    }),
    ("tier", |jit, random, _| {
        let name = format!("moving{}", random.below(MOVING));
        let tiers = [Tier::Baseline, Tier::Optimized, Tier::Guided];
        // Another thread may be faster.
        let _ = jit.compile_at(&name, tiers[random.below(3) as usize]);
        assert!(jit.tier(&name).is_ok());
    }),
    ("pin", |jit, random, _| {
        let name = format!("moving{}", random.below(MOVING));
        jit.main().pin(&name, Some(Tier::Optimized)).expect("there");
        jit.pause_tiers();
        jit.main().pin(&name, None).expect("there");
        jit.resume_tiers();
    }),
    ("replace", |jit, random, _| {
        let new = Replacement::ir("new", &pair(1 + random.below(9)));
        let replaced = jit.main().replace(new).expect("replaceable");
        let _ = replaced.activations();
        if random.below(2) == 0 {
            // Another thread may have replaced them since.
            let _ = replaced.rollback();
        }
        // Both, or none, of a set; a call may see one before and one after a commit.
        function(jit, "both").call(0);
    }),
    ("rollback", |jit, _, _| {
        let _ = jit.rollback();
    }),
    ("add and remove", |jit, _, number| {
        let tracker = jit.main().create_tracker().expect("a tracker");
        let name = format!("added{number}");
        tracker.add_ir("added", &multiply(&name, 7)).expect("valid");
        // SAFETY: nothing that needs more than it has.
        unsafe { jit.initialize() }.expect("initialized");
        assert_eq!(function(jit, &name).call(6), 42);
        // SAFETY: no other thread knows the function.
        unsafe { tracker.remove() }.expect("there");
        assert!(jit.lookup(&name).is_err());
    }),
    ("dylib", |jit, _, number| {
        let dylib = jit.create_dylib(&format!("dylib{number}")).expect("new");
        dylib.add_to_link_order(&jit.main()).expect("there");
        let word: &'static u64 = &0;
        // SAFETY: a word that stays.
        unsafe { dylib.define_address("word", std::ptr::from_ref(word).cast()) }.expect("new");
        assert!(dylib.lookup("word").is_ok() && dylib.lookup("left").is_ok());
        // SAFETY: no other thread knows it.
        unsafe { dylib.remove(Removal::Forced) }.expect("there");
    }),
    ("reclaim", |jit, random, _| {
        let kind = [ReclaimKind::Sweep, ReclaimKind::Evacuate][random.below(2) as usize];
        // A thread that is denied a processor does not answer in time.
        jit.reclaim(kind, Duration::from_millis(50));
    }),
    ("statistics", |jit, _, _| {
        assert!(jit.stats().functions >= MOVING);
    }),
    ("stack", |jit, _, _| {
        let memory = vec![0_u64; 512];
        let range = memory.as_ptr_range();
        // SAFETY: the memory outlives the registration.
        let held = unsafe { jit.register_stack(range.start as u64..range.end as u64) };
        drop(held.expect("room"));
    }),
    ("session", |_, _, _| {
        let other = Jit::builder().jobs(1).build().expect("a session");
        other.add_ir("m", &multiply("five", 5)).expect("valid");
        let five = function(&other, "five");
        assert_eq!(five.call(5), 25);
        other.compile_at("five", Tier::Optimized).expect("compiles");
        assert_eq!(five.call(6), 30);
    }),
    ("fork", |jit, random, number| {
        let late = random.below(LATE);
        fork("grandchild", || {
            assert_eq!(function(jit, &format!("late{late}")).call(1), late + 2);
            let name = format!("added{number}");
            jit.add_ir("added", &multiply(&name, 9)).expect("valid");
            assert_eq!(function(jit, &name).call(2), 18);
        });
    }),
];

/// How a child that did `work` ended, if not well. It was told to end should it hang.
fn fork(what: &str, work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    // SAFETY: the child uses sessions, which are made for that, and `_exit`.
    let pid = unsafe { libc::fork() };
    let took = began.elapsed();
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: plain calls.
        unsafe { libc::alarm(PATIENCE_S) };
        let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: our child.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
    assert!(!hangs, "`{what}` hangs in a child");
    assert_eq!(status, 0, "`{what}` in a child");
    took
}

/// Says why a thread panics without a lock: those of `std`'s own hook are as its caller left
/// them at the fork.
fn say_panics_plainly() {
    std::panic::set_hook(Box::new(|info| {
        let text = format!("process {}: {info}\n", std::process::id());
        // SAFETY: bytes that are there.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }));
}

#[test]
fn a_child_can_do_whatever_its_parents_threads_were_doing() {
    if !in_own_process(
        module_path!(),
        "a_child_can_do_whatever_its_parents_threads_were_doing",
    ) {
        return;
    }
    say_panics_plainly();
    let seed = setting("URUK_STRESS_SEED", 1);
    let length = Duration::from_secs(setting("URUK_STRESS_SECONDS", 4));
    let told = std::sync::Arc::new(AtomicU64::new(0));
    let listener = std::sync::Arc::clone(&told);
    let jit = Jit::builder()
        .jobs(2)
        .on_event(move |_| {
            listener.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .expect("a session");
    // Not on this thread's stack: in children of other threads that is no more.
    let jit: &'static Jit = Box::leak(Box::new(jit));
    jit.add_ir("m", &text()).expect("valid");
    let stop = AtomicBool::new(false);
    let number = AtomicU64::new(0);
    // By thing: how often a thread did it, how often a child.
    let done: [[AtomicU64; 2]; ALL.len()] = Default::default();
    let act = |random: &mut Random, at: usize, child: bool| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        (ALL[at].1)(jit, random, number);
        done[at][usize::from(child)].fetch_add(1, Ordering::Relaxed);
    };
    let mut forks = Vec::new();
    std::thread::scope(|scope| {
        let (stop, act) = (&stop, &act);
        for thread in 0..6 {
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(100) + thread);
                while !stop.load(Ordering::Relaxed) {
                    let at = random.below(ALL.len() as u64) as usize;
                    act(&mut random, at, false);
                }
            });
        }
        // Ends the others also if a child fails.
        let forking = catch_unwind(AssertUnwindSafe(|| {
            let mut random = Random::new(seed.wrapping_mul(100) + 99);
            let began = Instant::now();
            while began.elapsed() < length || forks.len() < ALL.len() {
                let at = forks.len() % ALL.len();
                let took = fork(ALL[at].0, || act(&mut random, at, true));
                done[at][1].fetch_add(1, Ordering::Relaxed);
                random.below(2);
                forks.push(took);
                std::thread::sleep(Duration::from_micros(random.below(3000)));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        forking.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    forks.sort_unstable();
    let (median, longest) = (forks[forks.len() / 2], forks[forks.len() - 1]);
    println!(
        "{} forks, median {median:?}, longest {longest:?}",
        forks.len()
    );
    for ((what, _), [threads, children]) in ALL.iter().zip(&done) {
        println!("{what}: {threads:?} by threads, {children:?} by children");
    }
    assert!(told.load(Ordering::Relaxed) > 0);
    assert!(done[0][0].load(Ordering::Relaxed) > 0);
}
