//! Three kernels are called again and again while the runtime moves them from tier to
//! tier; the plot shows how long the calls took, and when which code was published. A fourth is
//! called once, and gets better code in the middle: the plot shows how long its parts took. The
//! tuner is on: where tier 2 is slower than what was, as it is where `escape` is inlined, a trial
//! finds it out within some seconds, and the plot says what stays.
//!
//! Usage: `tiers [SECONDS]`, the time each kernel runs for. Every call of a kernel must
//! return the same, whatever code it ran; the program fails if one does not.

use std::io::{self, Write};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use uruk::{Event, Jit, TuningVerdict};

/// The kernels in IR, and how much each is given to do: less than a millisecond's work.
const IR: &str = include_str!("../../kernels.ll");
const KERNELS: [(&str, i64); 3] = [("interpret", 20_000), ("mandelbrot", 48), ("stencil", 60)];

/// Parts of the one call for each second the others run: half a millisecond's work at tier 1.
const PARTS: f64 = 1000.0;

/// When the parts of the one call ended.
static TICKS: Mutex<Vec<Instant>> = Mutex::new(Vec::new());

/// Width of the longest bar.
const WIDTH: f64 = 40.0;
/// Calls a bar stands for before its length counts: those before show how long a call
/// waits for its code, which is told in figures.
const SETTLED: usize = 4;

/// When a version was published, in the time since the session began, and which.
type Publication = (Duration, String);

/// One call of a kernel.
struct Call {
    /// When it returned, in the time since the session began.
    end: Duration,
    took: Duration,
}

fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().nth(1).unwrap_or_else(|| "1".to_owned());
    let seconds = seconds.parse().ok();
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let limit = limit.context("usage: tiers [SECONDS]")?;

    let published = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&published);
    let began = Instant::now();
    let jit = Jit::builder()
        .on_event(move |event| note(event, &told))
        .tune(true)
        .build()?;
    // SAFETY: it is declared with this type, and only notes the time.
    unsafe { jit.main().define_address("tick", tick as *const ())? };
    jit.add_ir("kernels", IR)?;

    for (name, work) in KERNELS {
        // SAFETY: the kernels have this type, compute, and touch only their own grid.
        let kernel = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name)? };
        let mut calls = Vec::new();
        let mut expected = None;
        let first = Instant::now();
        while first.elapsed() < limit || calls.is_empty() {
            let start = Instant::now();
            let result = kernel.call(work);
            let (took, end) = (start.elapsed(), began.elapsed());
            calls.push(Call { end, took });
            let expected = *expected.get_or_insert(result);
            ensure!(
                result == expected,
                "{name} returned {result}, not {expected}"
            );
        }
        let count = calls.len();
        writeln!(
            io::stdout(),
            "{name}({work}): {count} calls, all with the same result"
        )?;
        let news = take(&mut *published.lock());
        plot(&calls, news)?;
    }

    // SAFETY: the function has this type, computes, and calls what is below.
    let once = unsafe { jit.function::<extern "C" fn(i64) -> i64>("once")? };
    let mut start = Instant::now();
    let parts = (limit.as_secs_f64() * PARTS) as i64 + 1;
    let result = once.call(parts);
    ensure!(result == expected(parts), "once returned {result}");
    let calls = take(&mut *TICKS.lock()).into_iter().map(|end| {
        let took = end - std::mem::replace(&mut start, end);
        let end = end - began;
        Call { end, took }
    });
    writeln!(io::stdout(), "once({parts}): one call, in its parts")?;
    let news = take(&mut *published.lock());
    plot(&calls.collect::<Vec<_>>(), news)?;
    Ok(())
}

/// The callback that the one call makes after each part.
extern "C" fn tick() {
    TICKS.lock().push(Instant::now());
}

/// The expected result of the one call.
fn expected(parts: i64) -> i64 {
    let mut row = [0u32; 4096];
    let mut sum = 0;
    for part in (0..parts).map(|part| part as u32) {
        for _ in 0..48 {
            sum = part;
            for (number, place) in row.iter_mut().zip(0..) {
                *number = (number.wrapping_mul(1_664_525) ^ place).wrapping_add(part);
                sum = sum.wrapping_add(*number);
            }
        }
    }
    i64::from(sum)
}

/// Keeps what an event says of a publication, or of a trial that was won.
fn note(event: &Event, told: &Mutex<Vec<Publication>>) {
    if let Event::Tuned {
        function,
        tier,
        variant,
        verdict: TuningVerdict::Faster,
        ratio,
        at,
        ..
    } = event
    {
        let news = format!(
            "{function}: {tier} {variant} stays, {:.2} times as fast",
            ratio.point
        );
        told.lock().push((*at, news));
    }
    if let Event::Published {
        function, tier, at, ..
    } = event
    {
        let news = format!("{function}: tier {}", tier.number());
        let mut told = told.lock();
        told.push((*at, news));
    }
}

/// A bar for the first call, the second, the next two, the next four and so on: the
/// median of their times, and what was published until the last of them returned.
fn plot(calls: &[Call], mut published: Vec<Publication>) -> io::Result<()> {
    let mut out = io::stdout();
    let mut groups = Vec::new();
    let mut done = 0;
    while done < calls.len() {
        let end = calls.len().min((done * 2).max(1));
        groups.push((done + 1, &calls[done..end]));
        done = end;
    }
    let settled = groups.iter().filter(|(_, group)| group.len() >= SETTLED);
    let longest = settled.map(|(_, group)| median(group)).fold(0.0, f64::max);
    for (at, (first, group)) in groups.iter().enumerate() {
        let time = median(group);
        let width = (time / longest * WIDTH).round();
        let bar = match width > WIDTH {
            true => "#".repeat(WIDTH as usize) + ">",
            false => "#".repeat(width as usize),
        };
        let is_last = at + 1 == groups.len();
        let until = group.last().map_or(Duration::ZERO, |call| call.end);
        let now = published.extract_if(.., |(at, _)| is_last || *at <= until);
        let news: Vec<String> = now.map(|(_, news)| news).collect();
        let line = format!("{first:>7} {time:>8.0} us  {bar:<42}{}", news.join(", "));
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)
}

/// Of the times of some calls, in microseconds.
fn median(calls: &[Call]) -> f64 {
    let mut times: Vec<Duration> = calls.iter().map(|call| call.took).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
