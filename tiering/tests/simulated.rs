//! The policy on the simulated machine: made-up programs through the real controller.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod simulator;

use std::sync::Arc;
use std::time::Duration;

use simulator::{
    FunctionShape, Line, Machine, Phase, Program, Replay, Truth, What, parse, scenarios,
};
use uruk_testing::Random;
use uruk_tiering::stream::{Input, Recorder};
use uruk_tiering::{
    Config, Controller, Decision, Facts, FirstCode, FunctionId, Nanos, Outcome, Tier, VersionIds,
};

fn machine(scenario: &str, seed: u64) -> Machine<Program> {
    let program = scenarios::named(scenario, seed).unwrap();
    Machine::new(&Config::default(), Truth::default(), program, seed)
}

fn run(scenario: &str, limit_ms: u64) -> Machine<Program> {
    let mut machine = machine(scenario, 1);
    machine.run(Nanos::from_ms(limit_ms));
    machine
}

fn background_ms(machine: &Machine<Program>) -> f64 {
    machine.controller.stats().compile_ns as f64 / 1e6
}

/// Short programs compile nothing that does not pay off.
#[test]
fn a_short_run_compiles_nothing_in_the_background() {
    for scenario in ["hello", "startup"] {
        for seed in 0..20 {
            let mut machine = machine(scenario, seed);
            machine.run(Nanos::from_ms(1000));
            assert_eq!(machine.compiles(), 0, "{scenario}, seed {seed}");
        }
    }
}

/// The target is tier 2 within 10 ms of the first call, for sizes up to 200 instructions:
/// the policy takes 1 ms of it, the rest is the compile's.
#[test]
fn a_hot_function_runs_optimized_within_ten_milliseconds() {
    for instructions in [5, 20, 60, 120, 200] {
        for (seed, period) in [
            (1, None),
            (2, Some(Nanos::from_ms(1))),
            (3, Some(Nanos::from_ms(10))),
        ] {
            let phase = Phase {
                work: Nanos::from_ms(300),
                mix: vec![(FunctionId(0), 1.0)],
            };
            let program = Program::new(vec![FunctionShape::of(instructions)], vec![phase], period);
            let mut machine = Machine::new(&Config::default(), Truth::default(), program, seed);
            machine.run(Nanos::from_ms(300));
            let at = machine.published_at(FunctionId(0), Tier::Optimized);
            let (at, decided) = (at.expect("promoted"), machine.log[0].at);
            let first = machine.first_time();
            let case = format!("{instructions} instructions: {decided}, {at}");
            assert!(decided - first <= Nanos::from_ms(3), "{case}");
            assert!(instructions > 60 || at <= Nanos::from_ms(10), "{case}");
        }
    }
}

/// Four functions that share a program's time are worth as much as one, and wait no longer than
/// one.
#[test]
fn functions_that_share_the_time_go_up_as_one_does() {
    for seed in 0..8 {
        let mix = (0..4).map(|id| (FunctionId(id), 0.25)).collect();
        let work = Nanos::from_ms(300);
        let phase = Phase { work, mix };
        let program = Program::new(vec![FunctionShape::of(60); 4], vec![phase], None);
        let mut machine = Machine::new(&Config::default(), Truth::default(), program, seed);
        machine.run(Nanos::from_ms(300));
        let begin = machine.first_time();
        let decided = machine.log.iter().filter_map(|line| match line.what {
            What::Decided(Decision::Compile { .. }) => Some(line.at - begin),
            _ => None,
        });
        let decided: Vec<Nanos> = decided.collect();
        assert!(decided[0] <= Nanos::from_ms(8), "seed {seed}: {decided:?}");
        let last = (0..4).map(|id| machine.published_at(FunctionId(id), Tier::Optimized));
        let last = last.max().flatten().expect("promoted") - begin;
        assert!(last <= Nanos::from_ms(40), "seed {seed}: {last}");
    }
}

/// Entries or back edges alone are enough: a function entered once is promoted for its next entry,
/// though its present one gains nothing.
#[test]
fn a_loop_entered_once_is_promoted_once() {
    let machine = run("hot-loop", 1000);
    let at = machine
        .published_at(FunctionId(0), Tier::Optimized)
        .unwrap();
    assert!(at < Nanos::from_ms(10), "{at}");
    assert!(machine.compiles() <= 2 && background_ms(&machine) < 40.0);
}

#[test]
fn every_phase_gets_its_hot_functions() {
    let machine = run("phases", 10_000);
    for id in 0..40 {
        let tier = machine.tier(FunctionId(id));
        assert!(tier >= Some(Tier::Optimized), "f{id}: {tier:?}");
    }
    let (worked, wall) = (machine.workload().worked(), machine.now());
    assert!(worked.as_ms() / wall.as_ms() > 1.8, "{worked} in {wall}");
}

/// Two functions that alternate are promoted once each and stay there.
#[test]
fn turns_do_not_flap() {
    let machine = run("flapping", 5000);
    assert!(machine.compiles() <= 4, "{}", machine.compiles());
    assert_eq!(machine.controller.stats().promoted[1], 2);
}

