//! Operations of programs that a profiler must not disturb, and kernels that forbid sources.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use common::{BOTH, alone, burn, burn_until, drain, in_child, of, plain, sleep, until};
use uruk_profiler::{
    Choice, Excluded, Kind, Rates, Sampler, Settings, Sizes, SourceError, current_tid, open,
};

const RATES: Rates = Rates {
    burst_hz: 997,
    steady_hz: 97,
};

fn action(signal: i32) -> libc::sigaction {
    // SAFETY: zero bytes are a valid structure, only read into.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    }
}

fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: handlers of these tests only count.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// The real-time signals whose handler is not of these tests. (The profiler's handlers stay
/// installed.)
fn our_signals() -> Vec<i32> {
    let theirs = on_foreign as *const () as usize;
    let ours = |&signal: &i32| ![libc::SIG_DFL, theirs].contains(&action(signal).sa_sigaction);
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(ours).collect()
}

#[test]
fn sleeping_calls_are_not_interrupted() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(RATES).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (stop, tell) = (stop.clone(), tell.clone());
                std::thread::spawn(move || {
                    tell.send(current_tid()).unwrap();
                    let (mut calls, mut interrupted) = (0, 0);
                    let pause = libc::timespec {
                        tv_sec: 0,
                        tv_nsec: 200_000,
                    };
                    while !stop.load(Ordering::Relaxed) {
                        // Long enough for ticks to fall between the calls.
                        burn(2);
                        // SAFETY: no descriptors; a valid time; no remainder wanted.
                        let results = unsafe {
                            [
                                libc::poll(std::ptr::null_mut(), 0, 1),
                                libc::nanosleep(&pause, std::ptr::null_mut()),
                            ]
                        };
                        calls += 2;
                        interrupted += results.iter().filter(|&&result| result != 0).count();
                    }
                    (calls, interrupted, current_tid())
                })
            })
            .collect();
        let (mut samples, mut rounds) = (Vec::new(), 0);
        let tids: Vec<i32> = told.iter().take(2).collect();
        // On a busy machine it takes longer until both were interrupted often.
        until("samples of both", || {
            sleep(10);
            source.refresh();
            samples.extend(drain(&mut *source));
            rounds += 1;
            rounds >= 200 && tids.iter().all(|&tid| of(&samples, tid).len() >= 20)
        });
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let (calls, interrupted, tid) = thread.join().unwrap();
            let samples = of(&samples, tid).len();
            eprintln!("{choice:?}: {calls} calls, {interrupted} interrupted, {samples} samples");
            assert_eq!(interrupted, 0, "{choice:?}");
        }
    }
}

static PROF: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_prof(_: i32) {
    PROF.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_programs_own_sigprof_stays_its_own() {
    let _alone = alone();
    handle(libc::SIGPROF, on_prof);
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: 10_000,
    };
    let every = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        source.start(RATES).unwrap();
        PROF.store(0, Ordering::Relaxed);
        // SAFETY: valid settings; SIGPROF has a handler.
        unsafe { libc::setitimer(libc::ITIMER_PROF, &every, std::ptr::null_mut()) };
        let (mut cpu_ns, mut ours) = (0, 0);
        until("signals and samples", || {
            cpu_ns += burn(400);
            ours += drain(&mut *source).len();
            PROF.load(Ordering::Relaxed) >= 15 && ours >= 40
        });
        // SAFETY: as above; zero disarms.
        unsafe { libc::setitimer(libc::ITIMER_PROF, &std::mem::zeroed(), std::ptr::null_mut()) };
        let theirs = PROF.load(Ordering::Relaxed);
        eprintln!("{choice:?}: {theirs} of the program, {ours} of ours");
        let most = cpu_ns * 3 / 2 / 10_000_000;
        assert!(u64::from(theirs) <= most, "{choice:?}: {theirs} of {most}");
        let installed = action(libc::SIGPROF).sa_sigaction;
        assert_eq!(installed, on_prof as *const () as usize);
    }
}

static FOREIGN: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_foreign(_: i32) {
    FOREIGN.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_program_may_take_our_signal() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::Timers) else {
        return;
    };
    source.start(RATES).unwrap();
    let ours = our_signals();
    assert!(!ours.is_empty());
    for &signal in &ours {
        handle(signal, on_foreign);
    }
    let ours = ours[0];
    source.refresh();
    drain(&mut *source);
    FOREIGN.store(0, Ordering::Relaxed);
    // Sampling goes on.
    burn_until(&mut *source, 100, 8);
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 0);
    // SAFETY: the program's handler is installed.
    unsafe { libc::raise(ours) };
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 1);
}

#[test]
fn others_signals_do_what_they_would_have_done() {
    let _alone = alone();
    let Some(source) = plain(Choice::Timers) else {
        return;
    };
    let ours = our_signals();
    assert!(!ours.is_empty());
    for signal in ours {
        let status = in_child(|| {
            // SAFETY: no other code expects this signal.
            unsafe { libc::raise(signal) };
            true
        });
        assert!(libc::WIFSIGNALED(status), "{signal}: {status:#x}");
        assert_eq!(libc::WTERMSIG(status), signal);
    }
    drop(source);
}

