//! JIT'd code calls functions and closures of the host; wrong declarations are refused.
//!
//! ```text
//! heard 42
//! w: `tell` is declared as void (double), and the host's is void (i64)
//! ```

pub fn main() -> Result<(), uruk::Error> {
    let jit = uruk::Jit::new()?;
    jit.define_fn("tell", |number: i64| println!("heard {number}"))?;
    jit.add_ir(
        "m",
        "declare void @tell(i64) define void @go() { call void @tell(i64 42) ret void }",
    )?;
    // SAFETY: the function above.
    unsafe { jit.function::<extern "C" fn()>("go")? }.call();
    let wrong = jit.add_ir(
        "w",
        "declare void @tell(double) define void @no() { call void @tell(double 1.0) ret void }",
    );
    println!("{}", wrong.expect_err("another type"));
    Ok(())
}
