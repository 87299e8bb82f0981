//! The interpreter's operations on memory and the frame.

use uruk_baseline::ir::{MemoryOp, Op};

use crate::eval::{self, Word};
use crate::interpret::{Frame, LABELS, Stopped};

impl Frame<'_> {
    pub(crate) fn memory_op(&mut self, op: &Op) -> Result<Vec<Word>, Stopped> {
        Ok(match op {
            Op::Load { ty, address, .. } => {
                let at = self.address(*address)?;
                vec![self.memory.load(at, *ty)?]
            }
            Op::Store {
                ty, address, value, ..
            } => {
                let value = self.operand(*value)?;
                let at = self.address(*address)?;
                self.memory.store(at, *ty, value)?;
                vec![]
            }
            Op::Alloca { size, align } => {
                let at = self.memory.allocate(*size, u64::from(*align));
                vec![Some(u128::from(at))]
            }
            Op::DynamicAlloca { count, size, align } => {
                let size = self.address(*count)?.checked_mul(*size);
                let size = size.filter(|&size| size < 1 << 16).ok_or("a large frame")?;
                let at = self.memory.allocate(size, u64::from(*align));
                vec![Some(u128::from(at))]
            }
            // The stack's address is unknown; a restore must get a saved one.
            Op::StackSave => vec![Some(LABELS)],
            Op::StackRestore(_) | Op::Fence(_) | Op::Prefetch(_) | Op::Pause => vec![],
            Op::ThreadLocal(symbol) => vec![Some(u128::from(self.symbol(*symbol)?))],
            Op::Memory(op, [to, from, length], _) => {
                let length = self.address(*length)? as usize;
                if length > 1 << 16 {
                    return Err(Stopped("a large copy"));
                }
                let to = self.address(*to)?;
                let bytes = match op {
                    MemoryOp::Set => {
                        let byte = self.operand(*from)?.map(|byte| byte as u8);
                        vec![byte; length]
                    }
                    _ if length == 0 => vec![],
                    _ => {
                        let from = self.address(*from)?;
                        let apart = from.abs_diff(to) >= length as u64 || from == to;
                        if *op == MemoryOp::Copy && !apart {
                            return Err(Stopped("copies that overlap"));
                        }
                        self.memory.read(from, length)?.to_vec()
                    }
                };
                if length > 0 {
                    self.memory.write(to, length)?.copy_from_slice(&bytes);
                }
                vec![]
            }
            Op::Rmw {
                op,
                ty,
                address,
                value,
            } => {
                let at = self.address(*address)?;
                let old = self.memory.load(at, *ty)?;
                let value = self.operand(*value)?;
                let new = old
                    .zip(value)
                    .and_then(|(old, value)| eval::rmw(*op, *ty, old, value));
                self.memory.store(at, *ty, new)?;
                vec![old]
            }
            Op::CompareExchange {
                ty,
                address,
                expected,
                value,
            } => {
                let at = self.address(*address)?;
                let old = self.memory.load(at, *ty)?;
                let is = old.ok_or("something undefined matters")? == self.sure(*expected)?;
                let value = self.operand(*value)?;
                if is {
                    self.memory.store(at, *ty, value)?;
                }
                vec![old, Some(u128::from(is))]
            }
            _ => return Err(Stopped("an operation that is not interpreted")),
        })
    }
}

/// Whether an operation reads, writes or allocates memory.
pub(crate) fn is_of_memory(op: &Op) -> bool {
    matches!(
        op,
        Op::Load { .. }
            | Op::Store { .. }
            | Op::Alloca { .. }
            | Op::DynamicAlloca { .. }
            | Op::StackSave
            | Op::StackRestore(_)
            | Op::Fence(_)
            | Op::Prefetch(_)
            | Op::Pause
            | Op::ThreadLocal(_)
            | Op::Memory(..)
            | Op::Rmw { .. }
            | Op::CompareExchange { .. }
    )
}
