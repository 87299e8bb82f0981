//! Functions on their way through the tiers, as an embedder sees and steers it.

mod recalled;
mod tuning;

use std::time::{Duration, Instant};

use crate::support::{Log, PATIENCE, logged, wait_until};
use uruk::{Event, Jit, PolicyConfig, SamplingChoice, SamplingSettings, Tier, Tiers};

const SUM: &str = "
@calls = internal global i64 0
define i64 @sum(i64 %n) {
entry:
  %old = load i64, ptr @calls
  %new = add i64 %old, 1
  store i64 %new, ptr @calls
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %more, %loop ]
  %square = mul i64 %i, %i
  %more = add i64 %s, %square
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %more
}
define i64 @count() {
  %v = load i64, ptr @calls
  ret i64 %v
}";

/// Calls for so long that the thread is on a processor for `ms`.
fn busy(ms: u64, mut call: impl FnMut()) {
    let begin = processor_time();
    while processor_time() - begin < Duration::from_millis(ms) {
        call();
    }
}

fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn publications(log: &Log, of: &str) -> Vec<(Tier, Option<Tier>)> {
    let log = log.lock().unwrap();
    log.iter()
        .filter_map(|event| match event {
            Event::Published {
                function,
                tier,
                replaced,
                ..
            } if *function == of => Some((*tier, replaced.map(|(_, tier)| tier))),
            _ => None,
        })
        .collect()
}

#[test]
fn a_hot_function_moves_up_while_it_is_called() {
    let (jit, log) = logged(Jit::builder());
    jit.add_ir("m", SUM).unwrap();
    // SAFETY: plain functions of the module above.
    let (sum, count) = unsafe {
        (
            jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap(),
            jit.function::<extern "C" fn() -> i64>("count").unwrap(),
        )
    };
    let address = sum.address();
    let mut calls = 0;
    wait_until("tier 2", || {
        assert_eq!(sum.call(1000), 332_833_500);
        calls += 1;
        jit.tier("sum").unwrap() >= Some(Tier::Optimized)
    });
    assert_eq!(sum.call(1000), 332_833_500);
    // One instance of the static across versions, one address.
    assert_eq!(count.call(), calls + 1);
    assert_eq!(sum.address(), address);
    // Events are told after the fact.
    wait_until("the second event", || publications(&log, "sum").len() >= 2);
    let published = publications(&log, "sum");
    assert_eq!(published[0], (Tier::Baseline, None));
    assert_eq!(published[1].1, Some(Tier::Baseline), "{published:?}");
    let stats = jit.stats();
    assert!(
        stats.tiers[0].versions >= 2 && stats.retired >= 1,
        "{stats:?}"
    );
    assert_eq!(stats.compiled, 2);
}

#[test]
fn pins_hold_and_can_be_taken_off() {
    let (jit, _log) = logged(Jit::builder());
    jit.add_ir("m", SUM).unwrap();
    jit.main().pin("sum", Some(Tier::Baseline)).unwrap();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    busy(300, || _ = sum.call(10_000));
    assert_eq!(jit.tier("sum").unwrap(), Some(Tier::Baseline));
    jit.main().pin("sum", Some(Tier::Guided)).unwrap();
    wait_until("the pin", || jit.tier("sum").unwrap() == Some(Tier::Guided));
    assert_eq!(sum.call(4), 14);
    jit.main().pin("sum", None).unwrap();
    jit.main().pin("sum", Some(Tier::Baseline)).unwrap();
    wait_until("the way down", || {
        jit.tier("sum").unwrap() == Some(Tier::Baseline)
    });
    assert_eq!(sum.call(4), 14);
}

#[test]
fn a_pause_holds_promotions() {
    let jit = Jit::new().unwrap();
    jit.add_ir("m", SUM).unwrap();
    jit.pause_tiers();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    busy(300, || _ = sum.call(10_000));
    assert_eq!(jit.tier("sum").unwrap(), Some(Tier::Baseline));
    jit.resume_tiers();
    wait_until("promotion after the pause", || {
        sum.call(10_000);
        jit.tier("sum").unwrap() >= Some(Tier::Optimized)
    });
}

#[test]
fn compiling_at_a_tier_is_done_on_return() {
    let jit = Jit::new().unwrap();
    jit.pause_tiers();
    jit.add_ir("m", SUM).unwrap();
    assert_eq!(jit.tier("sum").unwrap(), None);
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    for tier in [Tier::Optimized, Tier::Baseline, Tier::Guided] {
        jit.compile_at("sum", tier).unwrap();
        assert_eq!(jit.tier("sum").unwrap(), Some(tier));
        assert_eq!(sum.call(4), 14);
    }
    let missing = jit.compile_at("nothing", Tier::Guided).unwrap_err();
    assert!(missing.to_string().contains("nothing"), "{missing}");
}

#[test]
fn a_fixed_tier_stays() {
    for tier in Tier::ALL {
        let (jit, log) = logged(Jit::builder().tiers(Tiers::Fixed(tier)));
        jit.add_ir("m", SUM).unwrap();
        // SAFETY: a plain function of the module above.
        let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
        busy(100, || assert_eq!(sum.call(4), 14));
        wait_until("the event", || !publications(&log, "sum").is_empty());
        assert_eq!(publications(&log, "sum"), [(tier, None)]);
    }
}

