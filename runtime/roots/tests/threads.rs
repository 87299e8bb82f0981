//! Threads that come, go, hide, block the signal, fork.

mod common;

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{
    Holder, LONG, ROOTS, address, alone, check_keeps, goes_on, of, scan, scan_beside, scan_within,
    settled, wanted,
};
use uruk_roots::{Config, How, Roots, Wanted, Why};

/// Time the calling thread was on a processor.
fn processor_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Tells the threads of [`relay`] to make no more.
static STOP: AtomicBool = AtomicBool::new(false);

/// Threads of [`relay`] that hold the word, or did.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Makes a thread of [`relay`], which has the word from its beginning: the C library keeps a thread's
/// argument on its stack. A word that a thread got later, once it was scanned, would move past the
/// scan. No code address moves so: nothing leads into code that is scanned for.
fn make_relay(word: *mut c_void) {
    let mut thread = 0;
    // SAFETY: a function of that type, which needs nothing of its maker; detached at once.
    unsafe {
        let made = libc::pthread_create(&mut thread, std::ptr::null(), relay, word);
        assert_eq!(made, 0, "a thread");
        libc::pthread_detach(thread);
    }
}

/// Every thread makes the next one, and ends when that one holds the word as well: at each moment some
/// thread holds it. A scan that lists once misses it sooner or later.
extern "C" fn relay(word: *mut c_void) -> *mut c_void {
    let words = [word];
    black_box(&words);
    let number = MADE.fetch_add(1, Ordering::Release) + 1;
    let began = processor_ns();
    while processor_ns() - began < 3_000_000 {
        std::hint::spin_loop();
    }
    if !STOP.load(Ordering::Relaxed) {
        make_relay(word);
        while MADE.load(Ordering::Acquire) == number {
            std::hint::spin_loop();
        }
    }
    black_box(&words);
    std::ptr::null_mut()
}

#[test]
fn threads_made_meanwhile() {
    let _alone = alone();
    make_relay(address(1) as *mut c_void);
    common::until("the first thread holds it", || {
        MADE.load(Ordering::Acquire) > 0
    });
    let began = Instant::now();
    let (mut scans, mut complete) = (0, 0);
    while goes_on(began, complete, 100) {
        let report = scan_within(Duration::from_secs(2));
        scans += 1;
        complete += u64::from(report.complete);
        // A clean report while a thread holds the word would be a miss.
        assert!(report.kept[1], "missed in scan {scans}: {report:#?}");
    }
    STOP.store(true, Ordering::Relaxed);
    let made = MADE.load(Ordering::Relaxed);
    println!("{scans} scans, {complete} complete, {made} threads");
    assert!(complete > 0, "no scan was complete: it shows nothing");
    common::until("all have ended", || !scan().kept[1]);
}