/// New functions become hot all the time: compile time stays within its gain, the queue within its
/// limit, and polls within their share of the time.
#[test]
fn a_program_that_never_becomes_quiet_stays_bounded() {
    let machine = run("never-quiet", 20_000);
    let (wall, stats) = (machine.now(), machine.controller.stats());
    let share = background_ms(&machine) / wall.as_ms();
    assert!(share < 0.6, "compiles take {share} of a processor");
    assert!(machine.longest_queue < 100, "{}", machine.longest_queue);
    let looks = machine.polls as f64 * Truth::default().look.as_ms() / wall.as_ms();
    assert!(looks <= Config::default().poll_overhead * 1.05, "{looks}");
    // The gain is worth the cost, at the price of an idle processor.
    let running = wall - machine.first_time();
    let saved = machine.workload().worked().as_ms() - running.as_ms();
    let paid = stats.compile_ns as f64 / 1e6 * Config::default().idle_weight;
    assert!(saved > paid, "saved {saved} ms, paid {paid} ms");
}

/// An interpreter's loop that takes half a second to compile is promoted when a quarter of a second
/// was spent in it, though thirty small functions are to be compiled, too; and they do not wait for
/// it.
#[test]
fn a_loop_that_is_dear_to_compile_is_decided_on_early() {
    for seed in 0..4 {
        let mut machine = machine("dispatch", seed);
        machine.run(Nanos::from_ms(1500));
        let is_main = |line: &&Line| matches!(line.what, What::Decided(Decision::Compile { function, .. }) if function == FunctionId(0));
        let decided = machine.log.iter().find(is_main).expect("decided").at;
        assert!(decided < Nanos::from_ms(600), "seed {seed}: {decided}");
        let at = machine.published_at(FunctionId(0), Tier::Optimized);
        let at = at.expect("published");
        assert!(at < Nanos::from_ms(1500), "seed {seed}: {at}");
    }
}

/// A program of a second whose time is spread over many functions spends about as much on compiles
/// as they gain within that second.
#[test]
fn a_short_run_over_many_functions_loses_little() {
    let (mut worst, mut sum) = (0.0_f64, 0.0);
    for seed in 0..5 {
        let mut machine = machine("database", seed);
        machine.run(Nanos::from_ms(10_000));
        let worked = machine.workload().worked().as_ms();
        let running = machine.now().as_ms() - machine.first_time().as_ms();
        let ratio = (running + background_ms(&machine)) / worked;
        (worst, sum) = (worst.max(ratio), sum + ratio);
    }
    assert!(
        worst < 1.06 && sum / 5.0 < 1.03,
        "{worst}, mean {}",
        sum / 5.0
    );
}

/// The hottest of many functions are promoted, the others are not.
#[test]
fn of_a_crowd_the_hottest_are_promoted() {
    let machine = run("crowd", 4000);
    let optimized = |ids: std::ops::Range<u32>| {
        let tiers = ids.map(|id| machine.tier(FunctionId(id)));
        tiers.filter(|&tier| tier >= Some(Tier::Optimized)).count()
    };
    assert!(optimized(0..20) >= 12, "{}", optimized(0..20));
    assert_eq!(optimized(1500..3000), 0);
}

const CROWD: u32 = 100_000;

/// All functions at once, all hot, higher numbers hotter: the promoted functions, and the
/// controller afterwards. A million updates.
fn crowd(config: &Config) -> (Vec<u32>, Controller) {
    let ids = Arc::new(VersionIds::default());
    let mut controller = Controller::new(config, Arc::clone(&ids));
    for id in 0..CROWD {
        let first = FirstCode {
            version: ids.next(),
            tier: Tier::Baseline,
            facts: Facts {
                instructions: 100,
                ..Facts::default()
            },
            compile: Nanos::from_us(100),
            counters: true,
        };
        controller.on_compiled(Nanos(u64::from(id)), FunctionId(id), &first);
    }
    let mut promoted = Vec::new();
    let mut under_way = None;
    for look in 1..=10 {
        let now = Nanos::from_ms(look);
        for id in 0..CROWD {
            // A permutation, so that hot and cold functions are mixed.
            let id = (u64::from(id) * 77_777 % u64::from(CROWD)) as u32;
            controller.on_counters(now, FunctionId(id), 10_000 + u64::from(id) / 4, 0);
        }
        let stats = controller.stats();
        assert!(stats.queued <= config.queue_capacity as usize);
        if let Some(version) = under_way.take() {
            let compile = Nanos::from_ms(1);
            let counters = false;
            controller.finished(now, version, Outcome::Published { compile, counters });
        }
        while let Some(decision) = controller.next(now) {
            let Decision::Compile {
                function, version, ..
            } = decision
            else {
                panic!("{decision:?}")
            };
            promoted.push(function.0);
            under_way = Some(version);
        }
        assert!(controller.stats().outstanding <= config.jobs as usize);
    }
    (promoted, controller)
}

