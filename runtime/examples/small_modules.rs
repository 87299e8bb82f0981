//! The costs of many small modules, one for each function, as a compiler of queries makes them:
//! resident memory of a live module, and processor time to add, call and remove one. Each
//! measurement is a process of its own.
//!
//! ```text
//! small_modules                         all measurements
//! small_modules FORM added|called N     N modules alive; called: each called once
//! small_modules FORM cycles N           N modules, one after the other
//! ```
//!
//! `FORM` is `text` or `bitcode`.

use std::process::Command;

use uruk::{Jit, Tracker};

/// Modules that a session begins with: what the first ones need is there then.
const FIRST: u64 = 20;

/// Lines that [`cycles`] prints.
const PARTS: u64 = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [form, what, count] = words[..] else {
        return measure_all();
    };
    let form = match form {
        "text" => Form::Text,
        _ => Form::Bitcode,
    };
    let count = count.parse().expect("a number");
    match what {
        "cycles" => cycles(form, count),
        _ => alive(form, count, what == "called"),
    }
}

fn measure_all() {
    for form in ["text", "bitcode"] {
        for (what, counts) in [
            ("added", &[1_000, 4_000, 30_000][..]),
            ("called", &[1_000, 4_000, 30_000]),
            ("cycles", &[10_000]),
        ] {
            for count in counts {
                let me = std::env::current_exe().expect("this program");
                let status = Command::new(me)
                    .args([form, what, &count.to_string()])
                    .status();
                assert!(status.expect("a child").success());
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Bitcode,
}

/// A module, made before anything is measured.
enum Input {
    Text(String),
    Bitcode(Vec<u8>),
}

/// A module of one small function with a variable of its own.
fn input(form: Form, number: u64) -> Input {
    let text = format!(
        "@g_{number} = global i64 {number}
         define i64 @f_{number}(i64 %x) {{
           %old = load i64, ptr @g_{number}
           %new = add i64 %old, %x
           store i64 %new, ptr @g_{number}
           ret i64 %new }}"
    );
    match form {
        Form::Text => Input::Text(text),
        Form::Bitcode => {
            use inkwell::{context::Context, memory_buffer::MemoryBuffer};
            let context = Context::create();
            let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "module");
            let module = context.create_module_from_ir(buffer).expect("valid IR");
            Input::Bitcode(module.write_bitcode_to_memory().as_slice().to_vec())
        }
    }
}

fn add(jit: &Jit, input: Input) -> Tracker {
    let tracker = jit.main().create_tracker().expect("a tracker");
    match input {
        Input::Text(text) => tracker.add_ir("module", &text),
        Input::Bitcode(bytes) => tracker.add_bitcode("module", bytes),
    }
    .expect("valid IR");
    tracker
}

fn call(jit: &Jit, number: u64) {
    let address = jit.lookup(&format!("f_{number}")).expect("defined");
    // SAFETY: the function of the module above.
    let function: extern "C-unwind" fn(i64) -> i64 = unsafe { std::mem::transmute(address) };
    assert_eq!(function(1), number as i64 + 1);
}

fn remove(tracker: &Tracker) {
    // SAFETY: no thread uses the module any more.
    unsafe { tracker.remove() }.expect("once");
}

/// Resident memory of the process that no file backs, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) * 1024
    };
    of("RssAnon:") + of("RssShmem:")
}

/// Processor time of the process, in microseconds.
fn processor() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the value.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

fn session() -> Jit {
    Jit::builder().jobs(1).build().expect("a session")
}

fn alive(form: Form, count: u64, called: bool) {
    let jit = session();
    let numbers = FIRST..FIRST + count;
    let mut trackers: Vec<Tracker> = (0..FIRST).map(|n| add(&jit, input(form, n))).collect();
    (0..FIRST).for_each(|number| call(&jit, number));
    let before = resident();
    let mut adding = 0.0;
    for number in numbers.clone() {
        let input = input(form, number);
        let start = processor();
        trackers.push(add(&jit, input));
        adding += processor() - start;
    }
    let start = processor();
    if called {
        numbers.for_each(|number| call(&jit, number));
    }
    let calling = processor() - start;
    let kilobytes = resident().saturating_sub(before) as f64 / 1024.0 / count as f64;
    let start = processor();
    trackers.iter().for_each(remove);
    let removing = processor() - start;
    let [adding, calling, removing] = [adding, calling, removing].map(|time| time / count as f64);
    println!(
        "{form:?}, {count} alive, called: {called}: {kilobytes:.1} KB each; \
         added in {adding:.0} us, called in {calling:.0}, removed in {removing:.0}"
    );
}

fn cycles(form: Form, count: u64) {
    let jit = session();
    let part = (count / PARTS).max(1);
    let mut steps = [0.0; 3];
    let mut before = resident();
    for number in 0..count {
        let input = input(form, number);
        let start = processor();
        let tracker = add(&jit, input);
        let added = processor();
        call(&jit, number);
        let called = processor();
        remove(&tracker);
        let removed = processor();
        steps[0] += added - start;
        steps[1] += called - added;
        steps[2] += removed - called;
        if (number + 1).is_multiple_of(part) {
            let [add, call, remove] = steps.map(|time| time / part as f64);
            let after = resident();
            println!(
                "{form:?}, cycles to {}: {:.0} us each (add {add:.0}, call {call:.0}, \
                 remove {remove:.0}); {} bytes more each",
                number + 1,
                add + call + remove,
                (after as i64 - before as i64) / part as i64,
            );
            (steps, before) = ([0.0; 3], after);
        }
    }
}
