//! The end of a session: its threads end with it. One test, in a process of its own.

use std::time::{Duration, Instant};

use uruk::{Jit, ReclaimKind, Tier};

/// Less than the time after which the thread would look at what ages, by itself.
const SOON: Duration = Duration::from_secs(3);

/// Names of the threads of this process that are the library's.
fn ours() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        let comm = task.ok()?.path().join("comm");
        let name = std::fs::read_to_string(comm).ok()?;
        let library = name.starts_with("uruk-") && !name.starts_with("uruk-service");
        library.then_some(name)
    };
    tasks.filter_map(name).collect()
}

#[test]
fn the_thread_that_reclaims_ends_with_its_session() {
    for _ in 0..3 {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", "define i32 @f() { ret i32 1 }")
            .expect("valid IR");
        for _ in 0..3 {
            jit.compile_at("f", Tier::Baseline).expect("compiles");
        }
        assert!(jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(20)));
        assert!(ours().iter().any(|name| name.starts_with("uruk-reclaim")));
        // Asleep, without anything to come, or soon to be.
        std::thread::sleep(Duration::from_millis(20));
        drop(jit);
        let start = Instant::now();
        while !ours().is_empty() && start.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ours(), Vec::<String>::new());
    }
}
