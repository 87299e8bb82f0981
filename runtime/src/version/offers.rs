//! Inlining across modules: the bodies of other modules that a compile is offered.
//!
//! A call of a function that another module defines is bound by name, in the dylib of the caller.
//! Above tier 1, the body to which the name is bound at that moment is offered to the inliner, with
//! the bodies it calls, and so on ([`depth`], [`DEPTH`]).
//!
//! ```text
//! reader of A: which functions of others are wanted -- names -- functions, modules B, C
//! readers of B, C: a parcel of each body, kept with the module -- reader of A: compile
//! ```
//!
//! # Invariants
//! - One reader is borrowed at a time: a thread that waits for one holds none.
//! - Names in a body have the meaning of its own dylib ([`Crossing::dylib_of`]). A body with a name
//!   that has another meaning at the place of inlining is not offered: a unit has one meaning per
//!   name.
//! - A version depends on all sources of the parcels in it. A replacement of one of those finds it
//!   by its record; a version that is compiled meanwhile is stale (`replace::state`).
//! - Replacements and recompiled dependents take nothing from other modules: their offers are not
//!   settled before the commit.
//! - A version holds the data it was linked against. If a function whose body is in a version was
//!   removed before that, the version is made again without it.
//!
//! LLVM never runs under the lock of [`Parcels`]: it may stop its thread.
//!
//! # Why
//! Bodies cross modules as parcels: contexts share nothing, but a link name means one thing in
//! a session. One call deep at tier 2, two at tier 3, further through wrappers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tracing::debug;
use uruk_base::FunctionId;
use uruk_codegen::{Cancellation, Compile, ModulePlan, Offer, Parcel, SymbolId, Tier};
use uruk_session::Dylib;

use super::plan::BodyOf;
use crate::code::body::ModuleFunction;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::code::names::Labels;
use crate::code::parcels::WantedParcel;
use crate::error::Error;
use crate::version::compiler::Compiler;

/// Maximal instructions of a body that counts as a wrapper of its callee.
const WRAPPER: u32 = 15;

/// Maximal calls between the compiled function and an offered body, if those between them are
/// wrappers.
const DEPTH: u32 = 8;

/// Maximal calls between the two at tiers 2 and 3, for any functions between them. More takes time:
/// Lua as 33 files, everything at tier 2, processor time of the run that is nearly all compiles
/// (seconds): nothing across files 4.2; one call 4.6, two 4.9, four 5.5; as one file 4.6.
fn depth(how: &Compile) -> u32 {
    match how.tier {
        Tier::Native | Tier::Baseline | Tier::Optimized => 1,
        Tier::Guided => 2,
    }
}

/// Maximal bodies offered to one compile.
const MOST_OFFERS: usize = 200;

/// Whether an offered body could use a name of its own module that is a label of another: it
/// mentions one, or has assembly, whose text is not parsed.
fn may_name(parcel: &Parcel, labels: &Labels) -> bool {
    let mut names = parcel.mentions().chain([parcel.name()]);
    parcel.has_assembly() || names.any(|name| labels.contains_key(name))
}

/// The bodies one compile is offered.
#[derive(Default)]
pub(super) struct Crossing {
    offers: Vec<Offer>,
    /// By offer: the function, its body, and the sources of the parcel.
    sources: Vec<(FunctionId, ModuleFunction, Arc<[FunctionId]>)>,
    /// Indexes of offers, by addresses seen at run time.
    targets: HashMap<u64, usize>,
    /// Dylibs in which names of bodies of other dylibs are looked up.
    homes: HashMap<Box<str>, Dylib>,
}

/// A wanted function, and its name.
struct WantedFunction {
    id: FunctionId,
    depth: u32,
    symbol: Option<SymbolId>,
    address: Option<u64>,
}

