//! The machine code as text, compared with snapshots, and decoded by an
//! independent decoder.
//!
//! `URUK_BLESS=1 cargo test -p uruk-stubs` rewrites the snapshots.

use std::fmt::Write;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Mnemonic, OpKind};

use crate::image;
use crate::resolver::{self, Frame};
use crate::vector::{Method, VectorState};

/// Compares with a file of `snapshots`, or writes it.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/snapshots")
        .join(name);
    if std::env::var_os("URUK_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{name} is now:\n{text}");
}

fn disassemble(bytes: &[u8], address: u64) -> String {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    for instruction in Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).iter() {
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let start = (instruction.ip() - address) as usize;
        let mut hex = String::new();
        for byte in &bytes[start..start + instruction.len()] {
            write!(hex, "{byte:02x}").unwrap();
        }
        writeln!(text, "{start:4x}  {hex:20}  {line}").unwrap();
    }
    text
}

#[test]
fn stub_page() {
    let page = image::stub_page(-0x20000);
    let stubs = 0x100000;
    let mut text = disassemble(&page[..32], stubs);
    text += "...\n";
    text += &disassemble(&page[4064..], stubs + 4064);
    check("stub_page.txt", &text);
}

/// Every stub jumps through its own slot, at any distance.
#[test]
fn stubs_use_their_own_slot() {
    let stubs = 0x7f00_0000_0000_u64;
    for distance in [-0x1000, -0x20000, -(63 << 20), 0x20000, i32::MIN + 8192] {
        let page = image::stub_page(distance);
        let slot = |stub: u64| stub.wrapping_add_signed(i64::from(distance));
        for (i, cell) in page.chunks(16).enumerate() {
            let stub = stubs + 16 * i as u64;
            let mut decoder = Decoder::with_ip(64, cell, stub, DecoderOptions::NONE);
            let jump = decoder.decode();
            assert_eq!(jump.mnemonic(), Mnemonic::Jmp);
            assert_eq!(jump.op0_kind(), OpKind::Memory);
            assert!(jump.is_ip_rel_memory_operand());
            assert_eq!(jump.ip_rel_memory_address(), slot(stub));
            assert_eq!(jump.next_ip(), stub + image::TRAMPOLINE);
            if i < 255 {
                let call = decoder.decode();
                assert_eq!(call.mnemonic(), Mnemonic::Call);
                assert_eq!(call.near_branch_target(), stubs + image::COMMON);
                assert_eq!(call.next_ip(), stub + image::CALL_RETURN);
            }
            for rest in decoder {
                assert_eq!(rest.mnemonic(), Mnemonic::Int3);
            }
        }
    }
}

fn assemble(method: Method) -> (String, Frame) {
    let vector = VectorState {
        method,
        mask: 0xe7,
        size: 2432,
    };
    let made = resolver::assemble(&vector, 0x1111_1111_1111, 0x2222_2222_2222);
    (disassemble(&made.code, 0), made.frame)
}

#[test]
fn resolver() {
    check("resolver_xsavec.txt", &assemble(Method::Xsavec).0);
    check("resolver_xsave.txt", &assemble(Method::Xsave).0);
    check("resolver_fxsave.txt", &assemble(Method::Fxsave).0);
}

/// The frame offsets that the frame descriptions use follow the instructions
/// they name.
#[test]
fn resolver_frame() {
    let (text, frame) = assemble(Method::Xsavec);
    let line_before = |offset: u32| {
        let after = format!("{offset:4x}  ");
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with(&after));
        lines[at.unwrap_or(lines.len()) - 1][28..].to_owned()
    };
    assert_eq!(line_before(frame.pushed), "push %rbp");
    assert_eq!(line_before(frame.based), "mov %rsp,%rbp");
    assert_eq!(line_before(frame.left), "leave");
    assert_eq!(line_before(frame.end), "ret");
}
