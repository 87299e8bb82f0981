//! A function whose old code a thread stays in until it is told to leave, and a replacement that waits
//! for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use uruk::{Func, Jit, Level, Replacement};

pub type Answer = extern "C" fn() -> i32;

/// `spin` returns 1 once `flag` is set.
pub const SPIN: &str = "
@flag = global i32 0
@inside = global i32 0
define i32 @spin() {
entry:
  store atomic i32 1, ptr @inside seq_cst, align 4
  br label %loop
loop:
  %f = load atomic i32, ptr @flag seq_cst, align 4
  %go = icmp eq i32 %f, 0
  br i1 %go, label %loop, label %done
done:
  ret i32 1
}";

/// The variables of [`SPIN`].
pub struct OldCode<'a> {
    flag: &'a AtomicI32,
    inside: &'a AtomicI32,
}

impl OldCode<'_> {
    pub fn of(jit: &Jit) -> OldCode<'_> {
        let word = |name| {
            let address = jit.lookup(name).expect("defined") as *const AtomicI32;
            // SAFETY: 4 aligned bytes of the session, used as atomics only.
            unsafe { &*address }
        };
        let (flag, inside) = (word("flag"), word("inside"));
        OldCode { flag, inside }
    }

    /// Waits until a thread is in it.
    pub fn wait_until_inside(&self) {
        while self.inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    /// Has the thread leave.
    pub fn leave(&self) {
        self.flag.store(1, Ordering::SeqCst);
    }
}

/// A replacement that waits for so long that old code is left, and how to know that it does.
pub struct Waits(Arc<AtomicBool>);

impl Waits {
    pub fn new(ir: &str, wait: Duration) -> (Replacement, Waits) {
        let waits = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&waits);
        let new = Replacement::ir("new", ir).level(Level::Quiescent { wait });
        let new = new.withdraw_when(move || {
            asked.store(true, Ordering::Relaxed);
            false
        });
        (new, Waits(waits))
    }

    /// Waits until it does.
    pub fn wait_until_it_waits(&self) {
        while !self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

pub fn answer(jit: &Jit, name: &str) -> Func<Answer> {
    // SAFETY: functions of this type.
    unsafe { jit.function::<Answer>(name) }.expect("typed")
}
