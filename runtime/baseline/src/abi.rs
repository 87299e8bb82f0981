//! Registers and stack slots of arguments and results: the System V psABI, as LLVM lowers IR to it.
//!
//! LLVM does not know C's types here: it passes leaf scalars one by one, so that an aggregate may
//! be split between registers and the stack. A front end passes an aggregate that must stay whole
//! in memory (`byval`) or as a pair ([`Passing::Paired`]). See `X86CallingConv.td`: `CC_X86_64_C`
//! and `RetCC_X86_64_C`.
//!
//! | kind | arguments | results |
//! |---|---|---|
//! | integers | `rdi rsi rdx rcx r8 r9`, then 8 bytes of stack | `rax rdx rcx` |
//! | `float`, `double` | `xmm0` to `xmm7`, then 8 bytes of stack | `xmm0 xmm1` |
//! | vectors | `xmm0` to `xmm7`, then 16 bytes of stack | `xmm0` to `xmm3` |
//! | `x86_fp80` | 16 bytes of stack | `st0 st1` |
//! | two halves of 128 bits | two registers, or 16 bytes of stack | as two integers |
//! | copies of memory | their size in bytes of stack | |

use crate::asm::{Gpr, Xmm};
use crate::code::Uncovered;
use crate::ir::{Passing, Type};

/// Registers of integer arguments, in order.
pub(crate) const ARGUMENT_GPRS: [Gpr; 6] =
    [Gpr::RDI, Gpr::RSI, Gpr::RDX, Gpr::RCX, Gpr::R8, Gpr::R9];

/// Vector registers of arguments: `xmm0` and the following.
pub(crate) const ARGUMENT_XMMS: u8 = 8;

/// The register of [`Passing::Nest`].
pub(crate) const NEST: Gpr = Gpr::R10;

const RESULT_GPRS: [Gpr; 3] = [Gpr::RAX, Gpr::RDX, Gpr::RCX];

/// The place of an argument when the callee starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ArgumentPlace {
    /// In a register.
    Gpr(Gpr),
    /// In a vector register.
    Xmm(Xmm),
    /// On the stack, this many bytes above the word of the return address.
    Stack(u32),
    /// A copy of memory that begins at this offset; the callee's scalar is its address.
    Memory(u32),
}

/// Registers and stack that the arguments take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    /// Registers of [`ARGUMENT_GPRS`].
    pub(crate) gprs: u8,
    /// Vector registers.
    pub(crate) xmms: u8,
    /// Bytes of stack, a multiple of 8.
    pub(crate) stack: u32,
}

/// Assigns places to arguments, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    gprs: u8,
    xmms: u8,
    stack: u32,
    /// Stack offset of the second half of a pair whose first half is on the stack.
    second: Option<u32>,
}

impl Arguments {
    /// The place of the next scalar.
    pub(crate) fn next(&mut self, ty: Type, passing: Passing) -> ArgumentPlace {
        if let Some(offset) = self.second.take() {
            return ArgumentPlace::Stack(offset);
        }
        match passing {
            Passing::Nest => return ArgumentPlace::Gpr(NEST),
            Passing::Memory { size, align } => {
                return ArgumentPlace::Memory(self.on_stack(size.max(8), align.max(8)));
            }
            // Both halves are in registers or none is; later arguments may still get the last
            // register.
            Passing::Paired if usize::from(self.gprs) + 2 > ARGUMENT_GPRS.len() => {
                let offset = self.on_stack(16, 16);
                self.second = Some(offset + 8);
                return ArgumentPlace::Stack(offset);
            }
            _ => {}
        }
        match ty {
            Type::Int(_) => match ARGUMENT_GPRS.get(usize::from(self.gprs)) {
                Some(&register) => {
                    self.gprs += 1;
                    ArgumentPlace::Gpr(register)
                }
                None => ArgumentPlace::Stack(self.on_stack(8, 8)),
            },
            Type::F80 => ArgumentPlace::Stack(self.on_stack(16, 16)),
            Type::F32 | Type::F64 | Type::V64 | Type::V128 => {
                if self.xmms < ARGUMENT_XMMS {
                    self.xmms += 1;
                    return ArgumentPlace::Xmm(Xmm::new(self.xmms - 1));
                }
                // A vector of 64 bits is widened to 128, with an undefined upper half.
                let bytes = match ty {
                    Type::F32 | Type::F64 => 8,
                    _ => 16,
                };
                ArgumentPlace::Stack(self.on_stack(bytes, bytes))
            }
        }
    }

    /// Registers and stack taken so far.
    pub(crate) fn taken(&self) -> Taken {
        Taken {
            gprs: self.gprs,
            xmms: self.xmms,
            stack: self.stack.next_multiple_of(8),
        }
    }

    fn on_stack(&mut self, size: u32, align: u32) -> u32 {
        let offset = self.stack.next_multiple_of(align);
        self.stack = offset.saturating_add(size);
        offset
    }
}

/// The place of a scalar of a result on return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ResultPlace {
    /// In a register.
    Gpr(Gpr),
    /// In a vector register.
    Xmm(Xmm),
    /// On the x87 stack, 0 or 1 from its top.
    X87(u8),
}

/// Assigns places to results, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResultPlaces {
    gprs: u8,
    xmms: u8,
    x87: u8,
}

