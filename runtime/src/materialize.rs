//! From a unit to code that is ready: compile, link, write, register unwind rows.
//! Publishing it is `versions`' affair; what is not compiled function by function is
//! `image`'s.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use uruk_codegen::{
    APART, BODY_PREFIX, COUNTERS, CodegenError, Compile, Compiled, Labels, ModulePlan, PROBES,
};
use uruk_heap::Pool;
use uruk_link::{Graph, LayoutOptions, Object, Resolved};
use uruk_locks::Mutex;
use uruk_session::{Flags, Interface, Responsibility, SessionError, Symbol, Tracker, Unit};
use uruk_stubs::FunctionId;

use crate::blocks::{Code, Rest, split};
use crate::bonds::Remaining;
use crate::core::{Core, Function};
use crate::cross::Crossing;
use crate::error::Error;
use crate::guided::Words;
use crate::image::Image;
use crate::load::Source;
use crate::program::Mode;
use crate::removal::Uses;
use crate::sacrificial;
use crate::service;
use crate::tools::Body;

/// What the data of an image left to be done by whoever starts it.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) preinit: Vec<u64>,
    pub(crate) init: Vec<(u32, u64)>,
    pub(crate) fini: Vec<(u32, u64)>,
    /// Words to be filled with what a resolver returns.
    pub(crate) ifuncs: Vec<(u64, u64)>,
}

/// The body of one function, compiled in one way, as a unit of the session.
struct BodyUnit {
    core: Arc<Core>,
    name: Box<str>,
    body: BodyOf,
    how: Compile,
    symbol: Symbol,
    /// What became of it: the session carries neither our results nor our errors.
    outcome: Arc<Mutex<Option<Result<Built, Error>>>>,
}

/// What the unit of a version is removed by.
#[derive(Debug)]
pub(crate) struct BodyTracker {
    tracker: Tracker,
    number: usize,
}

/// What is compiled for a function: a body, and how its module is bound.
#[derive(Clone)]
pub(crate) struct BodyOf {
    pub(crate) id: FunctionId,
    pub(crate) function: Function,
    pub(crate) plan: Arc<ModulePlan>,
    /// Whether bodies of other modules may be inlined.
    pub(crate) crosses: bool,
}

/// A version that is ready to run; nothing can reach it yet.
pub(crate) struct Built {
    pub(crate) unit: Option<BodyTracker>,
    pub(crate) entry: u64,
    /// End of the function itself.
    pub(crate) body_end: u64,
    /// Bytes of code.
    pub(crate) bytes: u64,
    pub(crate) compiling: Duration,
    pub(crate) linking: Duration,
    /// What its probes count in.
    pub(crate) words: Option<Words>,
    /// Its memory.
    pub(crate) code: Code,
    /// What codegen found out; its object is gone.
    pub(crate) compiled: Compiled,
    /// Functions of other modules it took bodies from, and what those were made of.
    pub(crate) foreign: Vec<FunctionId>,
}

impl Unit for BodyUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Interface {
        [(self.symbol, Flags::EXPORTED.with(Flags::CALLABLE))]
            .into_iter()
            .collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let result = self.core.build(&self.body, &self.how);
        let told = match &result {
            Ok(built) => Ok(built.entry),
            Err(cause) => Err(cause.to_string()),
        };
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        match told {
            Ok(entry) => {
                // Both fail only if the tracker was removed, and then nobody waits.
                if responsibility.resolve(&[(self.symbol, entry)]).is_ok() {
                    let _ = responsibility.emit(&[]);
                }
            }
            Err(text) => responsibility.fail(SessionError::unit(&self.name, text)),
        }
    }
}

impl Core {
    /// Has the session materialize a version of `id` under a tracker of its own: what is
    /// compiled together is removed together.
    pub(crate) fn build_version(
        self: &Arc<Self>,
        id: FunctionId,
        how: Compile,
    ) -> Result<Built, Error> {
        let function = self.function(id).ok_or(Error::NotAFunction {
            name: format!("{id:?}"),
        })?;
        let plan = function.module.plan();
        let body = BodyOf {
            id,
            function,
            plan,
            crosses: true,
        };
        self.build_body(body, how)
    }

