//! Prints what a scan costs: `cargo run --release -p uruk-roots --example figures`.
//!
//! Times are wall times; on a busy machine read the medians.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use uruk_roots::{Config, How, Report, Roots, Wanted};

/// Uses `bytes` of stack, then runs `last`.
#[inline(never)]
fn deep(bytes: usize, last: &dyn Fn()) {
    let words = [black_box(0u64); 100];
    black_box(&words);
    if bytes > 900 {
        deep(bytes - 900, last);
    } else {
        last();
    }
    black_box(&words);
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        times[index.min(times.len() - 1)].as_nanos() as f64 / 1000.0
    };
    format!("median {:.1} us, p99 {:.1} us", at(0.5), at(0.99))
}

/// Threads that run or sleep `bytes` deep.
fn threads(count: usize, bytes: usize, sleep: bool, stop: &Arc<AtomicBool>) {
    let ready = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        let (stop, ready) = (stop.clone(), ready.clone());
        let run = move || {
            deep(bytes, &|| {
                ready.fetch_add(1, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    if sleep {
                        std::thread::sleep(Duration::from_secs(1));
                    }
                }
            });
            ready.fetch_sub(1, Ordering::Relaxed);
        };
        let builder = std::thread::Builder::new().stack_size(bytes + (64 << 10));
        builder.spawn(run).expect("a thread");
    }
    while ready.load(Ordering::Relaxed) < count {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
}

fn handshakes(reports: &[Report]) -> ([Vec<Duration>; 3], u64) {
    let [mut delivered, mut answered, mut worked] = [const { Vec::new() }; 3];
    let mut bytes = 0;
    for thread in reports.iter().flat_map(|report| &report.threads) {
        if let How::Running {
            delivered_in,
            answered_in,
            worked_for,
            scanned,
            ..
        } = thread.how
        {
            delivered.push(delivered_in);
            answered.push(answered_in);
            worked.extend(worked_for);
            bytes = bytes.max(scanned);
        }
    }
    ([delivered, answered, worked], bytes)
}

fn main() {
    let mut config = Config::default();
    config.time_work = true;
    let roots = Roots::new(0x4000_0000..0x6000_0000, config).expect("a scanner");
    let wanted = (0..1000u64).map(|i| 0x4a00_0000 + i * 4096..0x4a00_0100 + i * 4096);
    let wanted = Wanted::new(wanted.collect()).expect("sorted");
    let scan = || roots.scan(&wanted, Duration::from_secs(10));
    for kib in [1, 16, 256] {
        let stop = Arc::new(AtomicBool::new(false));
        threads(1, kib << 10, false, &stop);
        let reports: Vec<Report> = (0..500).map(|_| scan()).collect();
        let ([delivered, answered, worked], bytes) = handshakes(&reports);
        println!(
            "one running thread, {} KiB, {} answers",
            bytes >> 10,
            answered.len()
        );
        println!("  delivery by the kernel: {}", quantiles(delivered));
        println!("  in the handler:         {}", quantiles(answered));
        println!("  of that, processor time: {}", quantiles(worked));
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
    for count in [10, 100, 500] {
        let stop = Arc::new(AtomicBool::new(false));
        threads(count, 4 << 10, true, &stop);
        let reports: Vec<Report> = (0..50).map(|_| scan()).collect();
        let took: Vec<Duration> = reports.iter().map(|report| report.took).collect();
        let each = took.iter().map(|&took| took / count as u32).collect();
        println!("{count} sleeping threads: whole scan {}", quantiles(took));
        println!("  a thread: {}", quantiles(each));
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1100));
    }
}
