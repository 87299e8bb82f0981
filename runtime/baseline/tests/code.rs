//! Tests the code of small functions, as text: folded operands, places of values, removed
//! instructions.

mod ir;

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use uruk_baseline::{Options, compile};

/// Compares the code behind `mov rbp, rsp` with lines.
#[track_caller]
fn check(text: &str, expected: &str) {
    let function = ir::parse(text).expect("a function");
    ir::check(&function).expect("a valid function");
    let code = compile(&function, &Options::default()).expect("covered");
    let bytes = &code.bytes[..code.size as usize];
    let mut formatter = NasmFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    let mut found = String::new();
    for instruction in Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE) {
        if let Some((block, _)) = code
            .blocks
            .iter()
            .find(|(block, at)| u64::from(*at) == instruction.ip() && block.0 != 0)
        {
            let _ = writeln!(found, "b{}:", block.0);
        }
        let mut line = String::new();
        if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() {
            let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
            let to = instruction.near_branch_target();
            let to = code
                .blocks
                .iter()
                .rev()
                .find(|(_, at)| u64::from(*at) == to);
            let to = to.map_or_else(|| String::from("out"), |(block, _)| format!("b{}", block.0));
            line = format!("{mnemonic} {to}");
        } else {
            formatter.format(&instruction, &mut line);
        }
        let _ = writeln!(found, "  {line}");
    }
    let found = found
        .strip_prefix("  push rbp\n  mov rbp, rsp\n")
        .expect("a frame");
    let trim = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(trim(found), trim(expected), "\n{found}");
}

#[test]
fn variables_of_a_loop_are_in_registers() {
    check(
        "function(i64 %p, i32 %n) -> i32
        b0:
          %pa = alloca 8 align 8
          %na = alloca 4 align 4
          %s = alloca 4 align 4
          %i = alloca 4 align 4
          store i64 %p to %pa align 8
          store i32 %n to %na align 4
          store i32 0 to %s align 4
          store i32 0 to %i align 4
          jump b1
        b1:
          %a = load i32 %i align 4
          %b = load i32 %na align 4
          %c = icmp slt i32 %a, %b
          branch %c b2, b4
        b2:
          %d = load i64 %pa align 8
          %e = load i32 %i align 4
          %f = sext i32 %e to i64
          %g = offset %d [%f i64 4] 0
          %h = load i32 %g align 4
          %k = load i32 %s align 4
          %l = add i32 %k, %h
          store i32 %l to %s align 4
          jump b3
        b3:
          %m = load i32 %i align 4
          %o = add i32 %m, 1
          store i32 %o to %i align 4
          jump b1
        b4:
          %q = load i32 %s align 4
          return %q",
        "  xor r10d, r10d
           xor r11d, r11d
        b1:
           cmp r11d, esi
           jge b4
        b2:
           movsxd r9, r11d
           add r10d, [rdi+r9*4]
        b3:
           add r11d, 1
           jmp b1
        b4:
           mov eax, r10d
           pop rbp
           ret",
    );
}

#[test]
fn memory_is_compared_and_changed_where_it_is() {
    check(
        "function(i64 %p) -> i32
        b0:
          %a = offset %p 8
          %x = load i8 %a align 1
          %w = zext i8 %x to i32
          %c = icmp eq i32 %w, 200
          branch %c b1, b2
        b1:
          %y = load i16 %p align 2
          %z = or i16 %y, 4
          store i16 %z to %p align 2
          return 1
        b2:
          %f = load i32 %p align 4
          %t = and i32 %f, 16
          %n = icmp ne i32 %t, 0
          %r = zext i1 %n to i32
          return %r",
        "  cmp byte [rdi+8], 0C8h
           jne b2
        b1:
           or word [rdi], 4
           mov eax, 1
           pop rbp
           ret
        b2:
           test byte [rdi], 10h
           setne al
           movzx eax, al
           pop rbp
           ret",
    );
}

#[test]
fn what_lives_across_calls_is_saved() {
    check(
        "function(i32 %x, i32 %y) -> i32
        symbol @f indirect
        b0:
          %a = call @f(i32 %y, i32 %x) -> i32
          %b = mul i32 %a, %x
          %c = add i32 %b, %x
          %d = call @f(i32 %c, i32 3) -> i32
          %e = sub i32 %d, %x
          return %e",
        "  push rbx
           sub rsp, 8
           mov ebx, edi
           mov edi, esi
           mov esi, ebx
           call qword [rel 15h]
           mov r10d, eax
           imul r10d, ebx
           add r10d, ebx
           mov edi, r10d
           mov esi, 3
           call qword [rel 2Dh]
           sub eax, ebx
           add rsp, 8
           pop rbx
           pop rbp
           ret",
    );
}

#[test]
fn blocks_that_only_jump_are_not_there() {
    check(
        "function(i32 %x) -> i32
        b0:
          switch i32 %x b1, b2, b3, b2, b1, b3 [0, 1, 2, 3, 4]
        b1:
          jump b4
        b2:
          jump b4
        b3:
          return 7
        b4:
          return 1",
        "  cmp edi, 1
           je b3
           cmp edi, 4
           je b3
        b2:
           mov eax, 1
           pop rbp
           ret
        b3:
           mov eax, 7
           pop rbp
           ret",
    );
}
