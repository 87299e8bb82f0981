//! The controller's parts, one by one.

use super::*;
use crate::policy::Facts;

pub(super) const F: FunctionId = FunctionId(3);

/// A controller with the default settings, changed by `change`.
pub(super) fn controller(change: impl FnOnce(&mut Config)) -> Controller {
    let mut config = Config::default();
    change(&mut config);
    Controller::new(&config, Arc::new(VersionIds::default()))
}

pub(super) fn first(
    controller: &mut Controller,
    now: Nanos,
    function: FunctionId,
    instructions: u32,
) {
    let first = FirstCode {
        version: controller.ids.next(),
        tier: Tier::Baseline,
        facts: Facts {
            instructions,
            ..Facts::default()
        },
        compile: Nanos::from_us(200),
        counters: true,
    };
    controller.on_compiled(now, function, &first);
}

/// Keeps `function` busy from `from_ms` to `to_ms`, as its counters show.
fn busy(controller: &mut Controller, function: FunctionId, from_ms: u64, to_ms: u64) {
    for ms in from_ms + 1..=to_ms {
        // 100 instructions at 0.4 ns: 25,000 entries a millisecond.
        controller.on_counters(Nanos::from_ms(ms), function, 25_000, 0);
    }
}

/// The next decision, which must be a compile.
fn compile(controller: &mut Controller, now: Nanos) -> (FunctionId, VersionId, Tier, Reason) {
    match controller.next(now) {
        Some(Decision::Compile {
            function,
            version,
            tier,
            reason,
            ..
        }) => (function, version, tier, reason),
        other => panic!("{other:?}"),
    }
}

fn published(ms: u64) -> Outcome {
    Outcome::Published {
        compile: Nanos::from_ms(ms),
        counters: false,
    }
}

#[test]
fn a_hot_function_goes_up_step_by_step() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    assert_eq!(controller.next(Nanos::ZERO), None);
    busy(&mut controller, F, 0, 1);
    let now = Nanos::from_ms(1);
    let (function, version, tier, reason) = compile(&mut controller, now);
    assert_eq!((function, tier), (F, Tier::Optimized));
    assert!(matches!(reason, Reason::Hot { score, share } if score > 1.0 && share > 0.9));
    assert_eq!(controller.next(now), None, "one job only");
    controller.finished(Nanos::from_ms(5), version, published(4));
    assert_eq!(
        controller.view(F).unwrap().version,
        Some((version, Tier::Optimized))
    );
    // Counts of old activations are ignored; samples lead to tier 3.
    busy(&mut controller, F, 5, 9);
    assert_eq!(controller.stats().stray_counts, 4);
    for ms in 10..100 {
        controller.on_samples(Nanos::from_ms(ms), F, version, 1, Nanos::from_ms(1));
    }
    let (_, version, tier, _) = compile(&mut controller, Nanos::from_ms(100));
    assert_eq!(tier, Tier::Guided);
    controller.finished(Nanos::from_ms(110), version, published(10));
    for ms in 110..300 {
        controller.on_samples(Nanos::from_ms(ms), F, version, 1, Nanos::from_ms(1));
    }
    assert_eq!(controller.next(Nanos::from_ms(300)), None, "nothing above");
    assert_eq!(controller.stats().promoted, [0, 1, 1]);
}

#[test]
fn a_cold_function_stays_and_looks_become_rare() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    assert_eq!(
        controller.poll_interval(Nanos::ZERO),
        controller.config().poll_min
    );
    for ms in 1..1000 {
        controller.on_counters(Nanos::from_ms(ms), F, 5, 0);
    }
    let now = Nanos::from_ms(1000);
    assert_eq!(controller.next(now), None);
    assert_eq!(controller.poll_interval(now), controller.config().poll_max);
}

#[test]
fn a_failed_compile_is_not_tried_again_until_the_body_changes() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    busy(&mut controller, F, 0, 2);
    let (_, version, ..) = compile(&mut controller, Nanos::from_ms(2));
    let compile_time = Nanos::from_ms(1);
    let failed = Outcome::Failed {
        compile: compile_time,
    };
    controller.finished(Nanos::from_ms(3), version, failed);
    busy(&mut controller, F, 3, 500);
    assert_eq!(controller.next(Nanos::from_ms(500)), None);
    let stats = controller.stats();
    assert_eq!((stats.failed, stats.wasted_ns), (1, compile_time.0));
    controller.replaced(F);
    first(&mut controller, Nanos::from_ms(500), F, 100);
    busy(&mut controller, F, 500, 502);
    compile(&mut controller, Nanos::from_ms(502));
}

