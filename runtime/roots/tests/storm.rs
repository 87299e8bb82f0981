//! A program that sleeps in `poll`, `nanosleep` and their kin is scanned as fast as
//! possible, and never sees `EINTR`.

mod common;

use std::hint::black_box;
use std::ptr::null_mut as null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use common::{LONG, ROOTS, alone, goes_on, settled, wanted};

/// Sleeps about `us` microseconds in one of several calls; the error, 0 if none.
fn sleep_in(call: u64, epoll: i32, us: i64) -> i32 {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: us * 1000,
    };
    // SAFETY: no descriptors, valid times.
    let result = unsafe {
        match call % 6 {
            0 => libc::poll(null(), 0, 1),
            1 => libc::nanosleep(&time, null()),
            2 => {
                let mut time = libc::timeval {
                    tv_sec: 0,
                    tv_usec: us,
                };
                libc::select(0, null(), null(), null(), &mut time)
            }
            3 => {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                libc::epoll_wait(epoll, &mut event, 1, 1)
            }
            4 => {
                let error = libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &time, null());
                return error;
            }
            _ => libc::ppoll(null(), 0, &time, std::ptr::null()),
        }
    };
    match result {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

#[test]
fn a_scan_storm_interrupts_no_call() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..4)
        .map(|seed: u64| {
            let (stop, calls) = (stop.clone(), calls.clone());
            std::thread::spawn(move || {
                // SAFETY: a new descriptor.
                let epoll = unsafe { libc::epoll_create1(0) };
                let mut state = seed + 1;
                while !stop.load(Ordering::Relaxed) {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    for turn in 0..state >> 33 & 0x7ff {
                        black_box(turn);
                    }
                    let error = sleep_in(state >> 40, epoll, 200);
                    assert_eq!(error, 0, "call {}", (state >> 40) % 6);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                // SAFETY: ours.
                unsafe { libc::close(epoll) };
            })
        })
        .collect();
    let wanted = wanted();
    let began = Instant::now();
    let (mut scans, mut signalled, mut repeated) = (0u64, 0, 0);
    while goes_on(began, repeated, 20) {
        let report = settled(0, || ROOTS.scan(&wanted, LONG));
        assert!(report.complete, "{report:#?}");
        // Calls by `syscall(2)`, as the standard library waits for futexes, are made again by
        // who makes them; the workers' calls must not end.
        scans += 1;
        repeated += report.repeated_calls;
        let running = |how| matches!(how, uruk_roots::How::Running { .. });
        signalled += report.threads.iter().filter(|t| running(t.how)).count();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker that saw no EINTR");
    }
    let calls = calls.load(Ordering::Relaxed);
    println!("{scans} scans, {calls} calls, {signalled} signals, {repeated} calls repeated");
    assert!(repeated > 0, "the storm never met a call: it shows nothing");
}
