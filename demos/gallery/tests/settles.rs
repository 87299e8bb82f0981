//! The region of the demo `tiers` that the policy alone leaves at worse code than it had: `mandelbrot`,
//! which is slower where `escape` is inlined. The tuner ends with it, and by what it tells, at nothing
//! that a trial found slower. How long anything takes is not looked at.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{Change, Event, Inlining, Jit, TrialView, TuningVerdict, Variant};

/// As in the demo.
const IR: &str = include_str!("../kernels.ll");
const WORK: i64 = 48;

/// It takes some seconds where nothing else runs, and a trial of what gains little up to 400 pairs of slices.
const PATIENCE: Duration = Duration::from_secs(400);

/// The changes that trials may propose. With all changes there are forty trials, or eighty.
const CHANGES: [&str; 4] = ["inline=none", "apart=0", "inline=eager", "no-slp"];

/// The lessons of an earlier run in which no other change ever helped: the tuner does not propose
/// them.
fn nothing_else_helps() -> String {
    let session = Jit::builder().tune(true).build().expect("a session");
    let changes = Change::ALL.into_iter().map(|change| change.to_string());
    let others = changes.filter(|change| !CHANGES.contains(&change.as_str()));
    let lessons = others.map(|change| {
        let line = format!("lesson 1 0 0 1 100000 0.00000 {change}");
        let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let sum = line.bytes().fold(0x811c_9dc5, mix);
        format!("{line} #{sum:08x}\n")
    });
    lessons.fold(session.tuning_text(), |text, line| text + &line)
}

/// The candidate of a trial, what came out, and the version that stays.
type Told = (u64, TuningVerdict, u64);

#[test]
fn the_tuner_ends_with_the_region_at_nothing_that_was_found_slower() {
    let told = Arc::new(Mutex::new(Vec::<Told>::new()));
    let sink = Arc::clone(&told);
    let jit = Jit::builder()
        .tune(true)
        // The demo runs for as long as one likes: all trials at once.
        .tuning_budget(1.0, Duration::from_secs(3600))
        .tuned_before(nothing_else_helps())
        .on_event(move |event| {
            if let Event::Tuned {
                function: "mandelbrot",
                candidate,
                verdict,
                version,
                ..
            } = event
            {
                sink.lock().unwrap().push((*candidate, *verdict, *version));
            }
        })
        .build()
        .expect("a session");
    let before = jit.stats().tuning.before;
    assert_eq!(before.as_deref(), Some("0 functions known"));
    extern "C" fn tick() {}
    // SAFETY: it is declared with this type; this test does not call it.
    unsafe { jit.main().define_address("tick", tick as *const ()) }.expect("an address");
    jit.add_ir("kernels", IR).expect("a module");
    // SAFETY: it has this type, and computes.
    let kernel = unsafe { jit.function::<extern "C" fn(i64) -> i64>("mandelbrot") };
    let kernel = kernel.expect("a function");
    let (begin, expected) = (Instant::now(), kernel.call(WORK));
    let view = loop {
        for _ in 0..64 {
            assert_eq!(kernel.call(WORK), expected);
        }
        let views = jit.tuning();
        let mut settled = views.into_iter().filter(|view| view.settled);
        if let Some(view) = settled.find(|view| view.function == "mandelbrot") {
            break view;
        }
        assert!(begin.elapsed() < PATIENCE, "{:?}", jit.tuning());
    };
    println!("{view}in {:?}", begin.elapsed());

    // A candidate stays after its trial exactly if the trial found it faster.
    let told = told.lock().unwrap();
    assert!(told.len() >= view.trials.len(), "{view}");
    for &(candidate, verdict, stays) in told.iter() {
        let is_faster = verdict == TuningVerdict::Faster;
        assert_eq!(candidate == stays, is_faster, "{told:?}");
    }
    // So what it ended at is what won last, and nothing that lost to it.
    let won = |trial: &&TrialView| trial.verdict == TuningVerdict::Faster;
    let last = view.trials.iter().rposition(|trial| won(&trial));
    let best = last.map_or_else(Variant::default, |at| view.trials[at].variant);
    assert_eq!(view.variant, best, "{view}");
    for trial in view.trials.iter().skip(last.map_or(0, |at| at + 1)) {
        let same = (trial.tier, trial.variant) == (view.tier, view.variant);
        assert!(!same, "{view}");
    }
    assert_eq!(
        jit.tier("mandelbrot").expect("it is there"),
        Some(view.tier)
    );
    // By as much as it gained in all trials that were won.
    let gains = view.trials.iter().filter(won).map(|trial| trial.ratio);
    let (low, point) = gains.fold((1.0, 1.0), |(low, point), ratio| {
        assert!(ratio.point > 1.0, "{view}");
        (low * ratio.low, point * ratio.point)
    });
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(
        near(view.ratio.low, low) && near(view.ratio.point, point),
        "{view}"
    );
    // It was judged as a region: against code that calls what the policy has inlined.
    let apart =
        |trial: &TrialView| trial.variant.inlining == Inlining::None || trial.variant.is_apart(0);
    assert!(view.trials.iter().any(apart), "{view}");
}
