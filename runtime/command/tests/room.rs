//! Where a program lies in memory, and with how little of it the command gets by.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uruk::{Jit, JitBuilder, ReclaimKind, Tier, Tiers};

#[path = "../../tests/support/clang.rs"]
mod clang;

/// Prints the address of `main`, which is its stub, and works through three functions.
const WHERE: &str = r#"
@format = private constant [4 x i8] c"%p\0A\00"
declare i32 @printf(ptr, ...)
define i32 @one(i32 %x) { %y = add i32 %x, 1 ret i32 %y }
define i32 @two(i32 %x) { %y = call i32 @one(i32 %x) %z = mul i32 %y, 2 ret i32 %z }
define i32 @main() {
  %n = call i32 @two(i32 2)
  %printed = call i32 (ptr, ...) @printf(ptr @format, ptr @main)
  ret i32 %n
}
"#;

/// Takes the address of `word` for a number of 32 bits.
const LOW_ASSEMBLY: &str = r#"
@word = global i32 42
define i32 @get() {
  %low = call i64 asm "movl $$word, ${0:k}", "=r"()
  %p = inttoptr i64 %low to ptr
  %n = load i32, ptr %p
  ret i32 %n
}
define i32 @main() { %n = call i32 @get() ret i32 %n }
"#;

/// Held by a test with a session in this process.
static TURN: Mutex<()> = Mutex::new(());

