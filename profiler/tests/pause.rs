//! Paused sources: no sample is taken in a pause, earlier samples stay, and none is missed
//! afterwards.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use common::{BOTH, alone, burn, burn_until, drain, in_child, of, plain, sleep, until};
use uruk_profiler::{Choice, Rates, Sample, Source, current_tid, now};

/// Without a burst, so that rates below the steady one are used, too.
const RATES: Rates = Rates {
    burst_hz: 97,
    steady_hz: 97,
};

const FAST: Rates = Rates {
    burst_hz: 997,
    steady_hz: 97,
};

/// The turns of a thread during which samples were taken.
#[derive(Default)]
struct Turns {
    running: Vec<Range<u64>>,
    /// CPU time of these turns, nanoseconds.
    cpu_ns: u64,
}

/// Runs and pauses a source in turns of `ms` each, while the calling thread is busy.
fn turns(source: &mut dyn Source, count: usize, ms: u64) -> Turns {
    let mut turns = Turns::default();
    for _ in 0..count {
        let begin = now();
        source.resume();
        turns.cpu_ns += burn(ms);
        source.pause();
        turns.running.push(begin..now());
        burn(ms);
    }
    turns
}

/// The part of `cpu_ns` that samples stand for. On a busy machine a timer's samples are few and
/// have large weights.
fn share(samples: &[Sample], cpu_ns: u64) -> f64 {
    let weight: u64 = samples.iter().map(|sample| sample.weight).sum();
    weight as f64 / cpu_ns as f64
}

#[test]
fn what_is_left_of_an_interval_is_kept() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(RATES).unwrap();
        source.pause();
        // Turns of half an interval: if a pause dropped the rest, no interval would ever end.
        let turns = turns(&mut *source, 120, 5);
        let mine = of(&drain(&mut *source), current_tid());
        let inside = |sample: &&Sample| {
            let within = |turn: &Range<u64>| turn.contains(&sample.time);
            turns.running.iter().any(within)
        };
        let late = mine.len() - mine.iter().filter(inside).count();
        let share = share(&mine, turns.cpu_ns);
        eprintln!(
            "{choice:?}: {} samples, {late} late, {share:.3} of the time",
            mine.len()
        );
        // A timer's signal may be pending when the timer is disarmed.
        assert!(late * 4 <= mine.len(), "{choice:?}: {late}");
        // The tick that detects a timer's expiry may come after the end of the turn, and does not
        // tell the time of the expiry.
        let least = match choice {
            Choice::Timers => 0.02,
            _ => 0.7,
        };
        assert!((least..1.4).contains(&share), "{choice:?}: {share}");
    }
}

#[test]
fn a_pause_takes_nothing_and_keeps_what_was_taken() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(FAST).unwrap();
        // On a busy machine no tick may come in so short a time.
        until("samples from before a pause", || {
            source.resume();
            burn(50);
            source.pause();
            source.pause();
            let end = now();
            burn(100);
            let before = of(&drain(&mut *source), current_tid());
            // A pending signal may arrive late.
            let late = before.iter().filter(|sample| sample.time > end).count();
            assert!(late <= 1, "{choice:?}: {late}");
            !before.is_empty()
        });
        burn(50);
        source.refresh();
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}");
        // A rate set during a pause holds afterwards, and not before.
        source.set_rate(97);
        burn(50);
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}");
        source.resume();
        let (after, cpu_ns) = burn_until(&mut *source, 300, 8);
        let share = share(&after, cpu_ns);
        let most = 2.0 * 97.0 * cpu_ns as f64 / 1e9;
        assert!(after.len() as f64 <= most, "{choice:?}: {}", after.len());
        assert!((0.5..1.6).contains(&share), "{choice:?}: {share}");
    }
}

#[test]
fn shares_of_a_rate_are_of_the_time_between_pauses() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::CpuClock) else {
        return;
    };
    source.start(RATES).unwrap();
    source.set_rate(48);
    let (mut samples, mut cpu_ns) = (Vec::new(), 0);
    for _ in 0..10 {
        let turns = turns(&mut *source, 5, 10);
        cpu_ns += turns.cpu_ns;
        // Drain in a pause: a pause is no interval of its own, or every second one would be on.
        samples.extend(of(&drain(&mut *source), current_tid()));
        source.resume();
        cpu_ns += burn(10);
        samples.extend(of(&drain(&mut *source), current_tid()));
        source.pause();
    }
    let share = share(&samples, cpu_ns);
    eprintln!("{} samples, {share:.3} of the time", samples.len());
    assert!((0.6..1.4).contains(&share), "{share}");
}