impl Crossing {
    /// True if there is nothing to inline.
    pub(super) fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }

    /// The settings of a compile that is offered these.
    pub(crate) fn offer(&self, how: &Compile) -> Compile {
        let (offers, targets) = (self.offers.clone(), self.targets.clone());
        how.clone().offering(offers, targets)
    }

    /// The dylib in which a name of a unit compiled for `own` is looked up.
    pub(crate) fn dylib_of<'a>(&'a self, own: &'a Dylib, name: &str) -> &'a Dylib {
        self.homes.get(name).unwrap_or(own)
    }

    /// The functions that a version depends on if it contains the offers `taken`.
    pub(crate) fn depends(&self, taken: &[usize]) -> Vec<FunctionId> {
        let taken = taken.iter().filter_map(|&index| self.sources.get(index));
        let mut depends: Vec<FunctionId> = taken
            .flat_map(|(id, _, depends)| depends.iter().copied().chain([*id]))
            .collect();
        depends.sort_unstable_by_key(|id| id.index());
        depends.dedup();
        depends
    }
}

impl Compiler {
    /// Collects the offers for a compile of `body`.
    ///
    /// # Errors
    /// A body of its own module that cannot be read; cancellation of the compile.
    pub(super) fn crossing(&self, body: &BodyOf, how: &Compile) -> Result<Crossing, Error> {
        let mut crossing = Crossing::default();
        let alone = how.alone || how.tier == Tier::Baseline || !body.crosses;
        if alone || self.choices.is_apart() || self.bound.is_one_module() {
            return Ok(crossing);
        }
        let mut wanted = self.wanted(body, how)?;
        let cancel = how.cancel.as_ref();
        while let Some(next) = wanted.pop_front() {
            if cancel.is_some_and(Cancellation::is_cancelled) {
                return Err(self.cancelled(body.id));
            }
            self.offer(body, how, next, &mut wanted, &mut crossing);
        }
        Ok(crossing)
    }

    /// The functions of other modules that `body` calls by name, or was seen to call.
    fn wanted(&self, body: &BodyOf, how: &Compile) -> Result<VecDeque<WantedFunction>, Error> {
        let ModuleFunction { module, symbol, .. } = &body.function;
        let mut reader = module.reader()?;
        let symbols = match reader.wanted(&body.plan, *symbol, how) {
            Ok(symbols) => symbols,
            Err(cause) if cause.is_cancelled() => return Err(cause.into()),
            Err(cause) => {
                reader.discard();
                return Err(cause.into());
            }
        };
        drop(reader);
        let profile = how.profiles.get(symbol);
        let seen = profile.map(|profile| profile.observed_targets());
        let seen = seen.into_iter().flatten();
        let targets = seen
            .filter(|address| !how.targets.contains_key(address))
            .filter_map(|address| {
                Some(WantedFunction {
                    id: self.stubs.function_at(address)?,
                    depth: 1,
                    symbol: None,
                    address: Some(address),
                })
            });
        let called = symbols.into_iter().filter_map(|symbol| {
            let name = &body.plan.import(symbol).name;
            Some(WantedFunction {
                id: self.function_named(&module.dylib, name)?,
                depth: 1,
                symbol: Some(symbol),
                address: None,
            })
        });
        Ok(targets.chain(called).collect())
    }

    fn function_named(&self, dylib: &Dylib, name: &str) -> Option<FunctionId> {
        match self.names.find(dylib, name)? {
            Definition::Function { id } => Some(id),
            _ => None,
        }
    }

    /// Adds a body to the offers, and its callees to the wanted functions.
    fn offer(
        &self,
        body: &BodyOf,
        how: &Compile,
        next: WantedFunction,
        wanted: &mut VecDeque<WantedFunction>,
        crossing: &mut Crossing,
    ) {
        let known = crossing.sources.iter().position(|(id, ..)| *id == next.id);
        let index = match known {
            Some(index) => index,
            None => {
                let Some(function) = self.function(next.id) else {
                    return;
                };
                let own = &body.function.module;
                if Arc::ptr_eq(&function.module, own) || crossing.offers.len() >= MOST_OFFERS {
                    return;
                }
                let Some((parcel, depends)) = self.parcel(&function, how) else {
                    return;
                };
                if own
                    .labels
                    .get()
                    .is_some_and(|labels| may_name(&parcel, labels))
                {
                    debug!(name = parcel.name(), "what it names may be a label here");
                    return;
                }
                let home = &function.module.dylib;
                if !self.means_the_same(&parcel, home, &own.dylib, crossing) {
                    debug!(name = parcel.name(), "its names mean something else here");
                    return;
                }
                let wrapper = parcel.instructions() <= WRAPPER && next.depth < DEPTH;
                if wrapper || next.depth < depth(how) {
                    let callees = parcel.callees().filter_map(|name| {
                        Some(WantedFunction {
                            id: self.function_named(home, name)?,
                            depth: next.depth + 1,
                            symbol: None,
                            address: None,
                        })
                    });
                    wanted.extend(callees);
                }
                crossing.sources.push((next.id, function, depends));
                crossing.offers.push(Offer {
                    parcel,
                    symbols: Vec::new(),
                });
                crossing.offers.len() - 1
            }
        };
        crossing.offers[index].symbols.extend(next.symbol);
        crossing.targets.extend(next.address.map(|at| (at, index)));
    }