impl ResultPlaces {
    /// The place of the next scalar; an error if LLVM would return all results through memory
    /// instead.
    pub(crate) fn next(&mut self, ty: Type) -> Result<ResultPlace, Uncovered> {
        let (count, limit) = match ty {
            Type::Int(_) => (&mut self.gprs, 3),
            Type::F32 | Type::F64 => (&mut self.xmms, 2),
            Type::V128 | Type::V64 => (&mut self.xmms, 4),
            Type::F80 => (&mut self.x87, 2),
        };
        // Scalars have fewer registers than vectors, which may have taken more.
        if *count >= limit {
            return Err(Uncovered {
                what: "more results than registers",
            });
        }
        *count += 1;
        let number = *count - 1;
        Ok(match ty {
            Type::Int(_) => ResultPlace::Gpr(RESULT_GPRS[usize::from(number)]),
            Type::F80 => ResultPlace::X87(number),
            _ => ResultPlace::Xmm(Xmm::new(number)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, ResultPlaces};
    use crate::ir::{Passing, Type};

    const I: Type = Type::Int(64);
    const D: Type = Type::F64;

    /// Places of arguments as a text, each after a blank, then what they take.
    #[track_caller]
    fn check(list: &[(Type, Passing)], expected: &str) {
        use super::ArgumentPlace as P;
        let mut arguments = Arguments::default();
        let mut text = String::new();
        for &(ty, passing) in list {
            text += &match arguments.next(ty, passing) {
                P::Gpr(register) => format!("{register:?} "),
                P::Xmm(register) => format!("{register:?} "),
                P::Stack(at) => format!("[{at}] "),
                P::Memory(at) => format!("copy[{at}] "),
            };
        }
        let taken = arguments.taken();
        text += &format!("({} {} {})", taken.gprs, taken.xmms, taken.stack);
        assert_eq!(text, expected);
    }

    fn plain(types: &[Type]) -> Vec<(Type, Passing)> {
        types.iter().map(|&ty| (ty, Passing::Plain)).collect()
    }

    #[test]
    fn registers_then_the_stack() {
        check(&plain(&[]), "(0 0 0)");
        check(
            &plain(&[I, D, Type::Int(8), Type::F32, Type::Int(1)]),
            "rdi xmm0 rsi xmm1 rdx (3 2 0)",
        );
        check(&plain(&[I; 8]), "rdi rsi rdx rcx r8 r9 [0] [8] (6 0 16)");
        check(
            &plain(&[D, D, D, D, D, D, D, D, D, I, Type::F32]),
            "xmm0 xmm1 xmm2 xmm3 xmm4 xmm5 xmm6 xmm7 [0] rdi [8] (1 8 16)",
        );
    }

    #[test]
    fn memory_is_aligned() {
        let copy = |size, align| (I, Passing::Memory { size, align });
        check(
            &[
                copy(12, 4),
                (Type::F80, Passing::Plain),
                copy(1, 1),
                (I, Passing::Plain),
            ],
            "copy[0] [16] copy[32] rdi (1 0 40)",
        );
        check(&[copy(12, 4)], "copy[0] (0 0 16)");
        let mut many = plain(&[Type::V128; 8]);
        many.extend(plain(&[D, Type::V64, Type::V128]));
        check(
            &many,
            "xmm0 xmm1 xmm2 xmm3 xmm4 xmm5 xmm6 xmm7 [0] [16] [32] (0 8 48)",
        );
    }

    #[test]
    fn pairs_are_not_torn() {
        let pair = [(I, Passing::Paired), (I, Passing::Plain)];
        let mut list = plain(&[I, I, I, I]);
        list.extend(pair);
        check(&list, "rdi rsi rdx rcx r8 r9 (6 0 0)");
        let mut list = plain(&[I, I, I, I, I]);
        list.extend(pair);
        list.extend(plain(&[I, I]));
        check(&list, "rdi rsi rdx rcx r8 [0] [8] r9 [16] (6 0 24)");
        let mut list = plain(&[I; 7]);
        list.extend(pair);
        check(&list, "rdi rsi rdx rcx r8 r9 [0] [16] [24] (6 0 32)");
    }

    #[test]
    fn hidden_parameters() {
        check(
            &[
                (I, Passing::Result),
                (I, Passing::Nest),
                (I, Passing::SignExtended),
            ],
            "rdi r10 rsi (2 0 0)",
        );
    }

    #[test]
    fn results_are_in_registers_or_nowhere() {
        let places = |types: &[Type]| -> Result<Vec<String>, _> {
            let mut results = ResultPlaces::default();
            types
                .iter()
                .map(|&ty| {
                    let place = results.next(ty)?;
                    Ok::<_, crate::Uncovered>(format!("{place:?}"))
                })
                .collect()
        };
        let some = |list: &[&str]| Ok(list.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(
            places(&[I, D, I, D, I]),
            some(&["Gpr(rax)", "Xmm(xmm0)", "Gpr(rdx)", "Xmm(xmm1)", "Gpr(rcx)"])
        );
        assert_eq!(places(&[Type::F80, Type::F80]), some(&["X87(0)", "X87(1)"]));
        assert!(places(&[I, I, I, I]).is_err());
        assert!(places(&[D, D, D]).is_err());
        assert!(places(&[Type::V128; 4]).is_ok());
        let v = Type::V128;
        assert!(places(&[v, v, D]).is_err());
        assert!(places(&[v, v, v, D]).is_err());
        assert!(places(&[Type::F80; 3]).is_err());
    }
}
