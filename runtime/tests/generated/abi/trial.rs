//! One signature through all pairings of compilers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use uruk::{Baseline, CompiledBy, Event, Jit, Tier, Tiers};

use super::boundary::{self, Caller, Passed};
use super::crash;
use super::signature::{Forward, Passing, Signature};
use super::text::{ANSWERS, SEEN, Text, Way};
use super::types::{Bytes, SLOT, given, same, stored};
use uruk_testing::Random;

/// Slots of a buffer.
const SLOTS: usize = 2048;

/// Calls of each pairing, with other values.
const CALLS: u64 = 2;

/// The direction flag (bit 10).
const DIRECTION: u64 = 1 << 10;

/// Offsets in what `fxsave64` writes: the x87 control word, its tags, `mxcsr`, vector registers.
const X87_CONTROL: usize = 0;
const X87_TAGS: usize = 4;
const MXCSR: usize = 24;
const VECTORS: usize = 160;

/// Of `mxcsr`: what is no note of an exception.
const MXCSR_CONTROL: u16 = 0xffc0;

type Buffer = Box<[Bytes]>;

fn buffer() -> Buffer {
    vec![[0; SLOT]; SLOTS].into()
}

/// The compiler of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// A session that asks the baseline compiler first.
    Ours,
    Llvm,
}

use Maker::{Llvm, Ours};

/// Sessions, and memory that all of them use.
pub struct Sessions {
    ours: Jit,
    /// LLVM's at tier 1, and at tier 2: a seed has one of them.
    llvm: [Jit; 2],
    /// Functions that the baseline compiler compiled.
    made: Arc<Mutex<HashSet<String>>>,
    seen: *mut Bytes,
    answers: *mut Bytes,
}

/// How a signature came out.
#[derive(Debug)]
pub enum Outcome {
    /// LLVM has no code for it.
    Refused(String),
    Compared {
        /// Whether the baseline compiler made the caller, and the callee.
        ours: [bool; 2],
        /// The difference.
        faults: Vec<String>,
    },
}

fn session(baseline: Baseline, tier: Tier, made: &Arc<Mutex<HashSet<String>>>) -> Jit {
    let made = Arc::clone(made);
    let listen = move |event: &Event| {
        if let Event::Compiled { function, by, .. } = event
            && *by == CompiledBy::Baseline
        {
            let name = function.to_string();
            made.lock().expect("no panic").insert(name);
        }
    };
    let jit = Jit::builder()
        .baseline(baseline)
        .tiers(Tiers::Fixed(tier))
        .on_event(listen);
    jit.build().expect("a session")
}

impl Sessions {
    pub fn new() -> Sessions {
        let made = Arc::default();
        let leak = || Box::leak(buffer()).as_mut_ptr();
        let (seen, answers) = (leak(), leak());
        let sessions = Sessions {
            ours: session(Baseline::On, Tier::Baseline, &made),
            llvm: [Tier::Baseline, Tier::Optimized].map(|tier| session(Baseline::Off, tier, &made)),
            made,
            seen,
            answers,
        };
        for jit in [&sessions.ours, &sessions.llvm[0], &sessions.llvm[1]] {
            // SAFETY: memory of this process, which is never freed.
            unsafe {
                jit.main()
                    .define_address(SEEN, seen.cast())
                    .expect("a name");
                jit.main()
                    .define_address(ANSWERS, answers.cast())
                    .expect("a name");
            }
        }
        sessions
    }

    fn of(&self, seed: u64, maker: Maker) -> &Jit {
        match maker {
            Ours => &self.ours,
            Llvm => &self.llvm[seed as usize % 2],
        }
    }

    /// Why functions were left to LLVM, and how many.
    pub fn uncovered(&self) -> Vec<(&'static str, u64)> {
        self.ours.stats().baseline.uncovered
    }

    /// Adds modules, each with some signatures.
    pub fn add(&self, all: &[(Signature, Text)]) {
        for (jit, parity) in [
            (&self.ours, None),
            (&self.llvm[0], Some(0)),
            (&self.llvm[1], Some(1)),
        ] {
            let own = all.iter();
            let own = own.filter(|(it, _)| parity.is_none_or(|parity| it.seed % 2 == parity));
            let mut module = format!(
                "target triple = \"x86_64-unknown-linux-gnu\"\n\
                 declare i32 @__gcc_personality_v0(...)\n\
                 @{SEEN} = external global [{SLOTS} x [{SLOT} x i8]], align 64\n\
                 @{ANSWERS} = external global [{SLOTS} x [{SLOT} x i8]], align 64\n"
            );
            let mut first = None;
            for (signature, text) in own {
                module += &text.ir;
                first.get_or_insert(signature.seed);
                for (name, code) in [
                    ("target", boundary::boundary as *const ()),
                    ("hop", boundary::hop as *const ()),
                ] {
                    let name = format!("{name}_{}", signature.seed);
                    // SAFETY: code of this process, which is called as any function is.
                    unsafe { jit.main().define_address(&name, code) }.expect("a name");
                }
            }
            let Some(first) = first else {
                continue;
            };
            if let Err(cause) = jit.add_ir(&format!("from{first}"), &module) {
                let path = std::env::temp_dir().join(format!("abi-{first}.ll"));
                let _ = std::fs::write(&path, &module);
                panic!("{cause} ({})", path.display());
            }
        }
    }

