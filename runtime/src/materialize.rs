//! From a unit to published code: compile, link, write, register unwind rows, and,
//! last of all, store the slot.

use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tracing::info;
use uruk_codegen::{BODY_PREFIX, CodegenError};
use uruk_link::{Graph, LayoutOptions, Linked, Object};
use uruk_session::{Dylib, Flags, Interface, Responsibility, SessionError, Symbol, Unit};
use uruk_stubs::FunctionId;
use uruk_unwind::Row;

use crate::core::{Core, Function, static_name};
use crate::error::Error;
use crate::guest::tls;
use crate::load::{Image, Source};
use crate::names::{Definition, Name};
use crate::program::Mode;
use crate::service;
use crate::stats::Counters;

/// What the data of an image left to be done by whoever starts it.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) preinit: Vec<u64>,
    pub(crate) init: Vec<(u32, u64)>,
    pub(crate) fini: Vec<(u32, u64)>,
    /// Words to be filled with what a resolver returns.
    pub(crate) ifuncs: Vec<(u64, u64)>,
}

/// The body of one function as a unit of the session.
struct BodyUnit {
    core: Arc<Core>,
    name: Box<str>,
    function: Function,
    symbol: Symbol,
    /// Why it failed: the session's own errors do not carry ours.
    failure: Arc<Mutex<Option<Error>>>,
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
        match self.core.build(&self.function) {
            Ok(entry) => {
                // Both fail only if the tracker was removed, and then nobody waits.
                if responsibility.resolve(&[(self.symbol, entry)]).is_ok() {
                    let _ = responsibility.emit(&[]);
                }
            }
            Err(cause) => {
                let text = cause.to_string();
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
                responsibility.fail(SessionError::unit(&self.name, text));
            }
        }
    }
}

impl Core {
    /// Has the session materialize the body of `id`, and publishes it.
    pub(crate) fn materialize(self: &Arc<Self>, id: FunctionId) -> Result<u64, Error> {
        let function = self.function(id).ok_or(Error::NotAFunction {
            name: format!("{id:?}"),
        })?;
        let link_name = &function.module.plan().import(function.symbol).name;
        let symbol = self
            .names
            .session()
            .intern(&format!("{BODY_PREFIX}{link_name}"));
        let failure = Arc::new(Mutex::new(None));
        let unit = BodyUnit {
            core: Arc::clone(self),
            name: link_name.clone(),
            function,
            symbol,
            failure: Arc::clone(&failure),
        };
        // A version of its own: what is compiled together is removed together.
        let tracker = self.names.bodies.create_tracker()?;
        tracker.define(unit)?;
        match self.names.bodies.lookup(symbol) {
            Ok(entry) => {
                self.stubs.publish(id, entry);
                Ok(entry)
            }
            Err(error) => {
                // The definition goes, so that a later call can try again.
                tracker.remove()?;
                let cause = failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                Err(cause.unwrap_or(Error::Session(error)))
            }
        }
    }

    /// Compiles and links a body; nothing can reach it yet.
    fn build(&self, function: &Function) -> Result<u64, Error> {
        let start = Instant::now();
        let object = self.compile(function)?;
        Counters::add_time(&self.counters.emit_ns, start);
        let start = Instant::now();
        let entry = self.link_function(function, &object)?;
        self.counters.compiled.fetch_add(1, Ordering::Relaxed);
        Counters::add_time(&self.counters.link_ns, start);
        Ok(entry)
    }

    fn compile(&self, function: &Function) -> Result<Vec<u8>, Error> {
        let mut reader = function.module.readers.reader()?;
        match reader.compile_function(function.module.plan(), function.symbol) {
            Ok(object) => Ok(object),
            Err(error) => {
                reader.discard();
                Err(error.into())
            }
        }
    }

    fn link_function(&self, function: &Function, object: &[u8]) -> Result<u64, Error> {
        let link_name = &function.module.plan().import(function.symbol).name;
        let file = function.module.readers.bitcode().name();
        let graph = Graph::new(vec![Object::parse(file, object)?])?;
        let laid = graph.layout(&LayoutOptions {
            merge_read_only: true,
            ..Default::default()
        })?;
        let mut drafts = self.allocate(&laid)?;
        let placed = laid.place(drafts.placement(None))?;
        let body = format!("{BODY_PREFIX}{link_name}");
        let entry = placed
            .definitions()
            .find(|(d, _)| d.name == body)
            .map(|(_, address)| address);
        let dylib = &function.module.dylib;
        let linked = placed.fix_up(|name, need| self.resolve(dylib, name, need))?;
        drafts.write(&linked)?;
        let entry = entry.ok_or_else(|| Error::NotAFunction {
            name: link_name.to_string(),
        })?;
        let code = drafts.code_range();
        drafts.seal()?;
        self.register_rows(&linked, function.name)?;
        self.add_body(entry, code.end, function.name);
        self.counters
            .code_bytes
            .fetch_add(linked.code.len() as u64, Ordering::Relaxed);
        self.dump(function, &linked, code.start, entry);
        Ok(entry)
    }

