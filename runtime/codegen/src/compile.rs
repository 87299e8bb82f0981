//! The request of a compile, and its result.
//!
//! A [`Compile`] is plain data: two compiles with different settings can run at once, because no
//! setting goes through LLVM's process-wide options.
//!
//! # Why
//! At -O0 every function is `noinline`; tiers 2 and 3 remove it with `optnone`. So a `noinline` of
//! the source is lost there too, except in functions that ask for addresses in their frame or are
//! `sspreq`. Bitcode made with `-O1` and up, or with `-disable-llvm-passes`, keeps it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use uruk_base::Inlining;
pub use uruk_base::{Tier, Variant};
use uruk_leaving::Heads;

use crate::cancel::Cancellation;
use crate::continuation::start::Start;
use crate::dependence::Dependence;
use crate::facts::FactStore;
use crate::labels::Labels;
use crate::parcel::Offer;
use crate::profile::{Probes, Profile, Refused, Steady};
use crate::summary::SymbolId;
use crate::transform::Transform;

/// Name of the pair of counters that tier 1 increments, as two `i32`: entries, then back edges
/// taken. Units refer to it as a hidden symbol they do not define; the linker gives every unit
/// words of its own.
pub const COUNTERS: &str = "uruk.counters";

/// Name of the words of a version's loops. Each counted loop has a pointer to a continuation, null
/// until one is offered, the time of the last pass that was counted, and two `i32`: passes that are left
/// to count, below zero, and how often the loop was left. [`Heads::places`] gives their offsets. When the
/// first `i32` has risen to zero, the code checks the pointer.
pub const LOOPS: &str = "uruk.loops";

/// The counters of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counters {
    /// Nothing.
    #[default]
    None,
    /// Entries and, at tier 1, back edges, in [`COUNTERS`], without atomics: threads may
    /// lose some of each other's increments.
    Entry,
    /// All that a [`Profile`] is made of, in [`PROBES`](crate::PROBES), likewise: see
    /// [`Compiled::probes`].
    Full,
}

/// Assumptions about callees whose bodies are not copied along, above tier 1. The store must be of
/// the same module under the same plan.
#[derive(Debug, Clone, Default)]
pub enum Knowledge {
    /// Only the attributes of the module's declarations.
    #[default]
    Declared,
    /// Declarations, and the facts in the store.
    Known(Arc<FactStore>),
    /// Also facts inferred within a budget, which are added to the store. Inference takes time, so
    /// it does not suit a function that a caller waits for.
    Inferred(Arc<FactStore>),
}

impl Knowledge {
    pub(crate) fn store(&self) -> Option<&Arc<FactStore>> {
        match self {
            Knowledge::Declared => None,
            Knowledge::Known(store) | Knowledge::Inferred(store) => Some(store),
        }
    }
}

/// Functions of a module that are seldom called, according to the counters of the embedder: of
/// these only tiny bodies are copied along. The answer for a function may change at any time; it
/// affects only inlining.
#[derive(Clone, Default)]
pub struct Rare(Option<Arc<IsRare>>);

type IsRare = dyn Fn(SymbolId) -> bool + Send + Sync;

impl Rare {
    /// The functions for which `is_rare` returns true.
    pub fn new(is_rare: impl Fn(SymbolId) -> bool + Send + Sync + 'static) -> Rare {
        Rare(Some(Arc::new(is_rare)))
    }

    /// Whether `function` is one; without knowledge none is.
    pub fn has(&self, function: SymbolId) -> bool {
        self.0.as_ref().is_some_and(|is_rare| is_rare(function))
    }
}

impl fmt::Debug for Rare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Rare(known)"
        } else {
            "Rare(unknown)"
        })
    }
}

/// Settings of one compile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Compile {
    /// The tier, which determines how much work goes into it.
    pub tier: Tier,
    /// The counters in the code.
    pub counters: Counters,
    /// At tier 1, with counters: whether loops can be left for continuations, see
    /// [`Compiled::heads`].
    pub leaves: bool,
    /// Makes the version a continuation that starts at this head of a loop. Continuations are made
    /// above tier 1, except those entered by a frame of another body.
    pub start: Option<Start>,
    /// Allow a multiplication and an addition to be fused, which changes results.
    pub contract: bool,
    /// Copy no callees along but `alwaysinline` ones: for another try after a compile
    /// with them failed.
    pub alone: bool,
    /// The way in which it is compiled above tier 1.
    pub variant: Variant,
    /// Profiles of functions of the module, recorded by probes: above tier 1 they guide the
    /// function itself and callees copied along.
    pub profiles: Arc<HashMap<SymbolId, Arc<Profile>>>,
    /// Which functions of the module lie at
    /// [observed](Profile::observed_targets) addresses. Those not listed are called
    /// through the pointer, as ever.
    pub targets: Arc<HashMap<u64, SymbolId>>,
    /// Values that the function's arguments nearly always have: above tier 1 a variant with
    /// [`values`](Variant::values) has a second body for them.
    pub values: Arc<[Steady]>,
    /// Bodies of other modules that may be inlined above tier 1, the most wanted first.
    pub offers: Arc<Vec<Offer>>,
    /// The offers that lie at [observed](Profile::observed_targets) addresses.
    pub offered_targets: Arc<HashMap<u64, usize>>,
    /// Assumptions about callees whose bodies are not copied along.
    pub facts: Knowledge,
    /// Write line tables, for debuggers, where the bitcode has any.
    pub lines: bool,
    /// With line tables: also describe the places and types of arguments and locals.
    pub variables: bool,
    /// Functions that are hardly worth inlining.
    pub rare: Rare,
    /// Most callees run code without counters. Of callees without a profile, guided code copies no
    /// more than tier 2 does, except leaves that would bring no callees along.
    pub uncounted: bool,
    /// A change of the IR before it is optimized.
    pub transform: Option<Transform>,
    /// Gets the IR that machine code is made of, as text.
    pub listing: Option<Arc<OnceLock<String>>>,
    /// Token that ends the compile early.
    pub cancel: Option<Cancellation>,
}

