//! A fault in JIT'd code is a value, and the session goes on.
//!
//! ```text
//! 42 / 2 = 21
//! division by zero, or its result does not fit in divide
//! stack overflow in down
//! 42 / 7 = 6
//! ```

use uruk::TrapKind;

pub fn main() -> Result<(), uruk::Error> {
    let jit = uruk::Jit::new()?;
    jit.add_ir(
        "m",
        "define i64 @divide(i64 %a, i64 %b) { %q = sdiv i64 %a, %b ret i64 %q }
         define i64 @down(i64 %n) {
           %m = add i64 %n, 1
           %v = call i64 @down(i64 %m)
           %w = add i64 %v, %n
           ret i64 %w
         }",
    )?;
    // SAFETY: the function above.
    let divide = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("divide")? };
    // SAFETY: as above.
    let down = unsafe { jit.function::<extern "C" fn(i64) -> i64>("down")? };
    println!(
        "42 / 2 = {}",
        divide.call_guarded(42, 2).expect("it divides")
    );
    println!("{}", divide.call_guarded(42, 0).expect_err("it traps"));
    let trap = down.call_guarded(0).expect_err("it has no end");
    assert!(matches!(trap.kind, TrapKind::StackOverflow));
    println!("{} in {}", trap.kind, trap.function().unwrap_or("?"));
    println!(
        "42 / 7 = {}",
        divide.call_guarded(42, 7).expect("it divides")
    );
    Ok(())
}