#[test]
fn a_rate_that_wavers_is_sampled() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::CpuClock) else {
        return;
    };
    source.start(RATES).unwrap();
    for rates in [[95, 94], [97, 96], [50, 48]] {
        let (mut samples, mut cpu_ns) = (Vec::new(), 0);
        drain(&mut *source);
        for hz in rates.into_iter().cycle().take(24) {
            source.set_rate(hz);
            cpu_ns += burn(20);
            samples.extend(of(&drain(&mut *source), current_tid()));
        }
        let share = share(&samples, cpu_ns);
        eprintln!("{rates:?}: {} samples, {share:.3}", samples.len());
        assert!((0.6..1.5).contains(&share), "{rates:?}: {share}");
    }
}

#[test]
fn threads_that_begin_in_a_pause_are_sampled_after_it() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(FAST).unwrap();
        source.pause();
        drain(&mut *source);
        let turn = Arc::new(Barrier::new(2));
        let enough = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let thread = {
            let (turn, enough) = (turn.clone(), enough.clone());
            std::thread::spawn(move || {
                burn(60);
                tell.send(current_tid()).unwrap();
                turn.wait();
                turn.wait();
                let mut cpu_ns = burn(200);
                while !enough.load(Ordering::Relaxed) {
                    cpu_ns += burn(20);
                }
                cpu_ns
            })
        };
        turn.wait();
        source.refresh();
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}: in the pause");
        source.resume();
        source.refresh();
        turn.wait();
        let (tid, mut mine) = (told.recv().unwrap(), Vec::new());
        until("samples of the thread", || {
            sleep(5);
            mine.extend(of(&drain(&mut *source), tid));
            mine.len() >= 8
        });
        enough.store(true, Ordering::Relaxed);
        let cpu_ns = thread.join().unwrap();
        mine.extend(of(&drain(&mut *source), tid));
        let share = share(&mine, cpu_ns);
        eprintln!("{choice:?}: {} samples, {share:.3}", mine.len());
        // Counted once: with two events or timers it would be twice.
        assert!((0.5..1.5).contains(&share), "{choice:?}: {share}");
    }
}

#[test]
fn a_source_may_start_paused() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.pause();
        source.start(FAST).unwrap();
        burn(60);
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}");
        source.resume();
        let (mine, cpu_ns) = burn_until(&mut *source, 100, 8);
        let share = share(&mine, cpu_ns);
        assert!((0.3..1.6).contains(&share), "{choice:?}: {share}");
        source.pause();
        source.stop();
        source.start(FAST).unwrap();
        burn(60);
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}: started again");
    }
}

#[test]
fn a_child_is_as_paused_as_its_parent_and_leaves_it_alone() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(FAST).unwrap();
        source.pause();
        drain(&mut *source);
        let status = in_child(|| {
            // Too early: the running events are the parent's.
            source.resume();
            source.pause();
            source.resume();
            source.pause();
            source.after_fork_child();
            source.start(FAST).unwrap();
            burn(60);
            let paused = drain(&mut *source).len();
            source.resume();
            let (mine, cpu_ns) = burn_until(&mut *source, 100, 8);
            let share = share(&mine, cpu_ns);
            paused == 0 && (0.3..1.6).contains(&share)
        });
        assert_eq!(status, 0, "{choice:?}");
        let status = in_child(|| {
            source.resume();
            true
        });
        assert_eq!(status, 0);
        burn(60);
        assert_eq!(drain(&mut *source).len(), 0, "{choice:?}: the parent's");
        source.resume();
        let (mine, cpu_ns) = burn_until(&mut *source, 100, 8);
        assert!(share(&mine, cpu_ns) > 0.3);
    }
}

static THEIRS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_theirs(_: i32) {
    THEIRS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_signal_the_program_took_in_a_pause_is_not_sent() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::Timers) else {
        return;
    };
    source.start(FAST).unwrap();
    burn(20);
    source.pause();
    drain(&mut *source);
    for signal in libc::SIGRTMIN() + 8..libc::SIGRTMAX() {
        // SAFETY: zero bytes are a valid structure; the handler only counts.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_DFL {
                action = std::mem::zeroed();
                action.sa_sigaction = on_theirs as *const () as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
    source.resume();
    // The rest of an interval would end here.
    burn(20);
    source.refresh();
    let (mine, cpu_ns) = burn_until(&mut *source, 100, 8);
    assert_eq!(THEIRS.load(Ordering::Relaxed), 0);
    assert!(share(&mine, cpu_ns) > 0.3);
}