impl Compile {
    /// A compile at `tier`, without counters or contraction.
    pub fn at(tier: Tier) -> Compile {
        Compile {
            tier,
            counters: Counters::None,
            leaves: false,
            start: None,
            contract: false,
            alone: false,
            variant: Variant::default(),
            profiles: Arc::default(),
            targets: Arc::default(),
            values: Arc::default(),
            offers: Arc::default(),
            offered_targets: Arc::default(),
            facts: Knowledge::Declared,
            lines: false,
            variables: false,
            rare: Rare::default(),
            uncounted: false,
            transform: None,
            listing: None,
            cancel: None,
        }
    }

    /// Tier 1, without counters or contraction.
    pub fn baseline() -> Compile {
        Compile::at(Tier::Baseline)
    }

    /// Sets the counters.
    #[must_use]
    pub fn counting(mut self, counters: Counters) -> Compile {
        self.counters = counters;
        self
    }

    /// Allows contraction or not.
    #[must_use]
    pub fn contracting(mut self, contract: bool) -> Compile {
        self.contract = contract;
        self
    }

    /// Sets facts about callees whose bodies are not copied along.
    #[must_use]
    pub fn knowing(mut self, facts: Knowledge) -> Compile {
        self.facts = facts;
        self
    }

    /// Requests line tables or not.
    #[must_use]
    pub fn with_lines(mut self, lines: bool) -> Compile {
        self.lines = lines;
        self
    }

    /// With arguments and locals for debuggers or not, where there are line tables.
    #[must_use]
    pub fn with_variables(mut self, variables: bool) -> Compile {
        self.variables = variables;
        self
    }

    /// Leaves these functions out, unless they are tiny.
    #[must_use]
    pub fn sparing(mut self, rare: Rare) -> Compile {
        self.rare = rare;
        self
    }

    /// Ended early when `token` is cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, token: &Cancellation) -> Compile {
        self.cancel = Some(token.clone());
        self
    }

    /// With these bodies of other modules, and which of them lie at which address.
    #[must_use]
    pub fn offering(mut self, offers: Vec<Offer>, targets: HashMap<u64, usize>) -> Compile {
        self.offers = Arc::new(offers);
        self.offered_targets = Arc::new(targets);
        self
    }

    /// In this way: without callees where the variant wants none, and without contraction where
    /// it wants none.
    #[must_use]
    pub fn varied(mut self, variant: Variant) -> Compile {
        self.alone |= variant.inlining == Inlining::None;
        self.contract &= variant.contract;
        self.variant = variant;
        self
    }

    /// Sets the usual values of its arguments.
    #[must_use]
    pub fn assuming(mut self, values: Vec<Steady>) -> Compile {
        self.values = values.into();
        self
    }

    /// Guided by these profiles and targets.
    #[must_use]
    pub fn guided(
        mut self,
        profiles: HashMap<SymbolId, Arc<Profile>>,
        targets: HashMap<u64, SymbolId>,
    ) -> Compile {
        self.profiles = Arc::new(profiles);
        self.targets = Arc::new(targets);
        self
    }
}

/// A compiled function. The default has no properties: the function was compiled elsewhere.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Compiled {
    /// A relocatable ELF object that defines the body under
    /// [`BODY_PREFIX`](crate::BODY_PREFIX) and its link name.
    pub object: Vec<u8>,
    /// IR instructions of the function before optimization.
    pub instructions: u32,
    /// IR instructions of the whole unit before optimization, including copied callees.
    pub unit_instructions: u32,
    /// Loops of the function: targets of its back edges.
    pub loops: u32,
    /// True if one of its loops lies inside another.
    pub nested: bool,
    /// Where the addresses of its labels go.
    pub labels: Labels,
    /// Calls of named functions in it, intrinsics left out.
    pub calls: u32,
    /// Callees that could be inlined, whether or not the variant leaves them
    /// [apart](Variant::apart); 0 at tier 1.
    pub callees: u32,
    /// Arguments whose usual values it has a second body for.
    pub assumed: u32,
    /// True if nothing that went into the code can load the stack pointer from elsewhere; not
    /// known where an embedder changed the IR.
    pub keeps_stack: bool,
    /// True if the code increments [`COUNTERS`]. Coroutines and naked functions never do.
    pub counts: bool,
    /// The loops that are counted at their heads, whose words are [`LOOPS`], and why others are not.
    /// Of the code of the baseline compiler it is not known yet which of them can be left.
    pub heads: Heads,
    /// Fingerprint of the code of the baseline compiler, if it has such loops: their exits are compiled
    /// later, and belong to this code only.
    pub fingerprint: Option<u64>,
    /// Layout of the counters in [`PROBES`](crate::PROBES), if [`Counters::Full`] was requested.
    /// Coroutines, naked functions and huge ones have no probes.
    pub probes: Option<Probes>,
    /// Functions in the unit to which a profile was applied.
    pub guided: u32,
    /// Indirect calls that were made direct behind a comparison.
    pub promoted: u32,
    /// Profiles given for functions in the unit that do not fit them; they have no effect on the
    /// code.
    pub refused: Vec<Refused>,
    /// Symbols that the version depends on, sorted, without itself; complete, but possibly more
    /// than were really used.
    pub depends: Vec<Dependence>,
    /// Which of the bodies of other modules that were [offered](Compile::offers) it
    /// depends on in the same way, by their place there.
    pub taken: Vec<usize>,
}
