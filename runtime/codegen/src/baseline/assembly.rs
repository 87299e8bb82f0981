//! Inline assembly that does nothing but keep what is around it in order, as it is here anyway.
//!
//! Its text may be empty, say `nop`, or align what comes next. What it gives is then what it
//! takes: `"=r,0"` is the operand that shares the result's register.

use inkwell::llvm_sys::core::{LLVMGetInlineAsmAsmString, LLVMGetInlineAsmConstraintString};
use smallvec::SmallVec;
use uruk_baseline::ir::Operand;

use super::reading::{Covered, Reading, not};
use crate::handles::{InstructionRef, ValueRef};

impl<'m> Reading<'_, 'm> {
    /// A call of assembly without instructions.
    pub(super) fn empty_assembly(
        &mut self,
        it: InstructionRef<'m>,
        callee: ValueRef<'m>,
    ) -> Covered<()> {
        let known = self.known_type(*it);
        let results = self.leaves(known)?.len();
        let constraints = constraints(callee);
        let Some(taken) = taken(&constraints).filter(|taken| taken.len() == results) else {
            return not("assembly");
        };
        if results == 0 {
            return Ok(());
        }
        let mut given = SmallVec::<[Operand; 2]>::new();
        for (at, index) in taken.into_iter().enumerate() {
            let value = self.operand(it, index);
            let its = self.known_type(value);
            let ty = self.leaves(known)?[at].ty;
            match self.leaves(its)? {
                [leaf] if leaf.ty == ty => given.push(self.one(value)?),
                _ => return not("assembly"),
            }
        }
        self.stand(it, given)
    }
}

/// Whether assembly has no instructions that do anything.
pub(super) fn is_empty(assembly: ValueRef<'_>) -> bool {
    text(assembly, LLVMGetInlineAsmAsmString)
        .split(['\n', ';'])
        .map(str::trim)
        .all(|line| matches!(line, "" | "nop") || line.starts_with(".p2align "))
}

fn constraints(assembly: ValueRef<'_>) -> String {
    text(assembly, LLVMGetInlineAsmConstraintString)
}

fn text(
    assembly: ValueRef<'_>,
    get: unsafe extern "C" fn(
        inkwell::llvm_sys::prelude::LLVMValueRef,
        *mut usize,
    ) -> *const std::ffi::c_char,
) -> String {
    let mut length = 0;
    // SAFETY: a piece of assembly, which keeps its texts.
    let bytes = unsafe {
        let start = get(assembly.raw(), &mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    };
    String::from_utf8_lossy(bytes).into_owned()
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
