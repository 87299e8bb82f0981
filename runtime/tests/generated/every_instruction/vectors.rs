//! Vectors, of the types that clang and rustc make of ordinary code.

use super::cases::{Case, case};
use super::types::{Part, Ty};

const WHOLE: [(u32, u32); 9] = [
    (2, 64),
    (4, 32),
    (8, 16),
    (16, 8),
    (2, 32),
    (4, 16),
    (8, 8),
    (4, 64),
    (8, 32),
];

/// Which lane of two vectors, one behind the other, each lane of a shuffle is.
type Order = Box<dyn Fn(u32) -> u32>;

/// Arithmetic, comparisons, lanes, shuffles, conversions, sums.
pub fn vectors() -> Vec<Case> {
    let mut all = Vec::new();
    for (lanes, bits) in WHOLE {
        let ty = Ty::Vector(lanes, Part::Int(bits));
        for op in ["add", "sub", "mul", "and", "or", "xor"] {
            let body = format!("  %r = {op} {ty} %a, %b\n");
            all.push(case(
                format!("{op}.{}", ty.mangled()),
                &[ty, ty],
                false,
                &body,
                ty,
            ));
        }
        for op in ["shl", "lshr", "ashr"] {
            let masked = format!(
                "  %by = and {ty} %b, splat (i{bits} {})\n  %r = {op} {ty} %a, %by\n",
                bits - 1
            );
            let name = format!("{op}.{}", ty.mangled());
            all.push(case(
                name.clone() + ".masked",
                &[ty, ty],
                false,
                &masked,
                ty,
            ));
            let by = format!("  %r = {op} {ty} %a, splat (i{bits} 3)\n");
            all.push(case(name + ".3", &[ty, ty], false, &by, ty));
        }
        for how in ["eq", "ugt", "slt", "sge"] {
            let compared = format!("  %x = icmp {how} {ty} %a, %b\n");
            let mask = Ty::Vector(lanes, Part::Int(1));
            let wide = format!("{compared}  %r = sext {mask} %x to {ty}\n");
            let name = format!("icmp.{how}.{}", ty.mangled());
            all.push(case(name.clone(), &[ty, ty], false, &wide, ty));
            let choice = format!("{compared}  %r = select {mask} %x, {ty} %a, {ty} %b\n");
            all.push(case(name + ".select", &[ty, ty], false, &choice, ty));
        }
        all.extend(lanes_of(lanes, Part::Int(bits)));
        for op in ["add", "or", "umax", "smin"] {
            let part = Ty::Int(bits);
            let full = format!("llvm.vector.reduce.{op}.{}", ty.mangled());
            let body = format!("  %r = call {part} @{full}({ty} %a)\n");
            let declared = format!("declare {part} @{full}({ty})");
            all.push(case(full.clone(), &[ty], false, &body, part).declare(declared));
        }
    }
    for (lanes, part) in [
        (4, Part::F32),
        (2, Part::F64),
        (2, Part::F32),
        (4, Part::F64),
    ] {
        let ty = Ty::Vector(lanes, part);
        for op in ["fadd", "fsub", "fmul", "fdiv"] {
            let body = format!("  %r = {op} {ty} %a, %b\n");
            all.push(case(
                format!("{op}.{}", ty.mangled()),
                &[ty, ty],
                false,
                &body,
                ty,
            ));
        }
        for how in ["oeq", "olt", "uge", "uno"] {
            let mask = Ty::Vector(lanes, Part::Int(1));
            let body = format!(
                "  %x = fcmp {how} {ty} %a, %b\n  %r = select {mask} %x, {ty} %a, {ty} %b\n"
            );
            all.push(case(
                format!("fcmp.{how}.{}", ty.mangled()),
                &[ty, ty],
                false,
                &body,
                ty,
            ));
        }
        all.extend(lanes_of(lanes, part));
    }
    all.extend(conversions());
    all
}

fn lanes_of(lanes: u32, part: Part) -> Vec<Case> {
    let (ty, one) = (Ty::Vector(lanes, part), part.ty());
    let mut all = Vec::new();
    for lane in [0, lanes - 1] {
        let body = format!("  %r = extractelement {ty} %a, i32 {lane}\n");
        all.push(case(
            format!("extract.{}.{lane}", ty.mangled()),
            &[ty],
            false,
            &body,
            one,
        ));
        let body = format!("  %r = insertelement {ty} %a, {one} %b, i32 {lane}\n");
        all.push(case(
            format!("insert.{}.{lane}", ty.mangled()),
            &[ty, one],
            false,
            &body,
            ty,
        ));
    }
    let at = format!("  %at = and i32 %b, {}\n", lanes - 1);
    let body = format!("{at}  %r = extractelement {ty} %a, i32 %at\n");
    let name = format!("extract.{}.any", ty.mangled());
    all.push(case(name, &[ty, Ty::Int(32)], false, &body, one));
    let body = format!("{at}  %r = insertelement {ty} %a, {one} %c, i32 %at\n");
    let name = format!("insert.{}.any", ty.mangled());
    all.push(case(name, &[ty, Ty::Int(32), one], false, &body, ty));
    let orders: [(&str, Order); 4] = [
        ("back", Box::new(move |lane| lanes - 1 - lane)),
        ("first", Box::new(|_| 0)),
        (
            "both",
            Box::new(move |lane| if lane % 2 == 0 { lane } else { lanes + lane }),
        ),
        ("turned", Box::new(move |lane| lane + 1)),
    ];
    for (what, order) in orders {
        let order: Vec<_> = (0..lanes)
            .map(|lane| format!("i32 {}", order(lane)))
            .collect();
        let body = format!(
            "  %r = shufflevector {ty} %a, {ty} %b, <{lanes} x i32> <{}>\n",
            order.join(", ")
        );
        all.push(case(
            format!("shuffle.{}.{what}", ty.mangled()),
            &[ty, ty],
            false,
            &body,
            ty,
        ));
    }
    all
}

fn conversions() -> Vec<Case> {
    let whole = |lanes, bits| Ty::Vector(lanes, Part::Int(bits));
    [
        ("zext", whole(8, 8), whole(8, 16)),
        ("sext", whole(4, 16), whole(4, 32)),
        ("zext", whole(4, 8), whole(4, 32)),
        ("sext", whole(2, 32), whole(2, 64)),
        ("trunc", whole(4, 32), whole(4, 16)),
        ("trunc", whole(2, 64), whole(2, 32)),
        ("trunc", whole(8, 16), whole(8, 8)),
        ("sitofp", whole(4, 32), Ty::Vector(4, Part::F32)),
        ("sitofp", whole(2, 32), Ty::Vector(2, Part::F64)),
        ("uitofp", whole(4, 32), Ty::Vector(4, Part::F32)),
        ("fpext", Ty::Vector(2, Part::F32), Ty::Vector(2, Part::F64)),
        (
            "fptrunc",
            Ty::Vector(2, Part::F64),
            Ty::Vector(2, Part::F32),
        ),
        ("bitcast", whole(4, 32), whole(2, 64)),
        ("bitcast", whole(8, 16), Ty::Vector(2, Part::F64)),
        ("bitcast", whole(16, 8), whole(4, 32)),
        ("bitcast", whole(2, 64), Ty::Int(128)),
        ("bitcast", Ty::Int(64), whole(8, 8)),
    ]
    .into_iter()
    .map(|(op, from, to)| {
        let body = format!("  %r = {op} {from} %a to {to}\n");
        case(
            format!("{op}.{}.{}", from.mangled(), to.mangled()),
            &[from],
            false,
            &body,
            to,
        )
    })
    .collect()
}
