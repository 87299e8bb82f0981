//! The modules of a tracker go with it, destructors first.
//!
//! ```text
//! plugin says 7
//! goodbye
//! undefined symbols: `plugin`
//! ```

pub fn main() -> Result<(), uruk::Error> {
    let jit = uruk::Jit::new()?;
    jit.define_fn("goodbye", || println!("goodbye"))?;
    let tracker = jit.main().create_tracker()?;
    tracker.add_ir(
        "plugin",
        "@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }]
           [{ i32, ptr, ptr } { i32 65535, ptr @end, ptr null }]
         declare void @goodbye()
         define void @end() { call void @goodbye() ret void }
         define i64 @plugin() { ret i64 7 }",
    )?;
    // SAFETY: constructors and destructors are those above.
    unsafe { jit.initialize()? };
    // SAFETY: the function above.
    let plugin = unsafe { jit.function::<extern "C" fn() -> i64>("plugin")? };
    println!("plugin says {}", plugin.call());
    // SAFETY: no thread uses its data, of which there is none.
    unsafe { tracker.remove()? };
    println!("{}", jit.lookup("plugin").expect_err("it is gone"));
    Ok(())
}