    /// The body of a function as its module offers it, and its sources.
    fn parcel(
        &self,
        function: &ModuleFunction,
        how: &Compile,
    ) -> Option<(Arc<Parcel>, Arc<[FunctionId]>)> {
        let ModuleFunction { module, symbol, .. } = function;
        let plan = module.plan();
        let kept = match module.parcels.get(plan.number, *symbol) {
            Some(kept) if kept.parcel.is_some() || kept.tier >= how.tier => kept,
            _ => {
                let kept = self.pack(module, *symbol, &plan, how)?;
                module.parcels.keep(plan.number, *symbol, kept.clone());
                kept
            }
        };
        kept.parcel.map(|parcel| (parcel, kept.depends))
    }

    fn pack(
        &self,
        module: &Arc<Module>,
        symbol: SymbolId,
        plan: &ModulePlan,
        how: &Compile,
    ) -> Option<WantedParcel> {
        let made = module.reader().and_then(|mut reader| {
            let made = reader.parcel(plan, symbol, how);
            if made.as_ref().is_err_and(|cause| !cause.is_cancelled()) {
                reader.discard();
            }
            made
        });
        let parcel = match made {
            Ok(parcel) => parcel,
            Err(cause) if cause.is_cancelled() => return None,
            Err(cause) => {
                // The error is reported when the function itself is compiled.
                debug!(%cause, "nothing to inline elsewhere");
                None
            }
        };
        let depends = match &parcel {
            Some(parcel) => self.functions_of(module, plan, parcel.uses()),
            None => Arc::default(),
        };
        Some(WantedParcel {
            parcel: parcel.map(Arc::new),
            tier: how.tier,
            depends,
        })
    }

    /// Whether all names in `parcel` have the same meaning in `own`, if defined there, as in
    /// `home`; and the same among earlier offers. Notes the home dylibs of its names.
    fn means_the_same(
        &self,
        parcel: &Parcel,
        home: &Dylib,
        own: &Dylib,
        crossing: &mut Crossing,
    ) -> bool {
        let names = || parcel.mentions().chain([parcel.name()]);
        let same = |name: &str| {
            let there = self.names.find(home, name);
            let known = crossing.homes.get(name);
            let known = known.map(|dylib| self.names.find(dylib, name));
            let here = self.names.find(own, name);
            (here.is_none() || here == there) && known.is_none_or(|known| known == there)
        };
        if home.id() == own.id() && crossing.homes.is_empty() {
            return true;
        }
        if !names().all(same) {
            return false;
        }
        if home.id() != own.id() {
            let homes = names().map(|name| (Box::from(name), home.clone()));
            crossing.homes.extend(homes);
        }
        true
    }

    /// Whether the functions whose bodies were taken are unchanged. They were when the version was
    /// linked: names are removed before data.
    pub(super) fn offers_hold(&self, crossing: &Crossing, taken: &[usize]) -> bool {
        taken.iter().all(|&index| {
            let (id, source, _) = &crossing.sources[index];
            let plan = source.module.plan();
            let name = &plan.import(source.symbol).name;
            let same = self.function(*id).is_some_and(|now| {
                Arc::ptr_eq(&now.module, &source.module) && now.symbol == source.symbol
            });
            same && self.function_named(&source.module.dylib, name) == Some(*id)
        })
    }
}
