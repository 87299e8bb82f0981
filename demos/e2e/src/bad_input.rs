//! Bad input: files that are missing, damaged, contradictory or of another machine,
//! and command lines that make no sense.
//!
//! For every input, the command ends by itself with a documented status. It describes the fault in
//! a few lines that name the file and the symbol. It neither panics nor lets LLVM end the process.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use uruk_guests::execute::Ending;
use uruk_guests::toolchain;

use crate::bad_room::Room;
use crate::gate::Gate;
use crate::subject::{Mode, STATUS_FAILURE};
use crate::trial::{self, Bench, LogLine};
use crate::verdict;

/// The gate at which bad input must be answered well.
const GATE: &str = "E";

/// How many single-bit errors are tried, and how many places to cut a file.
const FLIPS: u64 = 60;
const CUTS: usize = 12;

type Check = fn(&Room) -> Result<(), String>;

/// The checks, each with the name of its trial.
const CHECKS: [(&str, Check); 32] = [
    ("no file is given", no_file),
    ("an unknown option", unknown_option),
    ("lazy and eager at once", both_modes),
    ("jobs that are no number", bad_jobs),
    ("a missing file", missing_file),
    ("a directory", a_directory),
    ("an empty file", empty_file),
    ("a text file called .bc", text_as_bitcode),
    ("a file of zeroes", zeroes),
    ("an extension that means nothing", odd_extension),
    ("an executable", executable),
    ("truncated bitcode", truncated_bitcode),
    ("bitcode with flipped bits", flipped_bitcode),
    ("a syntax error in IR text", syntax_error),
    ("a type error in IR text", type_error),
    ("IR that does not verify", invalid_ir),
    ("IR that LLVM ends the process for", fatal_when_read),
    ("input that LLVM crashes on", untrusted),
    ("an object for another machine", other_machine),
    ("an object of another class", other_class),
    ("bitcode for another machine", other_machine_bitcode),
    ("truncated objects", truncated_object),
    ("objects with flipped bits", flipped_object),
    ("a corrupt section table", corrupt_sections),
    ("duplicate symbols", duplicates),
    ("duplicate symbols in an object", duplicate_in_object),
    ("missing symbols", missing_symbols),
    ("no entry point", no_entry),
    ("an entry point that is not there", wrong_entry),
    ("an entry point that is data", entry_is_data),
    ("a relocation out of range", relocation_range),
    ("functions LLVM cannot optimize", fatal_when_optimized),
];

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let ignored = Gate::parse(GATE) > Some(Gate::open()?);
    let bench = Bench::set_up(arguments)?;
    let trials = CHECKS.iter().map(|&(name, check)| {
        let bench = bench.clone();
        let body = move || match bench {
            Some(bench) => Room::new(bench, name)
                .and_then(|room| check(&room))
                .map_err(Failed::from),
            None => Ok(()),
        };
        Trial::test(name, body).with_ignored_flag(ignored)
    });
    Ok(trials.collect())
}

/// A program with some of everything that bitcode can hold.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
static const char *names[] = {"one", "two", "three"};
static int table[64];
struct pair { int a; double b; };
__attribute__((noinline)) static struct pair make(int x) { struct pair p = {x, x * 0.5}; return p; }
__attribute__((noinline)) static int look(int x) {
  switch (x) { case 0: return 5; case 1: return 7; case 2: return 11; default: return (int)strlen(names[x % 3]); }
}
__attribute__((constructor)) static void fill(void) { for (int i = 0; i < 64; i++) table[i] = i; }
int main(void) {
  double sum = 0;
  for (int i = 0; i < 64; i++) sum += make(table[i]).b + look(i);
  printf("%g\n", sum);
}
"#;

const MAIN: &str = "int main(void) { return 0; }";

fn no_file(room: &Room) -> Result<(), String> {
    room.usage(&["run"], &["FILE", "Usage"])
}

fn unknown_option(room: &Room) -> Result<(), String> {
    room.usage(&["run", "--no-such-option", "x.bc"], &["--no-such-option"])
}

fn both_modes(room: &Room) -> Result<(), String> {
    room.usage(
        &["run", "--lazy", "--eager", "x.bc"],
        &["--lazy", "--eager"],
    )
}

fn bad_jobs(room: &Room) -> Result<(), String> {
    room.usage(&["run", "--jobs", "many", "x.bc"], &["many", "--jobs"])
}

fn missing_file(room: &Room) -> Result<(), String> {
    let path = room.directory.join("not-there.bc");
    room.refused(
        &[],
        &[path],
        &["not-there.bc", "No such file|not found|does not exist"],
    )
}

