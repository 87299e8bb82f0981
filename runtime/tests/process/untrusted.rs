//! A separate process reads the input of strangers. Input that ends a process ends that one only.
//!
//! `URUK_FLIPS` is how many single bits of a good module are flipped, one at a time (40),
//! `URUK_SEED` the seed (1).

use crate::clang;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uruk::{Error, InputLimits, Jit, Rejection, Removal, Replacement};
use uruk_testing::Random;

const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
static const char *const names[] = {"one", "two", "three"};
struct pair { int a; double b; };
static int table[64];
__thread int calls;
__attribute__((noinline)) static struct pair make(int x) { struct pair p = {x, x * 0.5}; return p; }
__attribute__((noinline)) static int look(int x) {
  calls++;
  switch (x) { case 0: return 5; case 1: return 7; case 2: return 11; default: return (int)strlen(names[x % 3]); }
}
double sum(int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += make(table[i & 63]).b + look(i);
  printf("%g\n", sum);
  return sum;
}
"#;

fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).map(|text| text.parse());
    value.map_or(otherwise, |number| number.expect("a number"))
}

fn limits() -> InputLimits {
    InputLimits {
        processor_time: Duration::from_secs(5),
        time: Duration::from_secs(60),
        memory: 1 << 30,
    }
}

fn session(limits: InputLimits) -> Jit {
    let builder = Jit::builder().jobs(1).untrusted(limits);
    builder.build().expect("a session")
}

/// The outcome of an added module, in a word.
fn word(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "let in",
        Err(Error::Untrusted { file, why }) => {
            assert_eq!(file, "flipped");
            match why {
                Rejection::Invalid(message) if message.contains("damaged bitcode") => "malformed",
                Rejection::Invalid(_) => "invalid",
                Rejection::Crashed { .. } => "crashed",
                Rejection::ProcessorTime(_) => "without end",
                // On a busy machine the clock may be first.
                Rejection::Time(_) => "late",
                Rejection::Memory(_) => "too large",
                other => panic!("{other}"),
            }
        }
        // It means something else than it did: names that are missing, or twice there.
        Err(_) => "does not fit",
    }
}

#[test]
fn no_flipped_bit_ends_or_hangs_the_process() {
    let jit = session(limits());
    let flags = ["-O1", "-g", "-Xclang", "-disable-llvm-passes", "-emit-llvm"];
    let good = clang::compile("untrusted", "good.c", SOURCE, &flags);
    jit.main()
        .add_bitcode("good", good.as_slice())
        .expect("good");
    let mut random = Random::new(setting("URUK_SEED", 1));
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for round in 0..setting("URUK_FLIPS", 40) {
        let bit = random.below(good.len() * 8);
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let dylib = jit.create_dylib(&format!("{round}")).expect("a new name");
        let result = dylib.add_bitcode("flipped", bytes.as_slice());
        *seen.entry(word(&result)).or_default() += 1;
        // SAFETY: no thread has seen an address of it.
        unsafe { dylib.remove(Removal::Refused) }.expect("nobody searches it");
    }
    println!("{seen:?}");
    // The session is as it was.
    let text = "define i32 @late() { ret i32 7 }";
    jit.add_ir("late", text).expect("valid");
    // SAFETY: the function above.
    let late = unsafe { jit.function::<extern "C" fn() -> i32>("late") }.expect("typed");
    assert_eq!(late.call(), 7);
}

#[test]
fn every_way_in_is_watched() {
    let jit = session(limits());
    let bad = "define i32 @f() { ret i32 }";
    let refused = |result: Result<(), Error>| match result {
        Err(Error::Untrusted {
            why: Rejection::Invalid(message),
            ..
        }) => assert!(message.contains("bad:1:"), "{message}"),
        other => panic!("{other:?}"),
    };
    refused(jit.add_ir("bad", bad));
    refused(jit.main().add_ir("bad", bad));
    let tracker = jit.main().create_tracker().expect("a tracker");
    refused(tracker.add_ir("bad", bad));
    jit.add_ir("good", "define i32 @f() { ret i32 1 }")
        .expect("valid");
    let replaced = jit.main().replace(Replacement::ir("bad", bad));
    refused(replaced.map(drop));
    let better = Replacement::ir("better", "define i32 @f() { ret i32 2 }");
    jit.main().replace(better).expect("replaceable");
}

#[test]
fn a_crash_is_an_error_that_names_file_and_signal() {
    let jit = session(limits());
    // LLVM's parser calls itself for each of them, until its stack ends.
    let depth = 2_000_000;
    let text = format!("@x = global {}i8", "[1 x ".repeat(depth));
    let result = jit.add_ir("deep.ll", &text);
    let message = result.as_ref().map_err(ToString::to_string);
    let message = message.expect_err("LLVM crashes");
    assert!(message.starts_with("deep.ll: LLVM crashed"), "{message}");
    let crashed = Rejection::Crashed {
        signal: libc::SIGSEGV,
    };
    let Err(Error::Untrusted { why, .. }) = result else {
        panic!("{message}");
    };
    assert_eq!(why.to_string(), crashed.to_string());
    jit.add_ir("m", "define i32 @f() { ret i32 1 }")
        .expect("the session goes on");
}

#[test]
fn limits_are_named() {
    // No time at all: the clock ends it.
    let clock = session(InputLimits {
        time: Duration::ZERO,
        ..limits()
    });
    let mut text = String::new();
    for n in 0..4000 {
        text += &format!("define i64 @f{n}(i64 %x) {{ %y = add i64 %x, {n} ret i64 %y }}\n");
    }
    let result = clock.add_ir("large", &text);
    let Err(Error::Untrusted { file, why }) = &result else {
        panic!("{result:?}");
    };
    assert_eq!(file, "large");
    assert!(matches!(why, Rejection::Time(_)), "{why}");

    // A string that is read as a whole, several times as large as what a thread may have
    // mapped for later.
    let memory = session(InputLimits {
        memory: 1 << 20,
        ..limits()
    });
    let length = 100 << 20;
    let text = format!(
        "@s = constant [{length} x i8] c\"{}\"\n",
        "a".repeat(length)
    );
    let result = memory.add_ir("large", &text);
    let Err(Error::Untrusted { why, .. }) = &result else {
        panic!("{result:?}");
    };
    // LLVM ends in one of several ways when it gets no memory.
    assert!(
        matches!(why, Rejection::Memory(_) | Rejection::Crashed { .. }),
        "{why}"
    );
}

/// The child that reads an input ends no session, though another thread may have dropped the last
/// handle of one at the moment of the fork: it would wait for threads that it does not have.
#[test]
fn sessions_that_end_beside_a_reader_do_not_hold_it_up() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    drop(Jit::builder().jobs(1).build().expect("a session"));
                }
            });
        }
        let jit = session(limits());
        let added = (0..300).try_for_each(|n| {
            let text = format!("define i64 @f{n}(i64 %x) {{ ret i64 %x }}");
            jit.add_ir("added", &text)
        });
        over.store(true, Ordering::Relaxed);
        added.expect("read in time");
    });
}
