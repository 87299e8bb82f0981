//! Finds values that are valid only in the code that assigned them: the selector of a landing pad,
//! and `llvm.eh.typeid.for`. Each compile of a function numbers the types that it catches anew, so
//! a number of one version is another type's in a continuation.
//!
//! A value holds such a number if it is computed from one, in any way. An `alloca` does if a value
//! that holds one is stored into it, or if it is copied from an `alloca` that does. A loop at whose
//! head either is live does not support OSR. The analysis does not track numbers through arguments
//! of calls, or through stores via pointers other than to a non-escaping `alloca`. Such a number
//! could come back from anywhere, so no loop of such a function supports OSR.
//!
//! Branches on a number are not tracked: a comparison of numbers of one version chose the code
//! behind them, and that choice is valid in another version too.

use crate::anatomy::{Anatomy, Code, Facts, NONE};
use crate::meaning::Meaning;
use crate::reasons::Reason;

/// The result of a landing pad: its first part is the exception, which is no such number.
const PAD: u8 = 1;
/// A number, or something computed from one.
const NUMBER: u8 = 2;
/// The address of an `alloca` that holds a number.
const PLACE: u8 = 4;

struct Spread<'a> {
    anatomy: &'a Anatomy,
    /// By value.
    held: Vec<u8>,
    work: Vec<u32>,
}

/// Finds the values and `alloca`s that hold a number; `stays` tells whether an `alloca`'s address
/// does not escape.
///
/// # Errors
/// [`Reason::Exception`] if a number leaves the values and `alloca`s of the body.
pub(crate) fn holders(anatomy: &Anatomy, stays: impl Fn(u32) -> bool) -> Result<Vec<u32>, Reason> {
    let mut spread = Spread {
        anatomy,
        held: vec![0; anatomy.values()],
        work: Vec::new(),
    };
    for (at, it) in (0..).zip(&anatomy.instructions) {
        if it.code == Code::LandingPad {
            spread.add(anatomy.value(at), PAD);
        } else if it.meaning == Meaning::TypeNumber {
            spread.add(anatomy.value(at), NUMBER);
        }
    }
    while let Some(value) = spread.work.pop() {
        for &user in anatomy.users_of(value) {
            spread.follow(value, user, &stays)?;
        }
    }
    let all = (0..).zip(&spread.held);
    Ok(all.filter(|&(_, &it)| it != 0).map(|(it, _)| it).collect())
}

impl Spread<'_> {
    fn add(&mut self, value: u32, what: u8) {
        let held = &mut self.held[value as usize];
        if *held & what != what {
            *held |= what;
            self.work.push(value);
        }
    }

    /// Propagates a number in `value` to `user`.
    fn follow(
        &mut self,
        value: u32,
        user: u32,
        stays: &impl Fn(u32) -> bool,
    ) -> Result<(), Reason> {
        let anatomy = self.anatomy;
        let (it, operands) = (anatomy.at(user), anatomy.operands_of(user));
        let (is, result) = (self.held[value as usize], anatomy.value(user));
        match it.code {
            Code::Phi | Code::Select | Code::Freeze => self.add(result, is),
            Code::ExtractValue if it.facts.has(Facts::FIRST) && is == PAD => {}
            Code::GetElementPtr | Code::BitCast if operands.first() == Some(&value) => {
                self.add(result, is);
            }
            Code::Store => {
                let &[stored, to] = operands else {
                    return Err(Reason::Exception);
                };
                if to == value && is & NUMBER != 0 {
                    return Err(Reason::Exception);
                }
                if stored == value {
                    self.hold(to, stays)?;
                }
            }
            Code::Call if it.meaning == Meaning::Memory => {
                // Constants are no operands: with one operand the other memory is a global's.
                if is != PLACE || operands.len() < 2 {
                    return Err(Reason::Exception);
                }
                for &operand in operands {
                    self.hold(operand, stays)?;
                }
            }
            Code::Call if it.meaning.is_marker() => {}
            Code::Resume | Code::Return | Code::Branch | Code::Switch | Code::Nothing => {}
            code if computes(code) => self.add(result, NUMBER),
            _ => return Err(Reason::Exception),
        }
        Ok(())
    }

    /// Records that memory at a pointer holds a number.
    fn hold(&mut self, pointer: u32, stays: &impl Fn(u32) -> bool) -> Result<(), Reason> {
        let anatomy = self.anatomy;
        let mut root = pointer;
        while let Some(made) = (root != NONE).then(|| anatomy.maker(root)).flatten() {
            root = match anatomy.at(made).code {
                Code::Alloca if stays(root) => {
                    self.add(root, PLACE);
                    return Ok(());
                }
                Code::GetElementPtr | Code::BitCast => anatomy.first_of(made).unwrap_or(NONE),
                _ => break,
            };
        }
        Err(Reason::Exception)
    }
}

/// Whether an instruction computes its result from its operands, without side effects.
fn computes(code: Code) -> bool {
    use Code as C;
    matches!(
        code,
        C::Add
            | C::Sub
            | C::Mul
            | C::UDiv
            | C::SDiv
            | C::URem
            | C::SRem
            | C::Shl
            | C::LShr
            | C::AShr
            | C::And
            | C::Or
            | C::Xor
            | C::FNeg
            | C::Trunc
            | C::ZExt
            | C::SExt
            | C::FpToUi
            | C::FpToSi
            | C::UiToFp
            | C::SiToFp
            | C::FpTrunc
            | C::FpExt
            | C::PtrToInt
            | C::IntToPtr
            | C::BitCast
            | C::AddrSpaceCast
            | C::PtrToAddr
            | C::GetElementPtr
            | C::ExtractValue
            | C::InsertValue
            | C::ExtractElement
            | C::InsertElement
            | C::ShuffleVector
            | C::Compare
            | C::Load
    )
}
