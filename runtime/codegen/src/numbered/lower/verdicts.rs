//! Damaged bitcode, judged twice: LLVM accepts each body that is lowered here.
//!
//! If LLVM refuses a whole module, this gives no verdict on a body: the refused part may be one
//! that no code depends on. Such modules are counted. Blocks of bodies that no code depends on
//! (names of values, metadata) may be damaged as well. So a body that LLVM refuses is judged once
//! more with the original blocks.
//!
//! LLVM's reader itself crashes on some damaged files, so other processes judge them, some at a
//! time. `URUK_VERDICTS` is the number of damaged copies of each file, `URUK_VERDICTS_FILES` names
//! files of bitcode beside the ordinary ones. If a verdict is wrong, the damaged file is kept as
//! `URUK_VERDICTS_KEEP`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use uruk_bitcode::stream::{Cursor, Malformed, Operand};

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

/// Copies in which bodies were lowered that LLVM refuses. The causes were elements of 20 bits, an
/// offset from a number, a mask that names no lane, and a tail call of an intrinsic before other
/// instructions.
const FOUND: [(&str, usize); 4] = [
    ("memory.ll", 160),
    ("memory.ll", 1440),
    ("vectors.ll", 1140),
    ("wide.ll", 860),
];

#[derive(Debug, Default)]
struct Verdicts {
    modules: usize,
    /// Modules that LLVM does not read, of which bodies were lowered.
    unread: BTreeMap<String, usize>,
    lowered: usize,
    refused: usize,
    /// Bodies that were lowered and that LLVM refuses: LLVM's messages.
    wrong: Vec<String>,
}

impl Verdicts {
    /// Judges a copy of `good`, of which `unread` are the places of blocks that are not read.
    fn judge(&mut self, bytes: Vec<u8>, good: &[u8], unread: &[Range<usize>]) {
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
                let bytes = bitcode.bytes();
                // Value names in bodies are by number, and these numbers follow those of globals.
                let of_good = Numbered::alone(&Bitcode::new("good.bc", good.to_vec()));
                let count = of_good.map_or(0, |it| it.symbols.len());
                if is_unread(&cause, unread)
                    || count != numbered.symbols.len()
                    || places(bytes).debug
                    || !is_refused(&restored(bytes, good, unread), symbol)
                {
                    return;
                }
                if let Ok(path) = std::env::var("URUK_VERDICTS_KEEP") {
                    std::fs::write(path, bitcode.bytes()).expect("written");
                }
                self.wrong.push(format!("{}: {cause}", function.name()));
                // Its module is not sound any more.
                return;
            }
        }
    }
}

/// Whether LLVM reads a module and refuses a body of it.
fn is_refused(bytes: &[u8], symbol: SymbolId) -> bool {
    let bitcode = Bitcode::new("restored.bc", bytes.to_vec());
    let Ok(reader) = Reader::new(&bitcode) else {
        return false;
    };
    let function = reader.function(symbol);
    function.is_ok_and(|it| reader.materialize(it, Verify::Yes).is_err())
}

/// A damaged copy of `good`, in which these places are as they were.
fn restored(bytes: &[u8], good: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for place in places {
        bytes[place.clone()].copy_from_slice(&good[place.clone()]);
    }
    bytes
}

/// Blocks that no code depends on: names of values, metadata and its attachments to instructions,
/// orders of uses.
const UNREAD: [u64; 5] = [14, 15, 16, 18, 22];
const FUNCTION: u64 = 12;

/// Codes of records of debug information in bodies, of which the files used here have none.
const DEBUG_RECORDS: std::ops::RangeInclusive<u64> = 61..=66;

/// The last number of a block that LLVM 22 writes; its reader skips blocks of other numbers.
const LAST: u32 = 26;

