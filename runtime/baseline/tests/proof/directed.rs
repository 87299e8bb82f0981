//! Every operation at every width with edge values: texts of functions, made from tables.

use std::collections::BTreeMap;

use crate::ir;
use uruk_baseline::Options;

use crate::chance::Chance;
use crate::trial::{Outcome, edge_inputs, try_inputs};

/// Inputs of one function.
const INPUTS: usize = 120;

/// Widths of integers in tests: those of registers, and odd ones.
pub const WIDTHS: [u8; 14] = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64];

/// Tries all texts; reports the first failures together, with the number of further ones.
pub fn check(name: &str, texts: Vec<String>) {
    let mut chance = Chance::new(0x0dd5);
    let (mut runs, mut wrong) = (0, Vec::new());
    let mut uncovered = BTreeMap::<&'static str, usize>::new();
    let count = texts.len();
    for text in texts {
        let function = match ir::parse(&text) {
            Ok(function) => function,
            Err(error) => panic!("{error}\n{text}"),
        };
        let inputs = edge_inputs(&function, INPUTS, &mut chance);
        match try_inputs(&function, inputs, &Options::default()) {
            Outcome::Same(same) => {
                runs += same;
                assert!(same > 0, "no input has defined behaviour:\n{text}");
            }
            Outcome::Uncovered(what) => *uncovered.entry(what).or_default() += 1,
            Outcome::Wrong(what) => wrong.push(format!("{text}{what}\n")),
        }
    }
    println!("{name}: {count} functions, {runs} runs, not covered: {uncovered:?}");
    let shown: Vec<_> = wrong.iter().take(8).cloned().collect();
    assert!(
        wrong.is_empty(),
        "{} of {count} are wrong:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

/// A constant as its decimal text.
pub fn constants(bits: u8) -> Vec<u64> {
    let all = u64::MAX >> (64 - bits);
    let list = [
        0,
        1,
        2,
        3,
        5,
        8,
        10,
        100,
        127,
        128,
        255,
        65535,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1234_5678_9abc,
        all,
        all - 1,
        all >> 1,
        (all >> 1) + 1,
    ];
    let mut list: Vec<u64> = list.into_iter().map(|one| one & all).collect();
    list.sort_unstable();
    list.dedup();
    list
}

const INT_OPS: [&str; 21] = [
    "add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "shl", "lshr", "ashr", "and", "or", "xor",
    "smin", "smax", "umin", "umax", "sadd.sat", "ssub.sat", "uadd.sat", "usub.sat",
];

/// Two values, a value and a constant in both orders, memory, a value twice.
fn binary(op: &str, ty: &str, bits: u8) -> Vec<String> {
    let head = format!("function({ty} %a, {ty} %b) -> {ty}\nb0:\n");
    let mut texts = vec![
        format!("{head}  %r = {op} {ty} %a, %b\n  return %r\n"),
        format!("{head}  %r = {op} {ty} %b, %a\n  return %r\n"),
        format!(
            "{head}  store {ty} %b to @data+16 align 8\n  %m = load {ty} @data+16 align 8\n  \
             %r = {op} {ty} %a, %m\n  return %r\n"
        ),
        format!(
            "{head}  store {ty} %a to @far+16 align 8\n  %m = load {ty} @far+16 align 8\n  \
             %r = {op} {ty} %m, %b\n  %s = {op} {ty} %r, %a\n  return %s\n"
        ),
        // Both operands live on: the result has no operand's register.
        format!(
            "function({ty} %a, {ty} %b) -> {ty}, {ty}, {ty}\nb0:\n  %r = {op} {ty} %a, %b\n  \
             return %r, %b, %a\n"
        ),
        // Across a call, in callee-saved registers or in the frame.
        format!("{head}  call @host0()\n  %r = {op} {ty} %a, %b\n  call @host1()\n  return %r\n"),
    ];
    if !op.ends_with("div") && !op.ends_with("rem") && !op.ends_with("shr") && op != "shl" {
        texts.push(format!("{head}  %r = {op} {ty} %a, %a\n  return %r\n"));
    }
    for constant in constants(bits) {
        texts.push(format!(
            "{head}  %r = {op} {ty} %a, {constant}\n  return %r\n"
        ));
        texts.push(format!(
            "{head}  %r = {op} {ty} {constant}, %b\n  return %r\n"
        ));
    }
    texts
}

/// Rejects texts that are undefined for every input.
fn is_sometimes_defined(text: &str) -> bool {
    let Ok(function) = ir::parse(text) else {
        return true;
    };
    let mut chance = Chance::new(5);
    let inputs = edge_inputs(&function, INPUTS, &mut chance);
    let layout = crate::native::layout();
    let mut runs = inputs
        .iter()
        .map(|input| crate::interpret::run(&function, input, &layout));
    runs.any(|ran| ran.is_ok_and(|ran| ran.results.iter().all(Option::is_some)))
}

#[test]
fn integers() {
    for op in INT_OPS {
        let mut texts = Vec::new();
        for bits in WIDTHS {
            texts.extend(binary(op, &format!("i{bits}"), bits));
        }
        texts.retain(|text| is_sometimes_defined(text));
        check(op, texts);
    }
}

#[test]
fn overflow() {
    let mut texts = Vec::new();
    for op in ["sadd", "uadd", "ssub", "usub", "smul", "umul"] {
        for bits in WIDTHS {
            let ty = format!("i{bits}");
            let mut seconds = vec!["%b".to_string()];
            seconds.extend(constants(bits).iter().map(u64::to_string));
            for second in seconds {
                let head = format!(
                    "function({ty} %a, {ty} %b) -> {ty}, i1\nb0:\n  \
                     %r, %o = {op}.overflow {ty} %a, {second}\n"
                );
                texts.push(format!("{head}  return %r, %o\n"));
                texts.push(format!(
                    "{head}  branch %o yes, no\nyes:\n  return 1, %o\nno:\n  return %r, 0\n"
                ));
            }
        }
    }
    check("overflow", texts);
}

#[test]
fn bits() {
    let mut texts = Vec::new();
    for op in ["ctpop", "ctlz", "cttz", "bitreverse", "abs", "bswap"] {
        for bits in WIDTHS {
            if op != "bswap" || matches!(bits, 16 | 32 | 48 | 64) {
                texts.push(format!(
                    "function(i{bits} %a) -> i{bits}\nb0:\n  %r = {op} i{bits} %a\n  return %r\n"
                ));
            }
        }
    }
    for op in ["fshl", "fshr"] {
        for bits in WIDTHS {
            let mut by = vec!["%c".to_string()];
            by.extend(constants(bits).iter().map(u64::to_string));
            for by in by {
                let ty = format!("i{bits}");
                let head = format!("function({ty} %a, {ty} %b, {ty} %c) -> {ty}\nb0:\n");
                texts.push(format!(
                    "{head}  %r = {op} {ty} %a, %b, {by}\n  return %r\n"
                ));
                texts.push(format!(
                    "{head}  %r = {op} {ty} %a, %a, {by}\n  return %r\n"
                ));
            }
        }
    }
    check("bits", texts);
}

pub const INT_PREDICATES: [&str; 10] = [
    "eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle",
];

/// A bit as a result, a branch, an operand of a select, and with other uses between.
pub fn uses_of_bit(head: &str, compare: &str) -> Vec<String> {
    vec![
        format!("{head} -> i1\nb0:\n  %c = {compare}\n  return %c\n"),
        format!("{head} -> i32\nb0:\n  %c = {compare}\n  %z = zext i1 %c to i32\n  return %z\n"),
        format!(
            "{head} -> i32\nb0:\n  %c = {compare}\n  branch %c yes, no\nyes:\n  return 1\nno:\n  \
             return 2\n"
        ),
        format!(
            "{head} -> i32\nb0:\n  %c = {compare}\n  branch %c yes, no\nno:\n  return 1\nyes:\n  \
             return 2\n"
        ),
        format!("{head} -> i64\nb0:\n  %c = {compare}\n  %s = select i64 %c, 7, -9\n  return %s\n"),
        format!(
            "{head} -> f64\nb0:\n  %c = {compare}\n  %s = select f64 %c, #3ff0000000000000, \
             #4000000000000000\n  return %s\n"
        ),
        format!(
            "{head} -> i64\nb0:\n  %c = {compare}\n  %l = load i64 @data align 8\n  \
             %x = add i64 %l, 1\n  store i64 %x to @data align 8\n  \
             %s = select i64 %c, %l, %x\n  return %s\n"
        ),
        format!(
            "{head} -> i1\nb0:\n  %c = {compare}\n  call @host0(i1 %c zext)\n  \
             %n = xor i1 %c, 1\n  branch %n yes, no\nyes:\n  return %n\nno:\n  return %c\n"
        ),
    ]
}

#[test]
fn comparisons() {
    for predicate in INT_PREDICATES {
        let mut texts = Vec::new();
        for bits in WIDTHS {
            let ty = format!("i{bits}");
            let head = format!("function({ty} %a, {ty} %b)");
            texts.extend(uses_of_bit(&head, &format!("icmp {predicate} {ty} %a, %b")));
            for constant in constants(bits) {
                let compare = format!("icmp {predicate} {ty} %a, {constant}");
                texts.extend(uses_of_bit(&head, &compare).into_iter().step_by(2));
                let turned = format!("icmp {predicate} {ty} {constant}, %b");
                texts.extend(uses_of_bit(&head, &turned).into_iter().skip(2).step_by(2));
            }
        }
        check(predicate, texts);
    }
}

const FLOAT_PREDICATES: [&str; 16] = [
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "uno", "ueq", "ugt", "uge", "ult",
    "ule", "une", "true",
];

#[test]
fn float_comparisons() {
    let mut texts = Vec::new();
    for predicate in FLOAT_PREDICATES {
        for (ty, zero, one) in [
            ("f32", "#0", "#3f800000"),
            ("f64", "#0", "#3ff0000000000000"),
        ] {
            let head = format!("function({ty} %a, {ty} %b)");
            for (a, b) in [("%a", "%b"), ("%a", one), (zero, "%b"), ("%a", "%a")] {
                texts.extend(uses_of_bit(
                    &head,
                    &format!("fcmp {predicate} {ty} {a}, {b}"),
                ));
            }
        }
    }
    check("float comparisons", texts);
}

#[test]
fn floats() {
    let mut texts = Vec::new();
    for ty in ["f32", "f64"] {
        let one = if ty == "f32" {
            "#3f800000"
        } else {
            "#3ff0000000000000"
        };
        for op in [
            "fadd", "fsub", "fmul", "fdiv", "frem", "minnum", "maxnum", "copysign",
        ] {
            let head = format!("function({ty} %a, {ty} %b) -> {ty}\nb0:\n");
            for (a, b) in [
                ("%a", "%b"),
                ("%b", "%a"),
                ("%a", one),
                (one, "%b"),
                ("%a", "#0"),
            ] {
                texts.push(format!("{head}  %r = {op} {ty} {a}, {b}\n  return %r\n"));
            }
            texts.push(format!(
                "{head}  store {ty} %b to @data+8 align 8\n  %m = load {ty} @data+8 align 8\n  \
                 call @host0()\n  %r = {op} {ty} %a, %m\n  return %r\n"
            ));
            texts.push(format!(
                "function({ty} %a, {ty} %b) -> {ty}, {ty}\nb0:\n  %r = {op} {ty} %a, %b\n  \
                 return %b, %r\n"
            ));
        }
        for op in ["fneg", "fabs", "sqrt"] {
            texts.push(format!(
                "function({ty} %a) -> {ty}, {ty}\nb0:\n  %r = {op} {ty} %a\n  return %r, %a\n"
            ));
        }
        texts.push(format!(
            "function({ty} %a, {ty} %b, {ty} %c) -> {ty}\nb0:\n  %r = fma {ty} %a, %b, %c\n  \
             return %r\n"
        ));
    }
    check("floats", texts);
}

#[test]
fn casts() {
    let mut texts = Vec::new();
    let mut cast = |op: &str, from: &str, to: &str| {
        texts.push(format!(
            "function({from} %a) -> {to}\nb0:\n  %r = {op} {from} %a to {to}\n  return %r\n"
        ));
        texts.push(format!(
            "function({from} %a) -> {to}, {from}\nb0:\n  store {from} %a to @data align 8\n  \
             %m = load {from} @data align 8\n  %r = {op} {from} %m to {to}\n  return %r, %a\n"
        ));
    };
    for from in WIDTHS {
        for to in WIDTHS.into_iter().filter(|&to| to > from) {
            for op in ["zext", "sext"] {
                cast(op, &format!("i{from}"), &format!("i{to}"));
            }
            cast("trunc", &format!("i{to}"), &format!("i{from}"));
        }
    }
    for float in ["f32", "f64"] {
        for bits in WIDTHS {
            for op in ["fptosi", "fptoui", "fptosi.sat", "fptoui.sat"] {
                cast(op, float, &format!("i{bits}"));
            }
            for op in ["sitofp", "uitofp"] {
                cast(op, &format!("i{bits}"), float);
            }
        }
    }
    cast("fptrunc", "f64", "f32");
    cast("fpext", "f32", "f64");
    cast("bits", "f32", "i32");
    cast("bits", "i32", "f32");
    cast("bits", "f64", "i64");
    cast("bits", "i64", "f64");
    check("casts", texts);
}