#[test]
fn threads_that_block_signals() {
    let _alone = alone();
    for choice in BOTH {
        let Some(mut source) = plain(choice) else {
            continue;
        };
        let turn = Arc::new(Barrier::new(2));
        let its = turn.clone();
        let blocked = std::thread::spawn(move || {
            // SAFETY: sets made by the calls before they are used.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
                its.wait();
                its.wait();
                burn(150);
                let mut pending = std::mem::zeroed();
                libc::sigpending(&mut pending);
                let pending = (1..=64).filter(|&n| libc::sigismember(&pending, n) == 1);
                (current_tid(), pending.count())
            }
        });
        turn.wait();
        source.start(RATES).unwrap();
        turn.wait();
        let (tid, pending) = blocked.join().unwrap();
        assert_eq!(pending, 0, "{choice:?}");
        let mine = of(&drain(&mut *source), tid).len();
        match choice {
            Choice::Timers => assert_eq!(mine, 0),
            _ => assert!(mine >= 30, "{choice:?}: {mine}"),
        }
        burn_until(&mut *source, 30, 1);
    }
}

#[test]
fn both_sides_of_a_fork_are_sampled_apart() {
    let _alone = alone();
    for choice in BOTH {
        let Some(source) = plain(choice) else {
            continue;
        };
        let mut sampler = Sampler::start(source, Settings::default()).unwrap();
        let mut tids = HashSet::new();
        burn(30);
        let status = in_child(|| {
            // Memory of the child may be where the parent's rings were.
            let fill: Vec<_> = (0..64).map(|_| vec![1u8; 256 << 10]).collect();
            sampler.restart_in_child().unwrap();
            let mut tids = HashSet::new();
            until("samples of the child", || {
                burn(60);
                sampler.tick(&mut |sample| {
                    tids.insert(sample.tid);
                });
                sampler.summary().drained.samples >= 5
            });
            assert!(fill.iter().all(|part| part.iter().all(|&byte| byte == 1)));
            tids == HashSet::from([current_tid()])
        });
        assert_eq!(status, 0, "{choice:?}");
        // A child that does not restart, and one that drops the sampler.
        assert_eq!(in_child(|| burn(50) > 0), 0, "{choice:?}");
        until("samples of the parent", || {
            burn(30);
            sampler.tick(&mut |sample| {
                tids.insert(sample.tid);
            });
            tids.contains(&current_tid())
        });
        for &tid in &tids {
            // SAFETY: signal 0 only asks.
            let ours = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) } == 0;
            assert!(ours, "{choice:?}: {tid} is not a thread of ours");
        }
        let status = in_child(move || {
            drop(sampler);
            burn(30) > 0
        });
        assert_eq!(status, 0, "{choice:?}");
    }
}

#[test]
fn descriptors_stay_out_of_the_way() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::CpuClock) else {
        return;
    };
    // SAFETY: opens a descriptor and closes it.
    let lowest = || unsafe {
        let fd = libc::dup(2);
        libc::close(fd);
        fd
    };
    let before = lowest();
    source.start(RATES).unwrap();
    assert_eq!(lowest(), before);
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().contains("perf_event") {
            let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: only queries.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            assert!(fd >= 64 && flags & libc::FD_CLOEXEC != 0, "{fd} {flags}");
            count += 1;
        }
    }
    assert_eq!(count, source.coverage().descriptors);
    source.stop();
}

#[test]
fn a_program_may_close_all_descriptors() {
    let _alone = alone();
    let Some(mut source) = plain(Choice::CpuClock) else {
        return;
    };
    source.start(RATES).unwrap();
    let ours: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            target.to_string_lossy().contains("perf_event")
        })
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect();
    assert!(!ours.is_empty());
    for &fd in &ours {
        // SAFETY: as a program would: the number is the program's from here on.
        assert_eq!(unsafe { libc::dup2(2, fd) }, fd);
    }
    source.refresh();
    burn(100);
    let mine = of(&drain(&mut *source), current_tid()).len();
    assert!(mine >= 4, "sampling goes on: {mine}");
    source.stop();
    for fd in ours {
        // SAFETY: only queries; then the program closes its own.
        let closed = unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 && libc::close(fd) == 0 };
        assert!(closed, "{fd} was left to the program");
    }
}

/// Makes the kernel answer `perf_event_open` of the calling thread with an action.
fn forbid(answer: u32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 1, libc::SYS_perf_event_open as u32),
        step(ANSWER, 0, 0, answer),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a valid program; it holds for this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn forbidden_events_fall_back_to_timers() {
    let _alone = alone();
    let answers = [
        (
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            Some(libc::EPERM),
        ),
        (
            libc::SECCOMP_RET_ERRNO | libc::EACCES as u32,
            Some(libc::EACCES),
        ),
        (
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            Some(libc::ENOSYS),
        ),
        (libc::SECCOMP_RET_KILL_PROCESS, None),
        (libc::SECCOMP_RET_TRAP, None),
    ];
    for (answer, errno) in answers {
        let test = move || {
            forbid(answer);
            let opened = open(Choice::Auto, Sizes::default(), &Arc::new(Excluded::new()));
            let kinds: Vec<Kind> = opened.rejected.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [Kind::Cycles, Kind::CpuClock]);
            for (kind, error) in opened.rejected {
                eprintln!("{kind}: {error}");
                match (error, errno) {
                    (SourceError::Open { errno: got, .. }, Some(errno)) => assert_eq!(got, errno),
                    (SourceError::Filtered { status }, None) => {
                        assert_eq!(libc::WTERMSIG(status), libc::SIGSYS);
                    }
                    (error, _) => panic!("{answer:#x}: {error:?}"),
                }
            }
            let mut source = opened.source.unwrap();
            assert_eq!(source.kind(), Kind::Timers);
            source.start(RATES).unwrap();
            burn_until(&mut *source, 100, 8);
            let forced = open(Choice::Perf, Sizes::default(), &Arc::default());
            assert!(forced.source.is_none() && forced.rejected.len() == 2);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