#[test]
fn giving_up_makes_it_hesitate() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let began = now;
        let version = loop {
            busy(&mut controller, F, now, now + 1);
            now += 1;
            if let Some(Decision::Compile { version, .. }) = controller.next(Nanos::from_ms(now)) {
                break version;
            }
            assert!(now < 1000);
        };
        waits.push(now - began);
        controller.finished(Nanos::from_ms(now), version, Outcome::Cancelled);
    }
    assert!(waits.is_sorted() && waits[4] > 4 * waits[1], "{waits:?}");
}

#[test]
fn a_replacement_cancels_and_ignores_what_is_under_way() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    busy(&mut controller, F, 0, 2);
    let now = Nanos::from_ms(2);
    let (_, version, ..) = compile(&mut controller, now);
    controller.replaced(F);
    let function = F;
    let cancel = Decision::Cancel { function, version };
    assert_eq!(controller.next(now), Some(cancel));
    // The new body comes and is hot before the old compile has ended.
    first(&mut controller, now, F, 50);
    let running = controller.view(F).unwrap().version;
    controller.finished(Nanos::from_ms(4), version, published(3));
    assert_eq!(controller.view(F).unwrap().version, running);
    assert_eq!(
        (controller.stats().late, controller.stats().promoted),
        (1, [0; 3])
    );
    assert_eq!(controller.stats().outstanding, 0);
}

#[test]
fn requests_come_first_and_during_a_pause() {
    let mut controller = controller(|config| config.request_capacity = 2);
    for id in 1..=4 {
        first(&mut controller, Nanos::ZERO, FunctionId(id), 100);
    }
    busy(&mut controller, FunctionId(1), 0, 3);
    controller.pause();
    let now = Nanos::from_ms(3);
    assert_eq!((controller.next(now), controller.is_paused()), (None, true));
    assert!(controller.request(FunctionId(2), Tier::Guided));
    assert!(
        controller.request(FunctionId(3), Tier::Baseline),
        "fulfilled"
    );
    assert!(controller.request(FunctionId(3), Tier::Optimized));
    assert!(
        !controller.request(FunctionId(4), Tier::Optimized),
        "too many"
    );
    // A second request of the same function only changes the tier.
    assert!(controller.request(FunctionId(3), Tier::Guided));
    controller.resume();
    for expected in [2, 3] {
        let (function, version, tier, reason) = compile(&mut controller, now);
        assert_eq!((function, tier), (FunctionId(expected), Tier::Guided));
        assert_eq!(reason, Reason::Requested);
        controller.finished(now, version, published(1));
    }
    assert_eq!(compile(&mut controller, now).0, FunctionId(1));
    assert_eq!(controller.stats().refused, 1);
}

#[test]
fn a_pin_wins_over_the_policy() {
    let mut controller = controller(|_| {});
    assert!(controller.pin(F, Some(Tier::Optimized)));
    assert_eq!(controller.start_tier(F), Tier::Optimized);
    // The first code came from a compile that did not know of the pin.
    first(&mut controller, Nanos::ZERO, F, 100);
    let (_, version, tier, reason) = compile(&mut controller, Nanos::ZERO);
    assert_eq!((tier, reason), (Tier::Optimized, Reason::Pinned));
    // A higher pin while it is in progress: that compile is cancelled, another is made.
    assert!(controller.pin(F, Some(Tier::Guided)));
    let cancel = Decision::Cancel {
        function: F,
        version,
    };
    assert_eq!(controller.next(Nanos::ZERO), Some(cancel));
    controller.finished(Nanos::from_ms(1), version, Outcome::Cancelled);
    let (_, version, tier, _) = compile(&mut controller, Nanos::from_ms(1));
    assert_eq!(tier, Tier::Guided);
    controller.finished(Nanos::from_ms(2), version, published(1));
    assert!(controller.pin(F, Some(Tier::Baseline)));
    let (_, version, tier, _) = compile(&mut controller, Nanos::from_ms(2));
    assert_eq!(tier, Tier::Baseline);
    let counters = true;
    let compile = Nanos::from_ms(1);
    let outcome = Outcome::Published { compile, counters };
    controller.finished(Nanos::from_ms(3), version, outcome);
    busy(&mut controller, F, 3, 300);
    assert_eq!(controller.next(Nanos::from_ms(300)), None);
    assert!(controller.pin(F, None));
    busy(&mut controller, F, 300, 302);
    assert!(controller.next(Nanos::from_ms(302)).is_some());
}

