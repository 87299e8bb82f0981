//! A function is defined again while others call it, and goes back.
//!
//! ```text
//! 30 of 10
//! 20 of 10, after ["price"]
//! 30 of 10
//! ```

use uruk::{Jit, Replacement};

pub fn main() -> Result<(), uruk::Error> {
    let jit = Jit::new()?;
    jit.add_ir(
        "shop",
        "define i64 @price(i64 %n) { %p = mul i64 %n, 3 ret i64 %p }
         define i64 @bill(i64 %n) { %p = call i64 @price(i64 %n) ret i64 %p }",
    )?;
    // SAFETY: the function above.
    let bill = unsafe { jit.function::<extern "C" fn(i64) -> i64>("bill")? };
    println!("{} of 10", bill.call(10));
    let sale = "define i64 @price(i64 %n) { %p = mul i64 %n, 2 ret i64 %p }";
    let replaced = jit.main().replace(Replacement::ir("sale", sale))?;
    println!("{} of 10, after {:?}", bill.call(10), replaced.functions);
    replaced.rollback()?;
    println!("{} of 10", bill.call(10));
    Ok(())
}
