//! From an object to code in its place: laid out, allocated, fixed up, written, sealed, findable.
//!
//! # Why
//! No register except a program counter holds an entry for long. The linker turns loads of a
//! function's address into loads of its stub, and only `call *slot` and `jmp *slot` read slots, in
//! one instruction. So a thread that sleeps in a system call, whose registers cannot be read, has
//! no old entry in a register.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

use uruk_base::parts::{self, Part};
use uruk_base::{FunctionId, Tier};
use uruk_codegen::{APART, BODY_PREFIX, COUNTERS, Compiled, LOOPS, Labels, PROBES};
use uruk_heap::{Pool, Sealed};
use uruk_link::{Graph, Laid, LayoutOptions, Linked, Object, Resolved};

use super::baseline::Assembled;
use super::build::Built;
use super::drafts::Drafts;
use super::findable::NewCode;
use super::offers::Crossing;
use super::plan::BodyOf;
use crate::code::blocks::{Rest, split};
use crate::code::body::ModuleFunction;
use crate::code::constants::Constants;
use crate::code::holding::Uses;
use crate::code::host_state::HostState;
use crate::code::host_state::is_placeholder;
use crate::code::loops::Loops;
use crate::code::words::ProbeWords;
use crate::error::Error;
use crate::version::compiler::Compiler;
use uruk_base::CompiledBy;

/// The words in which a version counts.
pub(super) struct CountingWords {
    /// Those of its entries and back edges, for baseline code that counts them.
    counters: Option<u64>,
    /// Those of its loops.
    loops: Option<Arc<Loops>>,
    /// Those of its probes.
    words: Option<ProbeWords>,
}

impl CountingWords {
    /// The words of the exits of loops.
    pub(super) fn of_exits(counters: u64, loops: &Arc<Loops>) -> CountingWords {
        CountingWords {
            counters: Some(counters),
            loops: Some(Arc::clone(loops)),
            words: None,
        }
    }

    /// The word with that name in code.
    fn find(&self, name: &str) -> Option<Resolved> {
        let at = match name {
            COUNTERS => self.counters?,
            PROBES => self.words.as_ref()?.address(),
            LOOPS => self.loops.as_ref()?.address(),
            _ => return None,
        };
        Some(Resolved::at(at))
    }
}

/// Code with its final addresses filled in, and the memory to which it is written.
pub(super) struct FixedUp {
    pub(super) drafts: Drafts,
    pub(super) linked: Linked,
    /// The function itself.
    pub(super) function: Range<u64>,
    counting: CountingWords,
    /// The owner of the constants that it refers to.
    constants: Option<Arc<Constants>>,
    pub(super) uses: Uses,
    /// Functions that it calls, if it replaces native code.
    called: Vec<FunctionId>,
}

impl Compiler {
    /// Links the compiled code of a body, and makes it findable.
    pub(super) fn link(
        self: &Arc<Self>,
        of: &BodyOf,
        tier: Tier,
        mut compiled: Compiled,
        assembled: Option<Assembled>,
        crossing: &Crossing,
    ) -> Result<Built, Error> {
        let _linking = parts::enter(Part::Linking);
        let function = &of.function;
        let link_name = &of.plan.import(function.symbol).name;
        let file = function.module.readers.bitcode().name();
        let symbol = format!("{BODY_PREFIX}{link_name}");
        let assembled = assembled.as_ref();
        let object = self.object_of(link_name, assembled, &mut compiled)?;
        let assembly = assembled
            .map(|code| code.assembly(file, &symbol))
            .transpose()?;
        let laid = self.lay_out(
            link_name,
            match &assembly {
                Some(assembly) => assembly.object(),
                None => Object::parse(file, &object)?,
            },
        )?;
        let counting = self.counting(of, &compiled)?;
        let fixed = self.fix_up(of, laid, &symbol, counting, crossing)?;
        let linked = &fixed.linked;
        let (entry, code) = (fixed.function.start, fixed.drafts.code_range());
        if !compiled.keeps_stack || self.layers.changes_code() {
            self.stacks
                .note_function(link_name, linked, code.start, fixed.function);
        }
        let (memory, data) = split(write(fixed.drafts, linked)?);
        let memory = memory.ok_or_else(|| no_code(link_name))?;
        let _publishing = parts::enter(Part::Publishing);
        let body = entry..body_end(linked, entry, code.start);
        self.make_findable(&NewCode {
            name: function.name,
            tier,
            stands_in: function.module.state.is_some() && is_placeholder(file),
            body: body.clone(),
            code: code.clone(),
            object: assembly.is_none().then_some(&*object),
            linked,
            symbol: &symbol,
        })?;
        self.dump(function, tier, linked, code.start, body.clone());
        let movable = self.is_movable(linked, &compiled);
        let CountingWords { words, loops, .. } = fixed.counting;
        let rest = Rest::new(data, words.clone(), fixed.uses).with_constants(fixed.constants);
        let foreign = crossing.depends(&compiled.taken);
        let states = self.states_of(function, &foreign);
        let rest = rest.with_loops(loops).with_states(states);
        Ok(Built {
            words,
            foreign,
            called: fixed.called,
            compiled,
            object: assembly.is_none().then(|| hash(&object)),
            by: match assembly {
                Some(_) => CompiledBy::Baseline,
                None => CompiledBy::Llvm,
            },
            // Constants stay with their module, and functions have stubs: no address escapes.
            ..Built::new(function.name, fixed.linked, memory, body, movable, rest)
        })
    }