    /// Tries a signature that was added.
    pub fn try_one(&self, signature: &Signature, text: &Text) -> Outcome {
        let seed = signature.seed;
        let mut names = vec!["caller", "callee"];
        if signature.forward != Forward::No {
            names.push("forward");
        }
        // Others are compiled by their first calls, which come through resolvers.
        if signature.may_be_refused() {
            for name in names.iter().map(|name| format!("{name}_{seed}")) {
                for maker in [Llvm, Ours] {
                    crash::about_to(&format!("seed {seed}: compiling {name}"));
                    if let Err(cause) = self.of(seed, maker).main().compile(&name) {
                        return Outcome::Refused(cause.to_string());
                    }
                }
            }
        }
        crash::done();
        let mut faults = Vec::new();
        let mut reference = Vec::new();
        let hops: &[Maker] = match signature.forward {
            Forward::No => &[Llvm],
            _ => &[Llvm, Ours],
        };
        for caller in [Llvm, Ours] {
            for callee in [Llvm, Ours] {
                for &hop in hops {
                    let mut pairing = format!("{caller:?} calls {callee:?}");
                    if signature.forward != Forward::No {
                        pairing += &format!(", which passes on to {hop:?}");
                    }
                    let makers = [caller, callee, hop];
                    self.pair(
                        signature,
                        text,
                        makers,
                        &pairing,
                        &mut reference,
                        &mut faults,
                    );
                }
            }
        }
        let made = self.made.lock().expect("no panic");
        let is_ours = |name: &str| made.contains(&format!("{name}_{seed}"));
        let ours = [
            is_ours("caller"),
            names[1..].iter().any(|name| is_ours(name)),
        ];
        Outcome::Compared { ours, faults }
    }

    /// Makes calls of one pairing. What is to be the same in all pairings is that of the first.
    fn pair(
        &self,
        signature: &Signature,
        text: &Text,
        makers: [Maker; 3],
        pairing: &str,
        reference: &mut Vec<Facts>,
        faults: &mut Vec<String>,
    ) {
        let seed = signature.seed;
        let [caller, callee, hop] = makers.map(|maker| self.of(seed, maker));
        let address = |jit: &Jit, name: &str| {
            let name = format!("{name}_{seed}");
            jit.lookup(&name).unwrap_or_else(|cause| panic!("{cause}"))
        };
        let code = address(caller, "caller") as usize;
        // SAFETY: callers have this type.
        let code = unsafe { std::mem::transmute::<usize, Caller>(code) };
        let target = match signature.forward {
            Forward::No => address(callee, "callee"),
            _ => address(callee, "forward"),
        };
        let hop = address(hop, "callee");
        for nth in 0..CALLS {
            let mut random = Random::new(seed ^ nth << 32 ^ 0x5eed);
            let values = Values::draw(text, &mut random);
            let canaries = std::array::from_fn(|_| random.next());
            let mut out = buffer();
            for slot in 0..text.slots {
                out[slot] = [0xdd; SLOT];
                // SAFETY: both have that many slots, and only the code of a call uses them.
                unsafe {
                    self.seen.add(slot).write([0xee; SLOT]);
                    self.answers.add(slot).write(values.answers[slot]);
                }
            }
            crash::about_to(&format!("seed {seed}: {pairing}\n{}", summary(signature)));
            let call = || code(values.input.as_ptr().cast(), out.as_mut_ptr().cast());
            let registers = registers(signature);
            // SAFETY: callee and caller are of one signature; one thread makes calls.
            let passed = unsafe { boundary::run(registers, call, target, hop, canaries) };
            crash::done();
            // SAFETY: as above.
            let seen: Vec<Bytes> = (0..text.slots)
                .map(|slot| unsafe { self.seen.add(slot).read() })
                .collect();
            let mut wrong = Vec::new();
            if passed.returned != 1 {
                wrong.push(format!("the callee returned {} times", passed.returned));
            } else {
                look_at_values(&text.passed, &values.input, &seen, &mut wrong);
                look_at_values(&text.given, &values.answers, &out, &mut wrong);
                look_at_values(&text.kept, &values.input, &out, &mut wrong);
                look_at_registers(signature, &passed, &mut wrong);
                let pointer = text.result_pointer.map(|slot| out[slot]);
                let facts = Facts::of(signature, &passed, pointer);
                match reference.get(nth as usize) {
                    None => reference.push(facts),
                    Some(first) if *first == facts => {}
                    Some(first) => wrong.push(format!("{facts:?} instead of {first:?}")),
                }
            }
            faults.extend(wrong.into_iter().map(|what| format!("{pairing}: {what}")));
        }
    }
}

