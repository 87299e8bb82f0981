//! Resolves names to addresses, and addresses to bodies.

use std::ffi::CStr;

use uruk_base::FunctionId;
use uruk_heap::Pool;
use uruk_link::{Need, Resolved};
use uruk_session::Dylib;

use crate::code::bodies::Extent;
use crate::code::body::Body;
use crate::code::directory::CodeDirectory;
use crate::code::life::Life;
use crate::code::loops::Origin;
use crate::code::module::Module;
use crate::code::names::Definition;
use crate::code::unit_body::UnitBody;
use crate::error::Error;
use crate::fork::gate;
use crate::host::process::is_code;
use crate::host::tls;
use std::sync::Arc;
use uruk_base::Tier;
use uruk_base::VersionId;
use uruk_codegen::CodegenError;
use uruk_codegen::Layout;
use uruk_codegen::SymbolId;
use uruk_codegen::labelled;
use uruk_heap::Heap;
use uruk_session::{Lookup, LookupResult, Symbol};

/// Longest chain of resolvers that each choose another one's function. In a circle, no function has
/// a body.
const MOST_CHOICES: usize = 64;

impl CodeDirectory {
    /// The module whose definition of a variable counts, and its symbol there.
    pub(crate) fn owner_of(
        &self,
        dylib: &Dylib,
        link_name: &str,
    ) -> Option<(Arc<Module>, SymbolId)> {
        let moved = self.bound.moved_name(dylib.id(), link_name);
        let link_name = moved.as_deref().unwrap_or(link_name);
        let mut modules = self.bound.modules(dylib).into_iter();
        modules.find_map(|module| {
            let at = module.definition(link_name)?;
            let counts = module.plan().import(at).defined;
            counts.then_some((module, at))
        })
    }

    /// Type and size of a variable that exists; `None` for one of an object file.
    pub(crate) fn layout_of(
        &self,
        dylib: &Dylib,
        link_name: &str,
    ) -> Result<Option<Layout>, Error> {
        let Some((owner, at)) = self.owner_of(dylib, link_name) else {
            return Ok(None);
        };
        Ok(Some(owner.readers.faithful()?.layout(at)))
    }

    /// Looks up the references of an object, until each has an address.
    pub(crate) fn resolved(
        &self,
        dylib: &uruk_session::Dylib,
        mut references: Vec<Symbol>,
    ) -> Result<LookupResult, Error> {
        references.sort_unstable();
        references.dedup();
        let mut lookup = Lookup::new(dylib.search_order()).at(uruk_session::Required::Resolved);
        // Thread-locals of libraries are no symbols of the session: missing ones are reported at
        // the link.
        let weak = references
            .into_iter()
            .map(|symbol| (symbol, uruk_session::Need::Weak));
        lookup.symbols = weak.collect();
        Ok(self.names.session().lookup(lookup)?)
    }

    /// How code reaches `name`, by the result of the lookup.
    pub(crate) fn resolve_found(
        &self,
        found: &LookupResult,
        name: &str,
        need: uruk_link::Need,
    ) -> Option<Resolved> {
        let symbol = self.names.session().intern(name);
        let meaning = found.address(symbol);
        let meaning = meaning.map(|address| self.names.meaning(address));
        self.resolve_as(meaning, name, need)
    }

    /// The life of the image with the body that calls of a function reach.
    pub(crate) fn life_of(&self, mut id: FunctionId) -> Option<Arc<Life>> {
        for _ in 0..MOST_CHOICES {
            if let Some(Body::Module(function)) = self.body(id) {
                return Some(Arc::clone(&function.module.life));
            }
            // A function of an object, or one that a resolver chose.
            let at = self
                .stubs
                .entry(id)
                .map(u64::from)
                .filter(|&at| self.heap.contains(at))?;
            match self.stubs.function_at(at) {
                Some(chosen) => id = chosen,
                None => {
                    return match (self.owners.find(at), self.body(id)) {
                        (Some(holding), _) => Some(Arc::clone(holding.life())),
                        // A better version, which has its own memory.
                        (None, Some(Body::Unit(unit))) => Some(unit.life),
                        (None, _) => None,
                    };
                }
            }
        }
        None
    }

    /// The life of the image with the definition at an address, if there is one.
    pub(crate) fn life_at(&self, address: u64) -> Option<Arc<Life>> {
        if !self.heap.contains(address) {
            return None;
        }
        match self.stubs.function_at(address) {
            Some(id) => self.life_of(id),
            None => Some(Arc::clone(self.owners.find(address)?.life())),
        }
    }

