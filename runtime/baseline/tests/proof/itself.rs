//! The proof itself: code that is wrong is found to be.

use uruk_baseline::ir::{self, Symbol};
use uruk_baseline::{Code, Fixup, FixupKind};

use crate::chance::Chance;
use crate::interpret;
use crate::native;
use crate::trial::edge_inputs;

/// Runs code that was assembled by hand as if a function had been compiled to it.
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
    native::compare(&function, &code, &runs).map_err(|(_, what)| what)
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
        ("no end", &[0xeb, 0xfe], "signal 14"),
        ("a breakpoint", &[0xcc], "signal 5"),
    ];
    for (name, bytes, what) in wrong {
        let found = differs(ADD, bytes, &[]).unwrap_err();
        assert!(found.contains(what), "{name}: {found}");
    }
    // The call that is not made, and one with another argument.
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
    // A stack that is not aligned at the call.
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
    // mov byte [rip + data + 8], 0: one behind the right one
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
