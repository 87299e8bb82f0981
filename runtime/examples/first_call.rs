//! IR as text; a function is compiled by its first call.
//!
//! ```text
//! before: no code
//! add(2, 40) = 42
//! after: tier 1
//! ```

pub fn main() -> Result<(), uruk::Error> {
    let jit = uruk::Jit::new()?;
    jit.add_ir(
        "m",
        "define i64 @add(i64 %a, i64 %b) { %sum = add i64 %a, %b ret i64 %sum }",
    )?;
    let tier = |jit: &uruk::Jit| -> Result<String, uruk::Error> {
        let tier = jit.tier("add")?;
        Ok(tier.map_or("no code".into(), |tier| format!("tier {}", tier.number())))
    };
    println!("before: {}", tier(&jit)?);
    // SAFETY: `add` is the function above.
    let add = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("add")? };
    println!("add(2, 40) = {}", add.call(2, 40));
    println!("after: {}", tier(&jit)?);
    Ok(())
}