    /// The unit that makes the code of a function, if there is one.
    pub(crate) fn unit_of(&self, id: FunctionId) -> Option<UnitBody> {
        match self.body(id) {
            Some(Body::Unit(unit)) => Some(unit),
            _ => None,
        }
    }

    /// The display name of a function, also after its removal.
    pub(crate) fn name_of(&self, id: FunctionId) -> &'static str {
        self.display_name_of(id)
            .and_then(|name| name.to_str().ok())
            .unwrap_or("?")
    }

    /// The tier of a version of `id`.
    pub(crate) fn tier_of(&self, id: FunctionId, version: VersionId) -> Option<Tier> {
        let records = self.versions.lock();
        let mut built = records.get(&id.index())?.built.iter();
        built.find(|v| v.id == version).map(|v| v.tier)
    }

    /// The error of a job that was cancelled between two compiles.
    pub(crate) fn cancelled(&self, id: FunctionId) -> Error {
        let function = self.function(id);
        let module = function.map(|f| f.module.readers.bitcode().name().to_owned());
        Error::Codegen(CodegenError::Cancelled {
            module: module.unwrap_or_default(),
            unit: self.name_of(id).to_owned(),
        })
    }

    /// The loop that a continuation belongs to; `None` for other functions.
    pub(crate) fn origin_of(&self, id: FunctionId) -> Option<Arc<Origin>> {
        self.function(id).and_then(|function| function.origin)
    }

    /// Slot address minus stub address, the same for every function.
    pub(crate) fn slot_distance(&self) -> u64 {
        i64::from(self.heap.stub_region().distance()) as u64
    }

    /// Resolves how code in `dylib` reaches `name`.
    pub(crate) fn resolve(&self, dylib: &Dylib, name: &str, need: Need) -> Option<Resolved> {
        self.resolve_as(self.names.find(dylib, name), name, need)
    }

    /// Resolves how code reaches `name`, whose definition is `meaning`.
    pub(crate) fn resolve_as(
        &self,
        meaning: Option<Definition>,
        name: &str,
        need: Need,
    ) -> Option<Resolved> {
        match meaning {
            Some(Definition::Function { id }) => Some(self.resolved_stub(id)),
            Some(Definition::Tls { module, offset }) => Some(Resolved {
                static_tls: tls::fixed(module, offset),
                ..Resolved::thread_local(module, offset)
            }),
            Some(Definition::Address(address)) if !need.thread_local => {
                self.stacks.note_import(name);
                Some(Resolved {
                    function: need.short && !self.is_in_reach(address) && is_code(address),
                    ..Resolved::at(address)
                })
            }
            _ if need.thread_local => {
                let process = self.process();
                let found = process.find_tls(name)?;
                Some(Resolved {
                    static_tls: found.fixed,
                    ..Resolved::thread_local(found.module, found.offset)
                })
            }
            _ => None,
        }
    }

    /// How code reaches a function; it counts as linked against from then on.
    pub(crate) fn resolved_stub(&self, id: FunctionId) -> Resolved {
        self.names.linked.note(id);
        self.names.known.note(id);
        Resolved::stub(self.stubs.stub_address(id), self.stubs.slot_address(id))
    }

    /// The address of a function for the host; the function is known from then on.
    pub(crate) fn given_stub(&self, id: FunctionId) -> u64 {
        self.names.known.note(id);
        self.stubs.stub_address(id).0
    }

    /// The address of a function to which a call of a placeholder is passed on.
    pub(crate) fn passed_stub(&self, id: FunctionId) -> u64 {
        self.names.passed.note(id);
        self.stubs.stub_address(id).0
    }

    /// Whether distances of 32 bits reach an address from all places of code and data.
    fn is_in_reach(&self, address: u64) -> bool {
        let pools = [Pool::Code, Pool::ReadOnly, Pool::ReadWrite];
        let mut ranges = pools.iter().map(|&pool| self.heap.pool_range(pool));
        ranges.all(|range| {
            let furthest = range
                .start
                .abs_diff(address)
                .max(range.end.abs_diff(address));
            furthest < 1 << 31
        })
    }

    /// The address of a symbol that `dylib` defines, for `dlsym` and for the host.
    pub(crate) fn address_of(&self, dylib: &Dylib, name: &str) -> Option<u64> {
        self.address_of_meaning(self.names.find(dylib, name)?)
    }

    /// The present address of the definition that the session knows by `address`, for the calling
    /// thread. Takes no lock for functions, nor if no data was moved.
    pub(crate) fn address_now(&self, address: u64) -> Option<u64> {
        match self.names.is_final(address) {
            true => {
                self.names.give(address);
                Some(address)
            }
            false => {
                let _pass = gate::enter();
                self.address_of_meaning(self.names.meaning(address))
            }
        }
    }

    pub(super) fn address_of_meaning(&self, meaning: Definition) -> Option<u64> {
        match meaning {
            Definition::Function { id } => Some(self.given_stub(id)),
            Definition::Address(address) => Some(address),
            Definition::Tls { module, offset } => tls::address(module, offset),
        }
    }

    /// The function whose code or stub holds `pc`.
    pub(crate) fn name_at(&self, pc: u64) -> Option<String> {
        let name = match self.stubs.function_at(pc) {
            Some(id) => self.display_name_of(id)?,
            None => self.function_name_at(pc)?.0,
        };
        Some(name.to_string_lossy().into_owned())
    }

    /// File and line of the instruction at `pc`, where the session keeps lines.
    pub(crate) fn source_at(&self, pc: u64) -> Option<(String, u32)> {
        let (_, start) = self.function_name_at(pc)?;
        self.tools.source_of(start, pc)
    }

    /// Bytes that the allocator took for the tables of functions and of their bodies.
    pub(crate) fn bytes_of_functions(&self) -> usize {
        let functions = self.functions.read();
        let functions = functions.bytes();
        let bodies = self.bodies.read();
        functions + bodies.bytes()
    }

    /// Name and start of the body that holds `pc`.
    pub(crate) fn function_name_at(&self, pc: u64) -> Option<(&'static CStr, u64)> {
        let bodies = self.bodies.read();
        bodies.at(pc).map(|(start, _, name)| (name, start))
    }

    /// All bodies: start, end and name.
    pub(crate) fn bodies(&self) -> Vec<(u64, u64, &'static CStr)> {
        let bodies = self.bodies.read();
        bodies.iter().collect()
    }

    /// Removes the bodies in these ranges.
    pub(crate) fn remove_bodies(&self, ranges: impl IntoIterator<Item = std::ops::Range<u64>>) {
        let mut bodies = self.bodies.write();
        ranges.into_iter().for_each(|range| bodies.remove(range));
    }

    /// Records the place of a body.
    pub(crate) fn add_body(&self, start: u64, end: u64, name: &'static CStr) {
        self.add_bodies([(start, end, name)]);
    }

    /// Records the places of bodies.
    pub(crate) fn add_bodies(&self, some: impl IntoIterator<Item = Extent>) {
        let mut bodies = self.bodies.write();
        bodies.add(some);
    }

    /// The definition of `name` for a function of `module`; if it is no label of the module, it is
    /// looked up in `dylib`.
    pub(crate) fn find_for(
        &self,
        module: &Module,
        dylib: &Dylib,
        name: &str,
        need: Need,
    ) -> Option<Resolved> {
        match module.labels.get().and_then(|labels| labels.get(name)) {
            Some(&Definition::Address(address)) => Some(Resolved::at(address)),
            Some(&Definition::Tls { module, offset }) => {
                Some(Resolved::thread_local(module, offset))
            }
            _ => label_space(&self.heap, std::iter::once(module), name)
                .or_else(|| self.resolve(dylib, versioned(module, name), need)),
        }
    }
}