/// Whether damage was found in such a block, in one of an unknown number, or at one of `places`.
/// The damage may have turned a block into another one.
fn is_unread(cause: &CodegenError, places: &[Range<usize>]) -> bool {
    let CodegenError::Malformed { block, bit, .. } = cause else {
        // Bodies outside of the damaged one decide which labels other functions have.
        return cause.to_string().contains("from blockaddress");
    };
    let at = (bit / 8) as usize;
    let in_place = places
        .iter()
        .any(|place| (place.start..=place.end).contains(&at));
    in_place || block.is_some_and(|it| it > LAST || UNREAD.contains(&u64::from(it)))
}

/// The places of such blocks in bodies, and whether there is debug information, in the sound part
/// of a file.
fn places(bytes: &[u8]) -> Places<'_> {
    let mut places = Places {
        cursor: Cursor::new(bytes),
        standard: HashMap::new(),
        unread: Vec::new(),
        debug: false,
    };
    places.cursor.bit = 32;
    while places.cursor.left() > 64 && places.cursor.fixed(2) == Ok(1) {
        if places.block(u64::MAX).is_err() {
            break;
        }
    }
    places
}

struct Places<'a> {
    cursor: Cursor<'a>,
    standard: HashMap<u64, Vec<Box<[Operand]>>>,
    /// Bytes of blocks.
    unread: Vec<Range<usize>>,
    /// Whether some body has records of debug information.
    debug: bool,
}

impl Places<'_> {
    /// Reads a block in one of number `above`, after the number that begins a block.
    fn block(&mut self, above: u64) -> Result<(), Malformed> {
        let (number, width) = (self.cursor.vbr(8)?, self.cursor.vbr(4)? as u32);
        self.cursor.align()?;
        let words = self.cursor.fixed(32)?;
        let begin = (self.cursor.bit / 8) as usize;
        if UNREAD.contains(&number) && (above == FUNCTION || number == 22) {
            self.unread.push(begin..begin + words as usize * 4);
            self.cursor.bit += words * 32;
            return Ok(());
        }
        let mut known = self.standard.get(&number).cloned().unwrap_or_default();
        let mut set = None;
        loop {
            let record = match self.cursor.fixed(width)? {
                0 => return self.cursor.align(),
                1 => {
                    self.block(number)?;
                    continue;
                }
                2 => {
                    let defined = self.cursor.definition()?;
                    match set {
                        Some(of) => self.standard.entry(of).or_default().push(defined),
                        None => known.push(defined),
                    }
                    continue;
                }
                3 => self.cursor.plain()?,
                other => match known.get(other as usize - 4) {
                    Some(abbreviation) => self.cursor.record(abbreviation)?,
                    None => return Ok(()),
                },
            };
            match number {
                0 if record.code == 1 => set = Some(record.operands[0]),
                FUNCTION => self.debug |= DEBUG_RECORDS.contains(&record.code),
                _ => {}
            }
        }
    }
}

/// Judges `count` copies of a file, from number `first` on.
fn judge(good: &[u8], first: usize, count: usize) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let all = damaged(good, 0x2545_f491_4f6c_dd1d, first + count);
    let unread = places(good).unread;
    all.skip(first)
        .for_each(|bytes| verdicts.judge(bytes, good, &unread));
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

/// Runs another process to judge some copies of a file; returns whether it exited normally, and its
/// output.
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
fn llvm_accepts_what_is_lowered_of_damaged_bitcode() {
    let asked = std::env::var("URUK_VERDICTS").ok();
    let copies = asked.map_or(COPIES, |it| it.parse().expect("a number"));
    let (mut lowered, mut refused, mut crashes) = (0, 0, 0);
    for (file, (path, _)) in files().iter().enumerate() {
        let mut chunks: Vec<usize> = (0..copies).step_by(CHUNK).collect();
        let found = FOUND.iter().filter(|(name, _)| path.ends_with(name));
        chunks.extend(found.map(|&(_, first)| first).filter(|it| *it >= copies));
        for first in chunks {
            let copies = copies.max(first + CHUNK);
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
