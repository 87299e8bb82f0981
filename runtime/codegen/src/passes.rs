//! The passes of tiers 2 and 3, as pipeline strings.
//!
//! | string | run on | inlines | vectorizes, lowers |
//! |---|---|---|---|
//! | [`callees`] | candidates that go into the library | yes | no |
//! | [`optimized`] | a unit at tier 2 | yes | yes |
//! | [`first_half`] | a unit at tier 3, or one whose candidates have profiles | yes | no |
//! | [`levels`] | the same unit, where `recursion` unrolled a function | `alwaysinline` | no |
//! | [`second_half`] | the same unit, without bodies of candidates | no | yes |
//!
//! [`whole`] is LLVM's own pipeline, for coroutines, which only it splits in order.
//!
//! A [`Variant`] changes how loops are vectorized, unrolled and packed; `hints` has its attributes.
//!
//! # Passes that tier 2 leaves out
//! A unit is one function that matters. Passes that relate a module's functions (`ipsccp`,
//! `called-value-propagation`, `globalopt`, `deadargelim`, `openmp-opt`) have nothing to relate
//! there. A second round that finds little more than the first is left out too. These are value
//! propagation after `gvn`, hoisting before loops are rotated, and `instcombine` before inlining,
//! behind the last `simplifycfg` and between two vectorizers: five runs of eight are left.
//!
//! Callees get one round of passes that shrink a body: its size decides whether it is inlined, and
//! then it is simplified again with its caller. Short loops are unrolled, because a caller's loop
//! that contains one cannot be vectorized.
//!
//! # Why
//! Tier 2 has passes of its own (`codegen::passes`): a unit is one function, so passes that relate
//! a module's functions are left out. Callees in the library get one light round: they are
//! simplified again with their caller. Vectors are packed twice, before and after loops are
//! unrolled.

use uruk_base::{Variant, Vectors};

/// Packs vectors before and after unrolling. After loops were unrolled there are more operations
/// side by side. LLVM packs before (compiling modules one by one) or only after (linking whole
/// programs). The first leaves divisions of ordered sums apart (spectral-norm, 20 ms an iteration
/// against 13), the second packs pairs that do not pay (Rust n-body, 29 ms against 20). Before and
/// after has neither loss.
const SLP: &str = "slp-vectorizer,vector-combine,";

/// Options of `simplifycfg` before the loop passes, and after.
const CFG: &str = "bonus-inst-threshold=1;speculate-blocks;simplify-cond-branch;";
const FIRST_CFG: &str = "no-forward-switch-cond;no-switch-range-to-icmp;no-switch-to-arithmetic;\
    no-switch-to-lookup;keep-loops;no-hoist-common-insts;\
    no-hoist-loads-stores-with-cond-faulting;no-sink-common-insts;no-speculate-unpredictables";
const MIDDLE_CFG: &str = "no-forward-switch-cond;switch-range-to-icmp;no-switch-to-arithmetic;\
    no-switch-to-lookup;keep-loops;no-hoist-common-insts;\
    no-hoist-loads-stores-with-cond-faulting;no-sink-common-insts;no-speculate-unpredictables";
const JOINING_CFG: &str = "no-forward-switch-cond;switch-range-to-icmp;switch-to-arithmetic;\
    no-switch-to-lookup;keep-loops;hoist-common-insts;\
    no-hoist-loads-stores-with-cond-faulting;sink-common-insts;no-speculate-unpredictables";
const LOWERING_CFG: &str = "forward-switch-cond;switch-range-to-icmp;switch-to-arithmetic;\
    switch-to-lookup;no-keep-loops;hoist-common-insts;\
    no-hoist-loads-stores-with-cond-faulting;sink-common-insts;no-speculate-unpredictables";
const LAST_CFG: &str = "no-forward-switch-cond;switch-range-to-icmp;switch-to-arithmetic;\
    no-switch-to-lookup;keep-loops;no-hoist-common-insts;\
    hoist-loads-stores-with-cond-faulting;no-sink-common-insts;speculate-unpredictables";
const COMBINE: &str = "instcombine<max-iterations=1;no-verify-fixpoint>";
const ROTATE: &str = "loop-rotate<header-duplication;no-prepare-for-lto>";
/// Options of vectorization: whether it runs, and whether on several vectors at a time.
fn vectorize(variant: Variant) -> &'static str {
    match (variant.vectors != Vectors::None, variant.interleave) {
        (true, true) => "loop-vectorize<no-interleave-forced-only;no-vectorize-forced-only;>",
        (true, false) => "loop-vectorize<interleave-forced-only;no-vectorize-forced-only;>",
        (false, true) => "loop-vectorize<no-interleave-forced-only;vectorize-forced-only;>",
        (false, false) => "loop-vectorize<interleave-forced-only;vectorize-forced-only;>",
    }
}

/// Unrolling by parts at `level`, a comma behind it, if the variant has it.
fn unroll(variant: Variant, level: &str) -> String {
    match variant.unroll {
        true => format!("loop-unroll<{level}>,"),
        false => String::new(),
    }
}

