//! A module built by inkwell, which the library carries.
//!
//! ```text
//! average(10, 74) = 42
//! ```

use uruk::inkwell::context::Context;

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::create();
    let module = context.create_module("numbers");
    let word = context.i64_type();
    let ty = word.fn_type(&[word.into(), word.into()], false);
    let average = module.add_function("average", ty, None);
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(average, "entry"));
    let [a, b] = [0, 1].map(|n| average.get_nth_param(n).expect("two").into_int_value());
    let sum = builder.build_int_add(a, b, "sum")?;
    let half = builder.build_int_signed_div(sum, word.const_int(2, false), "half")?;
    builder.build_return(Some(&half))?;

    let jit = uruk::Jit::new()?;
    jit.main().add_module(&module)?;
    // SAFETY: the function above.
    let average = unsafe { jit.function::<extern "C" fn(i64, i64) -> i64>("average")? };
    println!("average(10, 74) = {}", average.call(10, 74));
    Ok(())
}
