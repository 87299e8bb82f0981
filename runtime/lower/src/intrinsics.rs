//! LLVM's intrinsics: the replacement of each, as data.
//!
//! An intrinsic that is not in the table is not covered.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use uruk_baseline::ir::{BitOp, FloatOp, FloatUnary, IntOp, MemoryOp, OverflowOp};

mod machine;

pub use machine::MACHINE;
use machine::NAMES;

/// The replacement of an intrinsic.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Becomes {
    /// Nothing: it has no result, or its result has no effect here.
    Nothing,
    /// Its first operand.
    First,
    /// A set bit.
    True,
    Int(IntOp),
    Overflow(OverflowOp),
    Bits(BitOp),
    /// To the left, or to the right.
    Funnel(bool),
    Float(FloatOp),
    FloatUnary(FloatUnary),
    Fma,
    /// A product and a sum, each rounded.
    MulAdd,
    /// A call of this function of the C library, with the ending of its type.
    Library(&'static str),
    /// A call of the compiler's library, by type.
    Power,
    /// A fraction and the rest: a call of `modf` for the type.
    Fraction,
    Memory(MemoryOp),
    /// To an integer, signed or not, clamped to its range.
    Saturated(bool),
    /// Less, equal or greater, signed or not, as -1, 0 and 1.
    Order(bool),
    FloatClass,
    StackSave,
    StackRestore,
    ThreadLocal,
    VaStart,
    VaCopy,
    TypeId,
    FrameAddress,
    ReturnAddress,
    AddressOfReturnAddress,
    Prefetch,
    CycleCounter,
    ThreadPointer,
    Pause,
    /// The rounding mode of the x87, in the encoding of `FLT_ROUNDS`.
    Rounding,
    Trap,
    /// Whether the operand is a constant.
    IsConstant,
    /// A size that is not known.
    ObjectSize,
    /// A pointer without some bits.
    Mask,
    /// The entry at an offset of a table of distances.
    LoadRelative,
    /// The reduction of all lanes to one number.
    Reduce(Reduce),
    /// Bits of signs of all lanes.
    Signs,
    /// An operation of the processor on lanes.
    Lanes(LaneOp),
}

/// The reduction of lanes to one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduce {
    /// A reduction of integers, in any order.
    Int(IntOp),
    /// A reduction in order, from a first number.
    Ordered(FloatOp),
    /// Without a first number.
    Float(FloatOp),
}

/// Operations of the processor on 16 bytes, or on each 16 of more, that the language does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum LaneOp {
    /// Two vectors as one of lanes half as wide, clamped from signed numbers to signed or unsigned
    /// ones.
    Pack { signed: bool },
    /// High halves of products of 16 bits.
    MulHigh { signed: bool },
    /// Sums of two products of 16 bits.
    MulAdd,
    /// Averages, rounded up.
    Average,
    /// Sums of differences of eight bytes.
    Differences,
    /// Bytes of a table of 16, by their numbers; zero for a negative one.
    Shuffle,
    /// All lanes by the same number, which may be too large.
    Shift(IntOp),
}

use Becomes as B;

