//! Phis, whose operands are read after everything else.

use rustc_hash::FxHashSet;
use uruk_baseline::ir::{Block, Op};
use uruk_bitcode::ir::{self as bitcode, ValueId};

use crate::flow::UNREACHED;
use crate::reading::{Covered, Reading, TYPES, invalid};
use crate::values::Scalars;

impl<'a> Reading<'a> {
    pub(crate) fn phi(
        &mut self,
        at: u32,
        it: &'a bitcode::Instruction,
        incoming: usize,
    ) -> Covered<()> {
        if at >= self.first {
            return invalid("a phi behind something else");
        }
        let known = self.result(it)?;
        let first = self.out.instructions.len() as u32;
        let value = self.out.types.len() as u32;
        for leaf in self.leaves(known)? {
            self.emit(Op::Phi(leaf.ty, Vec::with_capacity(incoming)));
        }
        self.phis.push((at, first));
        let last = self.out.types.len() as u32;
        self.define(it, value..last)
    }

    /// The result of the `invoke` that ends a block, on its normal edge.
    fn on_edge(&self, value: ValueId, from: u32, to: u32) -> Option<Scalars> {
        let end = self.body.blocks[from as usize].end.checked_sub(1)?;
        let it = &self.body.instructions[end as usize];
        match &it.op {
            bitcode::Op::Invoke(_, [on, _])
                if it.result == Some(value) && self.flow.places[on.0 as usize] == to =>
            {
                self.values.get(value.0).map(|(scalars, _)| scalars)
            }
            _ => None,
        }
    }

    pub(crate) fn fill_phis(&mut self) -> Covered<()> {
        self.at_edges = true;
        for at in 0..self.phis.len() {
            let (at, first) = self.phis[at];
            self.fill_phi(&self.body.instructions[at as usize], first)?;
        }
        Ok(())
    }

    fn fill_phi(&mut self, phi: &'a bitcode::Instruction, first: u32) -> Covered<()> {
        const EDGES: &str = "a phi that has other edges";
        let (bitcode::Op::Phi(from), Some(result)) = (&phi.op, phi.result) else {
            return invalid(EDGES);
        };
        let ty = self.type_of(result)?;
        let (_, own) = self.values.get(result.0).unwrap_or_default();
        self.edges.clear();
        let mut jumps = FxHashSet::default();
        let operands = self.body.operands_of(phi);
        for (from, &value) in from.iter().zip(operands) {
            let place = self.flow.places[from.0 as usize];
            if place == UNREACHED {
                // It cannot be reached.
                continue;
            }
            // The first of several edges of a jump stands for all.
            let is_edge = !self.is_jump(place) || jumps.insert(place);
            self.edges.push((place, value.0));
            self.block = place;
            if self.type_of(value)? != ty {
                return invalid(TYPES);
            }
            let scalars = match self.on_edge(value, from.0, own) {
                Some(scalars) => scalars,
                None => self.scalars(value)?,
            };
            for at in 0..scalars.count {
                let operand = self.values.of(scalars)[at as usize];
                let into = &mut self.out.instructions[(first + at) as usize];
                match &mut into.op {
                    Op::Phi(_, incoming) if is_edge => incoming.push((Block(place), operand)),
                    _ => {}
                }
            }
        }
        for at in 0..self.leaves(ty)?.len() {
            if let Op::Phi(_, incoming) = &mut self.out.instructions[first as usize + at].op {
                incoming.sort_by_key(|&(from, _)| from);
            }
        }
        // Repeated operands of one block must be equal, and each edge must occur.
        self.edges.sort_unstable();
        let differ = |pair: &[(u32, u32)]| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1;
        if self.edges.windows(2).any(differ) {
            return invalid(EDGES);
        }
        let edges = self.edges.iter().map(|&(place, _)| place);
        match edges.eq(self.flow.predecessors(own).iter().copied()) {
            true => Ok(()),
            false => invalid(EDGES),
        }
    }
}
