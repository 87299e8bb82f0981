//! Facts about functions of a module beyond their declarations: attributes that hold for their
//! bodies, for calls whose callee is not copied along.
//!
//! # Invariants
//! - A fact holds for *every* version of a function, also for the slowest: a call may reach any of
//!   them. It is inferred from the original body. Only reads and writes of local variables are
//!   removed from it (see `infer`). A load whose value is unused still counts as one: tier 1
//!   executes it.
//! - Only the bound definition of a name has facts.
//! - A fact depends on the function's body, and on the dependencies of the facts of its callees.
//!   `Summary::rests_on`, followed to the end, is recorded with every version that uses the fact
//!   ([`DependenceKind::Fact`](crate::DependenceKind)).
//! - A version that uses a fact that no longer holds may do no worse than use stale values. So
//!   `noreturn` is not among the facts, because code ends behind such a call.
//!
//! # How
//! A [`FactStore`] belongs to one module under one plan. Summaries are plain data, so that they
//! outlive contexts and are shared by readers. `infer` fills the store before a function is
//! compiled; declarations get the facts in the store (`declare`).
//!
//! An argument that no instruction of the callee mentions is *dead*: callers pass
//! poison, and need not compute it.
//!
//! # Why
//! Facts hold for the slowest version. A call may reach tier 1 code, which executes loads and
//! divisions whose results are unused. Attributes of callees that are not copied are therefore
//! inferred from bodies that only went through `mem2reg` (`codegen::facts`).

pub(crate) mod declare;
pub(crate) mod infer;

use std::sync::{Arc, OnceLock};

use inkwell::llvm_sys::core::LLVMGetEnumAttributeKindForName;
use rustc_hash::{FxHashMap, FxHashSet};
use uruk_base::allocated::{of_arc, of_map, of_vec};
use uruk_base::locks::{Mutex, MutexGuard};

use crate::summary::SymbolId;

/// Attributes taken from bodies: of functions, return values and parameters. None says
/// how a call is made, and none that it does not return.
const INFERRED: [&str; 14] = [
    "memory",
    "nounwind",
    "willreturn",
    "nosync",
    "nofree",
    "cold",
    "noalias",
    "nonnull",
    "noundef",
    "captures",
    "returned",
    READ_WRITE[0],
    READ_WRITE[1],
    READ_WRITE[2],
];

/// At most one of these is on a parameter.
const READ_WRITE: [&str; 3] = ["readnone", "readonly", "writeonly"];

/// Attributes whose argument must not be poison.
const WANT_A_VALUE: [&str; 3] = ["noundef", "dereferenceable", "dereferenceable_or_null"];

/// Attributes whose argument the caller itself uses.
const USED_BY_CALLS: [&str; 10] = [
    "byref",
    "byval",
    "inalloca",
    "nest",
    "preallocated",
    "returned",
    "sret",
    "swiftasync",
    "swifterror",
    "swiftself",
];

/// Kind numbers of attributes; fixed for the process.
struct FactKinds {
    inferred: Vec<u32>,
    read_write: Vec<u32>,
    want_a_value: Vec<u32>,
    used_by_calls: Vec<u32>,
}

fn kinds() -> &'static FactKinds {
    static KINDS: OnceLock<FactKinds> = OnceLock::new();
    KINDS.get_or_init(|| {
        let numbers = |names: &[&str]| {
            let number = |name: &&str| {
                // SAFETY: pointer and length describe `name`.
                unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
            };
            names.iter().map(number).collect()
        };
        FactKinds {
            inferred: numbers(&INFERRED),
            read_write: numbers(&READ_WRITE),
            want_a_value: numbers(&WANT_A_VALUE),
            used_by_calls: numbers(&USED_BY_CALLS),
        }
    })
}

/// An attribute that the declaration does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fact {
    /// LLVM's index: 0 the return value, from 1 the parameters, [`u32::MAX`] the
    /// function.
    place: u32,
    kind: u32,
    value: u64,
}

