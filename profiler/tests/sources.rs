//! Real sources on real threads: rates, weights, coverage, limits.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use common::{
    BOTH, Refreshes, alone, burn, burn_until, drain, exists, of, on_one_processor, plain, sleep,
    source, until,
};
use uruk_profiler::{Choice, Excluded, Kind, Rates, Sizes, current_tid, now, open};

const RATES: Rates = Rates {
    burst_hz: 997,
    steady_hz: 97,
};

/// Within a factor, both ways: machines are noisy.
fn close(got: f64, expected: f64, factor: f64) -> bool {
    got < expected * factor && got * factor > expected
}

#[test]
fn a_busy_thread_is_sampled_where_it_is() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        assert!((100..1_000_000).contains(&source.cost_ns()));
        source.start(RATES).unwrap();
        drain(&mut *source);
        let begin = now();
        // Each processor has a ring, and rings are drained one after the other.
        let (mine, cpu_ns) = on_one_processor(|| burn_until(&mut *source, 300, 25));
        let end = now();
        let start = burn as fn(u64) -> u64 as usize as u64;
        let inside = mine
            .iter()
            .filter(|sample| (start..start + 4096).contains(&sample.pc));
        let (all, inside) = (mine.len(), inside.count());
        eprintln!("{choice:?}: {all} samples, cost {} ns", source.cost_ns());
        assert!(inside * 10 > all * 8, "{choice:?}: {inside} of {all}");
        assert!(
            mine.iter()
                .all(|sample| (begin..end).contains(&sample.time))
        );
        assert!(mine.is_sorted_by_key(|sample| sample.time));
        let weight: u64 = mine.iter().map(|sample| sample.weight).sum();
        assert!(
            close(weight as f64, cpu_ns as f64, 1.5),
            "{choice:?}: {weight} of {cpu_ns} ns"
        );
    }
}

#[test]
fn slower_rates_weigh_more() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(RATES).unwrap();
        for (hz, least) in [(97, 20), (31, 5), (0, 0)] {
            drain(&mut *source);
            assert_eq!(source.set_rate(hz), hz);
            let (mut mine, mut cpu_ns, mut rounds) = (Vec::new(), 0, 0);
            until("enough samples", || {
                cpu_ns += burn(50);
                mine.extend(of(&drain(&mut *source), current_tid()));
                rounds += 1;
                rounds >= 10 && mine.len() >= least
            });
            let weight: u64 = mine.iter().map(|sample| sample.weight).sum();
            eprintln!("{choice:?} {hz} Hz: {} samples, {weight} ns", mine.len());
            let most = 1.65 * f64::from(hz) * cpu_ns as f64 / 1e9;
            assert!(mine.len() as f64 <= most + 2.0, "{choice:?} {hz}: {most}");
            if hz > 0 {
                assert!(close(weight as f64, cpu_ns as f64, 1.8), "{choice:?} {hz}");
            }
        }
    }
}

#[test]
fn threads_of_all_ages_are_sampled() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        let (started, refreshes) = (Arc::new(Barrier::new(2)), Arc::new(Refreshes::default()));
        let (tell, told) = mpsc::channel();
        let work = |refreshes: &Refreshes, tell: mpsc::Sender<i32>| {
            refreshes.wait();
            burn(150);
            tell.send(current_tid()).unwrap();
        };
        {
            let (started, refreshes, tell) = (started.clone(), refreshes.clone(), tell.clone());
            std::thread::spawn(move || {
                started.wait();
                started.wait();
                // A thread made by a thread that existed before.
                let (its, tells) = (refreshes.clone(), tell.clone());
                std::thread::spawn(move || work(&its, tells));
                work(&refreshes, tell);
            });
        }
        started.wait();
        source.start(RATES).unwrap();
        started.wait();
        {
            let refreshes = refreshes.clone();
            std::thread::spawn(move || work(&refreshes, tell));
        }
        let (mut samples, mut tids) = (Vec::new(), Vec::new());
        until("all three did their work", || {
            sleep(10);
            source.refresh();
            refreshes.add();
            samples.extend(drain(&mut *source));
            tids.extend(told.try_iter());
            tids.len() == 3
        });
        samples.extend(drain(&mut *source));
        for tid in tids {
            let ns: u64 = of(&samples, tid).iter().map(|sample| sample.weight).sum();
            eprintln!("{choice:?}: {ns} ns of thread {tid}");
            // A refresh found each thread before it worked.
            assert!((50_000_000..250_000_000).contains(&ns), "{choice:?}: {ns}");
        }
    }
}

#[test]
fn the_last_generation_is_sampled_after_the_first_ended() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::CpuClock) else {
        return;
    };
    source.start(RATES).unwrap();
    // Each generation works when the kernel has removed the thread that made it.
    let gone = |tid: i32| until("the thread before ended", || !exists(tid));
    let first = std::thread::spawn(move || {
        let first = current_tid();
        std::thread::spawn(move || {
            gone(first);
            let second = current_tid();
            std::thread::spawn(move || {
                gone(second);
                burn(100);
                current_tid()
            })
        })
    });
    let tid = first.join().unwrap().join().unwrap().join().unwrap();
    assert!(of(&drain(&mut *source), tid).len() >= 20);
}

