//! The path of assembled code into a session, with hand-written machine code, and the counters.

use uruk_base::{FunctionId, Tier};
use uruk_baseline::ir::{Reach, Symbol, SymbolData};
use uruk_baseline::{Code, Fixup, FixupKind, Uncovered, UnwindFixup, UnwindTarget};
use uruk_codegen::Compiled;

use super::{Assembled, Baseline, Compilers};
use crate::fork::gate;
use crate::version::offers::Crossing;
use crate::version::plan::BodyOf;
use crate::{Jit, PolicyConfig};
use uruk_base::CompiledBy;

#[test]
fn a_half_is_half_of_them_and_another_with_another_seed() {
    let taken = |baseline: Baseline| -> Vec<bool> {
        let ids = (0..1000).map(FunctionId);
        ids.map(|id| baseline.takes(id)).collect()
    };
    let count = |baseline| taken(baseline).iter().filter(|&&taken| taken).count();
    assert_eq!((count(Baseline::Off), count(Baseline::On)), (0, 1000));
    for seed in 0..20 {
        let half = count(Baseline::Half(seed));
        assert!((400..600).contains(&half), "{seed}: {half}");
        assert_ne!(taken(Baseline::Half(seed)), taken(Baseline::Half(seed + 1)));
    }
}

#[test]
fn reasons_are_counted_the_most_frequent_first() {
    let _pass = gate::enter();
    let compilers = Compilers::default();
    for what in ["b", "c", "a", "c"] {
        compilers.note(Uncovered { what });
    }
    let stats = compilers.stats();
    assert_eq!(stats.uncovered, [("c", 2), ("a", 1), ("b", 1)]);
}

/// A session with a function of which `assembled` will be a version.
fn session() -> (Jit, BodyOf) {
    let jit = Jit::new().expect("a session");
    let text = "@d = global i64 5
        declare i64 @missing(i64)
        define i64 @g(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }
        define i64 @f(i64 %x) { ret i64 0 }";
    jit.add_ir("m", text).expect("added");
    let id = jit.main().id_of("f").expect("a function");
    let body = {
        let _pass = gate::enter();
        jit.session().body_of(id).expect("a body")
    };
    (jit, body)
}

/// `g(x) + d` with a frame, where `d` is the word behind the code.
fn assembled(callee: &str) -> Assembled {
    let mut bytes = vec![
        0x55, 0x48, 0x89, 0xe5, // push %rbp; mov %rsp, %rbp
        0xff, 0x15, 0, 0, 0, 0, // call *g(%rip)
        0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov d(%rip), %rcx
        0x48, 0x03, 0x01, // add (%rcx), %rax
        0x48, 0x03, 0x05, 0x02, 0, 0, 0, // add 0x20(%rip), %rax
        0x5d, 0xc3, // pop %rbp; ret
    ];
    let size = bytes.len() as u32;
    bytes.extend(100_u64.to_le_bytes());
    let cie = [
        &0_u32.to_le_bytes()[..],
        &[1],
        b"zR\0",
        &[1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0],
    ];
    let mut unwind = record(&cie.concat());
    let start = unwind.len() as u32;
    let fde = [start + 4, 0, size, 0].map(u32::to_le_bytes).concat();
    unwind.extend(record(&fde));
    let symbol = |name: &str| SymbolData {
        name: name.into(),
        reach: Reach::Indirect,
        is_weak: false,
    };
    let fixup = |at, kind, symbol| Fixup {
        at,
        kind,
        symbol: Symbol(symbol),
        addend: 0,
    };
    Assembled {
        symbols: vec![symbol(callee), symbol("d")],
        code: Code {
            align: 16,
            size,
            fixups: vec![
                fixup(6, FixupKind::CallThrough, 0),
                fixup(13, FixupKind::AddressWord, 1),
            ],
            unwind,
            unwind_fixups: vec![UnwindFixup {
                at: start + 8,
                to: UnwindTarget::Function,
            }],
            bytes,
            ..Code::default()
        },
    }
}

