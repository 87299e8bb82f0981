//! Reduces a failing function: keeps changes after which it still fails, until none is left.

use crate::ir::{self, Block, Function, Op, Operand, Type, Value};

use crate::draft::{Draft, operands_mut};

/// Limit of tried functions.
const TRIES: usize = 3000;

/// The smallest function found that still fails.
pub fn reduce(function: &Function, fails: &mut dyn FnMut(&Function) -> bool) -> Function {
    let mut best = function.clone();
    let mut tries = 0;
    loop {
        let mut better = None;
        for change in changes(&best) {
            tries += 1;
            if tries > TRIES {
                return best;
            }
            let Some(draft) = change.of(&best) else {
                continue;
            };
            let smaller = draft.finish();
            if ir::check(&smaller).is_ok() && fails(&smaller) {
                best = smaller.clone();
                better = Some(smaller);
                // Indexes have moved when blocks or parameters are removed; else continue.
                if !matches!(change, Change::Operand(..) | Change::Goto(..)) {
                    break;
                }
            }
        }
        if better.is_none() {
            return best;
        }
    }
}

/// A change that makes a function smaller or simpler.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Removes unreachable blocks.
    Unreached,
    /// Makes a terminator lead to one of its successors.
    Goto(usize, usize),
    /// Makes a block return constants.
    Return(usize),
    /// Removes a range of instructions; their results become constants.
    Gone(usize, usize, usize),
    /// Makes an operand a constant.
    Operand(usize, usize, usize),
    /// Removes an argument of a call.
    Argument(usize, usize, usize),
    /// Merges a block with its only successor, if that has no other predecessor.
    Merge(usize),
    /// Removes unused parameters from one on.
    Parameter(usize),
    /// Removes all counters.
    Counting,
    /// Removes a returned result.
    Returned(usize),
}

fn changes(function: &Function) -> Vec<Change> {
    let draft = Draft::of(function);
    let mut all = vec![Change::Unreached, Change::Counting];
    for (index, block) in draft.blocks.iter().enumerate() {
        all.push(Change::Return(index));
        if block.successors.len() > 1 {
            all.extend((0..block.successors.len()).map(|nth| Change::Goto(index, nth)));
        }
        all.push(Change::Merge(index));
    }
    for size in [16, 8, 4, 2, 1] {
        for (index, block) in draft.blocks.iter().enumerate().rev() {
            let end = block.code.len() - 1;
            let starts = (0..end)
                .rev()
                .filter(|from| from + size <= end && from % size == 0);
            all.extend(starts.map(|from| Change::Gone(index, from, size)));
        }
    }
    all.extend((0..function.parameters.len()).rev().map(Change::Parameter));
    all.extend((0..function.returns.len()).rev().map(Change::Returned));
    for (index, block) in draft.blocks.iter().enumerate() {
        for (nth, (op, _)) in block.code.iter().enumerate() {
            if let Op::Call(call) = op {
                let arguments = 0..call.arguments.len();
                all.extend(arguments.map(|which| Change::Argument(index, nth, which)));
            }
            let (mut count, mut list) = (0, Vec::new());
            op.operands(|operand| {
                if matches!(operand, Operand::Value(_)) {
                    list.push(count);
                }
                count += 1;
            });
            all.extend(
                list.into_iter()
                    .map(|which| Change::Operand(index, nth, which)),
            );
        }
    }
    all
}

fn constant(ty: Type) -> Operand {
    match ty {
        Type::Int(_) => Operand::Int(1),
        Type::F32 => Operand::Float(0x3f80_0000),
        Type::F64 => Operand::Float(0x3ff0_0000_0000_0000),
        _ => Operand::Undef,
    }
}

impl Change {
    fn of(self, function: &Function) -> Option<Draft> {
        let mut draft = Draft::of(function);
        match self {
            Change::Unreached => {
                let before = draft.blocks.len();
                remove_unreached(&mut draft);
                (draft.blocks.len() < before).then_some(())?;
            }
            Change::Goto(block, nth) => {
                let its = draft.blocks.get_mut(block)?;
                let to = *its.successors.get(nth)?;
                let old = std::mem::replace(&mut its.successors, vec![to]);
                its.code.pop();
                its.code.push((Op::Jump, vec![]));
                for (index, one) in old.into_iter().enumerate() {
                    if index != nth {
                        lose_edge(&mut draft, Block(block as u32), one);
                    }
                }
                remove_unreached(&mut draft);
            }
            Change::Return(block) => {
                let list = draft
                    .rest
                    .returns
                    .iter()
                    .map(|one| constant(one.ty))
                    .collect();
                let its = draft.blocks.get_mut(block)?;
                if matches!(its.code.last()?.0, Op::Return(_)) {
                    return None;
                }
                let old = std::mem::take(&mut its.successors);
                its.code.pop();
                its.code.push((Op::Return(list), vec![]));
                for one in old {
                    lose_edge(&mut draft, Block(block as u32), one);
                }
                remove_unreached(&mut draft);
            }
            Change::Gone(block, from, count) => {
                let code = &mut draft.blocks.get_mut(block)?.code;
                if from + count >= code.len() {
                    return None;
                }
                let gone: Vec<_> = code.drain(from..from + count).collect();
                for value in gone.into_iter().flat_map(|(_, results)| results) {
                    replace(&mut draft, value);
                }
            }
            Change::Operand(block, nth, which) => {
                let types = draft.types.clone();
                let op = &mut draft.blocks.get_mut(block)?.code.get_mut(nth)?.0;
                let mut count = 0;
                let mut changed = false;
                operands_mut(op, |operand| {
                    if let (Operand::Value(value), true) = (*operand, count == which) {
                        *operand = constant(types[value.index()]);
                        changed = true;
                    }
                    count += 1;
                });
                changed.then_some(())?;
            }
            Change::Argument(block, nth, which) => {
                let op = &mut draft.blocks.get_mut(block)?.code.get_mut(nth)?.0;
                let Op::Call(call) = op else {
                    return None;
                };
                (which < call.arguments.len()).then(|| call.arguments.remove(which))?;
            }
            Change::Merge(block) => merge(&mut draft, block)?,
            Change::Parameter(which) => remove_parameter(&mut draft, which)?,
            Change::Counting => {
                let old = std::mem::take(&mut draft.rest.counting);
                (old != draft.rest.counting).then_some(())?;
            }
            Change::Returned(which) => {
                draft.rest.returns.remove(which);
                for block in &mut draft.blocks {
                    if let Some((Op::Return(list), _)) = block.code.last_mut() {
                        list.remove(which);
                    }
                }
            }
        }
        Some(draft)
    }
}

