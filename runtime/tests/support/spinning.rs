//! A function that loops on a thread of its own until it is told to end, and what it returns then.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use uruk::{Func, Jit, Tiers};

/// Longest wait for something that is to happen on another thread.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub type Spin = extern "C" fn(*const Shared, i64) -> i64;

/// The memory that a thread in a loop and its test share.
#[repr(C)]
pub struct Shared {
    /// The loop ends when this is not zero.
    pub stop: AtomicI64,
    pub passes: AtomicI64,
    /// Passes of inner loops, by body.
    pub counts: [AtomicI64; 4],
}

/// Adds up what depends on every pass, in a loop in a loop, with what lives across its heads as a
/// value, in a scalar, in an array whose address leaves, and in one whose address does not.
pub fn spin(factor: i64) -> String {
    format!(
        "declare void @look(ptr)
         define i64 @spin(ptr %shared, i64 %x) {{
         entry:
           %sum = alloca i64
           %seen = alloca [4 x i64]
           %mine = alloca [4 x i64]
           store i64 %x, ptr %sum
           store i64 %x, ptr %mine
           %one = getelementptr [4 x i64], ptr %mine, i64 0, i64 1
           store i64 7, ptr %one
           call void @look(ptr %seen)
           br label %outer
         outer:
           %i = phi i64 [ 0, %entry ], [ %i1, %latch ]
           br label %inner
         inner:
           %j = phi i64 [ 0, %outer ], [ %j1, %inner ]
           %s = load i64, ptr %sum
           %m = mul i64 %s, {factor}
           %seven = load i64, ptr %one
           %a = add i64 %m, %seven
           %first = load i64, ptr %mine
           %b = xor i64 %a, %first
           %nine = load i64, ptr %seen
           %c = add i64 %b, %nine
           store i64 %c, ptr %sum
           %j1 = add i64 %j, 1
           %again = icmp ult i64 %j1, 3
           br i1 %again, label %inner, label %latch
         latch:
           %i1 = add i64 %i, 1
           %passes = getelementptr i64, ptr %shared, i64 1
           store atomic i64 %i1, ptr %passes release, align 8
           %stop = load atomic i64, ptr %shared acquire, align 8
           %over = icmp ne i64 %stop, 0
           br i1 %over, label %done, label %outer
         done:
           %end = load i64, ptr %sum
           %r = xor i64 %end, %i1
           ret i64 %r
         }}"
    )
}

/// The value that `spin` returns after so many passes.
pub fn expected(factor: i64, x: i64, passes: i64) -> i64 {
    let pass = |s: i64, _| (s.wrapping_mul(factor).wrapping_add(7) ^ x).wrapping_add(9);
    (0..3 * passes).fold(x, pass) ^ passes
}

pub extern "C" fn look(seen: *mut i64) {
    // SAFETY: four words of the caller's.
    unsafe { seen.write(9) };
}

pub fn session(tiers: Tiers, factor: i64) -> Jit {
    let jit = Jit::builder().tiers(tiers).build().expect("a session");
    // SAFETY: the function has the type it is declared with.
    unsafe { jit.main().define_address("look", look as *const ()) }.expect("a name");
    jit.add_ir("spin", &spin(factor)).expect("added");
    jit
}

/// A thread in `spin`, and how to end it.
pub struct Spinning {
    shared: Arc<Shared>,
    thread: std::thread::JoinHandle<i64>,
}

impl Spinning {
    pub fn start(function: Func<Spin>, x: i64) -> Spinning {
        let shared = Arc::new(Shared {
            stop: AtomicI64::new(0),
            passes: AtomicI64::new(0),
            counts: Default::default(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || function.call(Arc::as_ptr(&shared), x))
        };
        let spinning = Spinning { shared, thread };
        spinning.pass();
        spinning
    }

    /// Waits until the loop has come round again twice.
    pub fn pass(&self) {
        let before = self.shared.passes.load(Ordering::Acquire);
        wait(|| self.shared.passes.load(Ordering::Acquire) > before + 1);
    }

    /// How often the inner loop of a body came round.
    pub fn count(&self, body: usize) -> i64 {
        self.shared.counts[body].load(Ordering::Acquire)
    }

    /// Ends the loop; what it returned, and how often the inner loops came round.
    pub fn end_counted(self) -> (i64, [i64; 4]) {
        let shared = Arc::clone(&self.shared);
        let (result, passes) = self.end();
        let counts = [0, 1, 2, 3].map(|at: usize| shared.counts[at].load(Ordering::Acquire));
        assert_eq!(counts.iter().sum::<i64>(), 3 * passes);
        (result, counts)
    }

    /// Ends the loop; what it returned, and after how many passes.
    pub fn end(self) -> (i64, i64) {
        self.shared.stop.store(1, Ordering::Release);
        let result = self.thread.join().expect("it returns");
        (result, self.shared.passes.load(Ordering::Acquire))
    }
}

pub fn wait(mut until: impl FnMut() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::yield_now();
    }
}

pub fn function(jit: &Jit) -> Func<Spin> {
    // SAFETY: the function above, which reads and writes what it is passed.
    unsafe { jit.function("spin") }.expect("a function")
}

pub fn left(jit: &Jit) -> u64 {
    jit.stats().continuations.left
}