fn a_directory(room: &Room) -> Result<(), String> {
    let path = room.directory.join("folder.bc");
    fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    room.refused(&[], &[path], &["folder.bc", "directory"])
}

fn empty_file(room: &Room) -> Result<(), String> {
    for name in ["empty.bc", "empty.ll", "empty.o"] {
        let path = room.file(name, b"")?;
        // An empty text is a module without an entry point.
        room.refused(&[], &[path], &["empty|main"])?;
    }
    Ok(())
}

fn text_as_bitcode(room: &Room) -> Result<(), String> {
    let path = room.file("poem.bc", "He who saw the deep\n")?;
    room.refused(&[], &[path], &["poem.bc"])
}

fn zeroes(room: &Room) -> Result<(), String> {
    for name in ["zero.bc", "zero.ll", "zero.o"] {
        let path = room.file(name, vec![0; 4096])?;
        room.refused(&[], &[path], &[name])?;
    }
    Ok(())
}

fn odd_extension(room: &Room) -> Result<(), String> {
    let path = room.file("program.exotic", "neither bitcode nor IR")?;
    room.refused(&[], &[path], &["program.exotic"])
}

fn executable(room: &Room) -> Result<(), String> {
    let main = room.compile("main.o", MAIN, &[])?;
    let path = room.directory.join("program.o");
    let mut command = Command::new(&room.bench.tools.clang);
    command.arg(main).arg("-o").arg(&path);
    toolchain::run(&mut command).map_err(|error| error.to_string())?;
    room.refused(
        &[],
        &[path],
        &["program.o", "relocatable|executable|object file"],
    )
}

fn truncated_bitcode(room: &Room) -> Result<(), String> {
    let whole = room.compile("whole.bc", PROGRAM, &[])?;
    let bytes = fs::read(whole).map_err(|error| error.to_string())?;
    for cut in cuts(bytes.len()) {
        let path = room.file(&format!("cut-{cut}.bc"), &bytes[..cut])?;
        room.refused(&[], &[path], &["cut-"])?;
    }
    Ok(())
}

fn flipped_bitcode(room: &Room) -> Result<(), String> {
    let whole = room.compile("whole.bc", PROGRAM, &[])?;
    let bytes = fs::read(&whole).map_err(|error| error.to_string())?;
    for flip in 0..FLIPS {
        let path = room.file(&format!("flip-{flip}.bc"), flipped(&bytes, flip))?;
        room.damaged(path, &whole)?;
    }
    Ok(())
}

fn syntax_error(room: &Room) -> Result<(), String> {
    let text = "define i32 @main() {\n  %x = add i32 1, 2\n  %y = ad i32 %x, 3\n  ret i32 %y\n}\n";
    let path = room.file("syntax.ll", text)?;
    room.refused(&[], &[path], &["syntax.ll", ":3:8|line 3, column 8|3:8"])
}

fn type_error(room: &Room) -> Result<(), String> {
    let text = "define i32 @main() {\n  %x = add i32 1, 2\n  ret i64 %x\n}\n";
    let path = room.file("types.ll", text)?;
    room.refused(&[], &[path], &["types.ll", "3"])
}

fn invalid_ir(room: &Room) -> Result<(), String> {
    // It parses, but a definition does not dominate its use.
    let text = "define i32 @main(i32 %n) {\n  %c = icmp eq i32 %n, 0\n  br i1 %c, label %a, label %b\n\
                a:\n  %x = add i32 %n, 1\n  br label %b\nb:\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n";
    let path = room.file("invalid.ll", text)?;
    room.refused(&[], &[path], &["invalid.ll", "dominate"])
}

fn other_machine(room: &Room) -> Result<(), String> {
    let flags = ["--target=aarch64-linux-gnu", "-ffreestanding"];
    let path = room.compile("arm.o", MAIN, &flags)?;
    room.refused(&[], &[path], &["arm.o", "machine|architecture|x86-64"])
}

fn other_class(room: &Room) -> Result<(), String> {
    let flags = ["--target=i686-linux-gnu", "-ffreestanding"];
    let path = room.compile("small.o", MAIN, &flags)?;
    room.refused(&[], &[path], &["small.o", "class|machine|64-bit|32-bit"])
}

fn other_machine_bitcode(room: &Room) -> Result<(), String> {
    let flags = ["--target=aarch64-linux-gnu", "-ffreestanding"];
    let path = room.compile("arm.bc", MAIN, &flags)?;
    room.refused(&[], &[path], &["arm.bc", "aarch64"])
}

fn truncated_object(room: &Room) -> Result<(), String> {
    let whole = room.compile("whole.o", PROGRAM, &[])?;
    let bytes = fs::read(whole).map_err(|error| error.to_string())?;
    for cut in cuts(bytes.len()) {
        let path = room.file(&format!("cut-{cut}.o"), &bytes[..cut])?;
        room.refused(&[], &[path], &["cut-"])?;
    }
    Ok(())
}

