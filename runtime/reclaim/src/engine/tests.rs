//! Units of the engine, in an environment that does what a test tells it.

mod barren;
mod script;

use script::{SIZE, Script};

use crate::block::{Block, State};
use crate::config::Config;
use crate::engine::{Engine, NoteError, Step};
use crate::env::{MayHold, Silence};
use crate::ids::{BlockId, FunctionId, Nanos, Space, Span, ThreadId, VersionId};
use crate::inbox::Note;
use crate::policy::{Kind, Reason};
use crate::stats::{End, Summary};

fn block(id: u64) -> Block {
    Block {
        id: BlockId(id),
        span: Span {
            start: id * 0x1000,
            end: id * 0x1000 + SIZE,
        },
        space: Space::A,
        function: FunctionId(id as u32),
        version: VersionId(id),
        fixed: None,
    }
}

struct Bench {
    engine: Engine,
    env: Script,
    now: Nanos,
}

impl Bench {
    fn new(config: &Config) -> Bench {
        Bench {
            engine: Engine::new(config, 0),
            env: Script::default(),
            now: Nanos::ZERO,
        }
    }

    fn note(&mut self, note: Note) -> Result<(), NoteError> {
        self.engine.apply(note, self.now)
    }

    fn born(&mut self, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            self.note(Note::Born(block(id))).unwrap();
        }
    }

    fn retire(&mut self, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            self.note(Note::Retired(BlockId(id))).unwrap();
        }
    }

    fn request(&mut self, kind: Kind, ticket: u64) {
        self.note(Note::Request { kind, ticket }).unwrap();
    }

    fn step(&mut self) -> Step {
        self.engine.step(&mut self.env, self.now)
    }

    /// Steps to the end of a cycle; the log of it.
    fn cycle(&mut self) -> (Summary, String) {
        for _ in 0..10_000 {
            match self.step() {
                Step::Working => {}
                Step::Finished(summary) => {
                    let log = std::mem::take(&mut self.env.log);
                    return (summary, log.trim_end().to_owned());
                }
                idle @ Step::Idle { .. } => panic!("{idle:?} without a cycle"),
            }
        }
        panic!("a cycle without end");
    }
}

#[test]
fn the_order_is_the_proof() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=3);
    bench.retire(2..=2);
    bench.request(Kind::Evacuate, 4);
    let (summary, log) = bench.cycle();
    assert_eq!(
        log,
        "flip copy b1 copy b3 fence scan 3 drain unregister b1 unregister b2 unregister b3 free 3"
    );
    assert_eq!((summary.kind, summary.answered), (Kind::Evacuate, 4));
    assert_eq!((summary.moved.blocks, summary.freed.blocks), (2, 3));
    assert_eq!(bench.engine.stats(bench.now).live.bytes, 2 * SIZE);
    assert_eq!(bench.step(), Step::Idle { until: None });
}

#[test]
fn pinned_blocks_wait_longer_each_time_and_hold_up_nobody() {
    let config = Config {
        backoff_max: Nanos::from_ms(50),
        ..Config::default()
    };
    let mut bench = Bench::new(&config);
    bench.born(1..=4);
    bench.retire(1..=3);
    bench.env.held.insert(0x2000, 42);
    bench.request(Kind::Sweep, 1);
    let (summary, _) = bench.cycle();
    assert_eq!((summary.freed.blocks, summary.pinned), (2, 1));
    let stats = bench.engine.stats(bench.now);
    assert_eq!(stats.pins[0].by, [ThreadId(42)]);
    assert_eq!(stats.pins[0].function, FunctionId(2));
    for wait in [20, 40, 50, 50] {
        let due = bench.now + Nanos::from_ms(wait);
        assert_eq!(bench.step(), Step::Idle { until: Some(due) });
        bench.now = due;
        let (summary, log) = bench.cycle();
        assert_eq!(
            (summary.reason, log.as_str()),
            (Reason::Retry, "fence scan 1")
        );
    }
    bench.env.held.clear();
    bench.request(Kind::Sweep, 2);
    let (summary, _) = bench.cycle();
    assert_eq!(
        (summary.freed.blocks, bench.engine.state(BlockId(2))),
        (1, None)
    );
}