/// Intrinsics by name without types.
pub const TABLE: &[(&str, Becomes)] = &[
    ("llvm.lifetime.start", B::Nothing),
    ("llvm.lifetime.end", B::Nothing),
    ("llvm.dbg.declare", B::Nothing),
    ("llvm.dbg.value", B::Nothing),
    ("llvm.dbg.label", B::Nothing),
    ("llvm.dbg.assign", B::Nothing),
    ("llvm.assume", B::Nothing),
    ("llvm.donothing", B::Nothing),
    ("llvm.sideeffect", B::Nothing),
    ("llvm.fake.use", B::Nothing),
    ("llvm.pseudoprobe", B::Nothing),
    ("llvm.invariant.start", B::Nothing),
    ("llvm.invariant.end", B::Nothing),
    ("llvm.var.annotation", B::Nothing),
    ("llvm.codeview.annotation", B::Nothing),
    ("llvm.experimental.noalias.scope.decl", B::Nothing),
    ("llvm.va_end", B::Nothing),
    ("llvm.expect", B::First),
    ("llvm.expect.with.probability", B::First),
    ("llvm.ssa.copy", B::First),
    ("llvm.annotation", B::First),
    ("llvm.ptr.annotation", B::First),
    ("llvm.launder.invariant.group", B::First),
    ("llvm.strip.invariant.group", B::First),
    ("llvm.arithmetic.fence", B::First),
    ("llvm.allow.runtime.check", B::True),
    // A test needs all members of a type, which a session never knows: every test passes.
    ("llvm.type.test", B::True),
    ("llvm.public.type.test", B::True),
    ("llvm.allow.ubsan.check", B::True),
    ("llvm.smin", B::Int(IntOp::SMin)),
    ("llvm.smax", B::Int(IntOp::SMax)),
    ("llvm.umin", B::Int(IntOp::UMin)),
    ("llvm.umax", B::Int(IntOp::UMax)),
    ("llvm.sadd.sat", B::Int(IntOp::SAddSat)),
    ("llvm.ssub.sat", B::Int(IntOp::SSubSat)),
    ("llvm.uadd.sat", B::Int(IntOp::UAddSat)),
    ("llvm.usub.sat", B::Int(IntOp::USubSat)),
    ("llvm.sadd.with.overflow", B::Overflow(OverflowOp::SAdd)),
    ("llvm.uadd.with.overflow", B::Overflow(OverflowOp::UAdd)),
    ("llvm.ssub.with.overflow", B::Overflow(OverflowOp::SSub)),
    ("llvm.usub.with.overflow", B::Overflow(OverflowOp::USub)),
    ("llvm.smul.with.overflow", B::Overflow(OverflowOp::SMul)),
    ("llvm.umul.with.overflow", B::Overflow(OverflowOp::UMul)),
    ("llvm.ctpop", B::Bits(BitOp::Count)),
    ("llvm.ctlz", B::Bits(BitOp::LeadingZeros)),
    ("llvm.cttz", B::Bits(BitOp::TrailingZeros)),
    ("llvm.bswap", B::Bits(BitOp::SwapBytes)),
    ("llvm.bitreverse", B::Bits(BitOp::Reverse)),
    ("llvm.abs", B::Bits(BitOp::Abs)),
    ("llvm.fshl", B::Funnel(true)),
    ("llvm.fshr", B::Funnel(false)),
    ("llvm.scmp", B::Order(true)),
    ("llvm.ucmp", B::Order(false)),
    ("llvm.fabs", B::FloatUnary(FloatUnary::Abs)),
    ("llvm.sqrt", B::FloatUnary(FloatUnary::Sqrt)),
    ("llvm.copysign", B::Float(FloatOp::CopySign)),
    ("llvm.minnum", B::Float(FloatOp::MinNum)),
    ("llvm.maxnum", B::Float(FloatOp::MaxNum)),
    ("llvm.is.fpclass", B::FloatClass),
    ("llvm.fma", B::Fma),
    ("llvm.fmuladd", B::MulAdd),
    ("llvm.fptosi.sat", B::Saturated(true)),
    ("llvm.fptoui.sat", B::Saturated(false)),
    ("llvm.floor", B::Library("floor")),
    ("llvm.ceil", B::Library("ceil")),
    ("llvm.trunc", B::Library("trunc")),
    ("llvm.rint", B::Library("rint")),
    ("llvm.nearbyint", B::Library("nearbyint")),
    ("llvm.round", B::Library("round")),
    ("llvm.roundeven", B::Library("roundeven")),
    ("llvm.lround", B::Library("lround")),
    ("llvm.llround", B::Library("llround")),
    ("llvm.lrint", B::Library("lrint")),
    ("llvm.llrint", B::Library("llrint")),
    ("llvm.sin", B::Library("sin")),
    ("llvm.cos", B::Library("cos")),
    ("llvm.tan", B::Library("tan")),
    ("llvm.asin", B::Library("asin")),
    ("llvm.acos", B::Library("acos")),
    ("llvm.atan", B::Library("atan")),
    ("llvm.atan2", B::Library("atan2")),
    ("llvm.sinh", B::Library("sinh")),
    ("llvm.cosh", B::Library("cosh")),
    ("llvm.tanh", B::Library("tanh")),
    ("llvm.pow", B::Library("pow")),
    ("llvm.exp", B::Library("exp")),
    ("llvm.exp2", B::Library("exp2")),
    ("llvm.exp10", B::Library("exp10")),
    ("llvm.log", B::Library("log")),
    ("llvm.log2", B::Library("log2")),
    ("llvm.log10", B::Library("log10")),
    ("llvm.ldexp", B::Library("ldexp")),
    ("llvm.powi", B::Power),
    ("llvm.modf", B::Fraction),
    ("llvm.memcpy", B::Memory(MemoryOp::Copy)),
    ("llvm.memmove", B::Memory(MemoryOp::Move)),
    ("llvm.memset", B::Memory(MemoryOp::Set)),
    ("llvm.stacksave", B::StackSave),
    ("llvm.stackrestore", B::StackRestore),
    ("llvm.threadlocal.address", B::ThreadLocal),
    ("llvm.va_start", B::VaStart),
    ("llvm.va_copy", B::VaCopy),
    ("llvm.eh.typeid.for", B::TypeId),
    ("llvm.frameaddress", B::FrameAddress),
    ("llvm.returnaddress", B::ReturnAddress),
    ("llvm.addressofreturnaddress", B::AddressOfReturnAddress),
    ("llvm.prefetch", B::Prefetch),
    ("llvm.readcyclecounter", B::CycleCounter),
    ("llvm.thread.pointer", B::ThreadPointer),
    ("llvm.x86.sse2.pause", B::Pause),
    ("llvm.get.rounding", B::Rounding),
    ("llvm.trap", B::Trap),
    ("llvm.ubsantrap", B::Trap),
    ("llvm.is.constant", B::IsConstant),
    ("llvm.objectsize", B::ObjectSize),
    ("llvm.ptrmask", B::Mask),
    ("llvm.load.relative", B::LoadRelative),
    ("llvm.vector.reduce.add", B::Reduce(Reduce::Int(IntOp::Add))),
    ("llvm.vector.reduce.mul", B::Reduce(Reduce::Int(IntOp::Mul))),
    ("llvm.vector.reduce.and", B::Reduce(Reduce::Int(IntOp::And))),
    ("llvm.vector.reduce.or", B::Reduce(Reduce::Int(IntOp::Or))),
    ("llvm.vector.reduce.xor", B::Reduce(Reduce::Int(IntOp::Xor))),
    (
        "llvm.vector.reduce.smin",
        B::Reduce(Reduce::Int(IntOp::SMin)),
    ),
    (
        "llvm.vector.reduce.smax",
        B::Reduce(Reduce::Int(IntOp::SMax)),
    ),
    (
        "llvm.vector.reduce.umin",
        B::Reduce(Reduce::Int(IntOp::UMin)),
    ),
    (
        "llvm.vector.reduce.umax",
        B::Reduce(Reduce::Int(IntOp::UMax)),
    ),
    (
        "llvm.vector.reduce.fadd",
        B::Reduce(Reduce::Ordered(FloatOp::Add)),
    ),
    (
        "llvm.vector.reduce.fmul",
        B::Reduce(Reduce::Ordered(FloatOp::Mul)),
    ),
    (
        "llvm.vector.reduce.fmin",
        B::Reduce(Reduce::Float(FloatOp::MinNum)),
    ),
    (
        "llvm.vector.reduce.fmax",
        B::Reduce(Reduce::Float(FloatOp::MaxNum)),
    ),
];

