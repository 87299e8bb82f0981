//! Bitcode that was optimized across functions is replaced as a whole or not at all.

use std::path::Path;
use std::process::Command;

use uruk::{Error, Jit, ReplaceError, Replacement};

/// `f` calls `g`, which optimizers put into it.
const SOURCE: &str = "
int state = 1;
int g(int x) { return x + VALUE; }
int f(int x) { return g(x) * 2 + state; }
";

fn compile(name: &str, value: i32, flags: &[&str]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replace_whole");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, output) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("{name}.bc")),
    );
    std::fs::write(&source, SOURCE).expect("written");
    let beside = Path::new(option_env!("LLVM_SYS_221_PREFIX").unwrap_or("/usr/lib/llvm-22"));
    let clang = ["clang-22", "clang"].map(|name| beside.join("bin").join(name));
    let clang = clang.into_iter().find(|clang| clang.exists());
    let status = Command::new(clang.unwrap_or_else(|| "clang-22".into()))
        .args(["-c", "-emit-llvm", &format!("-DVALUE={value}")])
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(&source)
        .status()
        .expect("clang runs");
    assert!(status.success());
    std::fs::read(&output).expect("written")
}

fn call(jit: &Jit, name: &str) -> i32 {
    // SAFETY: the functions above.
    let function = unsafe { jit.function::<extern "C" fn(i32) -> i32>(name) };
    function.expect("typed").call(10)
}

const PART: &str = "define i32 @g(i32 noundef %x) { ret i32 7 }";

#[test]
fn what_no_pass_has_seen_is_replaced_in_part() {
    for (name, flags) in [
        ("O0", &["-O0"][..]),
        ("frontend", &["-O2", "-Xclang", "-disable-llvm-passes"]),
    ] {
        let jit = Jit::new().expect("a session");
        jit.main()
            .add_bitcode(name, compile(name, 1, flags))
            .expect("valid");
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (23, 11));
        jit.main()
            .replace(Replacement::ir("part", PART))
            .expect(name);
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (15, 7));
    }
}

#[test]
fn what_was_optimized_together_is_replaced_together() {
    for flags in [["-O1"], ["-O2"], ["-O3"], ["-Os"]] {
        let name = &flags[0][1..];
        let jit = Jit::new().expect("a session");
        jit.main()
            .add_bitcode(name, compile(name, 1, &flags))
            .expect("valid");
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (23, 11));
        let refused = jit.main().replace(Replacement::ir("part", PART));
        let Err(Error::Replace(cause)) = refused else {
            panic!("{name}: {refused:?}")
        };
        let ReplaceError::Interprocedural { missing, .. } = &*cause else {
            panic!("{name}: {cause}")
        };
        assert_eq!(missing, &["f"]);
        assert!(
            cause.to_string().contains("-disable-llvm-passes"),
            "{cause}"
        );
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (23, 11));
        let whole = compile(&format!("{name}-next"), 5, &flags);
        jit.main()
            .replace(Replacement::bitcode("whole", whole))
            .expect(name);
        assert_eq!((call(&jit, "f"), call(&jit, "g")), (31, 15));
    }
}