fn record(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

#[test]
fn code_from_memory_calls_through_slots_and_reads_the_image() {
    let (jit, body) = session();
    let _pass = gate::enter();
    let mut compiled = Compiled::default();
    compiled.keeps_stack = true;
    let session = jit.session();
    let built = session.link(
        &body,
        Tier::Baseline,
        compiled,
        Some(assembled("g")),
        &Crossing::default(),
    );
    let built = built.expect("linked");
    assert_eq!(built.by, CompiledBy::Baseline);
    assert_eq!(built.body_end - built.entry, 29);
    assert!(built.code.moves.is_some(), "it can move");
    let rows = built.code.rows.iter();
    let rows: Vec<_> = rows.map(|row| (row.start, row.end)).collect();
    assert_eq!(rows, [(built.entry, built.body_end)]);
    // SAFETY: the code above, which is sealed; its records describe its frame.
    let call: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(built.entry) };
    let called = std::thread::spawn(move || call(7));
    drop(_pass);
    assert_eq!(called.join().expect("it returns"), 7 * 3 + 5 + 100);
    let _pass = gate::enter();
    jit.session().discard(body.id, built.unit, built.code);
}

#[test]
fn what_code_from_memory_misses_is_named() {
    let (jit, body) = session();
    let _pass = gate::enter();
    let assembled = Some(assembled("nowhere"));
    let built = jit.session().link(
        &body,
        Tier::Baseline,
        Compiled::default(),
        assembled,
        &Crossing::default(),
    );
    let message = match built {
        Err(cause) => cause.to_string(),
        Ok(_) => panic!("it refers to nothing"),
    };
    assert!(message.contains("nowhere"), "{message}");
}

/// Measures a link and all registrations of code: `--ignored --nocapture` prints the time.
#[test]
#[ignore = "prints figures"]
fn figures() {
    const ROUNDS: u32 = 20_000;
    let (jit, body) = session();
    let _pass = gate::enter();
    for _ in 0..3 {
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            let assembled = Some(assembled("g"));
            let built = jit.session().link(
                &body,
                Tier::Baseline,
                Compiled::default(),
                assembled,
                &Crossing::default(),
            );
            std::mem::forget(built.expect("linked"));
        }
        println!("{:?} for a link", start.elapsed() / ROUNDS);
    }
}

/// A loop counts its first passes exactly.
#[test]
fn loops_count_their_passes() {
    let policy = PolicyConfig {
        max_tier: Tier::Baseline,
        ..PolicyConfig::default()
    };
    let jit = Jit::builder().policy(policy).build().expect("a session");
    let looped = |name: &str, pass: &str| {
        format!(
            "define i64 @{name}(i64 %n) {{
            entry: br label %loop
            loop:
              %i = phi i64 [ 0, %entry ], [ %next, %last ]
              {pass}
            last:
              %next = add i64 %i, 1
              %more = icmp ult i64 %next, %n
              br i1 %more, label %loop, label %done
            done: ret i64 %next
            }}"
        )
    };
    let inner = "br label %within
        within:
          %j = phi i64 [ 0, %loop ], [ %after, %within ]
          %after = add i64 %j, 1
          %again = icmp ult i64 %after, 3
          br i1 %again, label %within, label %last";
    let text = [
        looped("tight", "br label %last"),
        looped("around", inner),
        looped("calling", "%x = call i64 @leaf(i64 %i) br label %last"),
        String::from("define i64 @leaf(i64 %x) { ret i64 %x }"),
    ];
    jit.add_ir("m", &text.concat()).expect("valid");
    for (name, argument, passes) in [("tight", 10, 10), ("around", 5, 5 + 15), ("calling", 7, 7)] {
        // SAFETY: a function of the module above, which computes.
        let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name) };
        let function = function.expect("typed");
        let counted = || {
            let _pass = gate::enter();
            let id = jit.main().id_of(name).expect("a function");
            jit.session().continuations.passes(id)
        };
        assert_eq!(counted(), 0);
        assert_eq!(function.call(argument), argument);
        assert_eq!(counted(), passes, "{name}({argument})");
        let many = u64::from(uruk_tiering::passes::FIRST);
        function.call(2 * many as i64);
        assert!(counted() >= many, "{name}");
    }
}
