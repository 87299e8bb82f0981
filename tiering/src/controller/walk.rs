//! The controller's invariants on random walks, with an oracle that compares its tables with each
//! other.

use super::tests::{controller, first};
use super::*;
use uruk_testing::Random;

use crate::policy::cost_weight;

/// The invariants of the module.
fn check(controller: &Controller, functions: u32) {
    let config = &controller.config;
    assert!(controller.queue.len() <= config.queue_capacity as usize);
    assert!(controller.outstanding.len() <= config.jobs as usize);
    assert!(controller.wanted.len() <= config.request_capacity as usize);
    assert!(controller.requests.len() <= controller.wanted.len());
    let mut queued = 0;
    for id in 0..functions {
        let function = FunctionId(id);
        let jobs = controller.outstanding.iter();
        let jobs = jobs.filter(|job| job.function == function && !job.stale);
        let jobs = jobs.count();
        let place = controller.functions.get(function).map(|a| a.place);
        assert_eq!(
            controller.queue.contains(function),
            place == Some(Place::Queued)
        );
        assert_eq!(jobs == 1, place == Some(Place::Compiling), "{function}");
        let lined_up = controller.requests.contains(&function);
        assert_eq!(lined_up, place == Some(Place::Requested), "{function}");
        assert!(jobs <= 1 && (!lined_up || controller.wanted.contains_key(&function)));
        queued += usize::from(place == Some(Place::Queued));
        if let Some(activity) = controller.functions.get(function) {
            let share = activity.share(config);
            assert!(share.is_finite() && activity.spent().is_finite());
        }
    }
    assert_eq!(queued, controller.queue.len());
    let weight = cost_weight(
        controller.load.at(Nanos(u64::MAX / 2), config.window),
        0.5,
        config,
    );
    assert!(weight.is_finite());
}

/// All inputs in random order, with times that go back and unknown numbers.
#[test]
fn the_invariants_hold_whatever_comes() {
    const FUNCTIONS: u32 = 24;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut controller = controller(|config| {
            config.jobs = 3;
            config.queue_capacity = 6;
            config.request_capacity = 5;
        });
        controller.ask_callers(seed % 2 == 0);
        let mut under_way: Vec<VersionId> = Vec::new();
        let mut now = 1_000_000_000u64;
        for step in 0..3000 {
            now = match random.below(20) {
                0 => now.saturating_sub(random.below(1 << 30)),
                1 => now + random.below(1 << 34),
                _ => now + random.below(1 << 21),
            };
            let at = Nanos(now);
            let function = FunctionId(random.below(u64::from(FUNCTIONS)) as u32);
            let tier = Tier::ALL[random.below(3) as usize];
            match random.below(24) {
                0..=2 => first(&mut controller, at, function, random.below(3000) as u32),
                3..=9 => {
                    let count = random.below(1 << 20);
                    controller.on_counters(at, function, count, count >> random.below(20));
                }
                10..=13 => {
                    let running = controller.view(function).and_then(|view| view.version);
                    let version = running.map_or(VersionId(0), |(version, _)| version);
                    let samples = random.below(50) as u32;
                    let time = Nanos::from_ms(u64::from(samples));
                    controller.on_samples(at, function, version, samples, time);
                }
                14 => controller.replaced(function),
                15 => drop(controller.pin(function, Some(tier))),
                16 => drop(controller.pin(function, None)),
                17 => drop(controller.request(function, tier)),
                19 if random.below(40) == 0 => {
                    controller.abandon();
                    under_way.clear();
                }
                20 => controller.on_sampling(Some(Nanos(random.below(1 << 24)))),
                21 => match random.below(2) {
                    0 => controller.pause(),
                    _ => controller.resume(),
                },
                _ => {
                    if let Some(version) = under_way.pop() {
                        let compile = Nanos(random.below(1 << 26));
                        let counters = random.below(2) == 0;
                        let outcome = match random.below(6) {
                            0 => Outcome::Failed { compile },
                            1 => Outcome::Cancelled,
                            2 if random.below(10) == 0 => Outcome::NoMemory,
                            3 => Outcome::Late { compile },
                            _ => Outcome::Published { compile, counters },
                        };
                        controller.finished(at, version, outcome);
                    }
                }
            }
            if random.below(4) == 0 {
                for asked in controller.questions() {
                    for _ in 0..random.below(4) {
                        let caller = FunctionId(random.below(u64::from(FUNCTIONS)) as u32);
                        controller.on_caller(asked, caller);
                    }
                    controller.callers_told(asked);
                }
            }
            while let Some(decision) = controller.next(at) {
                if let Decision::Compile { version, .. } = decision {
                    under_way.push(version);
                }
            }
            if step % 16 == 0 {
                check(&controller, FUNCTIONS);
            }
        }
        check(&controller, FUNCTIONS);
        let stats = controller.stats();
        assert!(stats.promoted.iter().sum::<u64>() > 10, "{stats:?}");
    }
}