/// `name` with the symbol version that assembly of the module gives it, if code generation added
/// the name. Names that the module declares have their version in the plan.
fn versioned<'n>(module: &'n Module, name: &'n str) -> &'n str {
    let summary = module.readers.summary();
    let Some((_, version)) = summary.versions.iter().find(|(of, _)| **of == *name) else {
        return name;
    };
    let is_ours = |info: &uruk_codegen::SymbolInfo| *info.name == *name;
    match summary.symbols.iter().any(is_ours) {
        true => name,
        false => version,
    }
}

/// The address of the label space that a symbol names, if one of `modules` defines its function. If
/// several define it, the chosen definition counts.
pub(crate) fn label_space<'m>(
    heap: &Heap,
    modules: impl Iterator<Item = &'m Module>,
    symbol: &str,
) -> Option<Resolved> {
    let link_name = labelled(symbol)?;
    let mut found = None;
    for module in modules {
        if let Some(function) = module.definition(link_name) {
            let counts = module.plan().import(function).defined;
            found = found.filter(|_| !counts).or(Some((module, function)));
            if counts {
                break;
            }
        }
    }
    let (module, function) = found?;
    let blocks = || module.readers.blocks(function);
    let address = module.spaces.address(heap, function, blocks)?;
    Some(Resolved::at(address))
}
