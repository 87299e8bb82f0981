//! Modules come in any order, and may need each other.
//!
//! ```text
//! missing: odd (needed by even: even)
//! 10 is even
//! ```

pub fn main() -> Result<(), uruk::Error> {
    let jit = uruk::Jit::new()?;
    jit.main().allow_missing(true);
    let half = |name: &str, other: &str, end: &str| {
        format!(
            "declare i1 @{other}(i64)
             define i1 @{name}(i64 %n) {{
               %done = icmp eq i64 %n, 0
               br i1 %done, label %end, label %more
             end:
               ret i1 {end}
             more:
               %m = sub i64 %n, 1
               %answer = call i1 @{other}(i64 %m)
               ret i1 %answer
             }}"
        )
    };
    jit.add_ir("even", &half("even", "odd", "true"))?;
    for missing in jit.main().unresolved()? {
        println!(
            "missing: {} (needed by {})",
            missing.symbol,
            missing.needed_by.join(", ")
        );
    }
    jit.add_ir("odd", &half("odd", "even", "false"))?;
    // SAFETY: the function above.
    let even = unsafe { jit.function::<extern "C" fn(i64) -> bool>("even")? };
    println!("10 is {}", if even.call(10) { "even" } else { "odd" });
    Ok(())
}
