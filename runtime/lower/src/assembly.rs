//! Inline assembly that does nothing but keep what is around it in order, as it is here anyway.
//!
//! Its text may be empty, say `nop`, or align what comes next. What it gives is then what it
//! takes: `"=r,0"` is the operand that shares the result's register.

use smallvec::SmallVec;
use uruk_baseline::ir::Operand;
use uruk_bitcode::ir::{Constant, Definition, Instruction, ValueId};

use crate::reading::{Covered, Reading, not};

impl Reading<'_> {
    /// A call of assembly without instructions.
    pub(crate) fn empty_assembly(&mut self, it: &Instruction, callee: ValueId) -> Covered<()> {
        let Some(Definition::Constant(Constant::Assembly(assembly))) = self.definition(callee)
        else {
            return not("assembly");
        };
        let leaves = match it.result {
            Some(result) => self.leaves(self.type_of(result)?)?,
            None => &[],
        };
        let taken = taken(&assembly.constraints);
        let Some(taken) = taken.filter(|taken| taken.len() == leaves.len()) else {
            return not("assembly");
        };
        let arguments = self.body.operands_of(it).get(1..).unwrap_or_default();
        let mut given = SmallVec::<[Operand; 2]>::new();
        for (index, leaf) in taken.into_iter().zip(leaves) {
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
}

/// Whether assembly has no instructions that do anything.
pub(crate) fn is_empty(text: &str) -> bool {
    text.split(['\n', ';'])
        .map(str::trim)
        .all(|line| matches!(line, "" | "nop") || line.starts_with(".p2align "))
}

/// For each result, which argument shares its register; `None` if one has a register to itself.
fn taken(constraints: &str) -> Option<SmallVec<[u32; 2]>> {
    let (mut results, mut argument) = (Vec::new(), 0);
    // Outputs in order: of those in memory the address is an argument.
    let mut outputs = 0u32;
    for constraint in constraints.split(',') {
        match constraint.as_bytes() {
            [b'~', ..] | [] => continue,
            [b'!', ..] => return None,
            [b'=', rest @ ..] => {
                match rest.contains(&b'*') {
                    true => argument += 1,
                    false => results.push((outputs, None)),
                }
                outputs += 1;
            }
            _ => {
                if let Ok(shared) = constraint.parse::<u32>() {
                    let mut of = results.iter_mut().filter(|(output, _)| *output == shared);
                    of.next().into_iter().for_each(|it| it.1 = Some(argument));
                }
                argument += 1;
            }
        }
    }
    results.into_iter().map(|(_, taken)| taken).collect()
}

#[cfg(test)]
mod tests {
    use super::taken;

    #[test]
    fn results_are_the_arguments_that_share_their_registers() {
        let of = |constraints| taken(constraints).map(|it| it.to_vec());
        assert_eq!(of(""), Some(vec![]));
        assert_eq!(of("r,~{memory}"), Some(vec![]));
        assert_eq!(of("=*m,*m"), Some(vec![]));
        assert_eq!(of("=r,0,~{flags}"), Some(vec![0]));
        assert_eq!(of("=*m,=r,=&r,r,2,1"), Some(vec![3, 2]));
        assert_eq!(of("=r,r"), None);
        assert_eq!(of("!i"), None);
    }
}
