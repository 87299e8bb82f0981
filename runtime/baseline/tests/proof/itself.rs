//! Tests of the proof itself: it detects wrong code.

use crate::ir::{self, Symbol};
use uruk_baseline::{Code, Fixup, FixupKind};

use crate::chance::Chance;
use crate::interpret;
use crate::native;
use crate::trial::edge_inputs;

/// Runs hand-assembled code as if it were compiled from a function.
fn differs(text: &str, bytes: &[u8], fixups: &[Fixup]) -> Result<(), String> {
    let function = ir::parse(text).unwrap();
    let code = Code {
        bytes: bytes.to_vec(),
        size: bytes.len() as u32,
        align: 16,
        fixups: fixups.to_vec(),
        ..Code::default()
    };
    let layout = native::layout();
    let inputs = edge_inputs(&function, 40, &mut Chance::new(1)).into_iter();
    let runs = inputs.filter_map(|input| {
        let ran = interpret::run(&function, &input, &layout).ok()?;
        Some((input, ran))
    });
    let runs: Vec<_> = runs.collect();
    assert!(!runs.is_empty());
    native::compare(&function, &code, &Code::default(), &runs).map_err(|(_, what)| what)
}

const ADD: &str = "function(i32 %a, i32 %b) -> i32\nb0:\n  %r = add i32 %a, %b\n  return %r\n";
const CALL: &str = "function(i32 %a) -> i32\nb0:\n  %r = call @host3(i32 %a) -> i32\n  return %r\n";

#[test]
fn what_is_right_is_the_same() {
    // lea eax, [rdi + rsi]; ret
    assert_eq!(differs(ADD, &[0x8d, 0x04, 0x37, 0xc3], &[]), Ok(()));
    // sub rsp, 8; call [rip + word]; add rsp, 8; ret
    let bytes = [
        0x48, 0x83, 0xec, 8, 0xff, 0x15, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3,
    ];
    let through = Fixup {
        at: 6,
        kind: FixupKind::CallThrough,
        symbol: Symbol(0),
        addend: 0,
    };
    assert_eq!(differs(CALL, &bytes, &[through]), Ok(()));
}

#[test]
fn what_is_wrong_is_found() {
    let wrong: [(&str, &[u8], &str); 8] = [
        ("another result", &[0x8d, 0x44, 0x37, 1, 0xc3], "result 0"),
        // xor ebx, ebx
        (
            "a lost register",
            &[0x31, 0xdb, 0x8d, 0x04, 0x37, 0xc3],
            "rbx is not kept",
        ),
        ("a trap", &[0x0f, 0x0b], "signal 4"),
        // mov al, [0]
        (
            "a bad address",
            &[0x8a, 0x04, 0x25, 0, 0, 0, 0, 0xc3],
            "signal 11",
        ),
        // ret 8
        (
            "a lost stack",
            &[0x8d, 0x04, 0x37, 0xc2, 8, 0],
            "stack pointer",
        ),
        (
            "a division",
            &[0x31, 0xc9, 0x31, 0xd2, 0xf7, 0xf1, 0xc3],
            "signal 8",
        ),
        ("no end", &[0xeb, 0xfe], "signal 27"),
        ("a breakpoint", &[0xcc], "signal 5"),
    ];
    for (name, bytes, what) in wrong {
        let found = differs(ADD, bytes, &[]).unwrap_err();
        assert!(found.contains(what), "{name}: {found}");
    }
    // A missing call, and one with another argument.
    let none = differs(CALL, &[0x31, 0xc0, 0xc3], &[]).unwrap_err();
    assert!(none.contains("0 calls instead of 1"), "{none}");
    let bytes = [
        0x83, 0xc7, 1, 0x48, 0x83, 0xec, 8, 0xff, 0x15, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3,
    ];
    let through = |symbol| Fixup {
        at: 9,
        kind: FixupKind::CallThrough,
        symbol: Symbol(symbol),
        addend: 0,
    };
    let other = differs(CALL, &bytes, &[through(0)]).unwrap_err();
    assert!(other.contains("argument 0"), "{other}");
    // A misaligned stack at the call.
    let bytes = [0xff, 0x15, 0, 0, 0, 0, 0xc3];
    let crooked = differs(
        CALL,
        &bytes,
        &[Fixup {
            at: 2,
            ..through(0)
        }],
    )
    .unwrap_err();
    assert!(crooked.contains("not aligned"), "{crooked}");
}