fn flipped_object(room: &Room) -> Result<(), String> {
    let whole = room.compile("whole.o", PROGRAM, &[])?;
    let bytes = fs::read(&whole).map_err(|error| error.to_string())?;
    for flip in 0..FLIPS {
        let path = room.file(&format!("flip-{flip}.o"), flipped(&bytes, flip))?;
        room.damaged(path, &whole)?;
    }
    Ok(())
}

fn corrupt_sections(room: &Room) -> Result<(), String> {
    let whole = room.compile("whole.o", PROGRAM, &[])?;
    let bytes = fs::read(whole).map_err(|error| error.to_string())?;
    // Fields of the ELF header: e_shoff (8 bytes at 40), e_shentsize (58),
    // e_shnum (60), e_shstrndx (62).
    let damages: [(&str, usize, &[u8]); 5] = [
        ("offset", 40, &[0xff; 8]),
        ("far-offset", 40, &[0, 0, 0, 0x10, 0, 0, 0, 0]),
        ("entry-size", 58, &[7, 0]),
        ("count", 60, &[0xff, 0xfe]),
        ("names", 62, &[0xf0, 0]),
    ];
    for (what, offset, damage) in damages {
        let mut copy = bytes.clone();
        copy[offset..offset + damage.len()].copy_from_slice(damage);
        let name = format!("bad-{what}.o");
        let path = room.file(&name, copy)?;
        room.refused(&[], &[path], &[&name])?;
    }
    Ok(())
}

fn duplicates(room: &Room) -> Result<(), String> {
    let first = room.compile(
        "first.bc",
        "int twice_defined(void) { return 1; } int main(void) { return twice_defined(); }",
        &[],
    )?;
    let second = room.compile("second.bc", "int twice_defined(void) { return 2; }", &[])?;
    room.refused(
        &[],
        &[first, second],
        &["twice_defined", "first.bc", "second.bc"],
    )
}

fn duplicate_in_object(room: &Room) -> Result<(), String> {
    let first = room.compile(
        "first.bc",
        "int twice_defined = 1; int main(void) { return twice_defined; }",
        &[],
    )?;
    let second = room.compile("second.o", "int twice_defined = 2;", &[])?;
    room.refused(
        &[],
        &[first, second],
        &["twice_defined", "first.bc", "second.o"],
    )
}

fn missing_symbols(room: &Room) -> Result<(), String> {
    let text = "int missing_one(void); extern int missing_two; int main(void) { return missing_one() + missing_two; }";
    let words = ["missing_one", "missing_two", "main|lacking"];
    for name in ["lacking.bc", "lacking.o"] {
        let path = room.compile(name, text, &[])?;
        let outcome = room.run_in(Mode::Eager, &[], std::slice::from_ref(&path))?;
        room.expect(&outcome, STATUS_FAILURE, &words)?;
        // Lazily, only what is called may be looked for.
        let outcome = room.run_in(Mode::Lazy, &[], &[path])?;
        room.expect(&outcome, STATUS_FAILURE, &["missing_one|missing_two"])?;
    }
    Ok(())
}

fn no_entry(room: &Room) -> Result<(), String> {
    for name in ["library.bc", "library.o"] {
        let path = room.compile(name, "int helper(void) { return 1; }", &[])?;
        room.refused(&[], &[path], &["main"])?;
    }
    Ok(())
}

fn wrong_entry(room: &Room) -> Result<(), String> {
    let path = room.compile("main.bc", MAIN, &[])?;
    room.refused(&["--entry", "begin_here"], &[path], &["begin_here"])
}

fn entry_is_data(room: &Room) -> Result<(), String> {
    let path = room.compile("data.bc", "int start_value = 5;", &[])?;
    room.refused(&["--entry", "start_value"], &[path], &["start_value"])
}

fn relocation_range(room: &Room) -> Result<(), String> {
    let text = "extern char very_far; int main(void) { return (int)(long)&very_far; }";
    let near = room.compile("near.o", text, &["-fno-pic", "-mcmodel=small"])?;
    let far = room.compile(
        "far.o",
        "__asm__(\".globl very_far\\n.set very_far, 0x123456789abc\\n\");",
        &[],
    )?;
    room.refused(&[], &[near, far], &["very_far", "range"])
}

/// LLVM reads debug info's version, verifies, and gives up.
fn fatal_when_read(room: &Room) -> Result<(), String> {
    let text = "define i32 @main() \"frame-pointer\"=\"x\" { ret i32 0 }\n\
                !llvm.module.flags = !{!0}\n!0 = !{i32 2, !\"Debug Info Version\", i32 3}\n";
    let path = room.file("fatal.ll", text)?;
    room.refused(&[], &[path], &["fatal.ll", "LLVM"])
}

