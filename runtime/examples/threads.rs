//! Threads share a function; one replaces it meanwhile, and each sees versions go up only.
//!
//! ```text
//! 20 versions, all threads saw the last
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use uruk::{Jit, Replacement};

pub fn main() -> Result<(), uruk::Error> {
    let jit = Jit::new()?;
    jit.add_ir("m", "define i64 @version() { ret i64 0 }")?;
    // SAFETY: the function above.
    let version = unsafe { jit.function::<extern "C" fn() -> i64>("version")? };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Acquire) {
                        let now = version.call();
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                    version.call()
                })
            })
            .collect();
        for number in 1..=20 {
            let ir = format!("define i64 @version() {{ ret i64 {number} }}");
            jit.main().replace(Replacement::ir("next", &ir))?;
        }
        over.store(true, Ordering::Release);
        for caller in callers {
            assert_eq!(caller.join().expect("no panic"), 20);
        }
        Ok::<(), uruk::Error>(())
    })?;
    println!("20 versions, all threads saw the last");
    Ok(())
}
