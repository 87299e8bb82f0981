//! A generator makes functions when a lookup asks for their names.
//!
//! ```text
//! making times7
//! times7(6) = 42
//! undefined symbols: `plus7`
//! ```

use uruk::{GeneratorRequest, Jit};

pub fn main() -> Result<(), uruk::Error> {
    let jit = Jit::new()?;
    jit.main().add_generator(|ask: &GeneratorRequest| {
        for (symbol, _) in ask.missing() {
            let name = ask.jit().name_of(*symbol).to_owned();
            if let Some(Ok(factor)) = name.strip_prefix("times").map(str::parse::<i64>) {
                println!("making {name}");
                let body = format!("%y = mul i64 %x, {factor} ret i64 %y");
                let ir = format!("define i64 @{name}(i64 %x) {{ {body} }}");
                ask.dylib().add_ir(&name, &ir)?;
            }
        }
        Ok(())
    })?;
    // SAFETY: the function that is made above.
    let times7 = unsafe { jit.function::<extern "C" fn(i64) -> i64>("times7")? };
    println!("times7(6) = {}", times7.call(6));
    println!("{}", jit.lookup("plus7").expect_err("nobody makes it"));
    Ok(())
}
