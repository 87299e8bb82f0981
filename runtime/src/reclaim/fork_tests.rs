//! A fork between any two steps of a cycle, with the real engine, heap and threads: both
//! sides break the cycle off, begin again, and neither changes the other's code.

use std::os::fd::AsRawFd;

use uruk_base::Tier;
use uruk_heap::{Freed, HeapConfig};
use uruk_reclaim::{Config, End, Kind, Nanos, Step};

use crate::api::func::Func;
use crate::api::jit::Jit;
use crate::fork::gate;
use crate::session::Session;

type Function = Func<extern "C" fn(u64) -> u64>;

const COUNT: u64 = 2;

fn session() -> (Jit, Vec<Function>) {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Poison;
    let reclaim = Config {
        step_blocks: 1,
        interval: Nanos::ZERO,
        cpu_fraction: 1.0,
        backoff_min: Nanos::from_ms(1),
        backoff_max: Nanos::from_ms(5),
        ..Config::default()
    };
    let jit = Jit::builder().heap(heap).reclaim(reclaim).jobs(1).build();
    let jit = jit.expect("a session");
    // The test takes the steps.
    jit.session().notes.work_here();
    let text: String = (0..COUNT)
        .map(|i| {
            format!(
                "define i64 @f{i}(i64 %x) {{ %y = mul i64 %x, {} ret i64 %y }}\n",
                i + 3
            )
        })
        .collect();
    jit.add_ir("m", &text).expect("valid IR");
    let functions = (0..COUNT).map(|i| {
        // SAFETY: the function above.
        unsafe { jit.function(&format!("f{i}")) }.expect("typed")
    });
    let functions = functions.collect();
    (jit, functions)
}

fn right(functions: &[Function]) -> bool {
    (3..)
        .zip(functions)
        .all(|(factor, f)| f.call(7) == 7 * factor)
}

/// Calls code by its old address, as a frame that came back would.
fn right_at(entries: &[u64]) -> bool {
    (3..).zip(entries).all(|(factor, &entry)| {
        // SAFETY: code of such a function, which must not have changed: that is the test.
        let f = unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> u64>(entry) };
        f(7) == 7 * factor
    })
}

fn compile_all(jit: &Jit, tier: Tier) -> bool {
    (0..COUNT).all(|i| jit.compile_at(&format!("f{i}"), tier).is_ok())
}

fn request(session: &Session) {
    let _pass = gate::enter();
    session.notes.request(Kind::Evacuate);
}

fn step(jit: &Jit) -> Step {
    let _pass = gate::enter();
    jit.session().step()
}

/// Steps until a cycle ends; returns how it ended.
fn to_the_end(jit: &Jit) -> End {
    loop {
        match step(jit) {
            Step::Finished(summary) => return summary.end,
            Step::Working => {}
            Step::Idle { .. } => std::thread::yield_now(),
        }
    }
}

/// Whether the first step of either side after a fork is as expected.
fn broke_off(jit: &Jit, busy: bool) -> bool {
    let first = step(jit);
    let forked = matches!(&first, Step::Finished(summary) if summary.end == End::Forked);
    forked == busy
}

/// The child's part; returns a bit for each error.
fn child(jit: &Jit, functions: &[Function], entries: &[u64], busy: bool, told: i32) -> i32 {
    let mut wrong = i32::from(!broke_off(jit, busy));
    wrong |= i32::from(!right(functions)) << 1;
    let mut byte = 0u8;
    // SAFETY: reads one byte; the parent has freed what it can by then.
    let read = unsafe { libc::read(told, (&raw mut byte).cast(), 1) };
    wrong |= i32::from(read != 1) << 2;
    wrong |= i32::from(!right_at(entries)) << 3;
    for tier in [Tier::Baseline, Tier::Optimized] {
        wrong |= i32::from(!compile_all(jit, tier)) << 4;
        let soon = std::time::Duration::from_secs(120);
        wrong |= i32::from(!jit.reclaim(Kind::Evacuate, soon)) << 5;
        wrong |= i32::from(!right(functions)) << 6;
    }
    wrong
}

/// Forks after `steps` steps of a cycle. False if the cycle had ended by then.
fn fork_after(steps: usize) -> bool {
    let (jit, functions) = session();
    assert!(compile_all(&jit, Tier::Baseline) && compile_all(&jit, Tier::Optimized));
    request(jit.session());
    for _ in 0..steps {
        if let Step::Finished(_) = step(&jit) {
            return false;
        }
    }
    let busy = {
        let _pass = gate::enter();
        jit.session().reclaim.state().engine.is_busy()
    };
    let entries: Vec<u64> = functions.iter().map(Func::entry).collect();
    let (told, tell) = std::io::pipe().expect("a pipe");
    // SAFETY: the child uses the session, which is made for that, and `_exit`.
    let id = unsafe { libc::fork() };
    if id == 0 {
        // If the parent fails, its end of the pipe is the last one, and the child does not wait for
        // ever.
        drop(tell);
        let wrong = child(&jit, &functions, &entries, busy, told.as_raw_fd());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(wrong) };
    }
    assert!(id > 0, "fork");
    assert!(broke_off(&jit, busy), "after {steps} steps, in the parent");
    for tier in [Tier::Baseline, Tier::Optimized] {
        assert!(compile_all(&jit, tier));
        request(jit.session());
        assert_ne!(to_the_end(&jit), End::Forked, "after {steps} steps");
        assert!(right(&functions));
    }
    let entries: Vec<u64> = functions.iter().map(Func::entry).collect();
    // SAFETY: writes one byte.
    let written = unsafe { libc::write(tell.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
    assert_eq!(written, 1);
    let mut status = 0;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(id, &mut status, 0) };
    assert_eq!(status, 0, "the child, after {steps} steps");
    assert!(
        right_at(&entries) && right(&functions),
        "what the child left"
    );
    let _pass = gate::enter();
    assert_eq!(jit.session().reclaim_stats().forked, u64::from(busy));
    true
}

#[test]
fn a_fork_between_any_two_steps_leaves_both_right() {
    let mut steps = 0;
    while fork_after(steps) {
        steps += 1;
    }
    assert!(steps > 4, "each phase was met: {steps}");
}
