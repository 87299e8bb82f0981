//! Bitcode of older compilers than our LLVM's: read, upgraded, and run at every tier as natively.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Versions that Debian has beside LLVM 22.
const VERSIONS: [&str; 2] = ["14", "19"];

const C: &str = r#"
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct pair { double x; int y; };
static jmp_buf back;
static _Thread_local int own = 3;
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static __attribute__((noinline)) struct pair twice(struct pair p) {
    p.x *= 2;
    p.y += own++;
    return p;
}
__attribute__((constructor)) static void early(void) { puts("early"); }
int main(int argc, char **argv) {
    int numbers[] = {5, 3, 9, 1, 7}, i, sum = 0;
    struct pair p = {1.5, 2};
    char text[32];
    qsort(numbers, 5, sizeof *numbers, order);
    for (i = 0; i < 1000; i++) {
        p = twice(p);
        p.x = fmod(p.x, 17.25);
        sum += numbers[i % 5] << (i & 3);
    }
    snprintf(text, sizeof text, "%.6f %d %d", p.x, p.y, sum);
    puts(text);
    if (setjmp(back) == 0) longjmp(back, argc);
    switch (strlen(text) % 4) {
        case 0: puts("zero"); break;
        case 1: puts("one"); break;
        default: puts("more");
    }
    return own & 63;
}
"#;

const CPP: &str = r#"
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
struct shape { virtual ~shape() {} virtual double area() const = 0; };
struct square : shape {
    double side;
    explicit square(double s) : side(s) {}
    double area() const override { return side * side; }
};
int main() {
    std::map<std::string, int> count;
    for (int i = 0; i < 100; i++) count["n" + std::to_string(i % 7)] += i;
    std::vector<std::unique_ptr<shape>> shapes;
    for (int i = 0; i < 5; i++) shapes.emplace_back(new square(i));
    double sum = 0;
    for (auto &one : shapes) sum += one->area();
    try {
        if (count.at("n3") > 0) throw std::runtime_error("thrown");
    } catch (const std::exception &e) {
        std::printf("%s %d %.1f\n", e.what(), count["n6"], sum);
    }
    auto more = [&](int x) { return x + (int)count.size(); };
    return more(30);
}
"#;

fn run(command: &mut Command) -> Option<Output> {
    command.stdin(Stdio::null()).output().ok()
}

/// The program as native code and as bitcode of a compiler; `None`, said aloud, without it.
fn build(compiler: &str, level: &str, source: &Path) -> Option<(PathBuf, PathBuf)> {
    let base = source.with_extension(format!("{compiler}{level}"));
    let (native, bitcode) = (base.with_extension("native"), base.with_extension("bc"));
    for (to, how) in [(&native, &["-lm"][..]), (&bitcode, &["-c", "-emit-llvm"])] {
        let mut command = Command::new(compiler);
        command.arg(level).arg(source).arg("-o").arg(to).args(how);
        let Some(output) = run(&mut command) else {
            eprintln!("skipped, there is no {compiler}");
            return None;
        };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped, {compiler} cannot compile here: {said}");
            return None;
        }
    }
    Some((native, bitcode))
}

#[test]
fn bitcode_of_older_compilers_runs_as_natively() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("older");
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text, kind) in [("p.c", C, "clang"), ("q.cpp", CPP, "clang++")] {
        let source = folder.join(name);
        std::fs::write(&source, text).expect("a file");
        for (version, level) in VERSIONS.iter().flat_map(|it| [(it, "-O0"), (it, "-O2")]) {
            let compiler = format!("{kind}-{version}");
            let Some((native, bitcode)) = build(&compiler, level, &source) else {
                continue;
            };
            let native = run(&mut Command::new(native)).expect("it starts");
            for tiers in ["1", "2", "3", "auto"] {
                let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
                command.args(["run", "--tiers", tiers]).arg(&bitcode);
                let ours = run(&mut command).expect("uruk starts");
                let said = String::from_utf8_lossy(&ours.stderr);
                let way = format!("{compiler} {level} {tiers}: {said}");
                assert_eq!(ours.stdout, native.stdout, "{way}");
                assert_eq!(ours.status.code(), native.status.code(), "{way}");
            }
        }
    }
}
