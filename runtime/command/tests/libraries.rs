//! `uruk run` with archives, shared libraries, `-L` and `-l`, as a linker has them.

#[path = "../src/cli/libraries.rs"]
#[expect(dead_code, reason = "only its own tests run here")]
mod libraries;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("uruk-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    /// Compiles a C source by clang with these options.
    fn compile(&self, to: &str, source: &str, options: &[&str]) -> PathBuf {
        let c = self.0.join(format!("{to}.c"));
        std::fs::write(&c, source).unwrap();
        let file = self.0.join(to);
        let mut clang = Command::new("clang-22");
        clang.args(["-O1", "-fPIC"]).args(options);
        assert!(
            clang
                .arg(&c)
                .arg("-o")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        file
    }

    fn archive(&self, to: &str, members: &[&Path]) -> PathBuf {
        let file = self.0.join(to);
        let mut ar = Command::new("llvm-ar-22");
        assert!(
            ar.arg("rcs")
                .arg(&file)
                .args(members)
                .status()
                .unwrap()
                .success()
        );
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Folder, args: &[&str]) -> Output {
    let uruk = env!("CARGO_BIN_EXE_uruk");
    let output = Command::new(uruk)
        .arg("run")
        .args(args)
        .current_dir(&folder.0)
        .output();
    output.unwrap()
}

const BITCODE: [&str; 2] = ["-c", "-emit-llvm"];

#[test]
fn a_program_gets_the_members_it_needs() {
    let folder = Folder::new("archive");
    folder.compile(
        "main.bc",
        "#include <stdio.h>
         extern int one(void);
         int main(void) { printf(\"main %d\\n\", one()); return 0; }",
        &BITCODE,
    );
    // One needs two, which is an object; three is not needed, and could not be linked.
    let one = folder.compile(
        "one.bc",
        "#include <stdio.h>
         extern int two(void);
         __attribute__((constructor)) static void start(void) { puts(\"constructor\"); }
         int one(void) { return two() - 1; }",
        &BITCODE,
    );
    let two = folder.compile("two.o", "int two(void) { return 2; }", &["-c"]);
    let three = folder.compile(
        "three.o",
        "extern int nowhere; int three(void) { return nowhere; }",
        &["-c"],
    );
    folder.archive("libparts.a", &[&three, &two, &one]);
    for args in [
        &["main.bc", "libparts.a"][..],
        &["libparts.a", "main.bc"],
        &["-L", ".", "-l", "parts", "main.bc"],
        &["-L.", "-l:libparts.a", "-lm", "-lc", "main.bc"],
        &["--eager", "-L.", "-lparts", "main.bc"],
    ] {
        let output = run(&folder, args);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "constructor\nmain 1\n", "{args:?}: {output:?}");
    }
    let output = run(&folder, &["main.bc"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`one`"), "{said}");
}

/// Thin archives name files, from their own folder on. `ar` takes the members of an archive in one
/// apart.
#[test]
fn members_of_thin_archives_are_read_where_they_are() {
    let folder = Folder::new("thin");
    std::fs::create_dir_all(folder.0.join("parts/deep")).unwrap();
    folder.compile(
        "main.bc",
        "extern int one(void), two(void), odd(void);
         int main(void) { return one() * 100 + two() * 10 + odd(); }",
        &BITCODE,
    );
    let two = "extern int one(void); int two(void) { return one() + 1; }";
    folder.compile("parts/one.bc", "int one(void) { return 1; }", &BITCODE);
    folder.compile("parts/deep/two.o", two, &["-c"]);
    folder.compile("parts/deep/odd.o", "int odd(void) { return 3; }", &["-c"]);
    let make = |tool: &str, words: &[&str]| {
        let mut command = Command::new(tool);
        let made = command.args(words).current_dir(&folder.0).status();
        made.is_ok_and(|status| status.success())
    };
    let members = ["parts/one.bc", "parts/deep/two.o", "parts/deep/odd.o"];
    let words = [&["rcsT", "parts/thin.a"], &members[..]].concat();
    assert!(make("llvm-ar-22", &words));
    let check = |archive: &str| {
        for args in [
            &["main.bc", archive][..],
            &["--eager", "main.bc", archive],
            &[
                "-Lparts",
                &format!("-l:{}", &archive["parts/".len()..]),
                "main.bc",
            ],
        ] {
            let output = run(&folder, args);
            assert_eq!(output.status.code(), Some(123), "{args:?}: {output:?}");
        }
    };
    check("parts/thin.a");
    // An archive in it, which is not thin.
    let inner = [
        "rcs",
        "parts/inner.a",
        "parts/deep/two.o",
        "parts/deep/odd.o",
    ];
    assert!(make("ar", &inner), "binutils");
    // Only LLVM's tool knows bitcode; this one asks for an object.
    folder.compile("parts/one.o", "int one(void) { return 1; }", &["-c"]);
    assert!(make(
        "ar",
        &["rcsT", "parts/nested.a", "parts/inner.a", "parts/one.o"]
    ));
    check("parts/nested.a");
    // The named file is gone, or is another one.
    std::fs::write(folder.0.join("parts/inner.a"), "!<arch>\n").unwrap();
    std::fs::remove_file(folder.0.join("parts/one.bc")).unwrap();
    for (archive, part) in [("parts/thin.a", "one.bc"), ("parts/nested.a", "inner.a")] {
        let output = run(&folder, &["main.bc", archive]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_program_gets_shared_libraries_by_path_and_by_name() {
    let folder = Folder::new("shared");
    folder.compile(
        "main.bc",
        "extern int one(void); int main(void) { return one() - 1; }",
        &BITCODE,
    );
    folder.compile("libone.so", "int one(void) { return 1; }", &["-shared"]);
    // A linker's script names the library; it comes before an archive.
    let script = format!(
        "/* GNU ld */ GROUP ( {} )",
        folder.0.join("libone.so").display()
    );
    std::fs::write(folder.0.join("libscript.so"), script).unwrap();
    std::fs::write(folder.0.join("libscript.a"), "!<arch>\nno archive").unwrap();
    for args in [
        &["main.bc", "libone.so"][..],
        &["-L.", "-lone", "main.bc"],
        &["-L", ".", "-lscript", "main.bc"],
    ] {
        let output = run(&folder, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let output = run(&folder, &["-lnowhere-to-be-found", "main.bc"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("libnowhere-to-be-found.so"), "{said}");
}

#[test]
fn scripts_name_several_libraries() {
    let folder = Folder::new("scripts");
    folder.compile(
        "main.bc",
        "extern int one(void), two(void), three(void);
         int main(void) { return one() + two() + three() - 6; }",
        &BITCODE,
    );
    folder.compile("libone.so.5", "int one(void) { return 1; }", &["-shared"]);
    let two = folder.compile("two.o", "int two(void) { return 2; }", &["-c"]);
    folder.archive("libtwo.a", &[&two]);
    folder.compile("libthree.so", "int three(void) { return 3; }", &["-shared"]);
    let script =
        "INPUT(libone.so.5 AS_NEEDED(-ltwo -lthree)) /* and the C library's: */ GROUP(-lc)";
    std::fs::write(folder.0.join("libscript.so"), script).unwrap();
    let output = run(&folder, &["-L.", "-lscript", "main.bc"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn libraries_are_found_where_clang_finds_them() {
    let folder = Folder::new("gcc");
    let native = folder.compile("native", "int main(void) { return 0; }", &["-latomic"]);
    assert!(native.exists());
    folder.compile(
        "main.bc",
        "struct large { long words[3]; } kept;
         int main(void) { struct large value = {{1, 2, 3}}, seen; kept = value;
           __atomic_load(&kept, &seen, 0); return seen.words[2] - 3; }",
        &BITCODE,
    );
    for library in ["-latomic", "-lgcc", "-lgcc_s", "-lc"] {
        let output = run(&folder, &[library, "main.bc"]);
        assert!(output.status.success(), "{library}: {output:?}");
    }
}

#[test]
fn names_may_count_as_mentioned() {
    let folder = Folder::new("undefined");
    folder.compile(
        "main.bc",
        "#include <stdio.h>
         int main(void) { puts(\"main\"); return 0; }",
        &BITCODE,
    );
    let member = folder.compile(
        "member.o",
        "#include <stdio.h>
         int member;
         __attribute__((constructor)) static void start(void) { puts(\"member\"); }",
        &["-c"],
    );
    folder.archive("libmember.a", &[&member]);
    for (options, said) in [
        (&[][..], "main\n"),
        (&["-u", "member"], "member\nmain\n"),
        (&["-u", "no_such_name"], "main\n"),
    ] {
        let args = [options, &["main.bc", "libmember.a"]].concat();
        let output = run(&folder, &args);
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{output:?}");
    }
}

/// Options under which each compiler has each function of a program.
const ALL_COMPILERS: [&[&str]; 5] = [
    &[],
    &["--tiers", "2"],
    &["--tiers", "3"],
    &["--baseline", "off"],
    &["--eager"],
];

#[test]
fn code_generation_gets_what_it_needs_of_archives() {
    let folder = Folder::new("helpers");
    let narrow = "define i32 @main(i32 %n, ptr %args) {
          %wide = uitofp i32 %n to float
          %narrow = fptrunc float %wide to bfloat
          %bits = bitcast bfloat %narrow to i16
          %status = zext i16 %bits to i32
          %low = lshr i32 %status, 7
          ret i32 %low
        }";
    std::fs::write(folder.0.join("main.ll"), narrow).unwrap();
    // Upper halves, which is what the function of a compiler's runtime rounds to.
    let helper = folder.0.join("helper.ll");
    let text = "define bfloat @__truncsfbf2(float %x) {
          %bits = bitcast float %x to i32
          %half = lshr i32 %bits, 16
          %short = trunc i32 %half to i16
          %value = bitcast i16 %short to bfloat
          ret bfloat %value
        }";
    std::fs::write(&helper, text).unwrap();
    let object = folder.0.join("helper.o");
    let mut clang = Command::new("clang-22");
    clang
        .args(["-w", "-c", "-fPIC"])
        .arg(&helper)
        .arg("-o")
        .arg(&object);
    assert!(clang.status().unwrap().success());
    folder.archive("libhelpers.a", &[&object]);
    for options in ALL_COMPILERS {
        let args = [options, &["main.ll", "libhelpers.a"]].concat();
        let output = run(&folder, &args);
        assert_eq!(output.status.code(), Some(127), "{options:?}: {output:?}");
    }
}

#[test]
fn the_second_stack_is_made_before_code_generation_asks_for_it() {
    let folder = Folder::new("second-stack");
    // The buffer goes to the second stack, which is far from the first.
    let main = "__attribute__((noinline)) static char use(volatile char *buffer) {
          return buffer[3] = 5;
        }
        int main(void) {
          char buffer[16];
          long distance = (char *)__builtin_frame_address(0) - buffer;
          return use(buffer) + (distance > -(1 << 20) && distance < 1 << 20);
        }";
    let stack = "static char stack[1 << 16] __attribute__((aligned(64)));
        __thread char *__safestack_unsafe_stack_ptr;
        __attribute__((constructor)) static void make(void) {
          __safestack_unsafe_stack_ptr = stack + sizeof stack;
        }";
    let safe = ["-c", "-emit-llvm", "-fsanitize=safe-stack", "-O0"];
    folder.compile("main.bc", main, &safe);
    let member = folder.compile("stack.o", stack, &["-c", "-O1"]);
    folder.archive("libstack.a", &[&member]);
    for options in ALL_COMPILERS {
        let args = [options, &["main.bc", "libstack.a"]].concat();
        let output = run(&folder, &args);
        assert_eq!(output.status.code(), Some(5), "{options:?}: {output:?}");
    }
}

#[test]
fn archives_give_no_definition_of_a_name_that_may_be_missing() {
    let folder = Folder::new("optional");
    let main = "extern int optional(void) __attribute__((weak));
        int main(void) { return optional ? optional() : 3; }";
    folder.compile("main.bc", main, &["-c", "-emit-llvm"]);
    folder.compile("main.o", main, &["-c", "-fPIC"]);
    let member = folder.compile("member.o", "int optional(void) { return 7; }", &["-c"]);
    folder.archive("liboptional.a", &[&member]);
    for file in ["main.bc", "main.o"] {
        for options in ALL_COMPILERS {
            let args = [options, &[file, "liboptional.a"]].concat();
            let output = run(&folder, &args);
            assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        }
    }
}

#[test]
fn code_generation_gets_what_it_needs_in_the_version_that_assembly_says() {
    let folder = Folder::new("versioned");
    let text = "module asm \".symver exp, exp@OURS_1\"
        declare double @llvm.exp.f64(double)
        @x = global double 1.0
        define i32 @main() {
          %x = load volatile double, ptr @x
          %y = call double @llvm.exp.f64(double %x)
          %status = fptosi double %y to i32
          ret i32 %status
        }";
    std::fs::write(folder.0.join("main.ll"), text).unwrap();
    std::fs::write(folder.0.join("map"), "OURS_1 { global: exp; local: *; };").unwrap();
    let map = format!("-Wl,--version-script={}", folder.0.join("map").display());
    let library = "double exp_of_ours(double x) { return x + 100; }
        __asm__(\".symver exp_of_ours, exp@OURS_1\");";
    folder.compile("libours.so", library, &["-shared", "-fPIC", &map]);
    for options in ALL_COMPILERS {
        let args = [options, &["main.ll", "./libours.so"]].concat();
        let output = run(&folder, &args);
        assert_eq!(output.status.code(), Some(101), "{options:?}: {output:?}");
    }
}

#[test]
fn a_program_with_counters_writes_its_profile() {
    let folder = Folder::new("profile");
    let runtime = "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a";
    if !Path::new(runtime).exists() {
        eprintln!("skipped: libclang-rt-22-dev is not installed");
        return;
    }
    let source = "#include <stdio.h>
        __attribute__((noinline)) int f(int n) { return n > 3 ? n * 2 : n + 1; }
        int main(void) { int s = 0; for (int i = 0; i < 10; i++) s += f(i); printf(\"%d\\n\", s); return 0; }";
    let counted = "-fprofile-instr-generate";
    folder.compile("main.bc", source, &["-c", "-emit-llvm", counted]);
    folder.compile("main.o", source, &["-c", counted]);
    for args in [
        &["main.bc"][..],
        &["--eager", "main.bc"],
        &["--tiers", "2", "main.bc"],
        &["main.bc", runtime],
        &["main.o"],
    ] {
        let raw = folder.0.join("default.profraw");
        let _ = std::fs::remove_file(&raw);
        let output = run(&folder, args);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "88\n",
            "{args:?}: {output:?}"
        );
        let data = folder.0.join("profile.data");
        let mut merge = Command::new("llvm-profdata-22");
        merge.args(["merge", "-o"]).arg(&data).arg(&raw);
        assert!(merge.status().unwrap().success(), "{args:?}");
        let mut show = Command::new("llvm-profdata-22");
        show.args(["show", "--counts", "--function=f"]).arg(&data);
        let shown = show.output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains("Function count: 10"), "{args:?}: {shown}");
        assert!(shown.contains("Block counts: [6]"), "{args:?}: {shown}");
    }
}
