//! Switches: tables where numbers are dense, else binary search.
//!
//! Consecutive numbers that lead to the same block are one range. A table needs [`LEAST`] ranges or
//! more that fill a third of it. A number that is known to be one of the values needs no comparison
//! with a table, so the table may have more empty entries then.

use crate::asm::{Alu, Condition, Gpr, Label, Mem, Scale, Width};
use crate::ir::{Block, Extension, Operand, Type};

use super::Emitter;
use super::operands::{bits_of, width_of, zero_extended};

/// Least ranges of a table.
const LEAST: usize = 4;

/// Most entries of a table for each range, if the number is one of them.
const SPARSE: u64 = 64;

/// Ranges that are compared one after the other.
const FEW: usize = 3;

/// A range of numbers that lead to one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    first: u64,
    last: u64,
    label: Label,
}

/// The ranges that are still to be distinguished.
#[derive(Debug, Clone, Copy)]
struct Left<'a> {
    cases: &'a [Case],
    /// Bounds of the number.
    least: u64,
    most: u64,
    /// Whether its code comes last.
    is_last: bool,
}

/// The register of the number, its width, and the target of all other numbers.
#[derive(Debug, Clone, Copy)]
struct Number {
    register: Gpr,
    width: Width,
    default: Label,
    /// Whether the default comes next in the code.
    is_next: bool,
}

