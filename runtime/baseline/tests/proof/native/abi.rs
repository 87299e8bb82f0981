//! Places of scalars in a call, from the System V psABI as LLVM implements it: written
//! independently of the compiler's own, which it checks.

use uruk_baseline::ir::{Passing, Returned, Type};

/// The place of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the nth of `rdi rsi rdx rcx r8 r9`.
    Int(usize),
    /// In `xmm0` to `xmm7`.
    Sse(usize),
    /// An offset in the arguments on the stack.
    Stack(usize),
    /// Bytes on the stack, not their address: offset and size.
    Memory(usize, usize),
    /// In `r10`.
    Nest,
}

/// Places of arguments.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub places: Vec<Where>,
    /// Bytes on the stack, a multiple of 16.
    pub stack: usize,
    /// Vector registers with an argument.
    pub sse: usize,
}

/// Assigns a place to each argument.
pub fn places(arguments: impl Iterator<Item = (Type, Passing)>) -> Places {
    let mut all = Places::default();
    let (mut ints, mut paired) = (0, None);
    for (ty, passing) in arguments {
        let place = match (passing, ty) {
            (Passing::Nest, _) => Where::Nest,
            (Passing::Memory { size, align }, _) => {
                let at = all.room(size as usize, align.max(8) as usize);
                Where::Memory(at, size as usize)
            }
            (Passing::Paired, _) if ints + 2 > 6 => {
                let at = all.room(16, 16);
                paired = Some(at + 8);
                all.places.push(Where::Stack(at));
                continue;
            }
            (_, Type::Int(_)) => match paired.take() {
                Some(at) => Where::Stack(at),
                None if ints < 6 => {
                    ints += 1;
                    Where::Int(ints - 1)
                }
                None => Where::Stack(all.room(8, 8)),
            },
            (_, Type::F80) => Where::Stack(all.room(16, 16)),
            (_, Type::F32 | Type::F64 | Type::V64 | Type::V128) if all.sse < 8 => {
                all.sse += 1;
                Where::Sse(all.sse - 1)
            }
            (_, Type::V128) => Where::Stack(all.room(16, 16)),
            _ => Where::Stack(all.room(8, 8)),
        };
        all.places.push(place);
    }
    all.stack = all.stack.next_multiple_of(16);
    all
}

impl Places {
    fn room(&mut self, size: usize, align: usize) -> usize {
        let at = self.stack.next_multiple_of(align);
        self.stack = at + size.next_multiple_of(8);
        at
    }
}

/// The place of a result: of its kind, the nth register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultPlace {
    /// `rax`, `rdx`, `rcx`.
    Int(usize),
    /// `xmm0`, `xmm1`.
    Sse(usize),
    /// `st0`, `st1`.
    X87(usize),
}

/// Places of results; `None` if they do not fit registers.
pub fn result_places(returns: &[Returned]) -> Option<Vec<ResultPlace>> {
    let mut used = [0; 3];
    let mut all = Vec::new();
    for returned in returns {
        let (kind, most) = match returned.ty {
            Type::Int(_) => (0, 3),
            Type::F80 => (2, 2),
            _ => (1, 2),
        };
        let nth = used[kind];
        used[kind] += 1;
        if nth == most {
            return None;
        }
        all.push(match kind {
            0 => ResultPlace::Int(nth),
            1 => ResultPlace::Sse(nth),
            _ => ResultPlace::X87(nth),
        });
    }
    Some(all)
}

/// The kind of value that is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extends {
    /// An argument: smaller types to 32 bits, others to 64.
    Argument,
    /// A result: smaller types to 8 bits; the psABI requires nothing of others, nor does LLVM.
    Result,
}

/// The extended bits of a register, and a mask of the bits that are defined.
pub fn extended(bits: u128, ty: Type, is_signed: Option<bool>, what: Extends) -> (u64, u64) {
    let Type::Int(width) = ty else {
        return (bits as u64, u64::MAX);
    };
    let to = match (is_signed, what) {
        (None, _) => width,
        (_, Extends::Argument) if width <= 32 => 32,
        (_, Extends::Argument) => 64,
        (_, Extends::Result) => width.max(8),
    };
    let all = u64::MAX >> (64 - to);
    let value = match is_signed {
        Some(true) => crate::eval::signed(bits, u32::from(width)) as u64,
        _ => bits as u64,
    };
    (value & all, all)
}

/// Whether an argument is extended by its sign.
pub fn sign_of(passing: Passing) -> Option<bool> {
    match passing {
        Passing::SignExtended => Some(true),
        Passing::ZeroExtended => Some(false),
        _ => None,
    }
}