    /// As [`Core::build_version`], of a body that need not be the function's own yet.
    pub(crate) fn build_body(self: &Arc<Self>, body: BodyOf, how: Compile) -> Result<Built, Error> {
        let id = body.id;
        let versions = &self.tiers.versions;
        let number = versions.take_number(id);
        match self.build_unit(body, number, how) {
            Ok((mut built, tracker)) => {
                built.unit = Some(BodyTracker { tracker, number });
                Ok(built)
            }
            Err(cause) => {
                versions.give_number(id, number);
                Err(cause)
            }
        }
    }

    fn build_unit(
        self: &Arc<Self>,
        body: BodyOf,
        number: usize,
        how: Compile,
    ) -> Result<(Built, Tracker), Error> {
        let link_name = &body.plan.import(body.function.symbol).name;
        let symbol = self
            .names
            .session()
            // Functions of other dylibs, and one that was removed, may have the same name.
            .intern(&format!(
                "{BODY_PREFIX}{number}.{}.{link_name}",
                body.id.index()
            ));
        let outcome = Arc::new(Mutex::new(None));
        let unit = BodyUnit {
            core: Arc::clone(self),
            name: link_name.clone(),
            body,
            how,
            symbol,
            outcome: Arc::clone(&outcome),
        };
        let tracker = self.names.bodies.create_tracker()?;
        tracker.define(unit)?;
        let found = self.names.bodies.lookup(symbol);
        let built = outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match (found, built) {
            (Ok(_), Some(Ok(built))) => Ok((built, tracker)),
            (found, built) => {
                // The definition goes, so that a later call can try again.
                tracker.remove()?;
                let cause = match built {
                    Some(Err(cause)) => Some(cause),
                    _ => found.err().map(Error::Session),
                };
                Err(cause.unwrap_or_else(|| {
                    Error::Session(SessionError::Panicked {
                        text: "while compiling".into(),
                    })
                }))
            }
        }
    }

    /// Removes the unit of a version.
    pub(crate) fn remove_unit(&self, id: FunctionId, unit: &BodyTracker) {
        // It fails only where the tracker is gone already.
        if let Err(cause) = unit.tracker.remove() {
            self.names.session().report(&cause);
        }
        self.tiers.versions.give_number(id, unit.number);
    }

    /// Compiles and links a body; nothing can reach it yet.
    pub(crate) fn build_with(
        &self,
        start: Instant,
        body: &BodyOf,
        how: &Compile,
        crossing: &Crossing,
    ) -> Result<Built, Error> {
        let compiled = self.compile(body, how)?;
        let compiling = start.elapsed();
        let start = Instant::now();
        let mut built = self.link_function(body, compiled, crossing)?;
        built.compiling = compiling;
        built.linking = start.elapsed();
        Ok(built)
    }

    fn compile(&self, body: &BodyOf, how: &Compile) -> Result<Compiled, Error> {
        let function = &body.function;
        let mut reader = function.module.readers.reader()?;
        match reader.compile(&body.plan, function.symbol, how) {
            Ok(compiled) => Ok(compiled),
            // What the reader keeps is as good as before.
            Err(error) if error.is_cancelled() => Err(error.into()),
            Err(error) => {
                reader.discard();
                Err(error.into())
            }
        }
    }

