//! The end of a session: its threads end with it. One test, in a process of its own.

use std::time::{Duration, Instant};

use uruk::{Jit, ReclaimKind, Tier};
use uruk_testing::in_own_process;

/// Less than the time after which the thread would look at what ages, by itself.
const SOON: Duration = Duration::from_secs(3);

/// Longer than any thread is without a processor.
const LATE: Duration = Duration::from_secs(120);

const ROUNDS: u32 = 6;

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
    if !in_own_process(
        module_path!(),
        "the_thread_that_reclaims_ends_with_its_session",
    ) {
        return;
    }
    // A thread that gets no processor may be late: not most of the time.
    let mut soon = 0;
    for _ in 0..ROUNDS {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", "define i32 @f() { ret i32 1 }")
            .expect("valid IR");
        for _ in 0..3 {
            jit.compile_at("f", Tier::Baseline).expect("compiles");
        }
        assert!(jit.reclaim(ReclaimKind::Sweep, LATE));
        assert!(ours().iter().any(|name| name.starts_with("uruk-reclaim")));
        // Asleep, without anything to come, or soon to be.
        std::thread::sleep(Duration::from_millis(20));
        drop(jit);
        let start = Instant::now();
        while !ours().is_empty() && start.elapsed() < LATE {
            std::thread::sleep(Duration::from_millis(5));
        }
        soon += u32::from(start.elapsed() < SOON);
        assert_eq!(ours(), Vec::<String>::new());
    }
    assert!(soon > ROUNDS / 2, "{soon} of {ROUNDS} ended at once");
}