/// Intrinsics that begin with another one's name, and are not in the table.
const OTHERS: [&str; 5] = [
    "llvm.memcpy.inline",
    "llvm.memcpy.element",
    "llvm.memmove.element",
    "llvm.memset.inline",
    "llvm.memset.element",
];

/// The replacement of the intrinsic of that name: types follow its own name, behind points.
///
/// # Errors
/// A text for an intrinsic that is not covered.
pub(crate) fn becomes(name: &str) -> Result<Becomes, &'static str> {
    static KNOWN: OnceLock<FxHashMap<&str, Becomes>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| TABLE.iter().chain(MACHINE).copied().collect());
    if let Some(other) = OTHERS.iter().find(|it| is_one_of(name, it)) {
        return Err(other);
    }
    let mut own = name;
    loop {
        if let Some(&becomes) = known.get(own) {
            return Ok(becomes);
        }
        own = match own.rsplit_once('.') {
            Some((own, _)) => own,
            None => return Err(said_as(name)),
        };
    }
}

const WHAT: &str = "an intrinsic";

/// The text for an intrinsic that is not in the table.
fn said_as(name: &str) -> &'static str {
    let known = NAMES.iter().find(|known| is_one_of(name, known));
    known.copied().unwrap_or(WHAT)
}

/// Whether a name equals another one, up to a suffix behind a point.
fn is_one_of(name: &str, other: &str) -> bool {
    let rest = name.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Becomes {
    /// Whether it needs bytes of the frame.
    pub(crate) fn needs_room(self) -> bool {
        matches!(self, B::Fraction | B::Lanes(LaneOp::Shuffle))
    }

    /// Whether it inspects the frame it is in.
    pub(crate) fn minds_frame(self) -> bool {
        matches!(
            self,
            B::FrameAddress | B::ReturnAddress | B::AddressOfReturnAddress
        )
    }
}

/// Whether an uncovered intrinsic may inspect the frame it is in.
pub(crate) fn may_mind_frame(name: &str) -> bool {
    const ALL: [&str; 4] = [
        "llvm.sponentry",
        "llvm.eh",
        "llvm.local",
        "llvm.get.dynamic",
    ];
    ALL.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts() {
        assert_eq!(becomes("llvm.ctpop.i32"), Ok(B::Bits(BitOp::Count)));
        assert_eq!(becomes("llvm.exp2.f64"), Ok(B::Library("exp2")));
        assert_eq!(becomes("llvm.trap"), Ok(B::Trap));
        assert_eq!(becomes("llvm.expect.with.probability.i1"), Ok(B::First));
        assert_eq!(
            becomes("llvm.memcpy.inline.p0.p0.i64"),
            Err("llvm.memcpy.inline")
        );
        assert_eq!(becomes("llvm.expectations"), Err(WHAT));
        assert_eq!(becomes("llvm.minimum.f32"), Err("llvm.minimum"));
        assert_eq!(becomes("llvm.minimumnum.v4f32"), Err("llvm.minimumnum"));
        assert_eq!(becomes("llvm.x86.avx2.maskload.d"), Err("llvm.x86.avx2"));
        assert_eq!(becomes("llvm"), Err(WHAT));
    }
}
