//! Chooses the loops that are counted at their heads, and lists the values that cross there.

use rustc_hash::FxHashSet;
use uruk_baseline::ir::{
    Argument, Block, Head, Operand, Passing, Reach, Stored, Symbol, SymbolData, Time, Type,
};
use uruk_bitcode::ir::{Definition, Op, ValueId};
use uruk_leaving::{Candidates, Heads, Kind, Places, Reason, Shape as LoopShape, Variable};

use crate::Wanted;
use crate::anatomy::tell;
use crate::reading::{Covered, Reading, invalid, not};
use crate::types::{Shape, Vectors};

impl Reading<'_> {
    /// Marks the counted blocks, and the loops that can be left. All instructions were read.
    pub(crate) fn count(&mut self, wanted: Wanted<'_>) -> Covered<Heads> {
        let Some(counters) = wanted.counters else {
            return Ok(Heads::default());
        };
        self.out.counting.counters = Some(self.add_words(counters));
        match wanted.leaves {
            Some(name) if !self.flow.back.is_empty() => self.osr_loops(wanted, name),
            _ => {
                let latches = self.flow.latches();
                self.out.counting.latches = latches.into_iter().map(Block).collect();
                Ok(Heads::default())
            }
        }
    }

    fn add_words(&mut self, name: &str) -> Symbol {
        self.add_symbol(SymbolData {
            name: name.into(),
            reach: Reach::Near,
            is_weak: false,
        })
    }

    /// Marks the loops that are counted at their heads; the latches of the others are counted. With
    /// `exits`, lists the values that cross there.
    fn osr_loops(&mut self, wanted: Wanted<'_>, name: &str) -> Covered<Heads> {
        let loops = self.flow.graph.loops(&self.flow.back);
        let mut latches: Vec<u32> = self.flow.back.iter().map(|&(latch, _)| latch).collect();
        latches.sort_unstable();
        latches.dedup();
        let count = self.flow.loops();
        let shape = LoopShape {
            graph: &self.flow.graph,
            loops: loops.as_deref(),
            count,
            latches: &latches,
        };
        let mut candidates = Candidates::of(shape);
        let described = match wanted.exits {
            true => {
                let mut anatomy = std::mem::take(self.anatomy);
                tell(
                    self.lowering,
                    self.body,
                    self.number,
                    wanted.contract,
                    &mut anatomy,
                )?;
                let described = candidates.describe(&anatomy, shape, |it| self.can_cross(it));
                *self.anatomy = anatomy;
                described
            }
            false => None,
        };
        self.count_latches(&candidates.latches);
        let all = candidates.heads.counted.len();
        if all == 0 {
            return Ok(candidates.heads);
        }
        let assumed = match described.is_some() {
            true => self.assumed(),
            false => FxHashSet::default(),
        };
        self.out.counting.loops = Some(self.add_words(name));
        let mut heads = Vec::with_capacity(all);
        for place in 0..all {
            let block = candidates.heads.counted[place].block;
            let mut head = self.counted_head(block, Heads::places(place, all));
            if let Some((frame, crossing)) = &described
                && let Some(what) = &crossing[place]
            {
                let mut variables = what.variables.iter();
                let crossed = variables.try_for_each(|&it| {
                    self.cross(frame.variables[it as usize], &assumed, &mut head)
                });
                head.has_exit = crossed.is_ok();
                if crossed.is_err() {
                    candidates.refuse(place, Reason::Type);
                }
            }
            heads.push(head);
        }
        heads.sort_unstable_by_key(|head| head.block);
        self.out.counting.heads = heads;
        Ok(candidates.heads)
    }

    /// The head of a loop, by its first block in the body, without an exit.
    fn counted_head(&mut self, block: u32, places: Places) -> Head {
        let Places {
            slot,
            when,
            count,
            left,
            exit,
            timed,
        } = places;
        // The search for loops starts at the entry.
        self.block = self.flow.places[block as usize];
        Head {
            block: Block(self.block),
            slot: slot as u32,
            time: Some(Time {
                when: when as u32,
                timed: timed as u32,
            }),
            count: count as u32,
            left: left as u32,
            exit: exit as u32,
            has_exit: false,
            arguments: Vec::new(),
            assumed: Vec::new(),
            loaded: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// The values of which something is assumed, directly or of what is computed from them.
    fn assumed(&self) -> FxHashSet<ValueId> {
        let mut found = FxHashSet::default();
        let mut work = Vec::new();
        for (at, it) in self.body.instructions.iter().enumerate() {
            if !matches!(it.op, Op::Call(_)) {
                continue;
            }
            let operands = self.body.operands_of(it);
            let callee = operands.first();
            let callee = callee.and_then(|&it| self.body.definition(self.module, it));
            if let Some(Definition::Global(callee)) = callee
                && self.lowering.name(callee) == "llvm.assume"
            {
                work.extend(operands.iter().chain(self.body.bundled(at)));
            }
        }
        while let Some(value) = work.pop() {
            if found.insert(value)
                && let Some(maker) = self.body.maker(value)
            {
                work.extend(self.body.operands_of(maker));
            }
        }
        found
    }

    /// Makes these blocks count their executions.
    fn count_latches(&mut self, latches: &[u32]) {
        let places = latches.iter().map(|&it| self.flow.places[it as usize]);
        let mut places: Vec<u32> = places.collect();
        places.sort_unstable();
        self.out.counting.latches = places.into_iter().map(Block).collect();
    }

    /// The value of a variable.
    fn value_of(&self, variable: &Variable) -> Option<ValueId> {
        match variable.value.checked_sub(self.body.parameters) {
            None => Some(ValueId(self.body.first + variable.value)),
            Some(made) => self.body.instructions.get(made as usize)?.result,
        }
    }

    /// Whether a variable can cross: if it is passed in memory, its scalars are stored there.
    fn can_cross(&self, variable: &Variable) -> bool {
        if variable.kind != Kind::Stored {
            return true;
        }
        let value = self.value_of(variable);
        let ty = value.and_then(|value| self.body.type_of(self.module, value));
        ty.is_some_and(|ty| {
            let info = self.lowering.types.info(ty);
            // Its place is aligned like the stack.
            info.vectors != Vectors::Bits && info.align <= 16 && self.leaves(ty).is_ok()
        })
    }

    /// Adds the crossing values of a variable.
    fn cross(
        &mut self,
        variable: Variable,
        assumed: &FxHashSet<ValueId>,
        head: &mut Head,
    ) -> Covered<()> {
        let Some(value) = self.value_of(&variable) else {
            return invalid("a use of nothing");
        };
        if assumed.contains(&value) {
            head.assumed.push(head.arguments.len() as u32);
        }
        if variable.kind == Kind::Stored {
            return self.cross_in_memory(value, head);
        }
        let made = self.body.maker(value);
        let operand = self.one(value)?;
        let held = match (variable.kind, made.map(|it| &it.op)) {
            (Kind::Value, _) => Some(self.type_of(value)?),
            (Kind::Scalar, Some(Op::Alloca { of, .. })) => Some(*of),
            _ => None,
        };
        let ty = match held.map(|it| self.shape_of(it)) {
            None => Type::PTR,
            Some(Shape::Scalar(ty)) => ty,
            Some(_) => return not("what lives across a loop's head"),
        };
        if variable.kind == Kind::Scalar {
            head.loaded.push(head.arguments.len() as u32);
        }
        head.arguments.push(Argument {
            operand,
            ty,
            passing: Passing::Plain,
        });
        Ok(())
    }

    /// Adds a value that crosses in memory.
    fn cross_in_memory(&mut self, value: ValueId, head: &mut Head) -> Covered<()> {
        let leaves = self.leaves(self.type_of(value)?)?;
        let scalars = self.scalars(value)?;
        let argument = head.arguments.len() as u32;
        let operands = self.values.of(scalars);
        head.stored
            .extend(leaves.iter().zip(operands).map(|(leaf, &operand)| Stored {
                argument,
                offset: leaf.offset,
                operand,
                ty: leaf.ty,
            }));
        head.arguments.push(Argument {
            operand: Operand::Undef,
            ty: Type::PTR,
            passing: Passing::Plain,
        });
        Ok(())
    }
}