#[test]
fn a_silent_thread_holds_what_it_could_be_in() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=3);
    bench.retire(1..=3);
    bench.env.silent = Some(MayHold::Ranges(vec![1]));
    bench.request(Kind::Sweep, 1);
    let (summary, _) = bench.cycle();
    assert_eq!((summary.freed.blocks, summary.unproved), (2, 1));
    bench.env.silent = Some(MayHold::All);
    bench.request(Kind::Sweep, 2);
    let (summary, _) = bench.cycle();
    assert_eq!((summary.freed.blocks, summary.unproved), (0, 1));
    bench.now = Nanos::from_ms(60_000);
    let stats = bench.engine.stats(bench.now);
    assert_eq!((stats.incomplete, stats.stuck), (2, 1));
    assert_eq!(stats.missing[0].thread, ThreadId(77));
    assert_eq!(stats.silent[&Silence::SignalBlocked], 2);
    bench.env.silent = None;
    let (summary, _) = bench.cycle();
    assert_eq!((summary.freed.blocks, summary.unproved), (1, 0));
    assert_eq!(bench.engine.stats(bench.now).unproved, 0);
}

/// After a partial failure, completed work stays and the rest is tried again.
#[test]
fn failures_leave_everything_as_it_was() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=6);
    bench.env.room = Some(2);
    bench.env.fixed.insert(BlockId(1));
    bench.env.superseded.insert(BlockId(3));
    bench.request(Kind::Evacuate, 1);
    let (summary, log) = bench.cycle();
    assert_eq!(summary.end, End::OutOfSpace);
    // 1 is fixed, 2 moves, the copy of 3 came late, 4 finds no room, 5 and 6 are not tried.
    let expected = "flip copy b2 copy b3 fence scan 1 drain unregister b1000002 \
                    unregister b2 free 2";
    assert_eq!(log, expected);
    let given_up = bench.engine.stats(bench.now).given_up;
    assert_eq!(
        (given_up.out_of_space, given_up.fixed, given_up.superseded),
        (3, 1, 1)
    );
    for id in [1, 3, 4, 5, 6] {
        assert_eq!(bench.engine.state(BlockId(id)), Some(&State::Live));
    }

    bench.env.no_flip = true;
    bench.env.no_fence = true;
    bench.retire(4..=4);
    bench.request(Kind::Evacuate, 2);
    let (summary, log) = bench.cycle();
    assert!(matches!(summary.end, End::NoProof(_)), "{summary:?}");
    assert_eq!((log.as_str(), summary.answered), ("flip fence", 2));
    bench.env.no_flip = false;
    bench.env.no_fence = false;
    bench.env.room = None;
    bench.env.superseded.clear();
    bench.request(Kind::Evacuate, 3);
    let (summary, log) = bench.cycle();
    // 1 is known to be fixed. Nothing was proved the last time.
    assert!(
        log.starts_with("fence scan 1 flip copy b3 copy b5 copy b6 fence scan 3 "),
        "{log}"
    );
    assert_eq!((summary.end, summary.freed.blocks), (End::Complete, 4));
}

#[test]
fn a_fork_breaks_the_cycle_off_and_freezes_what_is_there() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=3);
    bench.retire(1..=1);
    bench.env.fork_in_scan = true;
    bench.request(Kind::Sweep, 1);
    let (summary, _) = bench.cycle();
    assert_eq!((summary.end, summary.freed.blocks), (End::Forked, 0));
    assert!(summary.answered < 1);
    // The answer may be about the threads of another process.
    let state = bench.engine.state(BlockId(1));
    assert_eq!(state, Some(&State::Retired { since: Nanos(0) }));
    bench.env.fork_in_scan = false;
    bench.born(4..=4);
    bench.retire(4..=4);
    // The request is still to be answered.
    let (summary, _) = bench.cycle();
    assert_eq!((summary.answered, summary.freed.blocks), (1, 2));
    assert_eq!(bench.env.frozen, [BlockId(1)]);
    assert_eq!(bench.engine.stats(bench.now).frozen.blocks, 2);
}

