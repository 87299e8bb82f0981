//! More families: intrinsics, floats, memory.

use super::cases::{Case, case};
use super::types::{APART, Ty};

/// Bits, overflow, saturation.
pub fn integer_intrinsics() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in [8, 16, 24, 32, 33, 64, 128] {
        let ty = Ty::Int(bits);
        let mut add = |name: &str, operands: usize, last: &str, shape: &str| {
            for volatile in [false, true] {
                let of = [format!("{ty} %a"), format!("{ty} %b"), format!("{ty} %c")];
                let mut of = of[..operands].join(", ") + last;
                if shape == "by a number" {
                    of = format!("{ty} %a, {ty} %b, {ty} 5");
                }
                let full = format!("llvm.{name}.{ty}");
                let body = format!("  %r = call {ty} @{full}({of})\n");
                let mut types = vec![ty.to_string(); if shape.is_empty() { operands } else { 3 }];
                if !last.is_empty() {
                    types.push("i1".into());
                }
                let declared = format!("declare {ty} @{full}({})", types.join(", "));
                let name = format!("{full}.{operands}{last}.{shape}.{volatile}");
                let operands = vec![ty; operands];
                all.push(case(name, &operands, volatile, &body, ty).declare(declared));
            }
        };
        add("ctpop", 1, "", "");
        add("bitreverse", 1, "", "");
        if bits % 16 == 0 {
            add("bswap", 1, "", "");
        }
        for name in ["ctlz", "cttz", "abs"] {
            add(name, 1, ", i1 false", "");
        }
        for name in [
            "umin", "umax", "smin", "smax", "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat",
        ] {
            add(name, 2, "", "");
        }
        for name in ["fshl", "fshr"] {
            add(name, 3, "", "");
            add(name, 2, "", "by a number");
        }
        for name in ["sadd", "uadd", "ssub", "usub", "smul", "umul"] {
            let full = format!("llvm.{name}.with.overflow.{ty}");
            let both = format!("{{ {ty}, i1 }}");
            let made = format!(
                "  %s = call {both} @{full}({ty} %a, {ty} %b)\n  %v = extractvalue {both} %s, 0\n  \
                 %o = extractvalue {both} %s, 1\n"
            );
            let declared = format!("declare {both} @{full}({ty}, {ty})");
            let stored = format!("{made}{}  %r = add i1 %o, false\n", ty.store("%v", 1));
            let branch = format!(
                "{made}  br i1 %o, label %yes, label %no\nyes:\n  br label %no\nno:\n  \
                 %r = phi {ty} [ %v, %entry ], [ 3, %yes ]\n"
            );
            for volatile in [false, true] {
                let name = format!("{full}.{volatile}");
                let bit = case(name.clone(), &[ty, ty], volatile, &stored, Ty::Int(1));
                all.push(bit.declare(declared.clone()));
                let mut branch = case(name + ".branch", &[ty, ty], volatile, &branch, ty);
                branch.text = branch.text.replacen("{\n", "{\nentry:\n", 1);
                all.push(branch.declare(declared.clone()));
            }
        }
    }
    all
}

/// Arithmetic and intrinsics of floats.
pub fn floats() -> Vec<Case> {
    let mut all = Vec::new();
    for ty in [Ty::F32, Ty::F64, Ty::F80] {
        for volatile in [false, true] {
            for op in ["fadd", "fsub", "fmul", "fdiv", "frem"] {
                let body = format!("  %r = {op} {ty} %a, %b\n");
                let name = format!("{op}.{ty}.{volatile}");
                all.push(case(name, &[ty, ty], volatile, &body, ty));
                for number in ["0.0", "1.0", "-2.5"] {
                    if ty == Ty::F80 {
                        continue;
                    }
                    for (a, b) in [("%a", number), (number, "%a")] {
                        let body = format!("  %r = {op} {ty} {a}, {b}\n");
                        let name = format!("{op}.{ty}.{a}.{b}.{volatile}");
                        all.push(case(name, &[ty], volatile, &body, ty));
                    }
                }
            }
            let body = format!("  %r = fneg {ty} %a\n");
            all.push(case(
                format!("fneg.{ty}.{volatile}"),
                &[ty],
                volatile,
                &body,
                ty,
            ));
            let mangled = ty.mangled();
            let one = [
                "fabs",
                "sqrt",
                "floor",
                "ceil",
                "trunc",
                "rint",
                "nearbyint",
                "round",
            ];
            let two = ["copysign", "minnum", "maxnum"];
            let three = ["fma", "fmuladd"];
            let named = one
                .iter()
                .map(|it| (it, 1))
                .chain(two.iter().map(|it| (it, 2)));
            for (intrinsic, operands) in named.chain(three.iter().map(|it| (it, 3))) {
                let full = format!("llvm.{intrinsic}.{mangled}");
                let of = [format!("{ty} %a"), format!("{ty} %b"), format!("{ty} %c")];
                let body = format!("  %r = call {ty} @{full}({})\n", of[..operands].join(", "));
                let types = vec![ty.to_string(); operands].join(", ");
                let declared = format!("declare {ty} @{full}({types})");
                let name = format!("{full}.{volatile}");
                let operands = vec![ty; operands];
                all.push(case(name, &operands, volatile, &body, ty).declare(declared));
            }
        }
    }
    all
}