#[test]
fn nothing_is_compiled_for_a_while_without_memory() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    let mut now = 0;
    let mut attempts = Vec::new();
    while now < 2000 {
        busy(&mut controller, F, now, now + 1);
        now += 1;
        if let Some(Decision::Compile { version, .. }) = controller.next(Nanos::from_ms(now)) {
            attempts.push(now);
            controller.finished(Nanos::from_ms(now), version, Outcome::NoMemory);
        }
    }
    // 100, 200, 400, 800 ms apart.
    let gaps: Vec<u64> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [100, 200, 400, 800]);
}

#[test]
fn a_pinned_function_without_memory_is_tried_again() {
    let mut controller = controller(|_| {});
    first(&mut controller, Nanos::ZERO, F, 100);
    controller.pin(F, Some(Tier::Optimized));
    let (_, version, ..) = compile(&mut controller, Nanos::ZERO);
    controller.finished(Nanos::ZERO, version, Outcome::NoMemory);
    assert_eq!(controller.next(Nanos::from_ms(50)), None);
    let (function, ..) = compile(&mut controller, Nanos::from_ms(101));
    assert_eq!(function, F);
}

#[test]
fn a_forked_child_starts_over() {
    let mut controller = controller(|config| config.jobs = 2);
    for id in 1..=3 {
        first(&mut controller, Nanos::ZERO, FunctionId(id), 100);
        busy(&mut controller, FunctionId(id), 0, 20);
    }
    let now = Nanos::from_ms(20);
    let (_, lost, ..) = compile(&mut controller, now);
    let (replaced, ..) = compile(&mut controller, now);
    controller.replaced(replaced);
    controller.abandon();
    assert_eq!(controller.stats().outstanding, 0);
    controller.finished(now, lost, published(1));
    assert_eq!(controller.stats().promoted, [0; 3]);
    for id in 1..=3 {
        busy(&mut controller, FunctionId(id), 20, 60);
    }
    let two = [(); 2].map(|()| compile(&mut controller, Nanos::from_ms(60)).0);
    assert!(!two.contains(&replaced), "it has no code yet");
}

#[test]
fn slower_code_is_taken_back() {
    let mut controller = controller(|_| {});
    controller.on_sampling(Some(Nanos::from_ms(1)));
    // So large that it is measured well before it is promoted.
    first(&mut controller, Nanos::ZERO, F, 20_000);
    let mut now = 0;
    let mut tick = |controller: &mut Controller, entries| {
        now += 1;
        let at = Nanos::from_ms(now);
        let (version, _) = controller.view(F).unwrap().version.unwrap();
        controller.on_samples(at, F, version, 1, Nanos::from_ms(1));
        controller.on_counters(at, F, entries, 0);
        (at, controller.next(at))
    };
    let before = controller.view(F).unwrap().version.unwrap();
    let (at, version) = loop {
        if let (at, Some(Decision::Compile { version, .. })) = tick(&mut controller, 25_000) {
            break (at, version);
        }
    };
    let compile = Nanos::from_ms(300);
    let counters = true;
    let outcome = Outcome::Published { compile, counters };
    controller.finished(at, version, outcome);
    // Half as much work in the same time.
    let at = loop {
        let (at, decision) = tick(&mut controller, 12_500);
        if let Some(decision) = decision {
            let function = F;
            assert_eq!(decision, Decision::Revert { function, version });
            break at;
        }
        assert!(at < Nanos::from_ms(5000), "not found");
    };
    controller.reverted(at, F, before.0, before.1, true);
    let learned = controller.learned().speedup[0];
    assert!(learned.observed == 1 && learned.value < 2.5, "{learned:?}");
    for _ in 0..500 {
        let (_, decision) = tick(&mut controller, 25_000);
        assert_eq!(decision, None, "it stays down");
    }
    assert_eq!(controller.stats().slower, 1);
}