#[test]
fn what_was_proved_before_a_fork_is_freed_after_it() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=1);
    bench.retire(1..=1);
    bench.now = Nanos::from_ms(1_000);
    assert_eq!([bench.step(), bench.step()], [Step::Working, Step::Working]);
    assert_eq!(bench.engine.state(BlockId(1)), Some(&State::Dead));
    bench.env.generation += 1;
    assert_eq!(bench.cycle().0.end, End::Forked);
    bench.now = Nanos::from_ms(1_010);
    let (summary, _) = bench.cycle();
    assert_eq!(
        (summary.reason, summary.freed.blocks),
        (Reason::Leftover, 1)
    );
    assert_eq!(bench.env.frozen, [BlockId(1)]);
}

/// A scan queries at most that many blocks; old and new ones share the limit.
#[test]
fn neither_old_nor_new_blocks_wait_for_the_others() {
    let config = Config {
        scan_blocks: 4,
        ..Config::default()
    };
    let mut bench = Bench::new(&config);
    bench.born(1..=40);
    bench.retire(1..=4);
    for id in 1..=4 {
        bench.env.held.insert(id * 0x1000, 1);
    }
    bench.request(Kind::Sweep, 1);
    assert_eq!(bench.cycle().0.pinned, 4);
    bench.retire(5..=40);
    for (ticket, freed) in [(2, 2), (3, 2), (4, 2)] {
        bench.request(Kind::Sweep, ticket);
        let (summary, log) = bench.cycle();
        assert!(log.starts_with("fence scan 4 "), "{log}");
        assert_eq!((summary.freed.blocks, summary.pinned), (freed, 2));
    }
    bench.env.held.clear();
    bench.request(Kind::Sweep, 5);
    assert_eq!(bench.cycle().0.freed.blocks, 4);
    assert_eq!(bench.engine.stats(bench.now).pinned.blocks, 2);
}

#[test]
fn bad_notes_are_errors_and_change_nothing() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=1);
    let same = bench.note(Note::Born(block(1)));
    assert_eq!(same, Err(NoteError::Duplicate(BlockId(1))));
    let mut empty = block(2);
    empty.span.end = empty.span.start - 1;
    let empty = bench.note(Note::Born(empty));
    assert_eq!(empty, Err(NoteError::Empty(BlockId(2))));
    let unknown = bench.note(Note::Retired(BlockId(9)));
    assert_eq!(unknown, Err(NoteError::Unknown(BlockId(9))));
    bench.retire(1..=1);
    let again = bench.note(Note::Retired(BlockId(1))).unwrap_err();
    assert_eq!(
        again.to_string(),
        "block b1 is Retired { since: Nanos(0) }, which Retire { now: Nanos(0) } does not fit"
    );
    let stats = bench.engine.stats(bench.now);
    assert_eq!((stats.live.blocks, stats.retired.blocks), (0, 1));
}

/// The cost of a block does not depend on the number of others that wait: 100 times as many cost
/// 100 times as much in all.
#[test]
fn work_is_linear_in_what_is_retired() {
    let config = Config {
        sweep_floor: 0,
        ..Config::default()
    };
    let visits = |count: u64, pinned: u64| {
        let mut bench = Bench::new(&config);
        // Others wait, pinned, all the time.
        bench.born(1_000_000..=1_000_000 + pinned);
        bench.retire(1_000_000..=1_000_000 + pinned);
        for id in 1_000_000..=1_000_000 + pinned {
            bench.env.held.insert(id * 0x1000, 1);
        }
        bench.request(Kind::Sweep, 1);
        bench.cycle();
        let before = bench.engine.stats(bench.now).visits;
        for id in 0..count {
            bench.born(id + 1..=id + 1);
            bench.retire(id + 1..=id + 1);
        }
        // After the interval, before the back-off of those that wait.
        bench.now = Nanos::from_ms(15);
        let (summary, _) = bench.cycle();
        assert_eq!((summary.freed.blocks, summary.pinned), (count, 0));
        bench.engine.stats(bench.now).visits - before
    };
    let (few, many) = (visits(100, 10), visits(10_000, 10));
    assert_eq!((few % 100, many), (0, few * 100));
    assert_eq!(visits(100, 5_000), few);
}

