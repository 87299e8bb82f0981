//! Tables of tests beyond single registers: halves, memory, switches.

use crate::directed::{INT_PREDICATES, WIDTHS, check, constants, uses_of_bit};

#[test]
fn wide() {
    let mut texts = Vec::new();
    for op in ["add", "sub", "mul", "sdiv", "udiv", "srem", "urem"] {
        let head = "function(i64 %a, i64 %b, i64 %c, i64 %d) -> i64, i64\nb0:\n";
        for list in [
            "%a, %b, %c, %d",
            "%a, %b, 7, 0",
            "5, -1, %c, %d",
            "%a, 0, %c, 0",
        ] {
            texts.push(format!(
                "{head}  %l, %h = wide.{op} {list}\n  return %l, %h\n"
            ));
        }
    }
    for op in ["shl", "lshr", "ashr"] {
        let head = "function(i64 %a, i64 %b, i64 %c) -> i64, i64\nb0:\n";
        for by in ["%d", "0", "1", "63", "64", "65", "127"] {
            texts.push(format!(
                "{head}  %d = and i64 %c, 127\n  %l, %h = wide.{op} %a, %b, {by}\n  \
                 return %l, %h\n"
            ));
        }
    }
    for predicate in INT_PREDICATES {
        let head = "function(i64 %a, i64 %b, i64 %v, i64 %y)";
        for list in [
            "%a, %b, %v, %y",
            "%a, %b, 0, 0",
            "%a, %b, %a, %y",
            "%a, 0, %v, 0",
        ] {
            texts.extend(uses_of_bit(head, &format!("wide.icmp {predicate} {list}")));
        }
    }
    check("wide", texts);
}

#[test]
fn memory() {
    let mut texts = Vec::new();
    let types: Vec<String> = WIDTHS.iter().map(|bits| format!("i{bits}")).collect();
    let types: Vec<&str> = types
        .iter()
        .map(String::as_str)
        .chain(["f32", "f64"])
        .collect();
    for ty in &types {
        // Atomic accesses have a whole number of bytes, a power of two.
        let is_whole = ["i8", "i16", "i32", "i64", "f32", "f64"].contains(ty);
        let rests = ["", " volatile", " weak", " strong"];
        for rest in rests.into_iter().take(if is_whole { 4 } else { 2 }) {
            for to in ["@data+24", "@far+24", "%p", "%q", "%s"] {
                texts.push(format!(
                    "function({ty} %a, i64 %i) -> {ty}, i64\nb0:\n  %s = alloca 16 align 16\n  \
                     %m = and i64 %i, 7\n  %p = offset @data [%m i64 8] 64\n  \
                     %t = trunc i64 %m to i8\n  %q = offset %p [%t i8 24] 8\n  \
                     store {ty} %a to {to} align 8{rest}\n  \
                     %r = load {ty} {to} align 8{rest}\n  %o = load i64 %p align 8\n  \
                     return %r, %o\n"
                ));
            }
        }
        texts.push(format!(
            "function({ty} %a) -> {ty}\nb0:\n  %s = alloca 8 align 8\n  \
             store {ty} %a to %s align 8\n  jump b1\nb1:\n  \
             %r = load {ty} %s align 8\n  return %r\n"
        ));
    }
    for bits in [8, 16, 32, 64] {
        for constant in constants(bits) {
            for to in ["@data+24", "@far+24", "%p"] {
                texts.push(format!(
                    "function(i64 %i)\nb0:\n  %m = and i64 %i, 31\n  \
                     %p = offset @data [%m i64 8] 3\n  store i{bits} {constant} to {to} align 1\n  \
                     return\n"
                ));
            }
        }
    }
    check("memory", texts);
}

#[test]
fn offsets() {
    let mut texts = Vec::new();
    for bits in [8, 16, 32, 33, 64] {
        for scale in [
            0u64,
            1,
            2,
            3,
            4,
            5,
            7,
            8,
            9,
            12,
            16,
            24,
            40,
            96,
            1 << 20,
            1 << 40,
        ] {
            for bytes in [0i64, 1, -1, 127, 128, -129, 1 << 31, -(1 << 40)] {
                let head = format!("function(ptr %p, i{bits} %i, i64 %j) -> ptr\nb0:\n");
                texts.push(format!(
                    "{head}  %r = offset %p [%i i{bits} {scale}] {bytes}\n  return %r\n"
                ));
                texts.push(format!(
                    "{head}  %r = offset @data [%i i{bits} {scale}] [%j i64 8] {bytes}\n  \
                     return %r\n"
                ));
            }
        }
    }
    check("offsets", texts);
}