/// A process apart reads what is not trusted: LLVM's crash there is an error, and what it can
/// read runs.
fn untrusted(room: &Room) -> Result<(), String> {
    // The parser calls itself for each of them, until its stack ends.
    let text = format!("@x = global {}i8", "[1 x ".repeat(2_000_000));
    let path = room.file("deep.ll", text)?;
    room.refused(&["--untrusted"], &[path], &["deep.ll", "LLVM crashed"])?;
    let path = room.compile("good.bc", PROGRAM, &[])?;
    let outcome = room.run_in(Mode::Lazy, &["--untrusted"], &[path])?;
    match outcome.ending {
        Ending::Status(0) => Ok(()),
        other => Err(verdict::ending(other)),
    }
}

/// Functions that run at tier 1 and cannot be compiled at tier 2, because they inline
/// what was never called and cannot be compiled at all. Each costs a worker; all of them
/// run on, and `sound` gets better code, also after the workers were lost.
fn fatal_when_optimized(room: &Room) -> Result<(), String> {
    let mut text = String::from(
        "declare i32 @printf(ptr, ...)\ndeclare void @llvm.aarch64.hint(i32)\n\
         @never = global i32 0\n@format = constant [4 x i8] c\"%d\\0A\\00\"\n",
    );
    let functions = [
        ("fatal_one", "call void @llvm.aarch64.hint(i32 1)"),
        ("fatal_two", "call void @llvm.aarch64.hint(i32 2)"),
        ("sound", ""),
    ];
    let mut calls = String::new();
    for (index, (name, poison)) in functions.into_iter().enumerate() {
        text.push_str(&format!(
            "define i32 @{name}_inlined(i32 %x) {{\n  {poison}\n  %y = add i32 %x, 1\n  ret i32 %y\n}}\n\
             define i32 @{name}(i32 %x) {{\n  %n = load volatile i32, ptr @never\n  \
             %c = icmp eq i32 %n, 0\n  br i1 %c, label %good, label %bad\n\
             good:\n  %y = add i32 %x, {index}\n  ret i32 %y\n\
             bad:\n  %z = call i32 @{name}_inlined(i32 %x)\n  ret i32 %z\n}}\n"
        ));
        let next = index + 1;
        calls.push_str(&format!(
            "  %a{index} = call i32 @{name}(i32 %s{index})\n  %s{next} = and i32 %a{index}, 65535\n"
        ));
    }
    text.push_str(&format!(
        "define i32 @main() {{\nentry:\n  br label %loop\n\
         loop:\n  %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n  \
         %s0 = phi i32 [ 0, %entry ], [ %s{0}, %loop ]\n{calls}  \
         %next = add i32 %i, 1\n  %more = icmp ult i32 %next, 100000000\n  \
         br i1 %more, label %loop, label %end\n\
         end:\n  call i32 (ptr, ...) @printf(ptr @format, i32 %s{0})\n  ret i32 0\n}}\n",
        functions.len()
    ));
    let path = room.file("fatal.ll", text)?;
    // However short the run: each function that is called is worth its compile.
    let options = ["-vv", "--set=outlook=60s"];
    let outcome = room.run_in(Mode::Lazy, &options, &[path])?;
    let steps: u64 = (0..functions.len() as u64).sum();
    let right = (steps * 100_000_000) & 65535;
    let log = [
        "a background worker is lost .. fatal_one",
        "a background worker is lost .. fatal_two",
        "WorkerLost .. aarch64",
        "Published .. \"sound\" .. tier: Optimized",
    ];
    let log = log.map(LogLine::expected);
    if let Some(text) = verdict::unsaid(&outcome, &log) {
        return Err(text);
    }
    match outcome.ending {
        Ending::Status(0) if outcome.stdout == format!("{right}\n").as_bytes() => Ok(()),
        ending => Err(format!(
            "{}, {}",
            verdict::ending(ending),
            verdict::excerpt(&outcome.stdout)
        )),
    }
}

/// Lengths to cut a file of `length` bytes to: spread, never whole.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    let last = [length - 1, length - 4, 1, 4, 64];
    (1..CUTS).map(move |part| length * part / CUTS).chain(last)
}

/// The bytes with one bit flipped, the same for the same seed.
fn flipped(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let at = usize::try_from(hasher.finish() % (bytes.len() as u64 * 8)).unwrap_or_default();
    let mut copy = bytes.to_vec();
    copy[at / 8] ^= 1 << (at % 8);
    copy
}
