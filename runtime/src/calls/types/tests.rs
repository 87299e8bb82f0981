//! Pieces of structs, compared with the output of clang and rustc.

use super::{Extend, FunctionType, Leaf, ValueType};

const I64: ValueType = ValueType::scalar("i64", Extend::No, Some(Leaf::Int(8)));
const I32: ValueType = ValueType::scalar("i32", Extend::No, Some(Leaf::Int(4)));
const I8: ValueType = ValueType::scalar("i8", Extend::Sign, Some(Leaf::Int(1)));
const F32: ValueType = ValueType::scalar("float", Extend::No, Some(Leaf::Float));
const F64: ValueType = ValueType::scalar("double", Extend::No, Some(Leaf::Double));
const PTR: ValueType = ValueType::scalar("ptr", Extend::No, Some(Leaf::Pointer));
const VOID: ValueType = ValueType::scalar("void", Extend::No, None);

/// A struct with fields laid out as in C.
fn of(fields: &[(&ValueType, usize)]) -> ValueType {
    let (mut at, mut align, mut placed) = (0_usize, 1, Vec::new());
    for (field, size) in fields {
        at = at.next_multiple_of(*size);
        placed.push((at, (*field).clone()));
        at += size;
        align = align.max(*size);
    }
    ValueType::structure(at.next_multiple_of(align), &placed)
}

fn text(result: ValueType, parameters: &[ValueType]) -> String {
    let parameters = parameters.to_vec();
    FunctionType { result, parameters }.to_string()
}

#[test]
fn structs_come_down_to_what_clang_writes() {
    let point = of(&[(&F64, 8), (&F64, 8)]);
    let floats = of(&[(&F32, 4), (&F32, 4), (&F32, 4)]);
    let mixed = of(&[(&F32, 4), (&I32, 4), (&F64, 8)]);
    let bytes = of(&[(&I8, 1), (&I8, 1), (&I8, 1)]);
    let named = of(&[(&PTR, 8), (&I32, 4)]);
    let large = of(&[(&I64, 8), (&I64, 8), (&I64, 8)]);
    let check = |ty: &ValueType, passed: &str, returned: &str| {
        assert_eq!(text(VOID, std::slice::from_ref(ty)), passed);
        assert_eq!(text(ty.clone(), &[]), returned);
    };
    check(&point, "void (double, double)", "{ double, double } ()");
    check(
        &floats,
        "void (<2 x float>, float)",
        "{ <2 x float>, float } ()",
    );
    check(&mixed, "void (i64, double)", "{ i64, double } ()");
    check(&bytes, "void (i24)", "i24 ()");
    check(&named, "void (ptr, i32)", "{ ptr, i32 } ()");
    check(&large, "void (ptr byval(24))", "void (ptr sret(24))");
}

#[test]
fn a_struct_goes_to_memory_as_a_whole_where_registers_do_not_suffice() {
    let pair = of(&[(&I64, 8), (&I64, 8)]);
    let five = vec![I64; 5];
    let mut all = five.clone();
    all.extend([pair.clone(), I64]);
    assert_eq!(
        text(VOID, &all),
        "void (i64, i64, i64, i64, i64, ptr byval(16), i64)"
    );
    // A result in memory takes a register, too.
    let large = of(&[(&I64, 8), (&I64, 8), (&I64, 8)]);
    let mut four = vec![I64; 4];
    four.push(pair);
    assert_eq!(
        text(large, &four),
        "void (ptr sret(24), i64, i64, i64, i64, ptr byval(16))"
    );
}

