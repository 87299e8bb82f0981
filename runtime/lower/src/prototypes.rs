//! Types of intrinsics: a declaration of another type is left to LLVM.
//!
//! A signature is a text: the result, a point, the parameters, a letter for each. A `!` behind a
//! parameter means that its argument is a constant.
//!
//! | letter | type |
//! |---|---|
//! | `v` `p` `b` `c` `w` `l` `d` `m` | `void`, `ptr`, `i1`, `i8`, `i32`, `i64`, `double`, metadata |
//! | `I` `J` | an integer or a vector of integers; the same type for each use of the letter |
//! | `F` | a floating-point type or a vector of them, likewise |
//! | `A` | any type, likewise |
//! | `B` | `i1`, or a vector of as many of them as `I` and `F` have |
//! | `O` `P` | a struct of `I` and `B`, of two `F` |
//! | `V` `E` | a vector, and its element |
//! | `*` | any type |

use uruk_baseline::ir::{BitOp, MemoryOp};
use uruk_bitcode::ir::{Module, Type, TypeId};

use crate::intrinsics::{Becomes, Reduce};

/// The signature of an intrinsic; `None` if lowering checks its types.
fn signature(becomes: Becomes, name: &str) -> Option<&'static str> {
    use Becomes as B;
    Some(match becomes {
        B::Int(_) => "I.II",
        B::Overflow(_) => "O.II",
        B::Bits(BitOp::LeadingZeros | BitOp::TrailingZeros | BitOp::Abs) => "I.Ib!",
        B::Bits(_) => "I.I",
        B::Funnel(_) => "I.III",
        B::Order(_) => "J.II",
        B::FloatUnary(_) => "F.F",
        B::Float(_) => "F.FF",
        B::Fma | B::MulAdd => "F.FFF",
        B::Library("lround" | "llround" | "lrint" | "llrint") | B::Saturated(_) => "J.F",
        B::Library("pow" | "atan2") => "F.FF",
        B::Library("ldexp") | B::Power => "F.FJ",
        B::Library(_) => "F.F",
        B::Fraction => "P.F",
        B::FloatClass => "B.Fw!",
        B::Memory(MemoryOp::Set) => "v.pcIb!",
        B::Memory(_) => "v.ppIb!",
        B::StackSave | B::AddressOfReturnAddress | B::ThreadPointer => "p.",
        B::StackRestore | B::VaStart => "v.p",
        B::VaCopy => "v.pp",
        B::ThreadLocal => "p.p",
        B::TypeId => "w.p",
        B::FrameAddress | B::ReturnAddress => "p.w!",
        B::Prefetch => "v.pw!w!w!",
        B::CycleCounter => "l.",
        B::Pause => "v.",
        B::Rounding => "w.",
        B::Trap if name == "llvm.trap" => "v.",
        B::Trap => "v.c!",
        B::IsConstant => "b.*",
        B::ObjectSize => "I.pb!b!b!",
        B::Mask | B::LoadRelative => "p.pI",
        B::Reduce(Reduce::Ordered(_)) => "E.EV",
        B::Reduce(_) => "E.V",
        B::First | B::Nothing => return by_name(name),
        B::True => return None,
        B::Signs | B::Lanes(_) => return None,
    })
}

/// The signature of an intrinsic that is replaced by its first operand, or dropped.
fn by_name(name: &str) -> Option<&'static str> {
    const ALL: [(&str, &str); 15] = [
        ("llvm.lifetime.", "v.p"),
        ("llvm.assume", "v.b"),
        ("llvm.donothing", "v."),
        ("llvm.sideeffect", "v."),
        ("llvm.invariant.start", "p.l!p"),
        ("llvm.invariant.end", "v.pl!p"),
        ("llvm.va_end", "v.p"),
        ("llvm.var.annotation", "v.pppwp"),
        ("llvm.expect.with.probability", "I.IId"),
        ("llvm.expect", "I.II"),
        ("llvm.ssa.copy", "A.A"),
        ("llvm.annotation", "I.Ippw"),
        ("llvm.ptr.annotation", "p.pppwp"),
        ("llvm.launder.invariant.group", "p.p"),
        ("llvm.strip.invariant.group", "p.p"),
    ];
    let known = ALL.iter().find(|(own, _)| name.starts_with(own));
    known.map(|&(_, signature)| signature)
}

