//! The words of the text form: one table for the writer and the parser.

use super::{
    BitOp, Cast, FloatOp, FloatPredicate, FloatUnary, IntOp, IntPredicate, MemoryOp, Ordering,
    OverflowOp, Reach, RmwOp, WideOp,
};

/// A type whose values are words in the text form.
pub(super) trait Named: Copy + PartialEq + 'static {
    /// Each value with its word; words are distinct.
    const WORDS: &'static [(Self, &'static str)];

    /// Its word.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(one, _)| *one == self);
        found.map_or("?", |(_, word)| word)
    }

    /// The value with this word.
    fn of_word(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(_, its)| *its == word);
        found.map(|(one, _)| *one)
    }
}

macro_rules! words {
    ($of:ident: $($variant:ident $word:literal),* $(,)?) => {
        impl Named for $of {
            const WORDS: &'static [(Self, &'static str)] = &[$(($of::$variant, $word)),*];
        }
    };
}

words!(IntOp: Add "add", Sub "sub", Mul "mul", SDiv "sdiv", UDiv "udiv", SRem "srem",
    URem "urem", Shl "shl", LShr "lshr", AShr "ashr", And "and", Or "or", Xor "xor",
    SMin "smin", SMax "smax", UMin "umin", UMax "umax", SAddSat "sadd.sat",
    SSubSat "ssub.sat", UAddSat "uadd.sat", USubSat "usub.sat");
words!(OverflowOp: SAdd "sadd.overflow", UAdd "uadd.overflow", SSub "ssub.overflow",
    USub "usub.overflow", SMul "smul.overflow", UMul "umul.overflow");
words!(BitOp: Count "ctpop", LeadingZeros "ctlz", TrailingZeros "cttz", SwapBytes "bswap",
    Reverse "bitreverse", Abs "abs");
words!(WideOp: Add "wide.add", Sub "wide.sub", Mul "wide.mul", SDiv "wide.sdiv",
    UDiv "wide.udiv", SRem "wide.srem", URem "wide.urem", Shl "wide.shl", LShr "wide.lshr",
    AShr "wide.ashr");
words!(FloatOp: Add "fadd", Sub "fsub", Mul "fmul", Div "fdiv", Rem "frem", MinNum "minnum",
    MaxNum "maxnum", CopySign "copysign");
words!(FloatUnary: Neg "fneg", Abs "fabs", Sqrt "sqrt");
words!(IntPredicate: Eq "eq", Ne "ne", UGt "ugt", UGe "uge", ULt "ult", ULe "ule", SGt "sgt",
    SGe "sge", SLt "slt", SLe "sle");
words!(FloatPredicate: False "false", OEq "oeq", OGt "ogt", OGe "oge", OLt "olt", OLe "ole",
    ONe "one", Ord "ord", Uno "uno", UEq "ueq", UGt "ugt", UGe "uge", ULt "ult", ULe "ule",
    UNe "une", True "true");
words!(Cast: Trunc "trunc", ZExt "zext", SExt "sext", FpTrunc "fptrunc", FpExt "fpext",
    FpToUi "fptoui", FpToSi "fptosi", UiToFp "uitofp", SiToFp "sitofp", Bits "bits",
    FpToSiSat "fptosi.sat", FpToUiSat "fptoui.sat");
words!(RmwOp: Exchange "xchg", Add "add", Sub "sub", And "and", Nand "nand", Or "or",
    Xor "xor", Max "max", Min "min", UMax "umax", UMin "umin", FAdd "fadd", FSub "fsub");
words!(Ordering: Plain "plain", Weak "weak", Strong "strong");
words!(MemoryOp: Copy "memcpy", Move "memmove", Set "memset");
words!(Reach: Near "near", Indirect "indirect", ThreadLocal "threadlocal");
