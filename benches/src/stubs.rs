//! Stubs: what an unbound and a bound one cost their callers.

use anyhow::Result;
use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_stubs::{EntryAddress, StubTable, call_ptr};

use crate::bench::Bench;
use crate::clock;
use crate::row::{Figure, Row, Target, Unit};

/// First calls that are timed together.
const FIRST_CALLS: usize = 2_000;
/// Calls of one timed loop in machine code.
const LOOP: u32 = 1_000;
/// Loops of which the fastest counts: others were interrupted.
const TRIES: usize = 60;

/// First calls of code that is ready, and calls of bound stubs.
///
/// # Errors
/// No memory for code.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let heap = Heap::new(HeapConfig::default())?;
    let table = StubTable::new(&heap)?;
    let entry = trivial(&heap)?;
    let pinned = clock::pin(0);
    let mut first = Vec::new();
    let mut trampoline = Vec::new();
    for _ in 0..bench.rounds(60) {
        let functions: Vec<_> = table.allocate_many(FIRST_CALLS)?.collect();
        for function in &functions {
            table.prepare(*function, EntryAddress(entry));
        }
        let stubs: Vec<u64> = functions.iter().map(|f| table.stub_address(*f).0).collect();
        first.push(per_call(&stubs));
        // Behind a stub's jump is the way into the resolver; taken by a bound
        // function, it saves and restores the registers and finds the code.
        let behind: Vec<u64> = stubs.iter().map(|stub| stub + JUMP_BYTES).collect();
        trampoline.push(per_call(&behind));
    }
    let function = table.allocate()?;
    table.publish(function, EntryAddress(entry));
    let loops = [
        calling_loop(&heap, &[0xe8], entry)?,
        calling_loop(&heap, &[0xe8], table.stub_address(function).0)?,
        calling_loop(&heap, &[0xff, 0x15], table.slot_address(function).0)?,
        multiplying_loop(&heap)?,
    ];
    let mut cycles: [Vec<f64>; 3] = Default::default();
    for _ in 0..bench.rounds(40) {
        let mut least = [f64::INFINITY; 4];
        for _ in 0..TRIES {
            for (least, &address) in least.iter_mut().zip(&loops) {
                *least = least.min(loop_ticks(address));
            }
        }
        let ticks_per_cycle = least[3] / MULTIPLY_CYCLES;
        for (all, ticks) in cycles.iter_mut().zip(least) {
            all.push(ticks / ticks_per_cycle);
        }
    }
    drop(pinned);
    let [direct, stub, slot] = cycles.map(Figure::of);
    let hot = format!(
        "cycles by a chain of multiplications of known latency; pinned, in turns, each figure the \
         least of {TRIES} loops of {LOOP}"
    );
    Ok(vec![
        Row::new(
            "first call through a stub, code linked",
            Unit::Ns,
            Figure::of(first),
        )
        .target(Target::AtMost(1_000.0))
        .note("processor time, full vector state saved; the first touch of each slot included"),
        Row::new("  of which the resolver", Unit::Ns, Figure::of(trampoline)),
        Row::new("call through a bound stub", Unit::Cycles, stub)
            .peer("direct call", direct.clone())
            .target(Target::AtMostAbovePeer(2.0))
            .note(hot),
        Row::new(
            "  call through the slot (as JIT'd code does)",
            Unit::Cycles,
            slot,
        )
        .peer("direct call", direct),
    ])
}

/// Places `mov eax, 42; ret`; its address.
///
/// # Errors
/// No memory for code.
pub fn trivial(heap: &Heap) -> Result<u64> {
    returning(heap, 42)
}

/// Places `mov eax, VALUE; ret`; its address.
///
/// # Errors
/// No memory for code.
pub fn returning(heap: &Heap, value: u32) -> Result<u64> {
    let [a, b, c, d] = value.to_le_bytes();
    place(heap, &[0xb8, a, b, c, d, 0xc3])
}

/// Bytes of the jump at the start of a stub.
const JUMP_BYTES: u64 = 6;

fn place(heap: &Heap, bytes: &[u8]) -> Result<u64> {
    let mut draft = heap.allocate(Pool::Code, bytes.len(), 64)?;
    draft.write(0, bytes)?;
    Ok(draft.seal()?.address())
}

/// `push rbx; mov ebx, LOOP; again: call ..; dec ebx; jnz again; pop rbx; ret`.
fn calling_loop(heap: &Heap, call: &[u8], target: u64) -> Result<u64> {
    let mut draft = heap.allocate(Pool::Code, 64, 64)?;
    let mut code = vec![0x53, 0xbb];
    code.extend(LOOP.to_le_bytes());
    let again = code.len();
    code.extend(call);
    let next = draft.address() + code.len() as u64 + 4;
    code.extend((target.wrapping_sub(next) as u32).to_le_bytes());
    code.extend([0xff, 0xcb, 0x75]);
    code.push((again as i8 - code.len() as i8 - 1) as u8);
    code.extend([0x5b, 0xc3]);
    draft.write(0, &code)?;
    Ok(draft.seal()?.address())
}

/// Cycles from a 64-bit multiplication to the next that needs its result, on all
/// x86-64 cores since 2008 (uops.info).
const MULTIPLY_CYCLES: f64 = 3.0;

/// `mov ecx, LOOP; again: imul rax, rax; dec ecx; jnz again; ret`: a round takes
/// as long as one multiplication.
fn multiplying_loop(heap: &Heap) -> Result<u64> {
    let mut code = vec![0xb9];
    code.extend(LOOP.to_le_bytes());
    code.extend([0x48, 0x0f, 0xaf, 0xc0, 0xff, 0xc9, 0x75, 0xf8, 0xc3]);
    place(heap, &code)
}

fn loop_ticks(address: u64) -> f64 {
    let start = clock::ticks();
    // SAFETY: a loop placed by `calling_loop`: a function without arguments.
    unsafe { call_ptr(address) };
    (clock::ticks() - start) as f64 / f64::from(LOOP)
}

/// Nanoseconds of processor time for each call.
fn per_call(addresses: &[u64]) -> f64 {
    let start = clock::thread_ns();
    for &address in addresses {
        // SAFETY: a stub, or the way behind its jump, of a function without
        // arguments whose code is ready.
        std::hint::black_box(unsafe { call_ptr(address) });
    }
    (clock::thread_ns() - start) / addresses.len() as f64
}