/// The facts about one function.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) facts: Vec<Fact>,
    /// Parameters that nothing in the body mentions.
    pub(crate) dead: Vec<u32>,
    /// The functions it calls, whose declarations and facts went into its own.
    pub(crate) rests_on: Vec<SymbolId>,
}

impl Summary {
    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.dead.is_empty()
    }
}

/// The size of a [`FactStore`], and the work that filled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FactStats {
    /// Functions analysed and kept.
    pub functions: usize,
    /// Attributes and dead parameters found.
    pub facts: usize,
    /// Instructions that inference ran over.
    pub instructions: u64,
}

#[derive(Debug, Default)]
struct KnownSummaries {
    summaries: FxHashMap<SymbolId, Arc<Summary>>,
    instructions: u64,
    /// Counts [`FactStore::forget`]: results of inferences begun before it are dropped.
    generation: u64,
}

/// Facts about the functions of one module under one plan; fills up while functions are
/// compiled with [`Knowledge::Inferred`](crate::Knowledge).
#[derive(Debug, Default)]
pub struct FactStore {
    known: Mutex<KnownSummaries>,
}

impl FactStore {
    /// Knows nothing.
    #[must_use]
    pub fn new() -> FactStore {
        FactStore::default()
    }

    /// Bytes allocated for its content, without the store itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let known = self.lock();
        let summaries = known.summaries.values().map(|summary| {
            let Summary {
                facts,
                dead,
                rests_on,
            } = &**summary;
            of_arc::<Summary>() + of_vec(facts) + of_vec(dead) + of_vec(rests_on)
        });
        of_map(&known.summaries) + summaries.sum::<usize>()
    }

    /// The size of the store.
    #[must_use]
    pub fn stats(&self) -> FactStats {
        let known = self.lock();
        let count = |summary: &Arc<Summary>| summary.facts.len() + summary.dead.len();
        FactStats {
            functions: known.summaries.len(),
            facts: known.summaries.values().map(count).sum(),
            instructions: known.instructions,
        }
    }

    /// Forgets all that rests on the bodies of `replaced`, also through other functions
    /// and in inferences under way.
    pub fn forget(&self, replaced: &[SymbolId]) {
        let mut known = self.lock();
        known.generation += 1;
        let mut gone: FxHashSet<SymbolId> = replaced.iter().copied().collect();
        loop {
            let before = gone.len();
            let rest = known
                .summaries
                .iter()
                .filter(|(_, summary)| summary.rests_on.iter().any(|below| gone.contains(below)));
            let more: Vec<SymbolId> = rest.map(|(&id, _)| id).collect();
            gone.extend(more);
            if gone.len() == before {
                break;
            }
        }
        known.summaries.retain(|id, _| !gone.contains(id));
    }

    fn lock(&self) -> MutexGuard<'_, KnownSummaries> {
        self.known.lock()
    }

    fn generation(&self) -> u64 {
        self.lock().generation
    }

    fn is_known(&self, id: SymbolId) -> bool {
        self.lock().summaries.contains_key(&id)
    }

    /// Keeps the results of an inference that began in `generation`. Existing entries stay: others
    /// rest on them.
    fn keep(&self, generation: u64, instructions: u32, found: Vec<(SymbolId, Summary)>) {
        let mut known = self.lock();
        known.instructions += u64::from(instructions);
        if known.generation != generation {
            return;
        }
        for (id, summary) in found {
            known.summaries.entry(id).or_insert_with(|| summary.into());
        }
    }

    /// The facts about `id`; adds all symbols it depends on to `depends`.
    fn look_up(&self, id: SymbolId, depends: &mut FxHashSet<SymbolId>) -> Option<Arc<Summary>> {
        let known = self.lock();
        let known_of = |id| {
            known
                .summaries
                .get(&id)
                .filter(|summary| !summary.is_empty())
        };
        let found = Arc::clone(known_of(id)?);
        let mut seen = FxHashSet::default();
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            if seen.insert(id)
                && let Some(summary) = known_of(id)
            {
                work.extend(&summary.rests_on);
            }
        }
        depends.extend(seen);
        Some(found)
    }
}