/// The input of both ends.
struct Values {
    input: Buffer,
    answers: Buffer,
}

impl Values {
    fn draw(text: &Text, random: &mut Random) -> Values {
        let mut any = || {
            let mut buffer = buffer();
            for slot in &mut buffer[..text.slots] {
                for word in slot.chunks_exact_mut(8) {
                    word.copy_from_slice(&random.next().to_le_bytes());
                }
            }
            buffer
        };
        let (mut input, mut answers) = (any(), any());
        for way in &text.passed {
            input[way.from] = given(&way.ty, input[way.from]);
        }
        for way in &text.given {
            answers[way.from] = given(&way.ty, answers[way.from]);
        }
        Values { input, answers }
    }
}

fn registers(signature: &Signature) -> boundary::Registers {
    let has = |passing: Passing| signature.has(&|it| *it == passing);
    let swift = u32::from(has(Passing::SwiftError)) << 12
        | u32::from(has(Passing::SwiftSelf)) << 13
        | u32::from(has(Passing::SwiftAsync)) << 14;
    let is_variadic = signature.variable.is_some();
    signature
        .convention
        .registers(swift, has(Passing::Nest), is_variadic)
}

fn look_at_values(ways: &[Way], from: &[Bytes], to: &[Bytes], wrong: &mut Vec<String>) {
    for way in ways {
        let (expected, bits) = stored(&way.ty, &from[way.from], way.extension);
        let found = &to[way.to];
        if !same(&expected, found, bits) {
            let bytes = bits.div_ceil(8) as usize;
            wrong.push(format!(
                "{} ({}): {:02x?} instead of {:02x?}",
                way.what,
                way.ty,
                &found[..bytes],
                &expected[..bytes]
            ));
        }
    }
}

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

fn look_at_registers(signature: &Signature, passed: &Passed, wrong: &mut Vec<String>) {
    let Passed {
        entry,
        exit,
        canaries,
        ..
    } = passed;
    let registers = registers(signature);
    for at in (0..16).filter(|at| registers.kept >> at & 1 != 0) {
        let before = match registers.filled >> at & 1 {
            0 => entry.general[at],
            _ => canaries[at],
        };
        if exit.general[at] != before {
            wrong.push(format!("{} is not preserved", NAMES[at]));
        }
    }
    for at in (0..16).filter(|at| registers.kept_vectors >> at & 1 != 0) {
        let range = VECTORS + 16 * at..VECTORS + 16 * (at + 1);
        if exit.vectors[range.clone()] != entry.vectors[range] {
            wrong.push(format!("xmm{at} is not preserved"));
        }
    }
    if entry.general[4] % 16 != 8 {
        wrong.push("the stack is not aligned at the call".to_owned());
    }
    if (entry.flags | exit.flags) & DIRECTION != 0 {
        wrong.push("the direction flag is set".to_owned());
    }
    if entry.vectors[X87_TAGS] != 0 {
        wrong.push("the x87 stack is not empty at the call".to_owned());
    }
    let word =
        |seen: &boundary::Seen, at| u16::from_le_bytes([seen.vectors[at], seen.vectors[at + 1]]);
    for (at, mask, name) in [(X87_CONTROL, !0, "x87"), (MXCSR, MXCSR_CONTROL, "mxcsr")] {
        if word(entry, at) & mask != word(exit, at) & mask {
            wrong.push(format!("the control word of {name} is not preserved"));
        }
    }
}

/// The results that have to be the same for all pairs of compilers.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    /// Bytes of stack that the callee takes.
    popped: u64,
    /// Results on the x87 stack.
    x87_results: u32,
    /// `al` of a variadic call.
    vectors: Option<u8>,
    /// Whether the pointer to the result comes back in `rax`.
    gives_pointer: bool,
}

impl Facts {
    fn of(signature: &Signature, passed: &Passed, pointer: Option<Bytes>) -> Facts {
        let Passed { entry, exit, .. } = passed;
        let rax = exit.general[0].to_le_bytes();
        Facts {
            popped: exit.general[4].wrapping_sub(entry.general[4]),
            x87_results: exit.vectors[X87_TAGS].count_ones(),
            vectors: signature
                .variable
                .is_some()
                .then_some(entry.general[0] as u8),
            gives_pointer: pointer.is_some_and(|pointer| pointer[..8] == rax),
        }
    }
}

/// A signature in one line, as IR has it.
pub fn summary(signature: &Signature) -> String {
    let text = Text::of(signature);
    let first = text.ir.lines().next().unwrap_or_default();
    let list = signature.variable.iter();
    let variable: Vec<String> = list
        .flat_map(|(read, more)| read.iter().chain(more))
        .map(|ty| ty.to_string())
        .collect();
    format!(
        "{first} {variable:?} {:?} {:?} {:?}",
        signature.said, signature.form, signature.forward
    )
}