#[test]
fn steps_are_bounded_and_cycles_are_rare() {
    let config = Config {
        step_blocks: 16,
        cpu_fraction: 0.01,
        ..Config::default()
    };
    let mut bench = Bench::new(&config);
    bench.born(1..=1_000);
    bench.retire(1..=500);
    bench.request(Kind::Evacuate, 1);
    loop {
        bench.env.handled = 0;
        let step = bench.step();
        assert!(
            bench.env.handled <= 16,
            "{} blocks in a step",
            bench.env.handled
        );
        bench.engine.charge(Nanos::from_us(10));
        if matches!(step, Step::Finished(_)) {
            break;
        }
    }
    let spent = bench.engine.stats(bench.now).spent;
    assert!(spent > Nanos::from_us(900), "{spent}");
    // A new reason comes at once, but the cycle's time was one part in a hundred.
    bench.born(2_001..=3_000);
    bench.retire(2_001..=2_350);
    let until = Nanos(spent.0 * 100);
    assert_eq!(bench.step(), Step::Idle { until: Some(until) });
    bench.now = until - Nanos(1);
    assert!(matches!(bench.step(), Step::Idle { .. }));
    // A request does not wait.
    bench.request(Kind::Sweep, 2);
    let (summary, _) = bench.cycle();
    assert_eq!(
        (summary.reason, summary.freed.blocks),
        (Reason::Requested, 350)
    );
}

#[test]
fn what_is_little_waits_for_a_smaller_share() {
    let config = Config::default();
    let mut bench = Bench::new(&config);
    bench.born(1..=1_000);
    bench.retire(1..=500);
    bench.request(Kind::Sweep, 1);
    while !matches!(bench.step(), Step::Finished(_)) {
        bench.engine.charge(Nanos::from_ms(10));
    }
    let spent = bench.engine.stats(bench.now).spent;
    let dear = Nanos::from_f64(spent.as_f64() / config.cpu_fraction);
    let dearest = Nanos::from_f64(dear.as_f64() / config.aged_part);
    assert!(dear > config.sweep_after, "{dear}");
    bench.retire(501..=501);
    for now in [Nanos(1), config.sweep_after, dear, dearest - Nanos(1)] {
        bench.now = now;
        assert_eq!(
            bench.step(),
            Step::Idle {
                until: Some(dearest)
            }
        );
    }
    bench.now = dearest;
    assert_eq!(bench.cycle().0.reason, Reason::Aged);
}

/// With endless publications and the defaults, held memory stays within twice the live bytes,
/// though each step costs a hundred times the allowance of the rate limit.
#[test]
fn memory_stays_within_twice_what_is_live() {
    let config = Config {
        interval: Nanos(1),
        ..Config::default()
    };
    let mut bench = Bench::new(&config);
    let live = 2_000;
    bench.born(1..=live);
    let mut worst = 0;
    for id in live + 1..live + 20_000 {
        bench.now = bench.now + Nanos::from_us(20);
        bench.born(id..=id);
        bench.retire(id - live..=id - live);
        bench.step();
        bench.engine.charge(Nanos::from_us(20));
        let stats = bench.engine.stats(bench.now);
        let held = stats.live.bytes + stats.retired.bytes + stats.pinned.bytes + stats.dead.bytes;
        worst = worst.max(held * 100 / stats.live.bytes);
    }
    assert!((120..200).contains(&worst), "{worst} percent");
    assert!(bench.engine.stats(bench.now).sweeps > 10);
}

/// Fragmentation that an evacuation cannot repair does not start another one.
#[test]
fn fragmentation_that_stays_is_not_evacuated_again() {
    let mut bench = Bench::new(&Config::default());
    bench.born(1..=10);
    bench.env.fragmented = 1 << 20;
    let (summary, _) = bench.cycle();
    assert_eq!(summary.reason, Reason::Fragmented);
    bench.now = Nanos::from_ms(1_000);
    assert_eq!(bench.step(), Step::Idle { until: None });
    bench.env.fragmented = 1 << 10;
    bench.step();
    bench.env.fragmented = 1 << 19;
    assert_eq!(bench.cycle().0.reason, Reason::Fragmented);
}