impl Emitter<'_> {
    /// Switches to the successor of the number, or to the first; `values` belong to the second and
    /// later ones.
    pub(super) fn switch(&mut self, block: Block, ty: Type, operand: Operand, values: &[u64]) {
        let successors = &self.function.blocks[block.index()].successors;
        if let [default, others @ ..] = &successors[..] {
            self.by_number(block, (ty, operand), values, others, *default, false);
        }
    }

    /// Jumps to the successor of the number, which is one of the values.
    pub(super) fn dispatch(&mut self, block: Block, operand: Operand, values: &[u64]) {
        let successors = &self.function.blocks[block.index()].successors;
        if let [first, ..] = successors[..] {
            self.by_number(block, (Type::PTR, operand), values, successors, first, true);
        }
    }

    /// Jumps to the block whose value the operand has, or to the default. `is_one`: it has one of
    /// them.
    fn by_number(
        &mut self,
        block: Block,
        (ty, operand): (Type, Operand),
        values: &[u64],
        blocks: &[Block],
        default: Block,
        is_one: bool,
    ) {
        let bits = bits_of(ty);
        if let Operand::Int(constant) = operand {
            let constant = zero_extended(constant, bits);
            let at = values
                .iter()
                .position(|&v| zero_extended(v, bits) == constant);
            self.go(block, at.map_or(default, |at| blocks[at]));
            return;
        }
        let register = self.extended(operand, ty, Extension::Zero, Gpr::RAX);
        let mut cases = std::mem::take(self.cases);
        cases.clear();
        let values = values.iter().map(|&value| zero_extended(value, bits));
        let pairs = values.zip(blocks.iter().copied());
        let stubs = self.cases_of(block, pairs, default, &mut cases);
        let to_default = stubs[0].1;
        let number = Number {
            register,
            width: width_of(ty),
            default: to_default,
            is_next: self.is_next(default)
                && stubs.iter().all(|&(to, label)| label == self.label(to)),
        };
        let (least, most) = match (&cases[..], is_one) {
            ([first, .., last], true) => (first.first, last.last),
            _ => (0, zero_extended(u64::MAX, bits)),
        };
        let is_table = is_one && is_worth_a_table(&cases);
        if !is_table {
            cases.retain(|case| case.label != to_default);
        }
        let left = Left {
            cases: &cases,
            least,
            most,
            is_last: true,
        };
        match is_table {
            true => self.jump_by_table(number, left),
            false => self.tell_apart(number, left),
        }
        for &(to, label) in &stubs {
            self.case_labels[to.index()] = None;
            if label != self.label(to) {
                self.asm.bind(label);
                self.go_from(block, to);
            }
        }
        *self.cases = cases;
    }

    /// Collects the ranges of numbers, in order, and the stubs of edges: first the default.
    fn cases_of(
        &mut self,
        block: Block,
        pairs: impl Iterator<Item = (u64, Block)>,
        default: Block,
        cases: &mut Vec<Case>,
    ) -> Vec<(Block, Label)> {
        let first_stub = self.asm.new_label();
        let mut stubs = vec![(default, self.target_of(block, default, first_stub))];
        // Every entry is empty between two switches.
        self.case_labels.resize(self.function.blocks.len(), None);
        self.case_labels[default.index()] = Some(stubs[0].1);
        for (value, to) in pairs {
            let label = match self.case_labels[to.index()] {
                Some(label) => label,
                None => {
                    let stub = self.asm.new_label();
                    let label = self.target_of(block, to, stub);
                    stubs.push((to, label));
                    self.case_labels[to.index()] = Some(label);
                    label
                }
            };
            cases.push(Case {
                first: value,
                last: value,
                label,
            });
        }
        cases.sort_unstable_by_key(|case| case.first);
        cases.dedup_by(|next, before| {
            let joins = before.last.wrapping_add(1) == next.first && before.label == next.label;
            if joins {
                before.last = next.last;
            }
            joins
        });
        stubs
    }

    /// The target of an edge: its block if it needs no moves, else the stub with the moves.
    fn target_of(&mut self, from: Block, to: Block, stub: Label) -> Label {
        if self.edge(from, to) {
            stub
        } else {
            self.label(to)
        }
    }

    /// Jumps to the target of the number, or falls through if that comes next.
    fn tell_apart(&mut self, number: Number, left: Left<'_>) {
        let cases = left.cases;
        if cases.len() <= FEW {
            self.one_after_the_other(number, left);
        } else if is_dense(cases) {
            self.jump_by_table(number, left);
        } else {
            // Halves the ranges, or splits off those that fit a table.
            let middle = cases.len() / 2;
            let (low, high) = cases.split_at(middle);
            let upper = self.asm.new_label();
            self.compare_with(number, high[0].first);
            self.asm.jump_if(Condition::AboveEqual, upper);
            self.tell_apart(
                number,
                Left {
                    cases: low,
                    most: high[0].first - 1,
                    is_last: false,
                    ..left
                },
            );
            self.asm.bind(upper);
            self.tell_apart(
                number,
                Left {
                    cases: high,
                    least: high[0].first,
                    ..left
                },
            );
        }
    }

    fn one_after_the_other(&mut self, number: Number, left: Left<'_>) {
        for case in left.cases {
            if case.first <= left.least && case.last >= left.most {
                self.asm.jump(case.label);
                return;
            }
            if case.first == case.last {
                self.compare_with(number, case.first);
                self.asm.jump_if(Condition::Equal, case.label);
            } else if case.first <= left.least {
                self.compare_with(number, case.last);
                self.asm.jump_if(Condition::BelowEqual, case.label);
            } else if case.last >= left.most {
                self.compare_with(number, case.first);
                self.asm.jump_if(Condition::AboveEqual, case.label);
            } else {
                self.less(number, case.first);
                let last = case.last - case.first;
                self.compare_with(
                    Number {
                        register: Gpr::RDX,
                        ..number
                    },
                    last,
                );
                self.asm.jump_if(Condition::BelowEqual, case.label);
            }
        }
        if !(left.is_last && number.is_next) {
            self.asm.jump(number.default);
        }
    }

    fn jump_by_table(&mut self, number: Number, left: Left<'_>) {
        let cases = left.cases;
        let (first, last) = (cases[0].first, cases[cases.len() - 1].last);
        let index = if first == 0 {
            number.register
        } else if first < 16 {
            // Empty entries are cheaper than a subtraction.
            number.register
        } else {
            self.less(number, first);
            Gpr::RDX
        };
        let first = if index == Gpr::RDX { first } else { 0 };
        if left.most - first > last - first || left.least < first {
            let number = Number {
                register: index,
                ..number
            };
            self.compare_with(number, last - first);
            self.asm.jump_if(Condition::Above, number.default);
        }
        let mut entries = Vec::with_capacity((last - first + 1) as usize);
        for case in cases {
            entries.resize((case.first - first) as usize, number.default);
            entries.resize((case.last - first + 1) as usize, case.label);
        }
        let table = self.asm.table(entries);
        self.asm.address_label(Gpr::RCX, table.label());
        // The upper half of a 32-bit index is undefined.
        let index = if number.width == Width::W32 && index != Gpr::RDX {
            self.asm.mov(Width::W32, Gpr::RDX, index);
            Gpr::RDX
        } else {
            index
        };
        let entry = Mem::indexed(Gpr::RCX, index, Scale::S4, 0);
        self.asm.movsx(Width::W32, Width::W64, Gpr::RDX, entry);
        self.asm.alu(Alu::Add, Width::W64, Gpr::RDX, Gpr::RCX);
        self.asm.jump_to(Gpr::RDX);
    }

    /// The number less `by`, in `rdx`.
    fn less(&mut self, number: Number, by: u64) {
        match i32::try_from(by) {
            Ok(by) => {
                self.asm
                    .lea(number.width, Gpr::RDX, Mem::at(number.register, -by));
            }
            Err(_) => {
                self.asm.mov_imm(Gpr::RDX, by.wrapping_neg());
                self.asm
                    .alu(Alu::Add, number.width, Gpr::RDX, number.register);
            }
        }
    }

    fn compare_with(&mut self, number: Number, with: u64) {
        let small = match number.width {
            Width::W64 => i32::try_from(with as i64).ok(),
            _ => Some(with as u32 as i32),
        };
        match small {
            Some(0) => self
                .asm
                .test(number.width, number.register, number.register),
            Some(small) => self
                .asm
                .alu_imm(Alu::Cmp, number.width, number.register, small),
            None => {
                self.asm.mov_imm(Gpr::RCX, with);
                self.asm
                    .alu(Alu::Cmp, number.width, number.register, Gpr::RCX);
            }
        }
    }
}

/// Whether a table of all numbers is worth its size: it saves all comparisons.
fn is_worth_a_table(cases: &[Case]) -> bool {
    let [first, .., last] = cases else {
        return false;
    };
    let length = last.last - first.first;
    cases.len() >= LEAST && length < 1 << 20 && length / SPARSE <= cases.len() as u64
}

/// Whether a table of these is full enough.
fn is_dense(cases: &[Case]) -> bool {
    let (first, last) = (cases[0].first, cases[cases.len() - 1].last);
    let first = if first < 16 { 0 } else { first };
    let length = last - first;
    let full: u64 = cases.iter().map(|case| case.last - case.first + 1).sum();
    cases.len() >= LEAST && length < 1 << 20 && length / 3 <= full
}