#[test]
fn memory_that_was_written_is_found() {
    let text = "function()\nb0:\n  store i8 0 to @data+7 align 1\n  return\n";
    // mov byte [rip + data + 8], 0: one byte too far
    let bytes = [0xc6, 0x05, 0, 0, 0, 0, 0, 0xc3];
    let distance = |addend| Fixup {
        at: 2,
        kind: FixupKind::Distance,
        symbol: Symbol(0),
        addend,
    };
    assert_eq!(differs(text, &bytes, &[distance(6)]), Ok(()));
    let found = differs(text, &bytes, &[distance(7)]).unwrap_err();
    assert!(found.contains("@data+7"), "{found}");
}

/// A function that saves registers, calls, and uses the result of the call.
fn compiled() -> (ir::Function, Code) {
    let text = "function(i64 %a, i64 %b) -> i64\nb0:\n  %c = call @host0(i64 %b) -> i64\n  \
                %d = add i64 %c, %a\n  %f = xor i64 %a, %d\n  call @host1(i64 %d)\n  \
                %e = mul i64 %f, %a\n  %g = sub i64 %e, %a\n  %h = or i64 %g, %a\n  \
                return %h\n";
    let function = ir::parse(text).unwrap();
    let code = uruk_baseline::compile(&function, &Default::default()).unwrap();
    (function, code)
}

/// Replaces the first occurrence of bytes in the code.
fn patched(code: &Code, from: &[u8], to: &[u8]) -> Code {
    let at = code
        .bytes
        .windows(from.len())
        .position(|window| window == from);
    let at = at.unwrap_or_else(|| panic!("no {from:x?} in {:x?}", code.bytes));
    let mut code = code.clone();
    code.bytes[at..at + to.len()].copy_from_slice(to);
    code
}

#[test]
fn the_oracle_finds_what_is_wrong() {
    let (function, code) = compiled();
    assert_eq!(
        crate::oracle::check(&function, &code, &Code::default()),
        Ok(())
    );
    // pop rbx; pop rbp; push rbp; call through a word
    let wrong: [(&[u8], &[u8], &str); 5] = [
        (&[0x5b], &[0x90], ""),
        (&[0x5b], &[0x58], "RBX is not restored"),
        (&[0x55], &[0x90], "row"),
        (&[0xff, 0x15], &[0x8b, 0x05], "of another kind"),
        // mov rbp, rsp to mov rbp, rdi
        (&[0x48, 0x89, 0xe5], &[0x48, 0x89, 0xfd], "row"),
    ];
    for (from, to, what) in wrong {
        let found = crate::oracle::check(&function, &patched(&code, from, to), &Code::default())
            .unwrap_err();
        assert!(found.contains(what), "{to:x?}: {found}");
    }
    let mut moved = code.clone();
    let last = moved
        .unwind
        .iter()
        .rposition(|&byte| byte & 0xc0 == 0x40)
        .unwrap();
    moved.unwind[last] += 1;
    assert!(crate::oracle::check(&function, &moved, &Code::default()).is_err());
    let mut fewer = code.clone();
    fewer.fixups[0].at -= 1;
    let found = crate::oracle::check(&function, &fewer, &Code::default()).unwrap_err();
    assert!(found.contains("no distance"), "{found}");
}

#[test]
fn the_oracle_finds_reads_of_nothing() {
    // It has the size that the unwind table gives, and does nothing with the frame.
    let text = "function(i32 %a) -> i32\nb0:\n  return %a\n";
    let function = ir::parse(text).unwrap();
    let code = uruk_baseline::compile(&function, &Default::default()).unwrap();
    assert_eq!(
        crate::oracle::check(&function, &code, &Code::default()),
        Ok(())
    );
    // mov eax, edi to mov eax, esi
    let other = patched(&code, &[0x89, 0xf8], &[0x89, 0xf0]);
    let found = crate::oracle::check(&function, &other, &Code::default()).unwrap_err();
    assert!(found.contains("RSI is read"), "{found}");
}
