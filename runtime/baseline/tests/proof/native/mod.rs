//! Runs compiled code, and compares its effects with the interpreter's run.

pub mod abi;
mod enter;
pub mod host;
mod place;
mod signals;

use std::sync::{Mutex, PoisonError};

use uruk_baseline::Code;
use uruk_baseline::ir::{Extension, Function, Passing};

use self::abi::{Extends, ResultPlace, Where, extended, places, result_places, sign_of};
use self::enter::{CURRENT, Entry, KEPT, uruk_proof_enter};
use self::host::{PLAY, Play};
use self::place::Arena;
use crate::chance::mask;
use crate::interpret::{Given, Input, Ran};
use crate::world::{Layout, PIECES, ROOM};

/// The memory in which code is placed and run; one at a time.
static ARENA: Mutex<Option<Arena>> = Mutex::new(None);

/// Addresses in the arena.
pub fn layout() -> Layout {
    with(|arena| arena.layout())
}

fn with<R>(work: impl FnOnce(&Arena) -> R) -> R {
    let mut arena = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    work(arena.get_or_insert_with(Arena::new))
}

/// Timeout of a run, milliseconds.
const PATIENCE: i64 = 3000;

/// Places code once, and runs it with inputs whose results are known. Returns the first difference,
/// with the number of its input.
pub fn compare(
    function: &Function,
    code: &Code,
    exits: &Code,
    runs: &[(Input, Ran)],
) -> Result<(), (usize, String)> {
    with(|arena| {
        let target = arena
            .place(function, code, exits)
            .map_err(|what| (0, what))?;
        run_all(arena, target, function, runs)
    })
}

/// Like `compare`, for code that the caller has placed.
#[allow(dead_code, reason = "tests of other packages do it")]
pub fn compare_at(
    function: &Function,
    target: u64,
    runs: &[(Input, Ran)],
) -> Result<(), (usize, String)> {
    with(|arena| run_all(arena, target, function, runs))
}

fn run_all(
    arena: &Arena,
    target: u64,
    function: &Function,
    runs: &[(Input, Ran)],
) -> Result<(), (usize, String)> {
    signals::prepare();
    for (nth, (input, ran)) in runs.iter().enumerate() {
        // A frame at a multiple of 32, and one at a multiple of 16 only.
        let above = 2 * (nth % 2);
        one(arena, target, function, input, ran, above).map_err(|what| (nth, what))?;
    }
    Ok(())
}

fn one(
    arena: &Arena,
    target: u64,
    function: &Function,
    input: &Input,
    ran: &Ran,
    above: usize,
) -> Result<(), String> {
    for (nth, piece) in input.pieces.bytes.iter().enumerate() {
        arena.set_piece(nth, piece);
    }
    let (mut entry, mut stack, hidden) = prepared(target, function, input);
    stack.extend(std::iter::repeat_n(0, above));
    entry.stack = stack.as_ptr();
    entry.stack_words = stack.len() as u64;
    *PLAY.lock().unwrap_or_else(PoisonError::into_inner) = Some(Play {
        expected: ran.calls.clone(),
        ..Play::default()
    });
    signals::alarm(PATIENCE);
    // SAFETY: the code lies at `target` and the words at `stack`; the arena is locked, so no other
    // thread is within, and the handlers of signals were just installed.
    unsafe { uruk_proof_enter(&mut entry) };
    signals::alarm(0);
    CURRENT.store(std::ptr::null_mut(), std::sync::atomic::Ordering::Relaxed);
    let play = PLAY.lock().unwrap_or_else(PoisonError::into_inner).take();
    let play = play.unwrap_or_default();
    if entry.signal != 0 {
        let at = entry.at.wrapping_sub(target);
        let (signal, about) = (entry.signal, entry.about);
        return Err(format!(
            "signal {signal} at {at:#x} about {about:#x}; {:?}",
            play.wrong
        ));
    }
    if !play.wrong.is_empty() {
        return Err(play.wrong.join("; "));
    }
    if play.done != play.expected.len() {
        return Err(format!(
            "{} calls instead of {}",
            play.done,
            play.expected.len()
        ));
    }
    registers(&entry)?;
    if let Some(hidden) = hidden
        && entry.out_ints[0] != hidden
    {
        return Err("rax is not the hidden pointer".to_string());
    }
    results(function, &entry, ran)?;
    memory(arena, ran)
}