fn file(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("room");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

fn uruk(options: &[&str], file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
    command.arg("run").args(options).arg(file);
    command
}

/// The address that [`WHERE`] prints.
fn address(command: &mut Command) -> u64 {
    let output = command.output().expect("uruk starts");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("a number");
    let digits = text.trim().strip_prefix("0x").expect("hexadecimal");
    u64::from_str_radix(digits, 16).expect("a number")
}

#[test]
fn each_run_lies_elsewhere() {
    let path = file("where.ll", WHERE);
    for (options, below) in [(&[][..], u64::MAX), (&["--low-addresses"], 1 << 31)] {
        let places: BTreeSet<_> = (0..14)
            .map(|_| address(&mut uruk(options, &path)))
            .collect();
        assert!(places.last().expect("14") < &below, "{places:x?}");
        // Two of 14 are the same by chance once in 1,200 times below 2 GiB.
        assert!(places.len() > 12, "{places:x?}");
    }
}

#[test]
fn without_randomization_runs_lie_in_one_place() {
    let path = file("fixed.ll", WHERE);
    let places = [(); 2].map(|()| {
        let mut command = uruk(&[], &path);
        let fix = || {
            // SAFETY: a setting of the process that is about to become `uruk`.
            unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
            Ok(())
        };
        // SAFETY: makes one system call.
        unsafe { command.pre_exec(fix) };
        address(&mut command)
    });
    assert_eq!(places[0], places[1]);
}

#[test]
fn code_that_needs_low_addresses_says_so_or_shows_it() {
    let path = file("assembly.ll", LOW_ASSEMBLY);
    let status = |options: &[&str]| {
        let output = uruk(options, &path).output().expect("uruk starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let (code, told) = status(&[]);
    assert_eq!(code, Some(125), "{told}");
    assert!(told.contains("R_X86_64_32 against `word`"), "{told}");
    assert!(told.contains("tip: `--low-addresses`"), "{told}");
    assert_eq!(status(&["--low-addresses"]), (Some(42), String::new()));

    let source =
        "int words[] = {1, 2, 42}; int main(int argc, char **argv) { return words[argc + 1]; }";
    for (flags, low) in [(["-O1", "-fno-pic"], true), (["-fPIC", "-g"], false)] {
        let object = clang::compile("room", "table.c", source, &flags);
        let path = path.with_file_name("table.o");
        std::fs::write(&path, object).expect("written");
        assert_eq!(uruk::needs_low_addresses(&path), low);
        let output = uruk(&[], &path).output().expect("uruk starts");
        assert_eq!(output.status.code(), Some(42), "{output:?}");
    }
    assert!(!uruk::needs_low_addresses(&path));
}

/// Writes to the end of 1.6 GiB of variables.
const LARGE: &str = r#"
@large = global [1717986918 x i8] zeroinitializer, section ".bss.large"
define i32 @main() {
  %end = getelementptr i8, ptr @large, i64 1717986917
  store volatile i8 5, ptr %end
  %n = load volatile i8, ptr %end
  %wide = zext i8 %n to i32
  ret i32 %wide
}
"#;

#[test]
fn static_data_may_be_most_of_what_code_can_reach() {
    let output = uruk(&[], &file("large.ll", LARGE)).output();
    let output = output.expect("uruk starts");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    // A session is told beforehand, or tells.
    let _turn = TURN.lock();
    let add = |builder: JitBuilder| builder.build().expect("a session").add_ir("large", LARGE);
    let error = add(Jit::builder()).expect_err("0.9 GiB by default");
    let wanted = error.wants_static_data().expect("the reason");
    assert!((1_717_986_918..1_800_000_000).contains(&wanted), "{wanted}");
    add(Jit::builder().static_data(wanted)).expect("room");
    // More than any code reaches.
    let output = uruk(
        &[],
        &file("huge.ll", &LARGE.replace("17179869", "27179869")),
    )
    .output();
    let output = output.expect("uruk starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(told.contains("out of read-write memory"), "{told}");
}

/// A variable that no reservation has room for is there as long as its module is.
#[test]
fn a_variable_beyond_what_code_reaches_goes_with_its_module() {
    let _turn = TURN.lock();
    let mappings = || {
        let text = std::fs::read_to_string("/proc/self/maps").expect("the list");
        let lengths = text.lines().filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(number(end)? - number(start)?)
        });
        lengths.filter(|&length| length >= 4 << 30).count()
    };
    let session = Jit::new().expect("a session");
    let before = mappings();
    let text = "@large = internal global [5368709120 x i8] zeroinitializer
        define i64 @sum(i64 %at) {
          %place = getelementptr i8, ptr @large, i64 %at
          %old = load i64, ptr %place, align 1
          %new = add i64 %old, %at
          store i64 %new, ptr %place, align 1
          ret i64 %new
        }";
    for _ in 0..3 {
        let tracker = session.main().create_tracker().expect("a tracker");
        tracker.add_ir("large", text).expect("a module");
        // SAFETY: as its definition.
        let sum = unsafe { session.function::<extern "C" fn(i64) -> i64>("sum") };
        let sum = sum.expect("found");
        for at in [0, 16, 5_368_709_100] {
            assert_eq!(sum.call(at), at);
            assert_eq!(sum.call(at), 2 * at);
        }
        assert_eq!(mappings(), before + 1);
        drop(sum);
        // SAFETY: nothing keeps an address of it.
        unsafe { tracker.remove() }.expect("removed");
        for _ in 0..100 {
            if mappings() == before {
                break;
            }
            session.reclaim(ReclaimKind::Sweep, Duration::from_secs(1));
        }
        assert_eq!(mappings(), before);
    }
}

/// Protections of the mappings of code memory, but for those of code and constants.
fn aliases() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there");
    let lines = maps.lines().filter(|line| line.contains("memfd:uruk"));
    let protections = lines.filter_map(|line| line.split(' ').nth(1).map(str::to_owned));
    protections
        .filter(|kind| !["r-xs", "r--s"].contains(&&**kind))
        .collect()
}

#[test]
fn code_cannot_be_written_when_nothing_is_compiled() {
    let _turn = TURN.lock();
    for tiers in [Tiers::Auto, Tiers::Fixed(Tier::Baseline)] {
        let jit = Jit::builder().tiers(tiers).build().expect("a session");
        let ir = "define i32 @a() { ret i32 1 } define i32 @b() { ret i32 2 }";
        jit.add_ir("m", ir).expect("valid IR");
        for (name, result) in [("a", 1), ("b", 2)] {
            // SAFETY: the function above.
            let function = unsafe { jit.function::<extern "C" fn() -> i32>(name) };
            assert_eq!(function.expect("typed").call(), result);
            let closed = || {
                // More than one while it is opened or closed: the kernel lists it in steps.
                let aliases = aliases();
                assert!(!aliases.is_empty());
                aliases.iter().all(|kind| kind == "---s")
            };
            let begun = Instant::now();
            while !closed() {
                assert!(begun.elapsed() < Duration::from_secs(60), "it stays open");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// `uruk` where `bytes` of address space are all there is.
fn limited(path: &Path, bytes: u64) -> Output {
    let mut command = uruk(&["--jobs", "8"], path);
    let limit = move || {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes,
        };
        // SAFETY: a valid limit for the process that is about to become `uruk`.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        Ok(())
    };
    // SAFETY: makes one system call.
    unsafe { command.pre_exec(limit) };
    command.output().expect("uruk starts")
}

/// LLVM's analyses recurse from each phi of a loop to the next: each takes more than 1 KiB of stack.
#[test]
fn long_chains_of_phis_fit_on_the_stacks_of_workers() {
    const COUNT: usize = 16_000;
    let phi = |at: usize| {
        let next = (at + 1) % COUNT;
        format!("  %p{at} = phi i32 [ {at}, %entry ], [ %p{next}, %loop ]\n")
    };
    let phis: String = (0..COUNT).map(phi).collect();
    let text = format!(
        "define i32 @main() {{\nentry:\n  br label %loop\nloop:\n{phis}\
         %again = icmp ult i32 %p0, 5\n  br i1 %again, label %loop, label %end\n\
         end:\n  ret i32 %p1\n}}\n"
    );
    let mut command = uruk(&[], &file("phis.ll", &text));
    let output = command.output().expect("uruk starts");
    assert_eq!(output.status.code(), Some(6), "{output:?}");
}

/// With any address space it runs, or reports the bytes it needs, which then suffice.
#[test]
fn little_address_space_is_shared_or_refused() {
    let path = file("limited.ll", WHERE);
    let (mut needed, mut ran, mut refused) = (None::<u64>, 0, 0);
    let mut bytes: u64 = 32 << 20;
    while bytes < 3 << 30 {
        let output = limited(&path, bytes);
        let told = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(6) => ran += 1,
            // The dynamic loader's.
            Some(127) if refused == 0 && ran == 0 => {}
            Some(125) if ran == 0 => {
                refused += 1;
                assert!(told.contains("the process may map"), "{told}");
                let (_, rest) = told.split_once("at least ").expect("how much");
                let number = rest
                    .split(' ')
                    .next()
                    .and_then(|word| word.parse::<u64>().ok());
                needed = Some(1024 * number.expect("a number"));
            }
            _ => panic!("{bytes} bytes: {output:?}"),
        }
        bytes += match bytes {
            // Finely where it matters.
            0..0x2000_0000 => 16 << 20,
            _ => 256 << 20,
        };
    }
    assert!(ran > 8 && refused > 0, "{ran} ran, {refused} were refused");
    // A page of the stack more or less.
    let output = limited(&path, needed.expect("refused") + (64 << 10));
    assert_eq!(output.status.code(), Some(6), "{output:?}");
}
