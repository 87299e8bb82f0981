//! Inline assembly that only keeps the code around it in order, which holds here anyway.
//!
//! Its text may be empty, contain `nop`, or align the next instruction. Its results then are its
//! operands: `"=r,0"` is the operand that shares the result's register.

use smallvec::SmallVec;
use uruk_baseline::ir::Operand;
use uruk_bitcode::ir::{self as bitcode, Attribute, Constant, Definition, Instruction, ValueId};

use crate::reading::{Covered, Reading, not};

/// The number of the attribute `elementtype`.
const ELEMENT_TYPE: u32 = 77;

impl Reading<'_> {
    /// A call of assembly without instructions.
    pub(crate) fn empty_assembly(
        &mut self,
        it: &Instruction,
        call: &bitcode::Call,
        callee: ValueId,
    ) -> Covered<()> {
        let Some(Definition::Constant(Constant::Assembly(assembly))) = self.definition(callee)
        else {
            return not("assembly");
        };
        let leaves = match it.result {
            Some(result) => self.leaves(self.type_of(result)?)?,
            None => &[],
        };
        let wanted = WantedOperands::of(&assembly.constraints);
        let Some(wanted) = wanted.filter(|wanted| wanted.taken.len() == leaves.len()) else {
            return not("assembly");
        };
        let arguments = self.body.operands_of(it).get(1..).unwrap_or_default();
        if !self.are_as_wanted(call, arguments, &wanted)? {
            return not("assembly");
        }
        let mut given = SmallVec::<[Operand; 2]>::new();
        for (index, leaf) in wanted.taken.into_iter().zip(leaves) {
            let Some(&value) = arguments.get(index as usize) else {
                return not("assembly");
            };
            match self.leaves(self.type_of(value)?)? {
                [its] if its.ty == leaf.ty => given.push(self.one(value)?),
                _ => return not("assembly"),
            }
        }
        match it.result {
            Some(_) => self.stand(it, given),
            None => Ok(()),
        }
    }

    /// Whether arguments match the operands of the constraints in number. Operands in memory, and
    /// no others, must be pointers with the type of their target.
    fn are_as_wanted(
        &self,
        call: &bitcode::Call,
        arguments: &[ValueId],
        wanted: &WantedOperands,
    ) -> Covered<bool> {
        if arguments.len() != wanted.in_memory.len() {
            return Ok(false);
        }
        let lists = &self.module.attributes(call.attributes).parameters;
        let named = |it: &Attribute| matches!(it, Attribute::Typed(ELEMENT_TYPE, _));
        for (index, (&argument, &in_memory)) in arguments.iter().zip(&wanted.in_memory).enumerate()
        {
            let list = lists.iter().find(|(of, _)| *of as usize == index);
            let is_named = list.is_some_and(|(_, list)| list.iter().any(named));
            let is_pointer = self.is_pointer(argument)?;
            if is_named != in_memory || in_memory && !is_pointer {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether assembly has no instructions with an effect.
pub(crate) fn is_empty(text: &str) -> bool {
    text.split(['\n', ';'])
        .map(str::trim)
        .all(|line| matches!(line, "" | "nop") || line.starts_with(".p2align "))
}

/// Operands of assembly, as its constraints say.
struct WantedOperands {
    /// For each result, which argument shares its register.
    taken: SmallVec<[u32; 2]>,
    /// For each argument, whether it is the address of an operand in memory.
    in_memory: SmallVec<[bool; 4]>,
}

impl WantedOperands {
    /// Reads constraints; `None` if a result has a register to itself, or a constraint is not in a
    /// form that compilers write.
    fn of(constraints: &str) -> Option<WantedOperands> {
        let (mut results, mut in_memory) = (Vec::new(), SmallVec::new());
        // Outputs in order: of those in memory the address is an argument.
        let mut outputs = 0u32;
        for constraint in constraints.split(',').filter(|_| !constraints.is_empty()) {
            if constraint.starts_with("~{") {
                continue;
            }
            let (is_output, rest) = match constraint.strip_prefix('=') {
                Some(rest) => (true, rest),
                None => (false, constraint),
            };
            let rest = match is_output {
                true => rest.strip_prefix('&').unwrap_or(rest),
                false => rest,
            };
            let (in_place, rest) = match rest.strip_prefix('*') {
                Some(rest) => (true, rest),
                None => (false, rest),
            };
            let letters = is_plain(rest);
            if is_output {
                if !letters {
                    return None;
                }
                if !in_place {
                    results.push((outputs, None));
                }
                outputs += 1;
            } else if let Ok(shared) = rest.parse::<u32>() {
                // An operand in memory has no register to share.
                let mut of = results.iter_mut().filter(|(output, _)| *output == shared);
                of.next().filter(|_| !in_place)?.1 = Some(in_memory.len() as u32);
            } else if !letters {
                return None;
            }
            if !is_output || in_place {
                in_memory.push(in_place);
            }
        }
        let taken = results.into_iter().map(|(_, taken)| taken);
        let taken = taken.collect::<Option<_>>()?;
        Some(WantedOperands { taken, in_memory })
    }
}

/// Whether a constraint names classes of operands by letters, or one register.
fn is_plain(constraint: &str) -> bool {
    let braced = constraint
        .strip_prefix('{')
        .and_then(|it| it.strip_suffix('}'));
    match braced {
        Some(register) => register.bytes().all(|it| it.is_ascii_alphanumeric()),
        None => {
            let letters = constraint.bytes().all(|it| it.is_ascii_alphabetic());
            letters && !constraint.is_empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WantedOperands;

    #[test]
    fn results_are_the_arguments_that_share_their_registers() {
        let of = |constraints| {
            let wanted = WantedOperands::of(constraints)?;
            Some((wanted.taken.to_vec(), wanted.in_memory.to_vec()))
        };
        assert_eq!(of(""), Some((vec![], vec![])));
        assert_eq!(of("r,~{memory}"), Some((vec![], vec![false])));
        assert_eq!(of("=*m,*m"), Some((vec![], vec![true, true])));
        assert_eq!(of("=r,0,~{flags}"), Some((vec![0], vec![false])));
        assert_eq!(of("={ax},0"), Some((vec![0], vec![false])));
        let mixed = of("=*m,=r,=&r,r,2,1");
        assert_eq!(mixed, Some((vec![3, 2], vec![true, false, false, false])));
        for other in [
            "=r,r", "!i", "+m", "=*m,+m", "=r,7", "r,", "=&", "=r,*0", "%r",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