#[test]
fn threads_that_exit_during_scans() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let its = stop.clone();
    let maker = std::thread::spawn(move || {
        while !its.load(Ordering::Relaxed) {
            let batch: Vec<_> = (0..8)
                .map(|_| {
                    std::thread::spawn(|| {
                        (0..2000u32).for_each(|i| {
                            black_box(i);
                        });
                    })
                })
                .collect();
            batch.into_iter().for_each(|t| t.join().expect("a thread"));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut complete = 0;
    let began = Instant::now();
    let mut scans = 0;
    while goes_on(began, complete, 20) {
        complete += u64::from(scan_within(Duration::from_millis(500)).complete);
        scans += 1;
    }
    stop.store(true, Ordering::Relaxed);
    maker.join().expect("the maker");
    assert!(complete > 0, "{complete} of {scans} scans were complete");
}

#[test]
fn five_hundred_threads() {
    let _alone = alone();
    let holders: Vec<Holder> = (0..500)
        .map(|i| {
            Holder::with_stack(64 << 10, move |stop| {
                let words = [address(1 + i % 8)];
                black_box(&words);
                stop.ready();
                // SAFETY: no memory is involved.
                while !stop.is_set() {
                    // SAFETY: no memory is involved.
                    unsafe { libc::pause() };
                }
                black_box(&words);
            })
        })
        .collect();
    holders.iter().for_each(Holder::wait_asleep);
    let report = scan();
    assert!(report.complete);
    for (i, holder) in holders.iter().enumerate() {
        let thread = of(&report, holder.tid);
        assert_eq!(common::middle(&thread.keeps), [1 + i % 8], "{thread:?}");
    }
    println!("500 sleeping threads: {:?}", report.took);
    holders.into_iter().for_each(Holder::wake_and_stop);
}

#[test]
fn many_running_threads() {
    let _alone = alone();
    let go = Arc::new(AtomicBool::new(false));
    let holders: Vec<Holder> = (0..80)
        .map(|i| {
            let go = go.clone();
            Holder::with_stack(64 << 10, move |stop| {
                let words = [address(1 + i % 8)];
                stop.ready();
                while !go.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                while !stop.is_set() {
                    black_box(&words);
                }
            })
        })
        .collect();
    go.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    let report = scan();
    assert!(report.complete, "{report:#?}");
    for (i, holder) in holders.iter().enumerate() {
        let thread = of(&report, holder.tid);
        assert_eq!(common::middle(&thread.keeps), [1 + i % 8], "{thread:?}");
    }
    println!("80 running threads: {:?}", report.took);
    let stop = |holder: &Holder| holder.stop.stop.store(true, Ordering::Relaxed);
    holders.iter().for_each(stop);
    holders.into_iter().for_each(Holder::stop);
}

/// Blocks or unblocks our signal on the calling thread.
fn mask(how: i32) {
    // SAFETY: an empty set, filled below.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&mut set, ROOTS.signal().expect("one")) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) };
}

#[test]
fn signal_blocked() {
    let _alone = alone();
    let blocker = Holder::start(|stop| {
        mask(libc::SIG_BLOCK);
        let words = [address(2)];
        stop.ready();
        while !stop.is_set() {
            black_box(&words);
        }
    });
    let other = Holder::start(|stop| {
        let words = [address(3)];
        stop.ready();
        while !stop.is_set() {
            black_box(&words);
        }
    });
    let report = scan_beside(blocker.tid);
    let why = Why::SignalBlocked;
    assert_eq!(of(&report, blocker.tid).how, How::Unanswered { why });
    assert_eq!(of(&report, blocker.tid).name, "holder");
    assert_eq!(common::middle(&of(&report, other.tid).keeps), [3]);
    assert!(!report.complete && report.kept.iter().all(|&kept| kept));
    assert!(report.took < LONG / 2, "waited out the deadline");
    blocker.stop();
    other.stop();
    assert!(scan().complete);
}

#[test]
fn signal_blocked_but_asleep() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        mask(libc::SIG_BLOCK);
        let words = [address(2)];
        black_box(&words);
        stop.ready();
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
        black_box(&words);
    });
    holder.wait_asleep();
    check_keeps(&holder, 2);
    holder.wake_and_stop();
}

#[test]
fn exempt_threads_are_left_out() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        mask(libc::SIG_BLOCK);
        let _exempt = ROOTS.exempt_current_thread();
        stop.ready();
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    let report = scan();
    assert!(report.complete, "{report:#?}");
    assert_eq!(of(&report, holder.tid).how, How::Exempt);
    holder.stop();
}