    /// Makes the unwind rows of `linked` findable; before any of it can run.
    fn register_rows(&self, linked: &Linked, name: &CStr) -> Result<(), Error> {
        let rows: Vec<Row> = linked
            .fdes
            .iter()
            .map(|row| Row {
                start: row.start,
                end: row.end,
                fde: row.fde,
            })
            .collect();
        let names = vec![name.to_str().unwrap_or_default(); rows.len()];
        // SAFETY: the records lie in sealed memory that is never given back.
        unsafe { self.region.insert(&rows, &names)? };
        Ok(())
    }

    /// Binds `sources`, checks that nothing is missing, and compiles and links their
    /// data, on a thread that LLVM can take down.
    pub(crate) fn load_and_start(
        self: &Arc<Self>,
        dylib: &Dylib,
        sources: Vec<Source>,
        mode: Mode,
    ) -> Result<(Image, Started), Error> {
        let (core, dylib) = (Arc::clone(self), dylib.clone());
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
        service::sacrificial(lost, move || {
            let image = core.load(&dylib, sources, mode)?;
            core.check_missing(&image)?;
            let started = core.materialize_data(&image, mode)?;
            Ok((image, started))
        })
    }

    /// Compiles and links the data of an image, with its object files, as one.
    pub(crate) fn materialize_data(&self, image: &Image, mode: Mode) -> Result<Started, Error> {
        let start = Instant::now();
        let mut objects: Vec<(String, std::borrow::Cow<'_, [u8]>)> = Vec::new();
        for (_, module) in &image.modules {
            let name = module.readers.bitcode().name().to_owned();
            let mut reader = module.readers.reader()?;
            let object = match mode {
                Mode::Eager => reader.compile_everything(module.plan())?,
                Mode::Lazy => reader.compile_data(module.plan())?,
            };
            objects.extend(object.map(|bytes| (name, bytes.into())));
        }
        for (name, bytes) in &image.objects {
            objects.push((name.clone(), (&**bytes).into()));
        }
        let started = self.link_image(image, &objects)?;
        Counters::add_time(&self.counters.data_ns, start);
        info!(objects = objects.len(), elapsed = ?start.elapsed(), "linked the data");
        Ok(started)
    }

    fn link_image(
        &self,
        image: &Image,
        objects: &[(String, std::borrow::Cow<'_, [u8]>)],
    ) -> Result<Started, Error> {
        let parsed = objects
            .iter()
            .map(|(name, bytes)| Object::parse(name, bytes));
        let mut graph = Graph::new(parsed.collect::<Result<Vec<_>, _>>()?)?;
        for name in &image.discarded {
            graph.discard(name);
        }
        let laid = graph.layout(&LayoutOptions::default())?;
        let tls_place = match laid.tls() {
            Some(shape) => Some(tls::place(shape.size, shape.align, self.is_program())?),
            None => None,
        };
        let tls_module = tls_place.map(|place| place.module);
        let mut drafts = self.allocate(&laid)?;
        let placed = laid.place(drafts.placement(tls_place))?;
        let bounds: Vec<_> = placed
            .bounds()
            .map(|(name, address)| Name::strong(name, Definition::Address(address)))
            .collect();
        for (definition, address) in placed.definitions() {
            if definition.kind == uruk_link::Kind::Function {
                let end = address + definition.size.max(1);
                self.add_body(address, end, static_name(definition.name));
            }
        }
        let names: Vec<_> = placed
            .definitions()
            .map(|(definition, address)| {
                let meaning = match (definition.kind, tls_module) {
                    (uruk_link::Kind::Tls, Some(module)) => Definition::Tls {
                        module,
                        offset: address,
                    },
                    _ => Definition::Address(address),
                };
                let weak = definition.binding != uruk_link::Binding::Strong;
                Name {
                    name: definition.name.into(),
                    definition: meaning,
                    weak,
                }
            })
            .collect();
        let dylib = image.dylib.as_ref().unwrap_or(&self.main);
        let linked = placed.fix_up(|name, need| self.resolve(dylib, name, need))?;
        drafts.write(&linked)?;
        drafts.seal()?;
        self.register_rows(&linked, c"")?;
        if let (Some(place), Some(template)) = (tls_place, linked.tls) {
            tls::fill(place, template.image, template.size, template.align);
        }
        self.names.define(dylib, names)?;
        self.names.define(dylib, bounds)?;
        Ok(Started {
            preinit: linked.preinit.iter().map(|init| init.address).collect(),
            init: linked
                .init
                .iter()
                .map(|init| (u32::from(init.priority), init.address))
                .collect(),
            fini: linked
                .fini
                .iter()
                .map(|init| (u32::from(init.priority), init.address))
                .collect(),
            ifuncs: linked
                .ifuncs
                .iter()
                .map(|ifunc| (ifunc.word, ifunc.resolver))
                .collect(),
        })
    }
}