#[test]
fn atomics() {
    let mut texts = Vec::new();
    for bits in [8, 16, 32, 64] {
        let ty = format!("i{bits}");
        for op in [
            "xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin",
        ] {
            for result in ["%o", "0"] {
                for value in ["%a", "1", "-1"] {
                    texts.push(format!(
                        "function({ty} %a) -> {ty}\nb0:\n  \
                         %o = rmw {op} {ty} @data, {value}\n  return {result}\n"
                    ));
                }
            }
        }
        for expected in ["%a", "%l", "0"] {
            texts.push(format!(
                "function({ty} %a, {ty} %b) -> {ty}, i1\nb0:\n  %l = load {ty} @data align 8\n  \
                 %o, %is = cmpxchg {ty} @data, {expected}, %b\n  fence strong\n  \
                 fence weak\n  return %o, %is\n"
            ));
        }
    }
    for ty in ["f32", "f64"] {
        for op in ["fadd", "fsub", "xchg"] {
            texts.push(format!(
                "function({ty} %a, {ty} %b) -> {ty}\nb0:\n  store {ty} %b to @data align 8\n  \
                 %o = rmw {op} {ty} @data, %a\n  return %o\n"
            ));
        }
    }
    check("atomics", texts);
}

#[test]
fn copies() {
    let mut texts = Vec::new();
    let lengths = [
        0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, 300,
    ];
    for length in lengths {
        for rest in ["", " volatile"] {
            texts.push(format!(
                "function()\nb0:\n  memcpy @data+8, @far+3, {length}{rest}\n  return\n"
            ));
            texts.push(format!(
                "function()\nb0:\n  memmove @data+8, @data+3, {length}{rest}\n  return\n"
            ));
            texts.push(format!(
                "function(i8 %a)\nb0:\n  memset @data+8, %a, {length}{rest}\n  return\n"
            ));
            texts.push(format!(
                "function()\nb0:\n  memset @data+8, 0, {length}\n  return\n"
            ));
            texts.push(format!(
                "function()\nb0:\n  memset @data+8, 171, {length}\n  return\n"
            ));
        }
    }
    for (op, from) in [
        ("memcpy", "@far+3"),
        ("memmove", "@data+3"),
        ("memset", "%b"),
    ] {
        texts.push(format!(
            "function(i64 %a, i8 %b) -> i64, i8\nb0:\n  %n = and i64 %a, 255\n  \
             {op} @data+8, {from}, %n\n  return %a, %b\n"
        ));
    }
    check("copies", texts);
}

#[test]
fn switches() {
    let mut texts = Vec::new();
    let lists: [&[u64]; 9] = [
        &[],
        &[0],
        &[1, 5],
        &[0, 1, 2, 3, 4, 5, 6, 7],
        &[10, 11, 12, 14, 15, 17, 18, 20],
        &[1, 100, 3, 65, 7, 120, 2],
        &[127, 126, 125, 124, 0, 1, 2, 3],
        &[5, 6, 7, 8, 9, 100, 101, 102, 103, 104, 105, 106],
        &[120, 121, 122, 123, 124, 125, 126, 127, 113, 114, 115],
    ];
    for bits in [7, 8, 16, 31, 32, 48, 64] {
        for list in lists {
            for shift in [0, (1u64 << (bits - 1)) - 10, u64::MAX - 20] {
                let all = u64::MAX >> (64 - bits);
                let mut values: Vec<u64> = list
                    .iter()
                    .map(|one| one.wrapping_add(shift) & all)
                    .collect();
                values.dedup();
                let mut targets = vec!["d".to_string()];
                let mut blocks = String::new();
                for index in 0..values.len() {
                    targets.push(format!("c{}", index % 5));
                    if index < 5 {
                        blocks += &format!("c{index}:\n  return {index}\n");
                    }
                }
                let values: Vec<String> = values.iter().map(u64::to_string).collect();
                let (targets, values) = (targets.join(", "), values.join(", "));
                // The operand of the switch is near its values, which random numbers never are.
                texts.push(format!(
                    "function(i{bits} %a, i{bits} %b) -> i32\nb0:\n  %m = and i{bits} %a, {}\n  \
                     %s = add i{bits} %m, {}\n  switch i{bits} %s {targets} [{values}]\nd:\n  \
                     return 99\n{blocks}",
                    127 & all,
                    shift & all,
                ));
            }
        }
    }
    check("switches", texts);
}

