//! Panics and backtraces through JIT'd frames in a host that exports nothing: this test.

use std::panic::catch_unwind;

use uruk::Jit;

extern "C-unwind" fn boom(number: i64) -> i64 {
    if number > 3 {
        std::panic::panic_any(number);
    }
    number
}

#[test]
fn a_panic_passes_through_jitted_frames() {
    let jit = Jit::new().unwrap();
    // SAFETY: it is what the module takes it for.
    unsafe {
        jit.main()
            .define_address("boom", boom as *const ())
            .unwrap()
    };
    jit.add_ir(
        "m",
        "declare i64 @boom(i64)
         define i64 @middle(i64 %n) { %v = call i64 @boom(i64 %n) %w = add i64 %v, 1 ret i64 %w }
         define i64 @outer(i64 %n) { %v = call i64 @middle(i64 %n) %w = add i64 %v, 1 ret i64 %w }",
    )
    .unwrap();
    let address = jit.lookup("outer").unwrap() as usize;
    // SAFETY: the function above, through which a panic may pass.
    let outer = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn(i64) -> i64>(address) };
    assert_eq!(outer(1), 3);
    std::panic::set_hook(Box::new(|_| {}));
    for _ in 0..3 {
        let caught = catch_unwind(|| outer(7)).unwrap_err();
        assert_eq!(caught.downcast_ref::<i64>(), Some(&7));
    }
    assert_eq!(outer(2), 4);
}
