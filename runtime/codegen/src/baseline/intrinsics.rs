//! LLVM's intrinsics: what each becomes, as data.
//!
//! One that is not in the table is not covered, and its name is the reason.

use std::sync::OnceLock;

use inkwell::llvm_sys::core::{LLVMIntrinsicGetName, LLVMLookupIntrinsicID};
use rustc_hash::FxHashMap;
use uruk_baseline::ir::{BitOp, FloatOp, FloatUnary, IntOp, MemoryOp, OverflowOp};

/// What an intrinsic becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Becomes {
    /// Nothing: it has no result, or nobody cares for it.
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
    /// Of the compiler's library, by type.
    Power,
    Memory(MemoryOp),
    /// To an integer, signed or not, with the nearest there is.
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
    Pause,
    Trap,
    /// Whether the operand is a constant.
    IsConstant,
    /// A size that is not known.
    ObjectSize,
    /// A pointer without some bits.
    Mask,
    /// What a table of distances has at an offset.
    LoadRelative,
}

use Becomes as B;

/// Intrinsics by name without types.
const TABLE: &[(&str, Becomes)] = &[
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
    ("llvm.x86.sse2.pause", B::Pause),
    ("llvm.trap", B::Trap),
    ("llvm.ubsantrap", B::Trap),
    ("llvm.is.constant", B::IsConstant),
    ("llvm.objectsize", B::ObjectSize),
    ("llvm.ptrmask", B::Mask),
    ("llvm.load.relative", B::LoadRelative),
];

/// What the intrinsic of that number becomes.
///
/// # Errors
/// Its name.
pub(super) fn becomes(intrinsic: u32) -> Result<Becomes, &'static str> {
    static KNOWN: OnceLock<FxHashMap<u32, Becomes>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let id = |name: &str| {
            // SAFETY: pointer and length describe the name.
            unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) }
        };
        let known = TABLE.iter().map(|&(name, becomes)| (id(name), becomes));
        known.filter(|(id, _)| *id != 0).collect()
    });
    known
        .get(&intrinsic)
        .copied()
        .ok_or_else(|| name(intrinsic))
}

/// Whether an intrinsic, as far as it is known, asks for the frame it is in.
pub(super) fn minds_frame(intrinsic: u32) -> bool {
    match becomes(intrinsic) {
        Ok(B::FrameAddress | B::ReturnAddress | B::AddressOfReturnAddress) => true,
        Ok(_) => false,
        Err(name) => [
            "llvm.sponentry",
            "llvm.eh.",
            "llvm.local",
            "llvm.get.dynamic",
        ]
        .iter()
        .any(|begin| name.starts_with(begin)),
    }
}

/// The name of an intrinsic.
fn name(intrinsic: u32) -> &'static str {
    let mut length = 0;
    // SAFETY: the number of an intrinsic, whose name is in a table of LLVM's that stays.
    let name = unsafe {
        let start = LLVMIntrinsicGetName(intrinsic, &mut length);
        std::slice::from_raw_parts(start.cast::<u8>(), length)
    };
    std::str::from_utf8(name).unwrap_or("an intrinsic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_knows_each_name() {
        for (name, _) in TABLE {
            // SAFETY: pointer and length describe the name.
            let id = unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) };
            assert_ne!(id, 0, "{name}");
        }
    }
}