/// Addresses, aggregates, and what is done with memory in one step.
pub fn memory() -> Vec<Case> {
    let mut all = atomics();
    for bits in [8, 16, 32, 64] {
        for size in [1, 2, 3, 4, 5, 8, 12, 16, 24, 40] {
            for add in [0, 7, -100_000] {
                let ty = Ty::Int(bits);
                let body = format!(
                    "  %p = getelementptr [{size} x i8], ptr %in, {ty} %a\n  \
                     %q = getelementptr i8, ptr %p, i64 {add}\n  %n = ptrtoint ptr %q to i64\n  \
                     %o = ptrtoint ptr %in to i64\n  %r = sub i64 %n, %o\n"
                );
                let name = format!("getelementptr.{ty}.{size}.{add}");
                all.push(case(name, &[ty], false, &body, Ty::Int(64)));
            }
        }
    }
    let both = "{ i8, i64, float, { double, i16 } }";
    for (at, ty) in [
        ("0", Ty::Int(8)),
        ("1", Ty::Int(64)),
        ("2", Ty::F32),
        ("3, 1", Ty::Int(16)),
    ] {
        let body = format!(
            "  %s = load {both}, ptr %in\n  %x = extractvalue {both} %s, {at}\n  \
             %t = insertvalue {both} %s, i64 %a, 1\n  store {both} %t, ptr %out1\n  \
             %f = freeze {ty} %x\n  %r = select i1 true, {ty} %f, {ty} undef\n"
        );
        let body = format!("  %out1 = getelementptr i8, ptr %out, i64 {APART}\n{body}");
        all.push(case(
            format!("aggregate.{at}"),
            &[Ty::Int(64)],
            false,
            &body,
            ty,
        ));
    }
    all
}

fn atomics() -> Vec<Case> {
    let mut all = Vec::new();
    let whole = [
        "xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin",
    ];
    for bits in [8, 16, 32, 64] {
        let ty = Ty::Int(bits);
        let prepare = format!(
            "  %word = getelementptr i8, ptr %out, i64 {APART}\n  store {ty} %a, ptr %word, align 8\n"
        );
        for order in ["monotonic", "seq_cst"] {
            for op in whole {
                let one = format!("atomicrmw {op} ptr %word, {ty} %b {order}, align 8\n");
                for (what, rest) in [
                    ("used", format!("  %r = {one}")),
                    ("unused", format!("  %old = {one}  %r = add {ty} %b, 0\n")),
                ] {
                    let name = format!("atomicrmw.{op}.{ty}.{order}.{what}");
                    let body = format!("{prepare}{rest}");
                    all.push(case(name, &[ty, ty], true, &body, ty));
                }
            }
            let body = format!(
                "{prepare}  %x = cmpxchg ptr %word, {ty} %b, {ty} %c {order} monotonic, align 8\n  \
                 %old = extractvalue {{ {ty}, i1 }} %x, 0\n  %is = extractvalue {{ {ty}, i1 }} %x, 1\n  \
                 %no = sub {ty} %old, 1\n  %r = select i1 %is, {ty} %old, {ty} %no\n"
            );
            all.push(case(
                format!("cmpxchg.{ty}.{order}"),
                &[ty, ty, ty],
                true,
                &body,
                ty,
            ));
            let (store, load) = match order {
                "seq_cst" => ("release", "acquire"),
                order => (order, order),
            };
            let body = format!(
                "{prepare}  store atomic {ty} %b, ptr %word {store}, align 8\n  \
                 %r = load atomic {ty}, ptr %word {load}, align 8\n"
            );
            all.push(case(
                format!("atomic.{ty}.{order}"),
                &[ty, ty],
                true,
                &body,
                ty,
            ));
        }
    }
    all
}
