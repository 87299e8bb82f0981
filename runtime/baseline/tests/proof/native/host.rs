//! Answers calls of hosts from code under test, as the interpreter's run did.

use std::sync::Mutex;

use uruk_baseline::ir::{Extension, Passing};

use super::abi::{Extends, ResultPlace, Where, extended, places, result_places, sign_of};
use super::enter::Captured;
use crate::chance::mask;
use crate::world::{HostCall, Seen};

/// Expected calls, and errors of the calls so far.
#[derive(Debug, Default)]
pub struct Play {
    pub expected: Vec<HostCall>,
    pub done: usize,
    pub wrong: Vec<String>,
}

/// The state for the one thread that is in code under test.
pub static PLAY: Mutex<Option<Play>> = Mutex::new(None);

/// Answers a call.
pub extern "C" fn answered(captured: *mut Captured) {
    // SAFETY: the stub passes its own frame, which has no other reference.
    let captured = unsafe { &mut *captured };
    captured.x87_results = 0;
    let Ok(mut play) = PLAY.lock() else {
        return;
    };
    let Some(play) = play.as_mut() else {
        return;
    };
    let nth = play.done;
    play.done += 1;
    let Some(call) = play.expected.get(nth).cloned() else {
        play.wrong.push(format!(
            "call {nth} of host {}: nobody called it",
            captured.host
        ));
        return;
    };
    let mut wrong = Vec::new();
    if captured.host & 0xffff_ffff != call.host as u64 {
        wrong.push(format!(
            "it is of host {} instead of {}",
            captured.host, call.host
        ));
    } else {
        check(captured, &call, &mut wrong);
        give(captured, &call);
    }
    for what in wrong {
        play.wrong
            .push(format!("call {nth} of host {}: {what}", call.host));
    }
}

/// Compares arguments.
fn check(captured: &Captured, call: &HostCall, wrong: &mut Vec<String>) {
    if !(captured.stack as u64).is_multiple_of(16) {
        wrong.push("the stack is not aligned".to_string());
    }
    let arguments = || call.arguments.iter().map(|one| (one.ty, one.passing));
    let places = places(arguments());
    if call.is_variadic {
        let al = (captured.rax & 0xff) as usize;
        if al < places.sse || al > 8 {
            wrong.push(format!("al is {al} with {} vector registers", places.sse));
        }
    }
    for (index, ((ty, passing), place)) in arguments().zip(&places.places).enumerate() {
        let (low, high) = found(captured, *place);
        let bits = u128::from(high) << 64 | u128::from(low);
        let matches = match &call.seen[index] {
            Seen::Bits(None) => true,
            Seen::Bits(Some(wanted)) if ty.is_int() => {
                let (value, all) = extended(*wanted, ty, sign_of(passing), Extends::Argument);
                low & all == value
            }
            Seen::Bits(Some(wanted)) => bits & mask(ty) == *wanted,
            Seen::Memory(bytes) => bytes_at(low, bytes.len())
                .iter()
                .zip(bytes)
                .all(|(found, wanted)| wanted.is_none_or(|wanted| *found == wanted)),
        };
        if !matches {
            let wanted = &call.seen[index];
            wrong.push(format!(
                "argument {index} ({ty} {passing:?}): {bits:x} for {wanted:x?}"
            ));
        }
    }
    if let Some(written) = call.written {
        let (address, _) = found(captured, places.places[0]);
        // SAFETY: the interpreter's run wrote there too: memory of the test, or of the frame of the
        // code under test.
        unsafe { (address as *mut u64).write_unaligned(written) };
    }
}

fn bytes_at(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    // SAFETY: as the interpreter's run read it; a wrong address gives a signal, which is caught.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), count) };
    bytes
}

/// The two words at a place; for memory, its address.
fn found(captured: &Captured, place: Where) -> (u64, u64) {
    match place {
        Where::Int(nth) => (captured.ints[nth], 0),
        Where::Nest => (captured.r10, 0),
        Where::Sse(nth) => (captured.sse[nth][0], captured.sse[nth][1]),
        Where::Memory(at, _) => (captured.stack as u64 + at as u64, 0),
        Where::Stack(at) => {
            let words = captured.stack.wrapping_byte_add(at);
            // SAFETY: the caller's frame is above its arguments, and longer than two words.
            unsafe { (words.read(), words.add(1).read()) }
        }
    }
}

/// Stores results in their places, with garbage around them.
fn give(captured: &mut Captured, call: &HostCall) {
    captured.out_ints = [
        0x7171_7171_7171_7171,
        0x7272_7272_7272_7272,
        0x7373_7373_7373_7373,
    ];
    captured.out_sse = [[0x7474_7474_7474_7474; 2]; 2];
    let hidden = call
        .arguments
        .iter()
        .position(|one| one.passing == Passing::Result);
    if hidden == Some(0) {
        captured.out_ints[0] = captured.ints[0];
    }
    let results = result_places(&call.returns).unwrap_or_default();
    for ((place, returned), &bits) in results.iter().zip(&call.returns).zip(&call.results) {
        match *place {
            ResultPlace::Int(nth) => {
                let sign = returned.extension.map(|one| one == Extension::Sign);
                let (value, all) = extended(bits, returned.ty, sign, Extends::Result);
                captured.out_ints[nth] = captured.out_ints[nth] & !all | value;
            }
            ResultPlace::Sse(nth) => {
                let kept = captured.out_sse[nth];
                let kept = u128::from(kept[1]) << 64 | u128::from(kept[0]);
                let bits = kept & !mask(returned.ty) | bits;
                captured.out_sse[nth] = [bits as u64, (bits >> 64) as u64];
            }
            ResultPlace::X87(nth) => {
                captured.x87_results = captured.x87_results.max(nth as u64 + 1);
                captured.out_x87[nth] = [bits as u64, (bits >> 64) as u64];
            }
        }
    }
}