/// One of the two rounds of packing, a comma behind it, if the variant has them.
fn packing(variant: Variant, round: &'static str) -> &'static str {
    match variant.slp {
        true => round,
        false => "",
    }
}

fn simplify_cfg(how: &str) -> String {
    format!("simplifycfg<{CFG}{how}>")
}

/// LLVM's default pipeline at `level`, such as `O3`.
pub(crate) fn whole(level: &str) -> String {
    format!("default<{level}>")
}

/// The passes before inlining.
fn early() -> String {
    let first = simplify_cfg(FIRST_CFG);
    format!(
        "inferattrs,coro-early,\
         function<eager-inv>(ee-instrument<>,lower-expect,{first},sroa<modify-cfg>,early-cse<>),\
         always-inline"
    )
}

/// Simplifies callees, bottom-up.
///
/// `indvars` follows the rotation: in a loop that was rotated alone, Rust's `reverse` kept a check of
/// a bound in tier 3 wherever it was inlined (fannkuch, 24.7 ms an iteration with it, 21.2 without).
pub(crate) fn callees() -> String {
    let (early, middle) = (early(), simplify_cfg(MIDDLE_CFG));
    format!(
        "{early},\
         cgscc(inline,function<eager-inv;no-rerun>(sroa<modify-cfg>,early-cse<memssa>,\
         {COMBINE},{middle},loop({ROTATE},indvars,loop-unroll-full),sroa<modify-cfg>)),globaldce"
    )
}

/// The whole pipeline of tier 2.
pub(crate) fn optimized(variant: Variant) -> String {
    let (vectorize, unroll) = (vectorize(variant), unroll(variant, "O2"));
    let slp = packing(variant, SLP);
    let [middle, joining, lowering, last] =
        [MIDDLE_CFG, JOINING_CFG, LOWERING_CFG, LAST_CFG].map(simplify_cfg);
    let early = early();
    format!(
        "{early},require<globals-aa>,function(invalidate<aa>),require<profile-summary>,\
         cgscc(devirt<4>(inline,function<eager-inv;no-rerun>(\
         sroa<modify-cfg>,early-cse<memssa>,jump-threading,correlated-propagation,{middle},\
         {COMBINE},aggressive-instcombine,libcalls-shrinkwrap,tailcallelim,{middle},\
         reassociate,constraint-elimination,\
         loop-mssa(loop-instsimplify,loop-simplifycfg,{ROTATE},licm<allowspeculation>,\
         simple-loop-unswitch<no-nontrivial;trivial>),{middle},{COMBINE},\
         loop(loop-idiom,indvars,loop-deletion,loop-unroll-full),sroa<modify-cfg>,\
         mldst-motion<no-split-footer-bb>,gvn<>,sccp,bdce,{COMBINE},jump-threading,adce,\
         memcpyopt,dse,move-auto-init,loop-mssa(licm<allowspeculation>),coro-elide,{joining}),\
         function-attrs)),coro-cleanup,\
         elim-avail-extern,globaldce,recompute-globalsaa,\
         function<eager-inv>(drop-unnecessary-assumes,float2int,lower-constant-intrinsics,\
         loop({ROTATE},loop-deletion),loop-distribute,{vectorize},drop-unnecessary-assumes,\
         infer-alignment,loop-load-elim,{COMBINE},{lowering},{slp}\
         {unroll}sroa<preserve-cfg>,{COMBINE},{slp}\
         loop-mssa(licm<allowspeculation>),\
         alignment-from-assumptions,loop-sink,div-rem-pairs,{last}),\
         alloc-token,globaldce,constmerge,rel-lookup-table-converter"
    )
}

/// The default pipeline up to the end of inlining and simplification.
pub(crate) fn first_half(level: &str) -> String {
    format!("thinlto-pre-link<{level}>")
}

/// Puts copies of a function into it, and simplifies the whole.
pub(crate) fn levels() -> String {
    let [middle, joining] = [MIDDLE_CFG, JOINING_CFG].map(simplify_cfg);
    format!(
        "always-inline,function<eager-inv>(sroa<modify-cfg>,early-cse<memssa>,jump-threading,\
         correlated-propagation,{middle},{COMBINE},reassociate,constraint-elimination,gvn<>,sccp,\
         bdce,{COMBINE},jump-threading,adce,memcpyopt,dse,{joining},{COMBINE})"
    )
}

/// The default pipeline from the point at which bodies of candidates are dropped.
pub(crate) fn second_half(level: &str, variant: Variant) -> String {
    let (vectorize, unroll) = (vectorize(variant), unroll(variant, level));
    let slp = packing(variant, SLP);
    let [lowering, last] = [LOWERING_CFG, LAST_CFG].map(simplify_cfg);
    let reduce = if level == "O3" { "chr," } else { "" };
    format!(
        "coro-cleanup,elim-avail-extern,globaldce,rpo-function-attrs,recompute-globalsaa,\
         function<eager-inv>(drop-unnecessary-assumes,float2int,lower-constant-intrinsics,{reduce}\
         loop({ROTATE},loop-deletion),loop-distribute,inject-tli-mappings,{vectorize},\
         drop-unnecessary-assumes,infer-alignment,loop-load-elim,{COMBINE},{lowering},\
         {slp}{COMBINE},{unroll}transform-warning,\
         sroa<preserve-cfg>,infer-alignment,{COMBINE},{slp}\
         loop-mssa(licm<allowspeculation>),\
         alignment-from-assumptions,loop-sink,instsimplify,div-rem-pairs,tailcallelim,{last}),\
         globaldce,constmerge,rel-lookup-table-converter"
    )
}
