//! A Rust program with std: `program MODE`, one mode per thing to show.

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::env;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::panic;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("hello") => println!("hello from Rust"),
        Some("collections") => collections(),
        Some("threads") => threads(),
        Some("unwind") => unwind(),
        Some("backtrace") => outer_frame(3),
        Some("exit") => {
            let status = args.get(1).and_then(|text| text.parse().ok());
            println!("leaving");
            process::exit(status.unwrap_or(1));
        }
        Some("panic") => nobody_catches(),
        Some("lines") => lines(),
        _ => {
            eprintln!("usage: program hello | collections | threads | unwind | backtrace | exit N | panic | lines");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn collections() {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for i in 0..20_000_u64 {
        *counts.entry(format!("key-{}", i * i % 1_009)).or_default() += i;
    }
    let sorted: BTreeMap<_, _> = counts.iter().collect();
    println!("{} keys, first {:?}", sorted.len(), sorted.iter().next());
    println!("sum {}", counts.values().sum::<u64>());
    let seen: HashSet<u64> = counts.values().map(|value| value % 100).collect();
    let mut seen: Vec<_> = seen.into_iter().collect();
    seen.sort_unstable_by(|a, b| b.cmp(a));
    println!("{:?}", &seen[..8]);
    let mut queue: VecDeque<f64> = (1..=10).map(|i| f64::from(i).sqrt()).collect();
    queue.rotate_left(3);
    println!("{queue:.4?}");
    let text: String = "uruk".chars().rev().collect();
    println!("{text} {:>8.3e} {:#x} {:?}", 12345.678, 3735928559_u32, Some(-1_i8));
}

thread_local! {
    static LOCAL: Announce = const { Announce };
}

struct Announce;

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for Announce {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

fn threads() {
    let total = Arc::new(Mutex::new(0_u64));
    let barrier = Arc::new(Barrier::new(16));
    let workers: Vec<_> = (0..16_u64)
        .map(|id| {
            let (total, barrier) = (Arc::clone(&total), Arc::clone(&barrier));
            thread::spawn(move || {
                LOCAL.with(|_| ());
                barrier.wait();
                let part = (0..1_000).fold(id, |sum, i| sum.wrapping_mul(31) + i);
                *total.lock().expect("not poisoned") ^= part;
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no panic");
    }
    println!("total {:016x}", *total.lock().expect("not poisoned"));
    println!("thread-locals dropped: {}", DROPPED.load(Ordering::SeqCst));

    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for id in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || (0..100).for_each(|i| sender.send(id * 1_000 + i).expect("open")));
        }
        drop(sender);
        let mut all: Vec<i32> = receiver.iter().collect();
        all.sort_unstable();
        println!("{} messages, last {:?}", all.len(), all.last());
    });

    let gate = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            *gate.0.lock().expect("not poisoned") = true;
            gate.1.notify_all();
        });
        let mut open = gate.0.lock().expect("not poisoned");
        while !*open {
            open = gate.1.wait(open).expect("not poisoned");
        }
    });
    static ONCE: OnceLock<String> = OnceLock::new();
    let shared = RwLock::new(vec![1, 2, 3]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                ONCE.get_or_init(|| "made once".to_owned());
                shared.write().expect("not poisoned").push(4);
            });
        }
    });
    println!("{} {}", ONCE.get().expect("set"), shared.read().expect("not poisoned").len());
    let failed = thread::spawn(|| panic!("a thread gives up")).join();
    println!("joined a panic: {}", failed.is_err());
}

struct Noisy(&'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("drop {}", self.0);
    }
}

#[inline(never)]
fn fails_at(depth: u32) -> u32 {
    let _guard = Noisy(if depth == 0 { "innermost" } else { "frame" });
    if black_box(depth) == 0 {
        panic::panic_any(black_box(77_i32));
    }
    fails_at(depth - 1) + 1
}

fn unwind() {
    panic::set_hook(Box::new(|info| println!("hook: {:?}", info.payload().downcast_ref::<i32>())));
    let caught = panic::catch_unwind(|| fails_at(4)).expect_err("it panics");
    println!("caught {:?}", caught.downcast_ref::<i32>());
    let caught = panic::catch_unwind(|| {
        let list = black_box(vec![1, 2, 3]);
        list[black_box(7)]
    });
    println!("index: {}", caught.is_err());
    let caught = panic::catch_unwind(|| {
        // A callback called by std's sort panics through the sort.
        let mut list: Vec<u32> = (0..100).rev().collect();
        list.sort_by(|a, b| {
            assert!(*a != 50, "fifty");
            a.cmp(b)
        });
    });
    println!("sort: {}", caught.is_err());
    let resumed = panic::catch_unwind(|| {
        panic::catch_unwind(|| fails_at(1)).unwrap_or_else(|payload| panic::resume_unwind(payload))
    });
    println!("resumed: {}", resumed.is_err());
}

#[inline(never)]
fn outer_frame(depth: u32) {
    middle_frame(black_box(depth));
    black_box(depth);
}

#[inline(never)]
fn middle_frame(depth: u32) {
    inner_frame(black_box(depth));
    black_box(depth);
}

/// Prints our own frames only: what lies below `main` differs by design.
#[inline(never)]
fn inner_frame(depth: u32) {
    let text = Backtrace::force_capture().to_string();
    for name in ["inner_frame", "middle_frame", "outer_frame", "guest::main"] {
        let found = text.lines().any(|line| line.contains(name));
        println!("{name}: {}", if found { "named" } else { "missing" });
    }
    let order: Vec<usize> = ["inner_frame", "middle_frame", "outer_frame"]
        .iter()
        .filter_map(|name| text.find(name))
        .collect();
    println!("in order: {}", order.len() == 3 && order.is_sorted());
    black_box(depth);
}

#[inline(never)]
fn nobody_catches() {
    let _guard = Noisy("on the way out");
    panic!("nobody catches this {}", black_box(1));
}

fn lines() {
    let mut longest = String::new();
    let mut count = 0;
    for line in io::stdin().lock().lines() {
        let line = line.expect("text");
        count += 1;
        if line.len() > longest.len() {
            longest = line;
        }
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{count} lines, longest {longest:?}").expect("stdout is open");
}