/// A kernel whose result changes in the last bits if multiplication and addition are
/// fused.
const DOT: &str = "
declare double @llvm.fmuladd.f64(double, double, double)
define double @dot(double %a, double %b, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s = phi double [ 0.0, %entry ], [ %more, %loop ]
  %x = phi double [ %a, %entry ], [ %y, %loop ]
  %more = call double @llvm.fmuladd.f64(double %x, double %b, double %s)
  %y = call double @llvm.fmuladd.f64(double %x, double 0x3FEFF3B645A1CAC1, double %b)
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %exit, label %loop
exit:
  ret double %more
}";

fn dot(contract: bool, tier: Tier) -> u64 {
    let builder = Jit::builder()
        .tiers(Tiers::Fixed(tier))
        .fp_contract(contract);
    let jit = builder.build().unwrap();
    jit.add_ir("m", DOT).unwrap();
    // SAFETY: a plain function of the module above.
    let dot = unsafe {
        jit.function::<extern "C" fn(f64, f64, i64) -> f64>("dot")
            .unwrap()
    };
    dot.call(0.1, 0.7, 1000).to_bits()
}

#[test]
fn results_are_the_same_bits_in_every_tier() {
    let (mut s, mut x) = (0.0_f64, 0.1_f64);
    for _ in 0..1000 {
        s += x * 0.7;
        x = x * f64::from_bits(0x3FEF_F3B6_45A1_CAC1) + 0.7;
    }
    for tier in Tier::ALL {
        assert_eq!(dot(false, tier), s.to_bits(), "{tier}");
    }
    // The kernel would tell: where fusing is allowed and possible it differs.
    if std::arch::is_x86_feature_detected!("fma") {
        assert_ne!(dot(true, Tier::Optimized), s.to_bits());
    }
}

#[test]
fn the_rate_of_samples_is_the_embedders() {
    let settings = SamplingSettings {
        burst_ns: 0,
        steady_hz: 31,
        ..SamplingSettings::default()
    };
    let (jit, log) = logged(Jit::builder().sampling_settings(settings));
    jit.add_ir("m", SUM).unwrap();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    // Where draining takes long, less is asked for at first, and less again once nothing is new.
    let mut news = News::of(&jit);
    wait_until("samples are told", || {
        sum.call(10_000);
        news.tell();
        let rates = rates(&log);
        rates.len() >= 3 && rates.contains(&31)
    });
    let rates = rates(&log);
    assert!(rates.iter().all(|rate| *rate <= 31), "{rates:?}");
}

/// Rates of samples that were told.
fn rates(log: &Log) -> Vec<u32> {
    let log = log.lock().unwrap();
    let rates = log.iter().filter_map(|event| match event {
        Event::Samples { rate, .. } => Some(*rate),
        _ => None,
    });
    rates.collect()
}

/// Functions that are called for the first time.
struct News<'j> {
    jit: &'j Jit,
    told: u32,
    last: Instant,
}

impl<'j> News<'j> {
    fn of(jit: &'j Jit) -> News<'j> {
        News {
            jit,
            told: 0,
            last: Instant::now(),
        }
    }

    /// Has another one called now and then.
    fn tell(&mut self) {
        if self.last.elapsed() < Duration::from_millis(100) {
            return;
        }
        (self.told, self.last) = (self.told + 1, Instant::now());
        let name = format!("new_{}", self.told);
        let ir = format!("define i64 @{name}(i64 %n) {{ ret i64 %n }}");
        self.jit.add_ir(&name, &ir).unwrap();
        // SAFETY: a plain function of the module above.
        let new = unsafe { self.jit.function::<extern "C" fn(i64) -> i64>(&name) };
        assert_eq!(new.unwrap().call(7), 7);
    }
}

#[test]
fn samples_become_rarer_while_nothing_is_new() {
    let settings = SamplingSettings {
        burst_ns: 0,
        ..SamplingSettings::default()
    };
    let most = settings.steady_hz;
    let (jit, log) = logged(Jit::builder().sampling_settings(settings));
    jit.add_ir("m", SUM).unwrap();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    wait_until("samples are rare", || {
        sum.call(10_000);
        rates(&log).iter().any(|&rate| rate > 0 && rate <= most / 8)
    });
    let before = rates(&log).len();
    let mut news = News::of(&jit);
    wait_until("samples are frequent", || {
        sum.call(10_000);
        news.tell();
        rates(&log)[before..].iter().any(|&rate| rate > most / 4)
    });
}

#[test]
fn the_policy_is_the_embedders() {
    let policy = PolicyConfig {
        max_tier: Tier::Baseline,
        ..PolicyConfig::default()
    };
    let builder = Jit::builder().policy(policy).sampling(SamplingChoice::Off);
    let jit = builder.build().unwrap();
    jit.add_ir("m", SUM).unwrap();
    // SAFETY: a plain function of the module above.
    let sum = unsafe { jit.function::<extern "C" fn(i64) -> i64>("sum").unwrap() };
    busy(300, || _ = sum.call(10_000));
    assert_eq!(jit.tier("sum").unwrap(), Some(Tier::Baseline));
}