#[test]
fn a_trial_is_judged_before_tier_3() {
    let mut controller = controller(|config| {
        config.speedup_guided = 3.0;
        config.latency = 0.0;
    });
    let period = Nanos::from_ms(5);
    controller.on_sampling(Some(period));
    first(&mut controller, Nanos::ZERO, F, 2_000);
    let mut now = 0;
    let mut tick = |controller: &mut Controller| {
        now += 5;
        let at = Nanos::from_ms(now);
        let (version, _) = controller.view(F).unwrap().version.unwrap();
        controller.on_samples(at, F, version, 1, period);
        controller.on_counters(at, F, 125_000, 0);
        at
    };
    // Measured well enough at tier 1 for a comparison.
    let version = loop {
        let at = tick(&mut controller);
        if controller.view(F).unwrap().samples >= controller.config.trial_samples
            && let Some(Decision::Compile { version, .. }) = controller.next(at)
        {
            break version;
        }
    };
    let (compile, counters) = (Nanos::from_ms(1), true);
    let outcome = Outcome::Published { compile, counters };
    let at = tick(&mut controller);
    controller.finished(at, version, outcome);
    let samples = loop {
        let at = tick(&mut controller);
        if let Some(decision) = controller.next(at) {
            let tier = Tier::Guided;
            assert!(matches!(decision, Decision::Compile { tier: to, .. } if to == tier));
            break controller.view(F).unwrap().samples;
        }
        assert!(at < Nanos::from_ms(5000), "never");
    };
    assert_eq!(samples, controller.config.trial_samples);
}

#[test]
fn functions_beyond_the_limit_are_left_alone() {
    let mut controller = controller(|config| config.max_functions = 10);
    let far = FunctionId(u32::MAX);
    first(&mut controller, Nanos::ZERO, far, 10);
    busy(&mut controller, far, 0, 100);
    controller.on_samples(Nanos::ZERO, far, VersionId(1), 1, Nanos(1));
    assert!(!controller.request(far, Tier::Guided) && !controller.pin(far, None));
    controller.replaced(far);
    assert_eq!(controller.next(Nanos::from_ms(100)), None);
    assert_eq!(
        (controller.view(far), controller.stats().untracked),
        (None, 104)
    );
}

#[test]
fn a_silent_candidate_is_dropped() {
    let mut controller = controller(|_| {});
    for id in 1..=2 {
        first(&mut controller, Nanos::ZERO, FunctionId(id), 100);
        busy(&mut controller, FunctionId(id), 0, 20);
    }
    let now = Nanos::from_ms(20);
    let (_, version, ..) = compile(&mut controller, now);
    assert_eq!(controller.stats().queued, 1);
    // The compile takes a second; the other one is quiet meanwhile.
    let later = Nanos::from_ms(1000);
    controller.finished(later, version, published(900));
    assert_eq!(controller.next(later), None);
    assert_eq!(
        (controller.stats().queued, controller.stats().dropped_stale),
        (0, 1)
    );
}

#[test]
fn it_can_be_kept_behind_a_lock() {
    fn is_send<T: Send>() {}
    is_send::<Controller>();
}

/// Overestimates of counters are no load, and neither is a compile in the background.
#[test]
fn the_load_is_what_processors_did() {
    let mut controller = controller(|_| {});
    for ms in 1..=50 {
        let now = Nanos::from_ms(ms);
        controller.on_processor_time(now, Nanos::from_us(800));
        for id in 1..=5 {
            if ms == 1 {
                first(&mut controller, now, FunctionId(id), 5000);
            }
            controller.on_counters(now, FunctionId(id), 25_000, 0);
        }
    }
    let window = controller.config.window;
    let load = |controller: &Controller, ms| controller.load.at(Nanos::from_ms(ms), window);
    let before = load(&controller, 50);
    assert!((0.7..0.9).contains(&before), "{before}");
    assert!(controller.request(FunctionId(1), Tier::Optimized));
    compile(&mut controller, Nanos::from_ms(50));
    for ms in 51..=100 {
        controller.on_processor_time(Nanos::from_ms(ms), Nanos::from_us(1800));
    }
    let after = load(&controller, 100);
    assert!((0.7..0.9).contains(&after), "{after}");
}

/// From native code that was faster than tier 2, only guided code is tried.
#[test]
fn native_code_may_be_left_for_guided_code() {
    let mut controller = controller(|_| {});
    let native = FirstCode {
        version: controller.ids.next(),
        tier: Tier::Native,
        facts: Facts::default(),
        compile: Nanos::ZERO,
        counters: false,
    };
    controller.on_compiled(Nanos::ZERO, F, &native);
    controller.bar(F, Tier::Optimized);
    let mut found = None;
    for ms in (10..2000).step_by(10) {
        let now = Nanos::from_ms(ms);
        controller.on_samples(now, F, native.version, 1, Nanos::from_ms(10));
        found = found.or_else(|| controller.next(now));
    }
    match found {
        Some(Decision::Compile { function, tier, .. }) => {
            assert_eq!((function, tier), (F, Tier::Guided));
        }
        other => panic!("{other:?}"),
    }
}
