//! IR that makes LLVM end the process while it reads is an error of the call that adds it, and the
//! session goes on.

use uruk::{CodegenError, Error, Jit, Replacement};

/// LLVM verifies a module with debug info as soon as it has read it, and reports what it
/// finds as a fatal error.
const FATAL: &str = "define i32 @f() \"frame-pointer\"=\"x\" { ret i32 0 }
!llvm.module.flags = !{!0}
!0 = !{i32 2, !\"Debug Info Version\", i32 3}";

fn check(result: Result<(), Error>) {
    match result {
        Err(Error::Codegen(CodegenError::Fatal { module, .. })) => assert_eq!(module, "bad"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_way_in_ends_the_process() {
    let jit = Jit::new().expect("a session");
    let good = "define i32 @f() { ret i32 1 }";
    check(jit.add_ir("bad", FATAL));
    let other = jit.create_dylib("other").expect("a new name");
    check(other.add_ir("bad", FATAL));
    let tracker = other.create_tracker().expect("a tracker");
    check(tracker.add_ir("bad", FATAL));

    jit.add_ir("good", good).expect("valid");
    let replaced = jit.main().replace(Replacement::ir("bad", FATAL));
    check(replaced.map(drop));
    // SAFETY: the function above.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), 1);
    let better = Replacement::ir("better", "define i32 @f() { ret i32 2 }");
    jit.main().replace(better).expect("replaceable");
    assert_eq!(f.call(), 2);
}
