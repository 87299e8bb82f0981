//! On-stack replacement of running loops by better code: continuations, and the choice of loops.
//!
//! Code of tier 1 counts at the heads of its loops, and leaves them for the continuation offered
//! there (`uruk_codegen` makes both ends; the exits of code of the baseline compiler are made by
//! `version/exits.rs`, when a loop is to be left). A continuation is a function without a name: it
//! has a stub, versions, samples, a place in reclaim and in every tool, as others have. The offer
//! to a version of tier 1 is the address of that stub.
//!
//! | file | does |
//! |---|---|
//! | `code::loops` | the words of one version's loops: counts, and the offers |
//! | [`state`] | the state of all continuations |
//! | [`list`] | the loops of all versions, and which were passed since the last look |
//! | [`offer`] | a loop's continuation: made, offered, and taken back |
//! | [`watch`] | which loop is to be left, by the counts |
//! | [`ask`] | requests of embedders |
//! | [`stats`] | statistics |
//!
//! # Lifetime
//! A version of tier 1 and the code of its exits (`version/exits.rs`) hold the words of its loops until
//! they are freed, when no frame of them is left; then its continuations are removed. So a frame that
//! has read an offer can call it however late, and a frame of a continuation has one of tier 1 below
//! it, or of an exit. The exits are retired when the version was freed. When a function is replaced or
//! removed, its loops are closed: nothing is offered any more, except, on request, continuations in
//! the body that replaced this one (`replace/loops.rs`). Such a continuation is of tier 1 and has
//! loops of its own, which belong to the function.
//!
//! | lock | held while | inside it |
//! |---|---|---|
//! | `Offers` | a continuation is noted, offered or taken back | nothing |
//! | `Continuations::forbidden` | the list is read or changed, and while a continuation is offered | `Offers` |
//! | `Continuations::watched` | loops are watched | `Offers`, `Ended` |
//! | `Ended` | ids are put or taken | nothing |

mod ask;
pub(crate) mod list;
pub(crate) mod offer;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod watch;

pub use stats::ContinuationStats;
