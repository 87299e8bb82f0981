//! Functions with a single mention in their module. If one is local, its address is not taken, and
//! that mention is the only call.
//!
//! A compiler of whole programs inlines such a function even if it is large, since its own copy
//! disappears. Here a copy stays behind the stub, and inlining doubles the code at most.
//!
//! # Why
//! LLVM gives a sole call to a local function a bonus of 15,000 (`LastCallToStaticBonus`). Units
//! hold callees as `weak_odr` or `available_externally` definitions, so LLVM does not see that a
//! call is the only one: two calls of each operation of Rust's hash-mix were left, and an iteration
//! took 15.9 ms (natively 12.3, with these calls inlined 12.2).
//!
//! The set only guides the inliner. A body that this reader does not support adds no mentions.

use rustc_hash::FxHashSet;
use uruk_base::allocated::of_set;
use uruk_bitcode::Source;
use uruk_bitcode::ir::{Body, Constant, GlobalKind, Module, ValueId};

use crate::mentions::parts_of;
use crate::numbering::order;
use crate::summary::SymbolId;

/// The cost up to which a sole call may be inlined. LLVM compares it at the end of its count, and
/// ends the count where the cost reaches some three times its own threshold of 225, with all bonuses.
/// So callees of a cost over 700 are still called.
pub(crate) const THRESHOLD: &str = "5000";

/// The functions of a module that are mentioned once.
#[derive(Debug, Default)]
pub(crate) struct SoleCalls {
    functions: FxHashSet<SymbolId>,
}

impl SoleCalls {
    /// Walks over all bodies; empty if the module cannot be read without LLVM.
    pub(crate) fn read(bytes: &[u8]) -> SoleCalls {
        let Ok(source) = Source::read(bytes) else {
            return SoleCalls::default();
        };
        let module = &*source.module;
        let mut counts = Counts::of(module);
        let mut body = Body::default();
        for number in 0..module.globals.len() as u32 {
            let Some(place) = source.body_of(number) else {
                continue;
            };
            if source.read_body(bytes, place, &mut body).is_err() {
                continue;
            }
            body.operands.iter().for_each(|&value| counts.add(value));
            for constant in &body.constants {
                parts_of(constant, &mut |part| counts.add(part));
            }
        }
        let all = module.globals.iter().zip(&counts.mentions);
        let is_sole =
            all.map(|(global, &mentions)| global.kind == GlobalKind::Function && mentions == 1);
        let both = order(module).into_iter().zip(is_sole);
        SoleCalls {
            functions: both.filter_map(|(id, sole)| sole.then_some(id)).collect(),
        }
    }

    /// Whether a function is mentioned once.
    pub(crate) fn has(&self, function: SymbolId) -> bool {
        self.functions.contains(&function)
    }

    /// Bytes allocated for the set.
    pub(crate) fn bytes(&self) -> usize {
        of_set(&self.functions)
    }
}

/// Mentions of each global, by number.
struct Counts {
    mentions: Vec<u32>,
}

impl Counts {
    /// The mentions in initializers, aliases and constants of the module.
    fn of(module: &Module) -> Counts {
        let mut counts = Counts {
            mentions: vec![0; module.globals.len()],
        };
        for (_, constant) in &module.constants {
            parts_of(constant, &mut |part| counts.add(part));
            if let Constant::Label(function, _) = constant {
                counts.add(*function);
            }
        }
        let values = module.details.iter().filter_map(|it| it.initializer);
        values.for_each(|value| counts.add(value));
        counts
    }

    fn add(&mut self, value: ValueId) {
        if let Some(mentions) = self.mentions.get_mut(value.index()) {
            *mentions += 1;
        }
    }
}