    fn link_function(
        &self,
        body: &BodyOf,
        mut compiled: Compiled,
        crossing: &Crossing,
    ) -> Result<Built, Error> {
        let BodyOf {
            id, function, plan, ..
        } = body;
        let id = *id;
        let link_name = &plan.import(function.symbol).name;
        let file = function.module.readers.bitcode().name();
        let object = std::mem::take(&mut compiled.object);
        let graph = Graph::new(vec![Object::parse(file, &object)?])?;
        let laid = graph.layout(&LayoutOptions {
            merge_read_only: true,
            apart: Some(APART),
            ..Default::default()
        })?;
        let dylib = &function.module.dylib;
        let mut uses = Uses::default();
        let find = |name: &str, need| {
            self.find_for(&function.module, crossing.dylib_of(dylib, name), name, need)
        };
        let constants = self.place_constants(&laid, function, id, find, &mut uses)?;
        let mut drafts = self.allocate(&laid)?;
        let placed = laid.place_with(drafts.placement(None), constants.addresses)?;
        let body = format!("{BODY_PREFIX}{link_name}");
        let entry = placed
            .definitions()
            .find(|(d, _)| d.name == body)
            .map(|(d, address)| (address, address + d.size));
        let counters = match compiled.counts {
            true => Some(self.tiers.counts.address(&self.heap, id)?),
            false => None,
        };
        let words = match &compiled.probes {
            Some(probes) => {
                let bytes = probes.words() as usize * size_of::<u64>();
                let draft = self
                    .heap
                    .allocate(Pool::ReadWrite, bytes, align_of::<u64>())?;
                Some(Words::new(probes.clone(), draft.seal()?))
            }
            None => None,
        };
        let linked = placed.fix_up(|name, need| match (name, counters, &words) {
            (COUNTERS, Some(at), _) => Some(Resolved::at(at)),
            (PROBES, _, Some(words)) => Some(Resolved::at(words.address())),
            _ => {
                let resolved = find(name, need)?;
                self.note_use(&resolved, &mut uses);
                Some(resolved)
            }
        })?;
        let (entry, sized_end) = entry.ok_or_else(|| Error::NotAFunction {
            name: link_name.to_string(),
        })?;
        let range = drafts.code_range();
        let stacks = &self.reclaim.stacks;
        stacks.note_function(link_name, &linked, range.start, entry..sized_end);
        drafts.write(&linked)?;
        let memory = drafts.seal()?;
        self.register_rows(&linked.fdes, function.name)?;
        self.add_body(entry, range.end, function.name);
        let body_end = linked
            .fdes
            .iter()
            .find(|row| row.start == entry)
            .map_or(range.start + linked.code.len() as u64, |row| row.end);
        self.dump(function, &linked, range.start, entry..body_end);
        self.tools.add(&Body {
            name: function.name.to_str().unwrap_or("?"),
            entry,
            end: body_end,
            code: range.start,
            linked: &linked,
            object: &object,
            symbol: &body,
        });
        let (memory, data) = split(memory);
        let memory = memory.ok_or_else(|| Error::NotAFunction {
            name: link_name.to_string(),
        })?;
        let movable = linked.immovable.is_none()
            && compiled.labels != Labels::Escape
            && !self.tools.pins_code();
        let code = Code {
            memory,
            entry,
            body_end,
            rows: linked.fdes,
            name: function.name,
            moves: movable.then_some(linked.moves),
            rest: Arc::new(Rest::new(data, words.clone(), uses).with_constants(constants.held)),
        };
        Ok(Built {
            unit: None,
            entry,
            body_end,
            bytes: linked.code.len() as u64,
            compiling: Duration::ZERO,
            linking: Duration::ZERO,
            words,
            code,
            foreign: crossing.depends(&compiled.taken),
            compiled,
        })
    }

    /// Binds `sources`, checks that nothing is missing, and compiles and links their
    /// data, on a thread that LLVM can take down. Names that may remain when the image is
    /// removed go to `remaining`.
    pub(crate) fn load_and_start(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<Source>,
        mode: Mode,
    ) -> Result<(Image, Started), Error> {
        let (core, tracker) = (Arc::clone(self), tracker.clone());
        let file = sources
            .iter()
            .map(Source::name)
            .collect::<Vec<_>>()
            .join(", ");
        let lost = move |message: &str| {
            Error::Codegen(CodegenError::Fatal {
                module: file.clone(),
                unit: String::from("its data"),
                message: message.to_owned(),
            })
        };
        let no_bitcode = sources
            .iter()
            .all(|source| matches!(source, Source::Object { .. }));
        let work = move || {
            let image = core.load(&tracker, remaining, sources, mode)?;
            core.check_missing(&image)?;
            let started = core.materialize_data(&tracker, &image, mode)?;
            Ok((image, started))
        };
        if no_bitcode {
            // LLVM has no part in it, and a thread costs more than the link.
            let _pass = service::enter();
            return work();
        }
        sacrificial::sacrificial("uruk-load", lost, work)
    }
}
