//! The cost of trials that do not win, with the budget that a session has unless told otherwise.
//! The tuner's account gives the cost charge by charge; the system's clocks give it, too. The test
//! is a program of its own: the process's processor time is that of one session, and one thread
//! that calls.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::DirEntry;
use std::time::{Duration, Instant};

use uruk::{Jit, TuningVerdict};
use uruk_testing::in_own_process;

/// The default's share, and what there is in advance.
const SHARE: f64 = 0.02;
const CREDIT: Duration = Duration::from_millis(250);

/// The part of the time that the tuner's looks may take, at 20 a second at most.
const LOOKS: f64 = 0.003;

const PATIENCE: Duration = Duration::from_secs(400);

/// Three hot functions that wait for each step's result: no way to compile them is known to be better
/// than another, and those that call what would be inlined are worse. A pass of their loops has so many
/// calls: how long a compile takes.
fn chains(calls: u32) -> String {
    let mut text = String::from(
        "define internal i64 @step(i64 %x, i64 %odd) {
           %product = mul i64 %x, %odd
           %high = lshr i64 %product, 29
           %y = xor i64 %product, %high
           ret i64 %y
         }\n",
    );
    for (number, odd) in [3_202_034_522_624_059_733_i64, 2_685_821_657_736_338_717, 11]
        .into_iter()
        .enumerate()
    {
        let mut pass = String::new();
        for call in 0..calls {
            let next = call + 1;
            writeln!(pass, "%x{next} = call i64 @step(i64 %x{call}, i64 {odd})").unwrap();
        }
        write!(
            text,
            "define i64 @chain{number}(i64 %count) {{
             entry: br label %loop
             loop:
               %left = phi i64 [ %count, %entry ], [ %less, %loop ]
               %x0 = phi i64 [ 7, %entry ], [ %x{calls}, %loop ]
               {pass}
               %less = sub i64 %left, 1
               %more = icmp ne i64 %less, 0
               br i1 %more, label %loop, label %done
             done: ret i64 %x{calls}
             }}\n"
        )
        .unwrap();
    }
    text
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Threads of the process by their numbers: names, and processor time as the system counted it.
fn threads() -> HashMap<OsString, (String, Duration)> {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads");
    let of = |thread: DirEntry| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ran = text.split(' ').next()?.parse().ok()?;
        let named = (name.trim_end().to_owned(), Duration::from_nanos(ran));
        Some((thread.file_name(), named))
    };
    threads.flatten().filter_map(of).collect()
}

/// Processor time of the tuner's thread since `before`: it may have been another session's.
fn tuners_time(before: &HashMap<OsString, (String, Duration)>) -> Duration {
    let now = threads().into_iter();
    let tuner = now.filter(|(_, (name, _))| name == "uruk-tune");
    let since = tuner.map(|(number, (_, ran))| {
        let before = before.get(&number).map(|(_, before)| *before);
        ran.saturating_sub(before.unwrap_or_default())
    });
    since.sum()
}

/// Runs until trials have cost so much more than there was in advance, which what the program ran has
/// to pay for, or nothing is left to try; and watches the account.
fn keeps_to_its_budget(same: bool, calls: u32, earned: Duration) {
    let threads = threads();
    let builder = Jit::builder().tune(true).tune_same(same);
    let jit = builder.build().expect("a session");
    jit.add_ir("chains", &chains(calls)).expect("a module");
    let chains = ["chain0", "chain1", "chain2"].map(|name| {
        // SAFETY: the functions above, which compute.
        unsafe { jit.function::<extern "C" fn(i64) -> i64>(name).unwrap() }
    });
    let begin_of_process = clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    let begin = Instant::now();
    let expected = chains
        .each_ref()
        .map(|chain| chain.call(i64::from(4_000 / calls)));
    let (mut before, mut charges, mut most) = (Duration::ZERO, 0, Duration::ZERO);
    let is_settled = |jit: &Jit| {
        let views = jit.tuning();
        !views.is_empty() && views.iter().all(|view| view.settled)
    };
    let stats = loop {
        for (chain, expected) in chains.iter().zip(expected) {
            for _ in 0..8 {
                assert_eq!(chain.call(i64::from(4_000 / calls)), expected);
            }
        }
        let stats = jit.stats().tuning;
        if stats.lost > before {
            // The budget covered the trial when it began, and so it does now: there is one trial at
            // a time.
            let earned = CREDIT + stats.ran.mul_f64(SHARE);
            assert!(
                before <= earned,
                "begun with {before:?} of {earned:?} spent"
            );
            (most, charges) = (most.max(stats.lost - before), charges + 1);
            before = stats.lost;
        }
        if stats.lost > CREDIT + earned || is_settled(&jit) {
            break stats;
        }
        assert!(begin.elapsed() < PATIENCE, "{stats:?}: {:?}", jit.tuning());
    };
    assert!(charges >= 3, "{stats:?}");
    let views = jit.tuning();
    let trials = || views.iter().flat_map(|view| &view.trials);
    // By trials: none that did not win was free, and all of them are in the account.
    for trial in trials() {
        let won = trial.verdict == TuningVerdict::Faster;
        assert_eq!(trial.lost == Duration::ZERO, won, "{trial:?}");
    }
    let told: Duration = trials().map(|trial| trial.lost).sum();
    let lost = jit.stats().tuning.lost;
    assert!(
        told > Duration::ZERO && told <= lost,
        "{told:?} of {lost:?}"
    );

    // By the system: the time that is shared out was there; and the thread that compiles all candidates
    // did nothing else than what was charged, or won.
    let (tuner, stats) = (tuners_time(&threads), jit.stats().tuning);
    let all = clock(libc::CLOCK_PROCESS_CPUTIME_ID) - begin_of_process;
    assert!(stats.ran <= all, "{stats:?} of {all:?}");
    let paid = stats.lost + most * (stats.won + 1);
    let looks = begin.elapsed().mul_f64(LOOKS);
    assert!(tuner <= paid + looks, "{tuner:?} of {paid:?}: {stats:?}");
    println!(
        "same {same}: {charges} charges, {stats:?}; tuner's thread {tuner:?} of {all:?} in {:?}",
        begin.elapsed()
    );
}

#[test]
fn trials_that_do_not_win_keep_to_two_percent() {
    if !in_own_process(module_path!(), "trials_that_do_not_win_keep_to_two_percent") {
        return;
    }
    // Compiles take so long that trials would cost several percent, if they could.
    keeps_to_its_budget(true, 250, Duration::from_millis(300));
    keeps_to_its_budget(false, 1, Duration::from_millis(60));
}