/// Values of variables that are exchanged: a value may be made in the place of the variable to which it
/// is stored, unless an older value of that variable is still to be read.
#[test]
fn exchanged_variables() {
    const ORDERS: [[usize; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let mut texts = Vec::new();
    for loads in ORDERS {
        for stores in ORDERS {
            for from in 0..27usize {
                let mut text = String::from("function(i32 %p0, i32 %p1, i32 %p2) -> i32\nb0:\n");
                for one in 0..3 {
                    text += &format!("  %v{one} = alloca 4 align 4\n");
                    text += &format!("  store i32 %p{one} to %v{one} align 4\n");
                }
                for one in loads {
                    text += &format!("  %l{one} = load i32 %v{one} align 4\n");
                }
                let values = [from % 3, from / 3 % 3, from / 9];
                for one in stores {
                    let value = values[one];
                    text += &format!("  store i32 %l{value} to %v{one} align 4\n");
                }
                text += "  call @host0(i32 %l0, i32 %l1, i32 %l2)\n";
                for one in 0..3 {
                    text += &format!("  %m{one} = load i32 %v{one} align 4\n");
                }
                text += "  call @host1(i32 %m0, i32 %m1, i32 %m2)\n  return %m0\n";
                texts.push(text);
            }
        }
    }
    check("exchanged variables", texts);
}

#[test]
fn frames() {
    let mut texts = Vec::new();
    for align in [1, 2, 4, 8, 16, 32, 64, 128, 4096] {
        for size in [1, 8, 24, 40, 5000] {
            for rest in [
                "",
                "  %d = alloca.dynamic 3 8 align 32\n  store i64 %a to %d align 1\n",
            ] {
                texts.push(format!(
                    "function(i64 %a) -> i64, i64\nb0:\n  %s = alloca {size} align {align}\n  \
                     %t = alloca 8 align 8\n  memset %s, 7, {size}\n  \
                     store i64 %a to %t align 8\n{rest}  call @poke0(ptr %t)\n  \
                     call @poke1(ptr %t, ptr %s memory 1 align 8)\n  %l = and i64 %s, {}\n  \
                     %r = load i64 %t align 8\n  return %l, %r\n",
                    align - 1
                ));
            }
        }
    }
    check("frames", texts);
}

#[test]
fn memory_as_arguments() {
    let mut texts = Vec::new();
    for size in [1, 3, 4, 7, 8, 12, 16, 17, 24, 32, 40, 64, 100, 200] {
        for align in [8, 16, 32] {
            let memory = format!("memory {size} align {align}");
            for from in ["@data+8", "@far+8", "%s", "%p"] {
                for others in [
                    "",
                    ", i64 %a",
                    ", i64 %a, f64 %f, i64 %p, i32 7, i64 %a, i64 %p, \
                    i64 %a, i64 3, f64 #0",
                    ", ptr @far+16 memory 24 align 8, i8 3",
                ] {
                    texts.push(format!(
                        "function(i64 %a, f64 %f) -> i64\nb0:\n  %s = alloca 200 align 16\n  \
                         memset %s, 5, 200\n  %m = and i64 %a, 7\n  \
                         %p = offset @data [%m i64 8] 1\n  \
                         call @host0(i64 %a, ptr {from} {memory}{others})\n  \
                         call variadic @host1(i64 %a, i64 %m, i64 %p, ptr {from} {memory})\n  \
                         return %a\n"
                    ));
                }
            }
            texts.push(format!(
                "function(i32 %a, ptr %m {memory}, i64 %b, ptr %n {memory}) -> i64, i8\nb0:\n  \
                 %r = load i8 %m align 1\n  store i8 9 to %n align 1\n  \
                 call @host0(ptr %m {memory}, ptr %n {memory})\n  return %b, %r\n"
            ));
        }
    }
    check("memory as arguments", texts);
}
