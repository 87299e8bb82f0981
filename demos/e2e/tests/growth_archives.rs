//! Instructions for a program whose archive has members that need one another, one after the other:
//! they grow with the count of members, not with its square.
//!
//! All instructions of a run are counted by callgrind, in three sizes, each the double of the one
//! before.

use std::fs;
use std::path::Path;
use std::process::Command;

use uruk_e2e::subject::Subject;
use uruk_guests::toolchain::{self, Toolchain};

/// Growth of what is added when the size doubles: 2 if it is linear, 4 if it is quadratic.
const GROWTH: f64 = 2.7;

/// The least count of members.
const SIZE: usize = 100;

/// The name of a function, of one length for all.
fn name(index: usize) -> String {
    format!("member{index:06}")
}

/// An archive of `n` members, each of which calls the next.
fn archive(tools: &Toolchain, folder: &Path, n: usize) {
    let (first, second) = (name(111_111), name(222_222));
    let source = folder.join("member.c");
    let object = folder.join("member.o");
    let text = format!("void {second}(void);\nvoid {first}(void) {{ {second}(); }}\n");
    fs::write(&source, text).expect("written");
    let mut clang = Command::new(&tools.clang);
    clang
        .args(["-c", "-fPIC", "-O1", "-o"])
        .args([&object, &source]);
    toolchain::run(&mut clang).expect("an object");
    let bytes = fs::read(&object).expect("read");
    let mut members = Vec::new();
    for index in 0..n {
        let mut member = bytes.clone();
        for (from, to) in [(&first, name(index)), (&second, name(index + 1))] {
            for at in 0..member.len() - from.len() {
                if member[at..].starts_with(from.as_bytes()) {
                    member[at..at + to.len()].copy_from_slice(to.as_bytes());
                }
            }
        }
        let file = folder.join(format!("{index}.o"));
        fs::write(&file, member).expect("written");
        members.push(file);
    }
    let last = folder.join("last.c");
    fs::write(&last, format!("void {}(void) {{ }}\n", name(n))).expect("written");
    let object = folder.join("last.o");
    let mut clang = Command::new(&tools.clang);
    clang.args(["-c", "-fPIC", "-o"]).args([&object, &last]);
    toolchain::run(&mut clang).expect("an object");
    members.push(object);
    let mut ar = Command::new("llvm-ar-22");
    ar.arg("rcs").arg(folder.join("libmembers.a")).args(members);
    toolchain::run(&mut ar).expect("an archive");
}

/// All instructions of a run with `n` members.
fn counted(subject: &Subject, n: usize) -> f64 {
    let folder = format!("uruk-growth-archives-{}-{n}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    let tools = Toolchain::find().expect("a toolchain");
    archive(&tools, &folder, n);
    let first = name(0);
    let main = format!(
        "declare void @{first}()\ndefine i32 @main() {{\n  call void @{first}()\n  ret i32 0\n}}\n"
    );
    fs::write(folder.join("main.ll"), main).expect("written");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--smc-check=all-non-file"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(subject.program())
        .args(["run", "--tiers=1", "main.ll", "libmembers.a"])
        .current_dir(&folder)
        .output();
    let run = run.expect("valgrind");
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{told}");
    fs::remove_dir_all(folder).expect("removed");
    let counts = told.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = counts.expect("a count");
    count.trim().parse().expect("a number")
}

#[test]
fn members_are_found_in_steps_of_their_count() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: not tried");
        return;
    }
    let subject = Subject::find().expect("uruk");
    let [small, middle, large] = [1, 2, 4].map(|times| counted(&subject, times * SIZE));
    let growth = (large - middle) / (middle - small);
    assert!(growth < GROWTH, "{small}, {middle}, {large} instructions");
}