    /// The object that LLVM emitted, after the embedder's transforms; empty for assembled code.
    fn object_of(
        &self,
        link_name: &str,
        assembled: Option<&Assembled>,
        compiled: &mut Compiled,
    ) -> Result<Vec<u8>, Error> {
        match assembled {
            Some(_) => Ok(Vec::new()),
            None => {
                let object = std::mem::take(&mut compiled.object);
                self.layers.object(link_name, object)
            }
        }
    }

    /// Allocates memory for code that is laid out, and fills in all addresses; the function of the
    /// body is the definition of `symbol`.
    pub(super) fn fix_up(
        self: &Arc<Self>,
        of: &BodyOf,
        laid: Laid<'_>,
        symbol: &str,
        counting: CountingWords,
        crossing: &Crossing,
    ) -> Result<FixedUp, Error> {
        let function = &of.function;
        let mut uses = Uses::default();
        let find = |name: &str, need| {
            let dylib = crossing.dylib_of(&function.module.dylib, name);
            self.find_for(&function.module, dylib, name, need)
        };
        let memory = (&self.heap, &*self.owners);
        let constants = Constants::place(memory, &laid, function, of.id, find, &mut uses)?;
        let drafts = self.allocate(&laid)?;
        let placed = laid.place_with(drafts.placement(None), constants.addresses)?;
        let sized = placed
            .definitions()
            .find(|(d, _)| d.name == symbol)
            .map(|(d, address)| address..address + d.size);
        let (over_native, mut called) = (self.choices.is_over_native(), Vec::new());
        let linked = placed.fix_up(|name, need| {
            if let Some(word) = counting.find(name) {
                return Some(word);
            }
            let resolved = find(name, need)?;
            self.owners.note_use(&resolved, &self.heap, &mut uses);
            if over_native && resolved.slot.is_some() {
                called.extend(self.stubs.function_at(resolved.address));
            }
            Some(resolved)
        })?;
        let import = of.plan.import(function.symbol);
        Ok(FixedUp {
            drafts,
            linked,
            function: sized.ok_or_else(|| no_code(&import.name))?,
            counting,
            constants: constants.held,
            uses,
            called,
        })
    }

    /// Whether code may be moved.
    fn is_movable(&self, linked: &Linked, compiled: &Compiled) -> bool {
        linked.immovable.is_none() && compiled.labels != Labels::Fixed && !self.tools.pins_code()
    }

    /// State of the host that the body of a function, or bodies inlined in it, refer to. A function
    /// that has another body by now makes the version stale, and it is not published.
    fn states_of(&self, function: &ModuleFunction, foreign: &[FunctionId]) -> Box<[HostState]> {
        let others = foreign.iter().filter_map(|&id| self.function(id));
        let others = others.filter_map(|other| other.module.state.clone());
        function
            .module
            .state
            .iter()
            .cloned()
            .chain(others)
            .collect()
    }

    /// Lays out the compiled code of a function.
    pub(super) fn lay_out<'o>(
        &self,
        link_name: &str,
        object: Object<'o>,
    ) -> Result<Laid<'o>, Error> {
        let mut graph = Graph::new(vec![object])?;
        self.layers.link(link_name, &mut graph)?;
        Ok(graph.layout(&LayoutOptions {
            merge_read_only: true,
            apart: Some(APART),
            ..Default::default()
        })?)
    }

    fn counting(
        self: &Arc<Self>,
        of: &BodyOf,
        compiled: &Compiled,
    ) -> Result<CountingWords, Error> {
        let counters = match compiled.counts {
            true => Some(self.counts.address(&self.heap, of.id)?),
            false => None,
        };
        let words = match &compiled.probes {
            Some(probes) => {
                let bytes = probes.words() as usize * size_of::<u64>();
                let draft = self
                    .heap
                    .allocate(Pool::ReadWrite, bytes, align_of::<u64>())?;
                Some(ProbeWords::new(probes.clone(), draft.seal()?))
            }
            None => None,
        };
        Ok(CountingWords {
            counters,
            loops: self.engines().loops_of(of, compiled)?,
            words,
        })
    }
}

/// The error of a function whose object has no code for it.
pub(super) fn no_code(link_name: &str) -> Error {
    Error::NotAFunction {
        name: link_name.to_owned(),
    }
}

/// Writes linked code to its final place and seals it.
pub(super) fn write(mut drafts: Drafts, linked: &Linked) -> Result<Vec<Sealed>, Error> {
    let _writing = parts::enter(Part::Writing);
    drafts.write(linked)?;
    drafts.seal()
}

/// A hash of an object's bytes.
fn hash(object: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(object);
    hasher.finish()
}

/// The end of the function itself; code compiled with it may follow.
fn body_end(linked: &Linked, entry: u64, start: u64) -> u64 {
    let row = linked.fdes.iter().find(|row| row.start == entry);
    row.map_or(start + linked.code.len() as u64, |row| row.end)
}