/// Time the thread was on a processor: other threads may have it for long.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    let first = text.split(' ').next().expect("a number");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// Time, queue and decisions stay bounded, and the hottest are promoted first, whether the
/// threshold or the limit of the queue excludes the others.
#[test]
fn a_hundred_thousand_functions_at_once() {
    for (queue_feedback, fills) in [(1.0, false), (1000.0, true)] {
        let config = Config {
            queue_feedback,
            ..Config::default()
        };
        let began = on_processor();
        let (promoted, controller) = crowd(&config);
        let took = on_processor() - began;
        assert!(took.as_secs_f64() < 10.0, "a million updates took {took:?}");
        assert!((9..=10).contains(&promoted.len()), "{promoted:?}");
        let hottest = CROWD - CROWD / 20;
        assert!(promoted.iter().all(|&id| id >= hottest), "{promoted:?}");
        let stats = controller.stats();
        assert!(stats.queued > 10, "{stats:?}");
        assert_eq!(stats.dropped_full > 0, fills, "{stats:?}");
    }
}

/// Failing compiles are not repeated, and the program continues.
#[test]
fn failures_are_not_repeated() {
    let truth = Truth {
        failures: 0.5,
        ..Truth::default()
    };
    let program = scenarios::named("phases", 4).unwrap();
    let mut machine = Machine::new(&Config::default(), truth, program, 4);
    machine.run(Nanos::from_ms(5000));
    let stats = machine.controller.stats();
    assert!(stats.failed > 5 && stats.promoted[1] > 5, "{stats:?}");
    assert!(machine.compiles() <= 80, "{}", machine.compiles());
}

/// Tier 2 that is really slower is detected by its entries and taken back: the controller itself
/// requested their count.
#[test]
fn code_that_is_slower_is_taken_back() {
    let mut shape = FunctionShape::looping(8000, 1e4);
    shape.facts.loops = 40;
    shape.speedup = [0.4, 0.4];
    let phase = Phase {
        work: Nanos::from_ms(3000),
        mix: vec![(FunctionId(0), 1.0)],
    };
    let program = Program::new(vec![shape], vec![phase], Some(Nanos::from_ms(1)));
    let mut machine = Machine::new(&Config::default(), Truth::default(), program, 1);
    machine.run(Nanos::from_ms(10_000));
    let stats = machine.controller.stats();
    assert_eq!((stats.slower, stats.promoted[1]), (1, 1));
    assert_eq!(machine.tier(FunctionId(0)), Some(Tier::Baseline));
}

#[test]
fn a_seed_determines_every_decision() {
    for (scenario, _) in scenarios::ALL {
        if scenario == "crowd" {
            continue;
        }
        let log = |seed| {
            let mut machine = machine(scenario, seed);
            machine.run(Nanos::from_ms(800));
            machine.log
        };
        assert_eq!(log(7), log(7), "{scenario}");
    }
    let differs = |a, b| {
        let mut machines = [machine("phases", a), machine("phases", b)];
        for machine in &mut machines {
            machine.run(Nanos::from_ms(800));
        }
        let [a, b] = machines;
        a.log != b.log
    };
    assert!(differs(1, 2), "the seed has no effect");
}

/// A recorded run, read back and replayed, gives the same decisions.
#[test]
fn a_recorded_run_can_be_replayed() {
    let mut random = Random::new(3);
    let mut recorder = Recorder::new(Vec::new(), u64::MAX).unwrap();
    let mut record = |at, input: Input| recorder.record(at, &input).unwrap();
    let ids = VersionIds::default();
    let compile = Nanos::from_ms(3);
    for id in 0..5 {
        let first = FirstCode {
            version: ids.next(),
            tier: Tier::Baseline,
            facts: Facts {
                instructions: 100,
                ..Facts::default()
            },
            compile: Nanos::from_us(200),
            counters: true,
        };
        record(
            Nanos(u64::from(id) * 1000),
            Input::Compiled(FunctionId(id), first),
        );
    }
    for ms in 1..200 {
        // Only the first function is hot.
        record(
            Nanos::from_ms(ms),
            Input::Counters(FunctionId(0), 25_000, 0),
        );
        let cold = FunctionId(1 + random.below(4) as u32);
        record(
            Nanos::from_ms(ms),
            Input::Counters(cold, random.below(9), 0),
        );
    }
    let outcome = Outcome::Published {
        compile,
        counters: false,
    };
    let version = ids.next();
    let ended = Input::Finished(FunctionId(0), version, Tier::Optimized, outcome);
    record(Nanos::from_ms(200), ended);
    let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
    let replay = || {
        let workload = Replay::new(parse(&text).unwrap());
        let mut machine = Machine::new(&Config::default(), Truth::default(), workload, 1);
        machine.run(Nanos::from_ms(1000));
        machine
    };
    let machine = replay();
    assert_eq!(machine.compiles(), 1, "{:?}", machine.log);
    let (begun, ended) = (machine.log[0].at, machine.log[1].at);
    assert_eq!(ended - begun, compile, "as recorded");
    assert!(ended < Nanos::from_ms(6));
    assert_eq!(machine.log, replay().log);
}