#[test]
fn excluded_threads_are_dropped() {
    let _alone = alone();
    for choice in BOTH {
        let excluded = Arc::new(Excluded::new());
        let Some(mut source) = source(choice, Sizes::default(), &excluded) else {
            continue;
        };
        source.start(RATES).unwrap();
        burn(60);
        excluded.add(current_tid());
        let (mut count, mut dropped) = (0, 0);
        let mine = current_tid();
        until("samples to drop", || {
            let drained = source.drain(&mut |sample| count += u32::from(sample.tid == mine));
            dropped += drained.excluded;
            burn(20);
            dropped >= 5
        });
        assert_eq!(count, 0, "{choice:?}");
        excluded.remove(current_tid());
        if choice == Choice::CpuClock {
            burn(60);
            assert!(of(&drain(&mut *source), mine).len() >= 10);
        }
    }
}

#[test]
fn a_full_ring_loses_samples_and_says_so() {
    let _alone = alone();
    let sizes = Sizes {
        ring_bytes: 4096,
        ..Sizes::default()
    };
    let Some(mut source) = source(Choice::CpuClock, sizes, &Arc::default()) else {
        return;
    };
    source.start(RATES).unwrap();
    burn(600);
    let first = source.drain(&mut |_| ());
    burn(30);
    let second = source.drain(&mut |_| ());
    eprintln!("{first:?} {second:?}");
    // 4 KiB hold 102 samples, for each of the CPUs the thread was on.
    assert!(first.samples <= 102 * 4, "{first:?}");
    assert!(first.lost + second.lost >= 100, "{first:?} {second:?}");
    assert!(second.samples >= 10, "it goes on: {second:?}");
}

#[test]
fn stopping_and_starting_again() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        for _ in 0..3 {
            source.start(RATES).unwrap();
            assert!(source.coverage().threads >= 1);
            // On a busy machine a timer's samples are few and have large weights.
            let (mine, cpu_ns) = burn_until(&mut *source, 100, 4);
            let weight: u64 = mine.iter().map(|sample| sample.weight).sum();
            assert!(weight > cpu_ns / 4, "{choice:?}: {weight} of {cpu_ns} ns");
            source.stop();
            burn(20);
            assert_eq!(source.coverage().threads, 0);
        }
    }
    // More often than there are signals: one signal is reused.
    for _ in 0..40 {
        assert!(plain(Choice::Timers).is_some());
    }
    let first = open(Choice::Timers, Sizes::default(), &Arc::default());
    let second = open(Choice::Timers, Sizes::default(), &Arc::default());
    assert!(first.source.is_some() && second.source.is_none());
    assert_eq!(second.rejected[0].0, Kind::Timers);
}

#[test]
fn the_choice_is_visible() {
    let _alone = alone();
    let off = open(Choice::Off, Sizes::default(), &Arc::default());
    assert!(off.source.is_none() && off.rejected.is_empty());
    let auto = open(Choice::Auto, Sizes::default(), &Arc::default());
    let kind = auto.source.expect("thread timers at least").kind();
    for (kind, error) in &auto.rejected {
        eprintln!("{kind}: {error}");
    }
    let order = [Kind::Cycles, Kind::CpuClock, Kind::Timers];
    let passed: Vec<Kind> = auto.rejected.iter().map(|(kind, _)| *kind).collect();
    let place = order.iter().position(|&k| k == kind).unwrap();
    assert_eq!(passed, order[..place]);
}

/// Runs `count` threads: all exist at the same time, `busy` of them burn 100 ms of CPU time in
/// turn. Returns the ids of those, and the time it took to make all, nanoseconds.
fn crowd(count: usize, busy: usize, meanwhile: &mut dyn FnMut()) -> (Vec<i32>, u64) {
    let (go, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let begin = now();
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let (go, stop) = (go.clone(), stop.clone());
            let work = move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::park();
                    if go.load(Ordering::Relaxed) == number + 1 {
                        burn(100);
                        go.store(0, Ordering::Relaxed);
                    }
                }
                current_tid()
            };
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            builder.spawn(work).unwrap()
        })
        .collect();
    let made_ns = now() - begin;
    (0..20).for_each(|_| meanwhile());
    for (number, thread) in threads.iter().enumerate().take(busy) {
        go.store(number + 1, Ordering::Relaxed);
        thread.thread().unpark();
        while go.load(Ordering::Relaxed) != 0 {
            meanwhile();
        }
    }
    stop.store(true, Ordering::Relaxed);
    threads.iter().for_each(|thread| thread.thread().unpark());
    let joined = threads.into_iter().map(|thread| thread.join().unwrap());
    let mut tids: Vec<i32> = joined.collect();
    tids.truncate(busy);
    (tids, made_ns)
}

#[test]
fn thousands_of_threads() {
    const THREADS: usize = 2_000;
    let _alone = alone();
    let (_, bare_ns) = crowd(THREADS, 0, &mut || ());
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(RATES).unwrap();
        let (mut samples, mut own_ns, mut drains) = (Vec::new(), 0, 0);
        let (tids, made_ns) = crowd(THREADS, 5, &mut || {
            sleep(20);
            let begin = common::thread_cpu_ns();
            samples.extend(drain(&mut *source));
            source.refresh();
            own_ns += common::thread_cpu_ns() - begin;
            drains += 1;
        });
        eprintln!(
            "{choice:?}: {THREADS} threads in {} us each, {} without; {} us a drain; {:?}",
            made_ns / THREADS as u64 / 1_000,
            bare_ns / THREADS as u64 / 1_000,
            own_ns / drains / 1_000,
            source.coverage()
        );
        for &tid in &tids {
            let ns: u64 = of(&samples, tid).iter().map(|sample| sample.weight).sum();
            assert!(
                close(ns as f64, 100e6, 2.0),
                "{choice:?}: {ns} ns of thread {tid}"
            );
        }
        for _ in 0..20 {
            source.refresh();
        }
        assert!(source.coverage().threads < 100, "ended threads are let go");
        assert!(source.coverage().descriptors < 100);
    }
}
