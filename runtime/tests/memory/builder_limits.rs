//! Limits of the threads of a session. A process of its own: its threads are counted.

use std::time::{Duration, Instant};

use uruk::Jit;
use uruk_testing::in_own_process;

fn threads() -> usize {
    let entries = std::fs::read_dir("/proc/self/task").expect("proc");
    entries.count()
}

/// Bytes of addresses that the process has.
fn addresses() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages = text.split(' ').next().and_then(|it| it.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

/// Waits until the process has no more threads than that.
fn settles_at(most: usize) -> bool {
    let start = Instant::now();
    while threads() > most && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    threads() <= most
}

#[test]
fn jobs_are_bounded_and_threads_of_sessions_that_were_not_made_end() {
    if !in_own_process(
        module_path!(),
        "jobs_are_bounded_and_threads_of_sessions_that_were_not_made_end",
    ) {
        return;
    }
    let before = threads();
    let jit = Jit::builder().jobs(usize::MAX).build().expect("a session");
    let most = 256 + 2 * std::thread::available_parallelism().map_or(1, usize::from) + 16;
    assert!(threads() <= before + most, "{}", threads());
    drop(jit);
    assert!(settles_at(before + 1), "{}", threads());

    // Room for some of the threads: what was started ends with the session that is not there.
    let before = threads();
    let mut failed = 0;
    for room in (0..3600_u64).step_by(60) {
        // The last thread of a session gives back its addresses.
        assert!(settles_at(before + 1), "{}", threads());
        let limit = libc::rlimit {
            rlim_cur: addresses() + (room << 20),
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: takes a pointer to a live structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let session = Jit::builder().jobs(8).build();
        let none = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
        failed += usize::from(session.is_err());
    }
    assert!(failed > 0);
    assert!(settles_at(before + 1), "{}", threads());
}
