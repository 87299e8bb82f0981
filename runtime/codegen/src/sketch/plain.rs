//! Sketches of bodies that LLVM did not read. Weights of the module in `!prof` are not seen here.

use uruk_bitcode::ir::{Body, Constant, Definition, GlobalKind, Instruction, Op, Type, ValueId};

use super::{CASE, EXPECTED, MOST_BLOCKS, Sketch, THROWN, compared};
use crate::numbered::Numbered;

/// LLVM's numbers of the predicates of equality.
const EQ: u32 = 32;
const NE: u32 = 33;

/// The sketch of a body of the module; an empty one if it has no calls, or is huge.
pub(crate) fn sketch(numbered: &Numbered, body: &Body) -> Sketch {
    let mut sketch = Sketch::default();
    if body.blocks.len() > MOST_BLOCKS {
        return sketch;
    }
    for (number, block) in (0..).zip(&body.blocks) {
        let instructions = &body.instructions[block.start as usize..block.end as usize];
        for instruction in instructions {
            if let Some(global) = called(numbered, body, instruction)
                && !is_intrinsic(numbered, global)
            {
                sketch.calls.push((number, numbered.symbol(global)));
            }
        }
    }
    if sketch.calls.is_empty() {
        return sketch;
    }
    sketch.starts.push(0);
    for (number, block) in (0..).zip(&body.blocks) {
        // A block has one instruction at least, its terminator.
        let end = &body.instructions[block.end as usize - 1];
        match &end.op {
            Op::Unreachable | Op::Resume => sketch.ends.push(number),
            Op::Jump(to) => sketch.edges.push((to.0, 1.0)),
            Op::Branch([yes, no]) => {
                let holds = holds(numbered, body, body.operands_of(end)[0]);
                sketch.edges.push((yes.0, holds));
                sketch.edges.push((no.0, 1.0 - holds));
            }
            Op::Invoke(_, [on, pad]) => {
                sketch.edges.push((on.0, 1.0 - THROWN));
                sketch.edges.push((pad.0, THROWN));
            }
            Op::Switch(to) | Op::IndirectBranch(to) => {
                let chance = if to.len() > 1 { CASE } else { 1.0 };
                let edges = to.iter().map(|to| (to.0, chance));
                sketch.edges.extend(edges);
            }
            _ => {}
        }
        sketch.starts.push(sketch.edges.len() as u32);
    }
    sketch
}

/// The function that an instruction calls by its name.
fn called(numbered: &Numbered, body: &Body, instruction: &Instruction) -> Option<u32> {
    let (Op::Call(_) | Op::Invoke(..)) = instruction.op else {
        return None;
    };
    let &callee = body.operands_of(instruction).first()?;
    let module = &numbered.source.module;
    match body.definition(module, callee)? {
        Definition::Global(global) => {
            let is_function = module.globals[global as usize].kind == GlobalKind::Function;
            is_function.then_some(global)
        }
        _ => None,
    }
}

fn is_intrinsic(numbered: &Numbered, global: u32) -> bool {
    let module = &numbered.source.module;
    let global = &module.globals[global as usize];
    module.name(global).starts_with("llvm.")
}

/// The chance that a condition holds.
fn holds(numbered: &Numbered, body: &Body, condition: ValueId) -> f32 {
    let Some(instruction) = body.maker(condition) else {
        return 0.5;
    };
    let (Op::Compare(predicate @ 32..), [left, right]) =
        (&instruction.op, body.operands_of(instruction))
    else {
        return 0.5;
    };
    let module = &numbered.source.module;
    let number = |value: ValueId| match body.definition(module, value)? {
        Definition::Constant(Constant::Integer(words)) => words.first().copied(),
        Definition::Constant(Constant::Null) => Some(0),
        _ => None,
    };
    let expected = body.maker(*left).and_then(|it| {
        let global = called(numbered, body, it)?;
        let name = module.name(&module.globals[global as usize]);
        let says = name.starts_with("llvm.expect.");
        let &said = body.operands_of(it).get(2)?;
        says.then(|| number(said)).flatten()
    });
    if let (Some(expected), Some(right)) = (expected, number(*right)) {
        let same = right == expected;
        return match *predicate {
            EQ if same => EXPECTED,
            NE if !same => EXPECTED,
            EQ | NE => 1.0 - EXPECTED,
            _ => 0.5,
        };
    }
    let pointer = body
        .type_of(module, *left)
        .is_some_and(|ty| matches!(module.ty(ty), Type::Pointer(_)));
    compared(*predicate, pointer, number(*right) == Some(0))
}

#[cfg(test)]
mod tests {
    use uruk_bitcode::ir::Body;

    use crate::bitcode::Bitcode;
    use crate::numbered::Numbered;
    use crate::reader::Reader;
    use crate::summary::SymbolId;

    const TEXT: &str = "declare void @a() declare i32 @b(ptr) declare i32 @personality(...)
        declare i64 @llvm.expect.i64(i64, i64) declare void @llvm.trap()
        define i32 @calls(ptr %p, i64 %n, i32 %s) personality ptr @personality {
        entry:
            %null = icmp eq ptr %p, null
            br i1 %null, label %none, label %some
        none:
            call void @a()
            call void @llvm.trap()
            unreachable
        some:
            %x = call i32 @b(ptr %p)
            %status = icmp ne i32 %x, 0
            br i1 %status, label %bad, label %well
        well:
            %e = call i64 @llvm.expect.i64(i64 %n, i64 1)
            %c = icmp ne i64 %e, 1
            br i1 %c, label %bad, label %switch
        switch:
            switch i32 %s, label %bad [ i32 1, label %some i32 2, label %try ]
        try:
            %y = invoke i32 @b(ptr null) to label %bad unwind label %pad
        pad:
            %l = landingpad { ptr, i32 } cleanup
            resume { ptr, i32 } %l
        bad:
            ret i32 %s
        }
        define i32 @none() { ret i32 1 }";

    #[test]
    fn sketches_are_as_llvm_draws_them() {
        let bitcode = Bitcode::from_ir_text("m", TEXT).expect("valid");
        let mut reader = Reader::new(&bitcode).expect("valid");
        let numbered = Numbered::read(&bitcode, reader.summary()).expect("read here");
        let mut body = Body::default();
        let mut calls = 0;
        for index in 0..reader.summary().symbols.len() as u32 {
            let symbol = SymbolId(index);
            let Some(number) = numbered.body(symbol) else {
                continue;
            };
            let read = numbered
                .source
                .read_body(numbered.bytes(), number, &mut body);
            read.expect("read here");
            let ours = super::sketch(&numbered, &body);
            calls += ours.calls.len();
            let theirs = reader.sketch(symbol).expect("valid");
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        }
        assert_eq!(calls, 3);
    }
}
