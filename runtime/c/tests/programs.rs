//! Tests with programs in C and C++ that use the library as hosts do: the shared one, the static
//! one, opened at run time, and under valgrind.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{compiled, has, libraries, linked_by_soname, package, passes, run, scratch, soname};

fn source(name: &str) -> PathBuf {
    package().join("tests/programs").join(name)
}

fn in_c(name: &str) -> PathBuf {
    compiled(&source(name), "cc", "-std=c99", &["-D_GNU_SOURCE"])
}

#[test]
fn sessions() {
    passes(&mut Command::new(in_c("sessions.c")));
}

#[test]
fn bad_input() {
    passes(&mut Command::new(in_c("bad_input.c")));
}

#[test]
fn definitions() {
    passes(&mut Command::new(in_c("definitions.c")));
}

#[test]
fn guarded_calls() {
    passes(&mut Command::new(in_c("guarded.c")));
}

#[test]
fn errors_of_host_functions() {
    passes(&mut Command::new(in_c("host_errors.c")));
}

#[test]
fn borders() {
    passes(Command::new(in_c("borders.c")).arg(scratch("borders")));
}

#[test]
fn threads() {
    passes(&mut Command::new(in_c("threads.c")));
}

#[test]
fn sandbox() {
    passes(&mut Command::new(in_c("sandbox.c")));
}

#[test]
fn faults_of_a_collector() {
    passes(&mut Command::new(in_c("faults.c")));
}

#[test]
fn tuning() {
    passes(&mut Command::new(in_c("tuning.c")));
}

#[test]
fn exceptions_of_a_cpp_host() {
    let program = compiled(&source("exceptions.cpp"), "c++", "-std=c++11", &[]);
    passes(&mut Command::new(program));
}

#[test]
fn clang_compiles_hosts_too() {
    if !has("clang-22") {
        eprintln!("clang-22 is not installed: not tried");
        return;
    }
    let program = compiled(&source("sessions.c"), "clang-22", "-std=c99", &[]);
    passes(&mut Command::new(program));
}

#[test]
fn a_host_opens_the_library_when_it_runs() {
    let folder = libraries();
    let library = linked_by_soname(&folder).join(soname());
    passes(Command::new(in_c("opened.c")).arg(library));
}

#[test]
fn a_host_has_the_library_linked_into_it() {
    let program = scratch("programs").join("static");
    let library = libraries().join("liburuk_c.a");
    run(Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-pthread"])
        .args(support::STRICT)
        .arg("-I")
        .arg(package().join("include"))
        .arg(source("threads.c"))
        .arg(library)
        .args(["-o".as_ref(), program.as_os_str()])
        .args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
            "-lc",
        ]));
    passes(&mut Command::new(program));
}

/// The output of `llvm-config` of LLVM 22, if it is installed.
fn llvm(word: &str) -> Option<String> {
    let prefix = std::env::var("LLVM_SYS_221_PREFIX").ok();
    let places = prefix.map(|prefix| format!("{prefix}/bin/llvm-config"));
    let mut places = places.into_iter().chain([String::from("llvm-config-22")]);
    places.find_map(|program| {
        let output = Command::new(program).arg(word).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    })
}

#[test]
fn a_host_with_llvm_hands_over_modules() {
    let (Some(include), Some(libraries)) = (llvm("--includedir"), llvm("--libdir")) else {
        eprintln!("llvm-config of LLVM 22 is not installed: not tried");
        return;
    };
    let program = compiled(
        &source("llvm_modules.c"),
        "cc",
        "-std=c99",
        // LLVM's own headers do not pass `-pedantic`.
        &["-isystem", &include, &format!("-L{libraries}"), "-lLLVM-22"],
    );
    passes(&mut Command::new(program));
}

#[test]
fn the_example() {
    let example = package().join("examples/lazy.c");
    let program = compiled(&example, "cc", "-std=c89", &[]);
    let output = run(&mut Command::new(program));
    let said = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(&lines[..3], ["say 42", "say 28", "one 1"], "{said}");
    assert!(
        lines[3].starts_with("removed: ") && lines[3].contains("one"),
        "{said}"
    );
    assert!(lines[4].ends_with(" compiled"), "{said}");
}

/// A host under a sanitizer, with the options of `docs/guide/sanitizers.md`.
fn sanitized(sanitizer: &str, names: &[&str], options: &[(&str, &str)]) {
    let flag = format!("-fsanitize={sanitizer}");
    let empty = scratch("programs").join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").expect("a file");
    let tried = Command::new("cc")
        .args([flag.as_str(), "-o"])
        .arg(scratch("programs").join(format!("empty-{sanitizer}")))
        .arg(&empty)
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        eprintln!("cc has no {flag}: not tried");
        return;
    }
    for name in names {
        let from = source(&format!("{name}.c"));
        let copy = scratch("programs").join(format!("{name}-{sanitizer}.c"));
        std::fs::copy(from, &copy).expect("a copy of the program");
        let includes = format!("-I{}", package().join("tests/programs").display());
        let program = compiled(
            &copy,
            "cc",
            "-std=c99",
            &["-D_GNU_SOURCE", &flag, &includes],
        );
        passes(
            Command::new(program)
                .envs(options.iter().copied())
                .arg(scratch("borders")),
        );
    }
}

#[test]
fn address_sanitizer_finds_no_fault() {
    let file = package().join("../../docs/guide/lsan.supp");
    let names = ["guarded", "host_errors", "borders", "definitions"];
    let suppressions = format!("suppressions={}", file.display());
    let options = [
        ("LSAN_OPTIONS", suppressions.as_str()),
        ("ASAN_OPTIONS", "intercept_tls_get_addr=0"),
    ];
    sanitized("address", &names, &options);
}

/// Limits and interrupts are omitted, as the page states.
#[test]
fn thread_sanitizer_finds_no_race() {
    let options = "ignore_noninstrumented_modules=1 die_after_fork=0";
    let names = ["sessions", "threads"];
    sanitized("thread", &names, &[("TSAN_OPTIONS", options)]);
}

/// Memcheck checks the library's border: its reads of a host's arguments, and its frees.
/// `valgrind.supp` lists findings that are not the library's, or are intended.
#[test]
fn valgrind_finds_no_fault() {
    if !has("valgrind") {
        eprintln!("valgrind is not installed: not tried");
        return;
    }
    let program = in_c("bad_input.c");
    passes(
        Command::new("valgrind")
            .args(["--error-exitcode=99", "--quiet", "--smc-check=all-non-file"])
            .arg(format!(
                "--suppressions={}",
                source("../valgrind.supp").display()
            ))
            .arg(program),
    );
}