/// Types bound to letters.
#[derive(Default)]
struct Bound([Option<TypeId>; 26]);

impl Bound {
    fn same(&mut self, letter: u8, ty: TypeId) -> bool {
        *self.0[usize::from(letter - b'A')].get_or_insert(ty) == ty
    }

    /// Whether a type fits a letter, for letters that stand alone.
    fn fits(&mut self, module: &Module, letter: u8, ty: TypeId) -> bool {
        let own = module.ty(ty);
        let lane = match own {
            Type::Vector(_, of, false) => module.ty(*of),
            own => own,
        };
        match letter {
            b'v' => *own == Type::Void,
            b'p' => *own == Type::Pointer(0),
            b'b' => *own == Type::Integer(1),
            b'c' => *own == Type::Integer(8),
            b'w' => *own == Type::Integer(32),
            b'l' => *own == Type::Integer(64),
            b'd' => *own == Type::Double,
            b'm' => *own == Type::Metadata,
            b'I' | b'J' => matches!(lane, Type::Integer(_)) && self.same(letter, ty),
            b'F' => is_float(lane) && self.same(letter, ty),
            b'A' | b'E' => self.same(letter, ty),
            b'V' => matches!(*own, Type::Vector(_, of, false) if self.same(b'E', of)),
            // Their parts are compared with others at the end.
            b'B' | b'O' | b'P' => self.same(letter, ty),
            _ => letter == b'*',
        }
    }

    /// Whether composite types are made of the bound ones.
    fn is_whole(&self, module: &Module) -> bool {
        let at = |letter: u8| self.0[usize::from(letter - b'A')];
        let is_bit = |ty: TypeId| {
            let lanes = |ty: &Type| match *ty {
                Type::Vector(lanes, of, _) => (lanes, of),
                _ => (0, TypeId(u32::MAX)),
            };
            let of = at(b'I').or(at(b'F')).map_or(0, |of| lanes(module.ty(of)).0);
            match lanes(module.ty(ty)) {
                (0, _) => of == 0 && *module.ty(ty) == Type::Integer(1),
                (lanes, lane) => of == lanes && *module.ty(lane) == Type::Integer(1),
            }
        };
        let pair = |letter: u8| match at(letter).map(|ty| module.ty(ty)) {
            None => None,
            Some(Type::Struct(fields, false)) => Some(<[TypeId; 2]>::try_from(&fields[..]).ok()),
            Some(_) => Some(None),
        };
        at(b'B').is_none_or(is_bit)
            && pair(b'O').is_none_or(|it| it.is_some_and(|[a, b]| Some(a) == at(b'I') && is_bit(b)))
            && pair(b'P').is_none_or(|it| it.is_some_and(|[a, b]| a == b && Some(a) == at(b'F')))
    }
}

fn is_float(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Half | Type::BFloat | Type::Float | Type::Double | Type::X86Fp80 | Type::Fp128
    )
}

/// The parameters of an intrinsic that take constants, a bit for each; `None` if it has another
/// type than required.
pub(crate) fn immediates(module: &Module, ty: TypeId, becomes: Becomes, name: &str) -> Option<u32> {
    let Type::Function(result, ref parameters, variadic) = *module.ty(ty) else {
        return None;
    };
    let Some(signature) = signature(becomes, name) else {
        return Some(0);
    };
    let (gives, takes) = signature.split_once('.')?;
    let mut bound = Bound::default();
    let mut parameters = parameters.iter();
    let (mut immediates, mut count) = (0, 0);
    let mut fits = !variadic && bound.fits(module, gives.as_bytes()[0], result);
    for &letter in takes.as_bytes() {
        if letter == b'!' {
            immediates |= 1 << (count - 1);
            continue;
        }
        count += 1;
        fits &= parameters
            .next()
            .is_some_and(|&ty| bound.fits(module, letter, ty));
    }
    (fits && parameters.next().is_none() && bound.is_whole(module)).then_some(immediates)
}