/// `vfork` with the return address as glibc keeps it: in rdi, the word on the stack
/// overwritten by the child.
#[test]
fn return_address_of_vfork() {
    static LEAVE: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let holder = Holder::start(|stop| {
        stop.ready();
        let word = !address(4);
        let time = [0u64, 1_000_000];
        // SAFETY: the child sleeps until it is told to leave, and exits; it writes no memory.
        unsafe {
            std::arch::asm!(
                "not rdi",
                "syscall",
                "xor edi, edi",
                "test eax, eax",
                "jnz 2f",
                "3:",
                "mov eax, 35",
                "mov rdi, {time}",
                "xor esi, esi",
                "syscall",
                "cmp byte ptr [{leave}], 0",
                "je 3b",
                "mov eax, 231",
                "xor edi, edi",
                "syscall",
                "2:",
                time = in(reg) time.as_ptr(),
                leave = in(reg) LEAVE.as_ptr(),
                inout("rax") libc::SYS_vfork => _,
                inout("rdi") word => _,
                out("rsi") _,
                out("rcx") _,
                out("r11") _,
            );
        }
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    holder.wait_asleep();
    let report = scan();
    let why = Why::VforkChild;
    assert_eq!(
        of(&report, holder.tid).how,
        How::Unanswered { why },
        "{report:#?}"
    );
    assert!(report.kept[4]);
    LEAVE.store(true, Ordering::Release);
    common::until("the child is gone", || scan().complete);
    holder.stop();
}

#[test]
fn a_child_of_fork_scans_on_its_own() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let its = stop.clone();
    // Scans and handshakes are under way whenever the fork happens.
    let busy = Holder::start(|stop| {
        stop.ready();
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    let scanner = std::thread::spawn(move || {
        while !its.load(Ordering::Relaxed) {
            ROOTS.scan(&wanted(), Duration::from_secs(1));
        }
    });
    for _ in 0..20 {
        std::thread::sleep(Duration::from_micros(700));
        // SAFETY: the child scans, which takes no lock another thread could have held,
        // and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            ROOTS.after_fork_child();
            let words = [address(5)];
            black_box(&words);
            let report = ROOTS.scan(&wanted(), LONG);
            let good = report.complete && report.kept[5] && report.threads.len() == 1;
            black_box(&words);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if good { 7 } else { 1 }) };
        }
        let mut status = 0;
        common::until("the child ends", || {
            // SAFETY: our child.
            unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) == child }
        });
        assert_eq!(libc::WEXITSTATUS(status), 7, "status {status:#x}");
    }
    stop.store(true, Ordering::Relaxed);
    scanner.join().expect("the scanner");
    busy.stop();
    assert!(scan().complete);
}

#[test]
fn time_runs_out() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        stop.ready();
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    let report = scan_within(Duration::ZERO);
    assert!(!of(&report, holder.tid).how.answered() || report.complete);
    assert!(report.complete || report.kept.iter().all(|&kept| kept));
    // The late answer, if any, must not disturb the next request.
    for _ in 0..100 {
        scan_within(Duration::ZERO);
    }
    let report = scan();
    assert!(report.complete, "{report:#?}");
    holder.stop();
}

/// A counted thread outside of calls is neither asked nor read; inside, it is.
#[test]
fn counted_threads_are_left_alone_outside() {
    let _alone = alone();
    let inside = Arc::new(AtomicBool::new(false));
    let holder = {
        let inside = inside.clone();
        Holder::start(move |stop| {
            let words = [address(6)];
            // SAFETY: it runs no code of any region.
            let _counted = unsafe { uruk_roots::CountedThread::begin() };
            stop.ready();
            while !inside.load(Ordering::SeqCst) {
                black_box(&words);
            }
            let _call = uruk_roots::Inside::begin();
            stop.ready();
            while !stop.is_set() {
                black_box(&words);
            }
        })
    };
    let report = scan();
    let thread = of(&report, holder.tid);
    assert!(matches!(thread.how, How::Outside), "{report:#?}");
    assert!(thread.keeps.is_empty() && report.complete && !report.kept[6]);
    inside.store(true, Ordering::SeqCst);
    common::until("it is found inside", || {
        let report = scan();
        let thread = of(&report, holder.tid);
        matches!(thread.how, How::Running { .. }) && thread.keeps.contains(&6) && report.kept[6]
    });
    holder.stop();
}

/// Scanners of several sessions ask the same threads.
#[test]
fn scanners_do_not_take_each_others_answers() {
    let _alone = alone();
    let holders = [1, 2, 3].map(|i| {
        Holder::start(move |stop| {
            let words = [black_box(address(i))];
            stop.ready();
            while !stop.is_set() {
                black_box(&words);
            }
        })
    });
    let until = Instant::now() + Duration::from_secs(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let other = Roots::new(0x1000_0000..0x2000_0000, Config::default());
                let other = other.expect("a scanner");
                let nobody = Wanted::new(std::iter::once(0x1000_1000..0x1000_2000).collect())
                    .expect("sorted");
                while Instant::now() < until {
                    let report = settled(0, || other.scan(&nobody, LONG));
                    assert!(report.complete, "{report:#?}");
                }
            });
        }
        while Instant::now() < until {
            let report = scan();
            assert!(
                report.complete && report.kept[1..4] == [true; 3],
                "{report:#?}"
            );
        }
    });
    holders.into_iter().for_each(Holder::stop);
}
