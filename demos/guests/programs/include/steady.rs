//! The counterpart of `steady.h` and `kernel.h` for Rust. It runs a kernel again and again, and
//! prints the combined checksum. It writes the times of the iterations to the file that
//! ITERATION_TIMES names, in the same form.

use std::env;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    safe fn clock_gettime(clock: i32, time: &mut Timespec) -> i32;
}

/// CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, CLOCK_PROCESS_CPUTIME_ID.
const CLOCKS: [i32; 3] = [1, 3, 2];

fn now() -> [i64; 3] {
    CLOCKS.map(|clock| {
        let mut time = Timespec { seconds: 0, nanoseconds: 0 };
        clock_gettime(clock, &mut time);
        time.seconds * 1_000_000_000 + time.nanoseconds
    })
}

/// `program ITERATIONS SIZE`: one iteration is `work(size)`, from the same state
/// every time.
pub fn kernel(name: &str, work: impl Fn(usize) -> u64) -> ExitCode {
    let numbers: Vec<usize> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [iterations, size] = numbers[..] else {
        eprintln!("usage: program ITERATIONS SIZE");
        return ExitCode::from(2);
    };
    let iterations = iterations.max(1);
    let path = env::var_os("ITERATION_TIMES");
    let mut moments = Vec::with_capacity(if path.is_some() { 2 * iterations } else { 0 });
    let mut sum = 0_u64;
    for _ in 0..iterations {
        if path.is_some() {
            moments.push(now());
        }
        // Or an iteration would be a constant that an optimiser works out once for all.
        sum = sum.rotate_left(1) ^ work(black_box(size));
        if path.is_some() {
            moments.push(now());
        }
    }
    println!("{name}: {iterations} iterations, {sum:016x}");
    let Some(path) = path else {
        return ExitCode::SUCCESS;
    };
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        for pair in moments.chunks_exact(2) {
            let [wall, thread, process] = [0, 1, 2].map(|clock| pair[1][clock] - pair[0][clock]);
            writeln!(file, "{} {wall} {thread} {process}", pair[0][0])?;
        }
        file.flush()
    });
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
