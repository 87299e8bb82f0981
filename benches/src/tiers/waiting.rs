//! The effect of tier-ups on callers: the longest call while a function is compiled again and again
//! at other tiers, against the same without.
//!
//! A thread calls without end and keeps the longest time between two calls' ends. It also keeps how
//! often it gave its processor away by itself (`ru_nvcsw`). A thread that waits for a lock or a
//! compile does that; a thread that the kernel preempts for others does not. The count is the
//! proof, the time is the effect on the caller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uruk::{Jit, Tier};

use crate::bench::Bench;
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// A loop of some 50 ns.
const SOURCE: &str = "
define i64 @spin(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 1, %entry ], [ %more, %loop ]
  %product = mul i64 %s, 6364136223846793005
  %more = add i64 %product, %i
  %next = add i64 %i, 1
  %done = icmp uge i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %more
}";
/// Tier-ups of one round.
const CHANGES: usize = 200;
const ROUNDS: usize = 3;
/// Switches by itself per tier-up that are not waits for it: a page of new code may be
/// mapped while it is first touched.
const SWITCHES: f64 = 0.05;

/// The observations of a caller.
struct Seen {
    longest: Duration,
    switches: i64,
}

/// The longest call and the waits, with and without tier-ups.
///
/// # Errors
/// No session can be made, or a compile fails.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let jit = Jit::builder().build().context("making a session")?;
    jit.pause_tiers();
    jit.add_ir("waiting", SOURCE)?;
    let (mut with, mut without, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let started = Instant::now();
        let seen = watch(&jit, || {
            for change in 0..CHANGES {
                let tier = [Tier::Optimized, Tier::Guided, Tier::Baseline][change % 3];
                jit.compile_at("spin", tier)?;
            }
            Ok(())
        })?;
        with.push(seen.longest.as_secs_f64() * 1e6);
        waits.push(seen.switches as f64 / CHANGES as f64);
        let took = started.elapsed();
        let seen = watch(&jit, || {
            thread::sleep(took);
            Ok(())
        })?;
        without.push(seen.longest.as_secs_f64() * 1e6);
    }
    let longest = Row::new("longest call during tier-ups", Unit::Us, Figure::of(with))
        .peer("without tier-ups", Figure::of(without))
        .note(format!(
            "{CHANGES} tier-ups of the function that another thread calls, one after the other; on a \
             machine with other work the caller is pushed aside in both"
        ));
    let waits = Row::new(
        "waits of a caller per tier-up",
        Unit::Times,
        Figure::of(waits),
    )
    .target(Target::AtMost(SWITCHES))
    .note("times the calling thread gave its processor away by itself, per tier-up");
    Ok(vec![longest, waits])
}

/// Calls on another thread while `change` runs on this one.
fn watch(jit: &Jit, change: impl FnOnce() -> Result<()>) -> Result<Seen> {
    // SAFETY: the type is that of the source above.
    let spin = unsafe { jit.function::<extern "C" fn(i64) -> i64>("spin")? };
    // Relaxed: nothing is handed over by it.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let _pinned = clock::pin(1);
            spin.call(20);
            let before = switches();
            let mut longest = Duration::ZERO;
            let mut last = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                spin.call(20);
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
            }
            Seen {
                longest,
                switches: switches() - before,
            }
        });
        let changed = change();
        stop.store(true, Ordering::Relaxed);
        let seen = caller.join();
        changed?;
        seen.map_err(|_| anyhow::anyhow!("the caller panicked"))
    })
}

/// How often the calling thread gave its processor away by itself.
fn switches() -> i64 {
    // SAFETY: all bytes zero is a value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: one live place for the result; the calling thread always exists.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw
}
