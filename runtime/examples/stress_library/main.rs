//! Eight threads call functions that four others change, in all ways that the library has:
//!
//! ```text
//! cargo xtask stress --library --seconds 600 --seed 7
//! ```
//!
//! | group | changed by | a call shows |
//! |---|---|---|
//! | `qa` to `qd`, two sets that overlap | replacements at `Level::Quiescent` only | `qb` and `qc` of one generation within one call, whatever is inlined |
//! | `ia` to `ic`, two sets that overlap | replacements at `Level::Immediate`, rollbacks | each function's own number, and a generation that was made |
//! | `step`, called in a loop | both, and loops that go on in new code | the exact sum |
//! | `gone` | its tracker, which comes and goes | its value, or that it has no code |
//! | `lazy` | lazy definitions, replacements, removals | its value, or that it was removed |
//!
//! Meanwhile code is evacuated, tuned and pinned, the process forks, calls trap, meet their limits
//! or are interrupted, and fibers rest in the middle of calls. A wrong value or an error that is none
//! of those ends the process with a message, and so does a thread that makes no progress.

mod callers;
mod changers;
mod fibers;
mod texts;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use world::World;

const CALLERS: usize = 8;
const CHANGERS: usize = 4;

fn main() -> ExitCode {
    let (mut seconds, mut seed) = (60, 1);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        match (&*pair[0], pair.get(1).and_then(|value| value.parse().ok())) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: stress_library [--seconds N] [--seed S]");
                return ExitCode::from(2);
            }
        }
    }
    println!("{seconds} seconds, seed {seed}");
    let world = World::new(CALLERS + CHANGERS, seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let world = &world;
        let workers: Vec<_> = (0..CALLERS + CHANGERS)
            .map(|index| {
                let seed = seed.wrapping_mul(1_000) + index as u64;
                let work = move || match index < CALLERS {
                    true => callers::run(world, index, seed),
                    false => changers::run(world, index, seed),
                };
                let thread = std::thread::Builder::new().name(format!("stress-{index}"));
                thread.spawn_scoped(scope, work).expect("a thread")
            })
            .collect();
        world.watch(end);
        world.stop();
        for worker in workers {
            if worker.join().is_err() {
                world::fail("a thread panicked");
            }
        }
        world.done();
    });
    println!("{}", world.summary());
    ExitCode::SUCCESS
}
