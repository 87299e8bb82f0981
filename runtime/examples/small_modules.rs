//! What many small modules cost, one for each function, as a compiler of queries makes them:
//! resident memory for each module that is alive, and processor time to add, call and remove
//! one. Every measurement is a process of its own.
//!
//! ```text
//! small_modules                      all measurements
//! small_modules added|called N       N modules alive; called: each called once
//! small_modules cycles N             N modules, one after the other
//! ```

use std::process::Command;
use std::time::Instant;

use uruk::{Jit, Tiers, Tracker};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), number(1)) {
        (Some("added"), Some(count)) => alive(count, false, arguments.len() > 2),
        (Some("called"), Some(count)) => alive(count, true, arguments.len() > 2),
        (Some("cycles"), Some(count)) => cycles(count),
        _ => {
            for (what, count) in [
                ("added", 1_000),
                ("added", 4_000),
                ("added", 30_000),
                ("called", 1_000),
                ("called", 4_000),
                ("called", 30_000),
                ("cycles", 10_000),
            ] {
                let me = std::env::current_exe().expect("this program");
                let status = Command::new(me).args([what, &count.to_string()]).status();
                assert!(status.expect("a child").success());
            }
        }
    }
}

/// A module of one small function with a variable of its own.
fn text(number: u64) -> String {
    format!(
        "@g_{number} = global i64 {number}
         define i64 @f_{number}(i64 %x) {{
           %old = load i64, ptr @g_{number}
           %new = add i64 %old, %x
           store i64 %new, ptr @g_{number}
           ret i64 %new }}"
    )
}

fn session() -> Jit {
    let fixed = std::env::var_os("URUK_FIXED").is_some();
    let builder = Jit::builder().jobs(1);
    let builder = match fixed {
        true => builder.tiers(Tiers::Fixed(uruk::Tier::Baseline)),
        false => builder,
    };
    builder.build().expect("a session")
}

fn add(jit: &Jit, number: u64) -> Tracker {
    let tracker = jit.main().create_tracker().expect("a tracker");
    tracker.add_ir("module", &text(number)).expect("valid IR");
    tracker
}

fn call(jit: &Jit, number: u64) {
    let address = jit.lookup(&format!("f_{number}")).expect("defined");
    // SAFETY: the function of the module above.
    let function: extern "C-unwind" fn(i64) -> i64 = unsafe { std::mem::transmute(address) };
    assert_eq!(function(1), number as i64 + 1);
}

/// Resident memory of the process that no file backs, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    ["RssAnon:", "RssShmem:"]
        .iter()
        .map(|key| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let number = line.and_then(|line| line.split_whitespace().next());
            number
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
                * 1024
        })
        .sum()
}

/// Processor time of the process, in seconds.
fn processor() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the value.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn alive(count: u64, called: bool, wait: bool) {
    let jit = session();
    // What the first ones need is there from now on.
    let mut trackers: Vec<Tracker> = (0..20).map(|number| add(&jit, number)).collect();
    (0..20).for_each(|number| call(&jit, number));
    let (memory, time, start) = (resident(), processor(), Instant::now());
    trackers.extend((20..20 + count).map(|number| add(&jit, number)));
    let (added, wall) = (processor() - time, start.elapsed().as_secs_f64());
    let after_adding = resident();
    let (time, start) = (processor(), Instant::now());
    if called {
        (20..20 + count).for_each(|number| call(&jit, number));
    }
    let (calls, call_wall) = (processor() - time, start.elapsed().as_secs_f64());
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    let bytes = |now: u64| now.saturating_sub(memory) as f64 / 1024.0 / count as f64;
    println!(
        "{count} modules, called: {called}; KB each: added {:.2}, in the end {:.2}; us each: add {:.0} (wall {:.0}), call {:.0} (wall {:.0})",
        bytes(after_adding),
        bytes(resident()),
        each(added),
        each(wall),
        each(calls),
        each(call_wall),
    );
    if wait {
        println!("process {}", std::process::id());
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    let start = processor();
    for tracker in trackers {
        // SAFETY: nobody uses it any more.
        unsafe { tracker.remove() }.expect("once");
    }
    println!(
        "  removed: {:.0} us each, {:.2} KB each are left",
        each(processor() - start),
        bytes(resident())
    );
}

fn cycles(count: u64) {
    let jit = session();
    let mut steps = [0.0; 3];
    let mut before = (resident(), processor(), Instant::now());
    for number in 0..count {
        let mut last = processor();
        let mut step = |at: usize| {
            let now = processor();
            steps[at] += now - last;
            last = now;
        };
        let tracker = add(&jit, number);
        step(0);
        call(&jit, number);
        step(1);
        // SAFETY: nobody uses it any more.
        unsafe { tracker.remove() }.expect("once");
        step(2);
        let part = (count / 10).max(1);
        if (number + 1) % part == 0 {
            let each = |seconds: f64| seconds * 1e6 / part as f64;
            println!(
                "cycles to {}: {:.0} us processor time each (add {:.0}, call {:.0}, remove {:.0}), wall {:.0}; grew by {} KB to {:?}",
                number + 1,
                each(processor() - before.1),
                each(steps[0]),
                each(steps[1]),
                each(steps[2]),
                each(before.2.elapsed().as_secs_f64()),
                resident() as i64 / 1024 - before.0 as i64 / 1024,
                std::fs::read_to_string("/proc/self/status")
                    .unwrap_or_default()
                    .lines()
                    .filter(|line| line.starts_with("RssAnon") || line.starts_with("RssShmem"))
                    .map(|line| line.replace([' ', '\t'], ""))
                    .collect::<Vec<_>>(),
            );
            steps = [0.0; 3];
            before = (resident(), processor(), Instant::now());
        }
    }
}
