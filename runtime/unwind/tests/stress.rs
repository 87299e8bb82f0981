//! Lookups and throws while other threads insert and remove.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uruk_unwind::{Row, after_fork, before_fork, find, name_at, register_region};

#[path = "support/interpose.rs"]
mod interpose;
mod support;

use support::{Code, throw_through};
use uruk_testing::Random;

/// Longest wait until enough events were seen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether a test must run on: for `ms`, and until there are more than 100 of `count`.
fn goes_on(started: Instant, ms: u64, count: &AtomicUsize) -> bool {
    let few = count.load(Ordering::Relaxed) <= 100;
    started.elapsed() < Duration::from_millis(ms) || (few && started.elapsed() < PATIENCE)
}

#[test]
fn lookups_race_with_changes() {
    const STABLE: usize = 64;
    const CHANGING: usize = 1024;
    let code = Code::new(STABLE + CHANGING);
    let region = register_region(code.base, code.size).unwrap();
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows[..STABLE], &[]) }.unwrap();
    let stop = AtomicBool::new(false);
    let throws = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (seed, rows) in code.rows[STABLE..].chunks(CHANGING / 2).enumerate() {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed as u64);
                while !stop.load(Ordering::Relaxed) {
                    let first = random.below(rows.len() - 80);
                    let some = &rows[first..first + 1 + random.below(80)];
                    let names: Vec<String> =
                        some.iter().map(|row| format!("f{:x}", row.start)).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    // SAFETY: the rows describe the code and stay for ever.
                    unsafe { region.insert(some, &names) }.unwrap();
                    assert_eq!(find(some[0].start).map(|f| f.fde), Some(some[0].fde));
                    assert_eq!(region.remove(some[0].start..some[some.len() - 1].end), 1);
                }
            });
        }
        for seed in 0..2 {
            let (code, stop, throws) = (&code, &stop, &throws);
            scope.spawn(move || {
                let mut i = seed;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    let row = code.rows[STABLE + i * 7 % CHANGING];
                    let mut name = [0; 32];
                    if let Some((found, len)) = name_at(row.start + 5, &mut name) {
                        assert_eq!((found.start, found.fde), (row.start, row.fde));
                        assert_eq!(&name[..len], format!("f{:x}", row.start).as_bytes());
                    }
                    assert_eq!(throw_through(code, i % STABLE, i), i);
                    throws.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let started = Instant::now();
        while goes_on(started, 1500, &throws) {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(throws.load(Ordering::Relaxed) > 100);
}

#[test]
fn a_signal_handler_may_look_up_while_its_thread_inserts() {
    static HITS: AtomicUsize = AtomicUsize::new(0);
    static START: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        let mut name = [0; 8];
        let start = START.load(Ordering::Relaxed) as u64;
        if let Some((found, len)) = name_at(start, &mut name) {
            assert!(found.start == start && &name[..len] == b"stable");
            HITS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let code = Code::new(256);
    let region = register_region(code.base, code.size).unwrap();
    // SAFETY: the rows describe the code and stay for ever.
    unsafe { region.insert(&code.rows[..1], &["stable"]) }.unwrap();
    START.store(code.rows[0].start as usize, Ordering::Relaxed);
    // SAFETY: the handler only looks up and counts; the signal goes to this
    // thread.
    let (me, handler) = unsafe {
        libc::signal(
            libc::SIGUSR2,
            handler as extern "C" fn(i32) as libc::sighandler_t,
        );
        (libc::pthread_self(), libc::SIGUSR2)
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one at the end of the scope.
                unsafe { libc::pthread_kill(me, handler) };
                thread::sleep(Duration::from_micros(20));
            }
        });
        let started = Instant::now();
        while goes_on(started, 500, &HITS) {
            for row in &code.rows[1..] {
                // SAFETY: the rows describe the code and stay for ever.
                unsafe { region.insert(std::slice::from_ref(row), &[]) }.unwrap();
            }
            region.remove(code.rows[1].start..code.base + code.size as u64);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(HITS.load(Ordering::Relaxed) > 100);
}

#[test]
fn the_child_of_a_fork_can_insert() {
    let code = Code::new(64);
    let region = register_region(code.base, code.size).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the rows describe the code and stay for ever.
                unsafe { region.insert(&code.rows[..32], &[]) }.unwrap();
                region.remove(code.rows[0].start..code.rows[31].end);
            }
        });
        for _ in 0..100 {
            before_fork();
            before_fork();
            // SAFETY: the child only uses the index and exits.
            let child = unsafe { libc::fork() };
            after_fork();
            if child == 0 {
                let row: Row = code.rows[40];
                // SAFETY: as above.
                let inserted = unsafe { region.insert(&[row], &[]) }.is_ok();
                let good = inserted && find(row.start).is_some();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if good { 0 } else { 1 }) };
            }
            let mut status = -1;
            // SAFETY: waits for our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
            assert_eq!(find(code.rows[40].start), None);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