/// The entry state, the arguments on the stack, and the hidden pointer.
fn prepared(target: u64, function: &Function, input: &Input) -> (Entry, Vec<u64>, Option<u64>) {
    let parameters = || function.parameters.iter().map(|one| (one.ty, one.passing));
    let places = places(parameters());
    // Garbage in places without an argument.
    let mut stack = vec![0x4141_4141_4141_4141u64; places.stack / 8];
    let mut entry = Entry {
        target,
        ints: [0x4242_4242_4242_4242; 6],
        r10: 0x4343_4343_4343_4343,
        rax: 0x4444_4444_4444_4400 | places.sse as u64,
        sse: [[0x4545_4545_4545_4545; 2]; 8],
        stack: std::ptr::null(),
        stack_words: 0,
        saved_rsp: 0,
        out_ints: [0; 3],
        out_sse: [[0; 2]; 2],
        x87_results: 0,
        out_x87: [[0; 2]; 2],
        kept: [0; 6],
        rsp_after: 0,
        rsp_before: 1,
        signal: 0,
        at: 0,
        about: 0,
    };
    let mut hidden = None;
    for (((ty, passing), place), given) in parameters().zip(&places.places).zip(&input.arguments) {
        let bits = match given {
            Given::Bits(bits) => *bits,
            Given::Memory(bytes) => {
                if let Where::Memory(at, _) = *place {
                    for (word, chunk) in stack[at / 8..].iter_mut().zip(bytes.chunks(8)) {
                        let mut all = word.to_le_bytes();
                        all[..chunk.len()].copy_from_slice(chunk);
                        *word = u64::from_le_bytes(all);
                    }
                }
                continue;
            }
        };
        if passing == Passing::Result {
            // A continuation returns the result of its own caller.
            hidden = function.counting.heads.is_empty().then_some(bits as u64);
        }
        let (value, all) = extended(bits, ty, sign_of(passing), Extends::Argument);
        let rest = !mask(ty);
        match *place {
            Where::Int(nth) => entry.ints[nth] = entry.ints[nth] & !all | value,
            Where::Nest => entry.r10 = value,
            Where::Sse(nth) => {
                let old = entry.sse[nth];
                let old = u128::from(old[1]) << 64 | u128::from(old[0]);
                let new = old & rest | bits;
                entry.sse[nth] = [new as u64, (new >> 64) as u64];
            }
            Where::Stack(at) if ty.is_int() => stack[at / 8] = stack[at / 8] & !all | value,
            Where::Stack(at) => {
                let keep = rest as u64;
                stack[at / 8] = stack[at / 8] & keep | bits as u64;
                if ty.bytes() > 8 {
                    stack[at / 8 + 1] = (bits >> 64) as u64;
                }
            }
            Where::Memory(..) => {}
        }
    }
    let x87 = function.returns.iter();
    entry.x87_results = x87
        .filter(|one| one.ty == uruk_baseline::ir::Type::F80)
        .count() as u64;
    (entry, stack, hidden)
}

/// Checks that registers and the stack are restored for the caller.
fn registers(entry: &Entry) -> Result<(), String> {
    if entry.rsp_after != entry.rsp_before {
        return Err("the stack pointer is another one".to_string());
    }
    let names = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    for ((name, before), after) in names.iter().zip(KEPT).zip(entry.kept) {
        if before != after {
            return Err(format!("{name} is not kept"));
        }
    }
    Ok(())
}

fn results(function: &Function, entry: &Entry, ran: &Ran) -> Result<(), String> {
    let places = result_places(&function.returns).ok_or("more results than registers")?;
    for (nth, (place, returned)) in places.iter().zip(&function.returns).enumerate() {
        let Some(wanted) = ran.results[nth] else {
            continue;
        };
        let sign = returned.extension.map(|one| one == Extension::Sign);
        let both = |[low, high]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
        let (found, wanted) = match *place {
            ResultPlace::Int(index) => {
                let (value, all) = extended(wanted, returned.ty, sign, Extends::Result);
                (u128::from(entry.out_ints[index] & all), u128::from(value))
            }
            ResultPlace::Sse(index) => (both(entry.out_sse[index]) & mask(returned.ty), wanted),
            ResultPlace::X87(index) => (both(entry.out_x87[index]) & mask(returned.ty), wanted),
        };
        if found != wanted {
            return Err(format!("result {nth} is {found:#x} instead of {wanted:#x}"));
        }
    }
    Ok(())
}

fn memory(arena: &Arena, ran: &Ran) -> Result<(), String> {
    for (nth, name) in PIECES.iter().enumerate() {
        let found = arena.piece(nth);
        let at = arena.layout().pieces + (nth * ROOM) as u64;
        let wanted = ran.memory.piece(at);
        let same = |(found, wanted): (&u8, &Option<u8>)| *wanted == Some(*found);
        if found.iter().zip(wanted).all(same) {
            continue;
        }
        for (offset, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            if let Some(wanted) = wanted
                && found != wanted
            {
                return Err(format!(
                    "@{name}+{offset} is {found:#x} instead of {wanted:#x}"
                ));
            }
        }
    }
    Ok(())
}
