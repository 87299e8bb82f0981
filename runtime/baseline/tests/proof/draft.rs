//! A function under construction or change: values have any numbers, blocks grow independently.

use std::collections::HashMap;

use uruk_baseline::ir::{
    Block, BlockData, Callee, Function, Instruction, NO_LINE, Op, Operand, Reach, Symbol,
    SymbolData, Type, Value,
};

/// A block with its instructions and their results.
#[derive(Debug, Clone, Default)]
pub struct DraftBlock {
    pub code: Vec<(Op, Vec<Value>)>,
    pub successors: Vec<Block>,
}

#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The function without blocks, instructions and types.
    pub rest: Function,
    /// Types by the draft's numbers; those of parameters come first.
    pub types: Vec<Type>,
    pub blocks: Vec<DraftBlock>,
}

impl Draft {
    pub fn of(function: &Function) -> Draft {
        let mut draft = Draft {
            rest: Function {
                types: Vec::new(),
                blocks: Vec::new(),
                instructions: Vec::new(),
                ..function.clone()
            },
            types: function.types.clone(),
            blocks: Vec::new(),
        };
        for (index, block) in function.blocks.iter().enumerate() {
            let code = function.of_block(Block(index as u32)).map(|(_, one)| {
                let results = one.results.clone().map(Value);
                (one.op.clone(), results.collect())
            });
            draft.blocks.push(DraftBlock {
                code: code.collect(),
                successors: block.successors.to_vec(),
            });
        }
        draft
    }

    pub fn value(&mut self, ty: Type) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }

    pub fn block(&mut self) -> Block {
        self.blocks.push(DraftBlock::default());
        Block(self.blocks.len() as u32 - 1)
    }

    pub fn symbol(&mut self, name: &str, reach: Reach) -> Symbol {
        let symbols = &mut self.rest.symbols;
        let known = symbols.iter().position(|one| &*one.name == name);
        let index = known.unwrap_or_else(|| {
            symbols.push(SymbolData {
                name: name.into(),
                reach,
                is_weak: false,
            });
            symbols.len() - 1
        });
        Symbol(index as u32)
    }

    /// The function, with its values numbered in order.
    pub fn finish(&self) -> Function {
        let mut numbers: HashMap<Value, Value> = HashMap::new();
        let mut function = self.rest.clone();
        let mut number = |value: Value, types: &mut Vec<Type>| {
            numbers.insert(value, Value(types.len() as u32));
            types.push(self.types[value.index()]);
        };
        for index in 0..function.parameters.len() {
            number(Value(index as u32), &mut function.types);
        }
        for block in &self.blocks {
            let start = function.instructions.len() as u32;
            for (op, results) in &block.code {
                let first = function.types.len() as u32;
                for &result in results {
                    number(result, &mut function.types);
                }
                function.instructions.push(Instruction {
                    op: op.clone(),
                    results: first..function.types.len() as u32,
                    line: NO_LINE,
                });
            }
            function.blocks.push(BlockData {
                instructions: start..function.instructions.len() as u32,
                successors: block.successors.iter().copied().collect(),
            });
        }
        // An operand without a definition becomes an unknown value, which the check finds.
        let renamed = |operand: &mut Operand| {
            if let Operand::Value(value) = operand {
                *value = numbers.get(value).copied().unwrap_or(Value(u32::MAX));
            }
        };
        for instruction in &mut function.instructions {
            if let Op::Phi(_, incoming) = &mut instruction.op {
                incoming.sort_by_key(|&(from, _)| from);
            }
            operands_mut(&mut instruction.op, renamed);
        }
        for head in &mut function.counting.heads {
            for argument in &mut head.arguments {
                renamed(&mut argument.operand);
            }
            for stored in &mut head.stored {
                renamed(&mut stored.operand);
            }
        }
        function
    }
}

/// Calls `change` with each operand.
pub fn operands_mut(op: &mut Op, mut change: impl FnMut(&mut Operand)) {
    let change = &mut change;
    match op {
        Op::Int(_, _, list) | Op::Overflow(_, _, list) | Op::Float(_, _, list) => {
            list.iter_mut().for_each(change);
        }
        Op::Compare(_, _, list) | Op::FloatCompare(_, _, list) => {
            list.iter_mut().for_each(change);
        }
        Op::Resume(list) | Op::VaCopy(list) => list.iter_mut().for_each(change),
        Op::Funnel(_, _, list) | Op::Fma(_, list) | Op::Select(_, list) => {
            list.iter_mut().for_each(change);
        }
        Op::Memory(_, list, _) => list.iter_mut().for_each(change),
        Op::WideCompare(_, list) => list.iter_mut().for_each(change),
        Op::Wide(_, list) | Op::Return(list) => list.iter_mut().for_each(change),
        Op::Bits(_, _, one) | Op::FloatUnary(_, _, one) | Op::Cast(_, _, _, one) => change(one),
        Op::StackRestore(one) | Op::VaStart(one) | Op::VaArg(_, one) => change(one),
        Op::StoreControl(one) | Op::LoadControl(one) => change(one),
        Op::Prefetch(one) | Op::Branch(one) | Op::IndirectJump(one) => change(one),
        Op::Switch(_, one, _) | Op::Dispatch(one, _) => change(one),
        Op::DynamicAlloca { count, .. } => change(count),
        Op::Phi(_, incoming) => incoming.iter_mut().for_each(|(_, one)| change(one)),
        Op::Load { address, .. } => change(address),
        Op::Store { address, value, .. } | Op::Rmw { address, value, .. } => {
            change(address);
            change(value);
        }
        Op::CompareExchange {
            address,
            expected,
            value,
            ..
        } => {
            change(address);
            change(expected);
            change(value);
        }
        Op::Offset { base, terms, .. } => {
            change(base);
            terms.iter_mut().for_each(|term| change(&mut term.operand));
        }
        Op::Call(call) | Op::Invoke(call) => {
            if let Callee::Operand(operand) = &mut call.callee {
                change(operand);
            }
            call.arguments
                .iter_mut()
                .for_each(|argument| change(&mut argument.operand));
        }
        _ => {}
    }
}