/// Replaces uses of a value by a constant.
fn replace(draft: &mut Draft, value: Value) {
    let new = constant(draft.types[value.index()]);
    let change = |operand: &mut Operand| {
        if *operand == Operand::Value(value) {
            *operand = new;
        }
    };
    for (op, _) in draft.blocks.iter_mut().flat_map(|block| &mut block.code) {
        operands_mut(op, change);
    }
    for head in &mut draft.rest.counting.heads {
        head.arguments
            .iter_mut()
            .for_each(|one| change(&mut one.operand));
    }
}

/// Removes one operand for `from` from the phis of `to`.
fn lose_edge(draft: &mut Draft, from: Block, to: Block) {
    for (op, _) in &mut draft.blocks[to.index()].code {
        if let Op::Phi(_, incoming) = op
            && let Some(which) = incoming.iter().position(|(block, _)| *block == from)
        {
            incoming.remove(which);
        }
    }
}

fn remove_unreached(draft: &mut Draft) {
    let mut reached = vec![false; draft.blocks.len()];
    let mut open = vec![Block(0)];
    while let Some(block) = open.pop() {
        if !std::mem::replace(&mut reached[block.index()], true) {
            open.extend(&draft.blocks[block.index()].successors);
        }
    }
    let gone = |block: Block| !reached[block.index()];
    let new =
        |block: Block| Block(reached[..block.index()].iter().filter(|is| **is).count() as u32);
    let mut kept = Vec::new();
    for (block, is) in draft.blocks.drain(..).zip(&reached) {
        if *is {
            kept.push(block);
        }
    }
    for block in &mut kept {
        for to in &mut block.successors {
            *to = new(*to);
        }
        for (op, _) in &mut block.code {
            if let Op::Phi(_, incoming) = op {
                incoming.retain(|(from, _)| !gone(*from));
                incoming.iter_mut().for_each(|(from, _)| *from = new(*from));
            }
        }
    }
    draft.blocks = kept;
    let counting = &mut draft.rest.counting;
    counting.heads.retain(|head| !gone(head.block));
    counting
        .heads
        .iter_mut()
        .for_each(|head| head.block = new(head.block));
    counting.latches.retain(|&block| !gone(block));
    counting
        .latches
        .iter_mut()
        .for_each(|block| *block = new(*block));
}

/// Merges the block's only successor into it, if that has no other predecessor.
fn merge(draft: &mut Draft, block: usize) -> Option<()> {
    let from = Block(block as u32);
    let [to] = draft.blocks.get(block)?.successors[..] else {
        return None;
    };
    let edges = draft
        .blocks
        .iter()
        .flat_map(|one| &one.successors)
        .filter(|&&one| one == to);
    if edges.count() != 1 || to == from || !draft.rest.counting.heads.is_empty() {
        return None;
    }
    let theirs = std::mem::take(&mut draft.blocks[to.index()]);
    // Phis of one edge equal its operands: left to other changes.
    if theirs.code.iter().any(|(op, _)| matches!(op, Op::Phi(..))) {
        return None;
    }
    for (op, _) in draft.blocks.iter_mut().flat_map(|block| &mut block.code) {
        if let Op::Phi(_, incoming) = op {
            for (one, _) in incoming.iter_mut().filter(|(one, _)| *one == to) {
                *one = from;
            }
        }
    }
    let its = &mut draft.blocks[block];
    its.code.pop();
    its.code.extend(theirs.code);
    its.successors = theirs.successors;
    draft.blocks[to.index()].code = vec![(Op::Unreachable, vec![])];
    remove_unreached(draft);
    Some(())
}

fn remove_parameter(draft: &mut Draft, which: usize) -> Option<()> {
    (which < draft.rest.parameters.len()).then_some(())?;
    replace(draft, Value(which as u32));
    draft.rest.parameters.remove(which);
    draft.types.remove(which);
    let change = |value: &mut Value| {
        if value.index() > which {
            value.0 -= 1;
        }
    };
    for (op, results) in draft.blocks.iter_mut().flat_map(|block| &mut block.code) {
        operands_mut(op, |operand| {
            if let Operand::Value(value) = operand {
                change(value);
            }
        });
        results.iter_mut().for_each(change);
    }
    for head in &mut draft.rest.counting.heads {
        for argument in &mut head.arguments {
            if let Operand::Value(value) = &mut argument.operand {
                change(value);
            }
        }
    }
    Some(())
}