#[test]
fn other_front_ends_ways_are_the_same_call() {
    let floats = of(&[(&F32, 4), (&F32, 4)]);
    let ints = of(&[(&I64, 8), (&I64, 8)]);
    let ty = |result: &ValueType, parameters: &[&ValueType]| FunctionType {
        result: result.clone(),
        parameters: parameters.iter().map(|&it| it.clone()).collect(),
    };
    let taking = ty(&VOID, &[&floats, &ints]);
    assert!(taking.agrees("void (<2 x float>, i64, i64)"));
    assert!(taking.agrees("void (double, { i64, i64 })"));
    assert!(taking.agrees("void (double, [2 x i64])"));
    assert!(!taking.agrees("void (i64, i64, i64)"));
    assert!(!taking.agrees("void (double, i64)"));
    assert!(!taking.agrees("void (double, ptr byval(16))"));
    let giving = ty(&ints, &[]);
    assert!(giving.agrees("{ i64, i64 } ()"));
    assert!(giving.agrees("[2 x i64] ()"));
    assert!(!giving.agrees("i64 ()"));
    assert!(!giving.agrees("void (ptr sret(16))"));
}

#[test]
fn numbers_are_compared_as_they_are_written() {
    let ty = FunctionType::parse("i64 (ptr, double)").expect("well written");
    assert!(ty.agrees("i64 (ptr, double)"));
    for other in [
        "i32 (ptr, double)",
        "i64 (ptr)",
        "i64 (ptr, double, ...)",
        "i64",
        "",
    ] {
        assert!(!ty.agrees(other), "{other}");
    }
    // Rules that hold for structs only.
    let pair = FunctionType::parse("void (i64, i64)").expect("well written");
    assert!(!pair.agrees("void ({ i64, i64 })"));
}

#[test]
fn pointers_of_all_address_spaces_but_segments_are_passed_alike() {
    let ty = FunctionType {
        result: PTR,
        parameters: vec![PTR, I64],
    };
    assert!(ty.agrees("ptr (ptr, i64)"));
    assert!(ty.agrees("ptr addrspace(1) (ptr addrspace(3), i64)"));
    assert!(!ty.agrees("ptr (ptr addrspace(257), i64)"));
    assert!(!ty.agrees("ptr (ptr addrspace(x), i64)"));
    assert!(!ty.agrees("ptr (ptr addrspace(1)"));
}

/// IR defines one bit of an `i1`, which suffices for a callee in IR.
#[test]
fn one_bit_of_a_struct_agrees_where_the_others_do_not_matter() {
    let flag = ValueType::scalar("i1", Extend::Zero, Some(Leaf::Bool));
    let pair = of(&[(&I64, 8), (&flag, 1)]);
    let ty = |result: &ValueType, parameters: &[&ValueType]| FunctionType {
        result: result.clone(),
        parameters: parameters.iter().map(|&it| it.clone()).collect(),
    };
    let taking = ty(&VOID, &[&pair]);
    assert_eq!(taking.to_string(), "void (i64, i8)");
    for fine in ["void (i64, i8)", "void ({ i64, i1 })", "void (i64, i1)"] {
        assert!(taking.agrees(fine), "{fine}");
    }
    // Rust and C leave the bits behind a field unchanged.
    for extended in ["void (i64, i1 zeroext)", "void (i64, i8 signext)"] {
        assert!(!taking.agrees(extended), "{extended}");
    }
    assert!(
        !taking.agrees_with_declared("void (i64, i1)"),
        "IR may give any"
    );
    let byte = of(&[(&I64, 8), (&I8, 1)]);
    assert!(!ty(&VOID, &[&byte]).agrees("void (i64, i1)"));
    let two = of(&[(&flag, 1), (&flag, 1)]);
    assert!(!ty(&VOID, &[&two]).agrees("void (i1)"));

    let giving = ty(&pair, &[&I64]);
    assert!(giving.agrees("{ i64, i8 } (i64)"));
    let actual = "{ i64, i1 } (i64)";
    assert!(!giving.agrees(actual));
    assert!(giving.undefined_bits(actual).is_some());
    assert!(giving.undefined_bits("{ i64, i1 } (ptr)").is_none());
    assert!(giving.undefined_bits("{ i32, i1 } (i64)").is_none());
    let alone = ty(&of(&[(&flag, 1)]), &[]);
    for fine in ["i8 ()", "i1 ()", "i1 zeroext ()"] {
        assert!(alone.agrees(fine), "{fine}");
    }
}
