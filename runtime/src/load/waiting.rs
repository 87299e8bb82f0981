//! Inputs that are added before their dependences: dylibs in which `add` may leave names missing.
//!
//! Functions of such an input are defined as usual: one that needs a missing name fails when it is
//! called, and is tried again after new definitions. If its *data* refers to a missing name, the
//! data waits: it is a unit of the session, which is materialized by the first lookup that finds
//! everything defined. Constructors wait with it.
//!
//! A flags lookup checks whether all names are defined, before any of the data gets an address. A
//! unit that gives an address out must not fail for a missing name, as others may be linked against
//! it then. Inputs that refer to each other's data find each other's addresses, as units do
//! ([`units::link`](crate::units)).
//!
//! Waiting inputs are listed by image; they are removed with their trackers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_codegen::labelled;
use uruk_link::{Binding, Graph, Object};
use uruk_session::{
    Dylib, DylibId, Flags, Interface, Lookup, Responsibility, SessionError, Symbol, Tracker, Unit,
    Visibility,
};

use crate::core::Core;
use crate::error::{Error, Missing};
use crate::fork::gate;
use crate::load::image::Image;
use crate::load::placed::Stay;
use crate::load::placed::names_of;
use crate::load::weak;

/// The waiting inputs of a session.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Dylibs in which names may be missing.
    dylibs: HashSet<DylibId>,
    /// Inputs by number.
    inputs: HashMap<u64, Input>,
}

/// An input that was added while it needed missing names.
struct Input {
    dylib: Dylib,
    missing: Vec<Missing>,
    /// The symbol whose lookup links its data and constructors, if they wait.
    init: Option<Symbol>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Sets whether names may be missing in a dylib.
    pub(crate) fn allow(&self, dylib: &Dylib, allowed: bool) {
        let mut table = self.lock();
        match allowed {
            true => table.dylibs.insert(dylib.id()),
            false => table.dylibs.remove(&dylib.id()),
        };
    }

    /// Whether names may be missing in a dylib.
    pub(crate) fn is_allowed(&self, dylib: &Dylib) -> bool {
        self.lock().dylibs.contains(&dylib.id())
    }

    fn forget(&self, number: u64) {
        self.lock().inputs.remove(&number);
    }
}

/// The data of an image that waits for names.
struct WaitingData {
    core: Weak<Core>,
    image: Image,
    object: Arc<[u8]>,
    symbols: Vec<(Symbol, Flags)>,
    init: Symbol,
}

impl Core {
    /// Lists an input that needs missing names, until its tracker is removed.
    pub(crate) fn note_waiting(
        self: &Arc<Self>,
        tracker: &Tracker,
        number: u64,
        missing: Vec<Missing>,
        init: Option<Symbol>,
    ) -> Result<(), Error> {
        let input = Input {
            dylib: tracker.dylib(),
            missing,
            init,
        };
        self.waiting.lock().inputs.insert(number, input);
        let core = Arc::downgrade(self);
        let forget = move || {
            if let Some(core) = core.upgrade() {
                core.waiting.forget(number);
            }
        };
        Ok(tracker.attach(Box::new(forget))?)
    }

    /// Missing names of the inputs of a dylib, with their users.
    pub(crate) fn unresolved(&self, dylib: &Dylib) -> Result<Vec<Missing>, Error> {
        let mut all: Vec<Missing> = Vec::new();
        {
            let table = self.waiting.lock();
            let inputs = table.inputs.values().filter(|input| input.dylib == *dylib);
            for missing in inputs.flat_map(|input| &input.missing) {
                match all.iter_mut().find(|known| known.symbol == missing.symbol) {
                    Some(known) => known.needed_by.extend_from_slice(&missing.needed_by),
                    None => all.push(missing.clone()),
                }
            }
        }
        let names = all.iter().map(|missing| missing.symbol.as_str());
        let undefined = self.undefined_of(dylib, names)?;
        let session = self.names.session();
        all.retain(|missing| undefined.contains(&session.intern(&missing.symbol)));
        all.sort_unstable_by(|a, b| a.symbol.cmp(&b.symbol));
        Ok(all)
    }

    /// Links waiting data in `dylib` whose names are all defined now.
    pub(crate) fn link_waiting(&self, dylib: Option<&Dylib>) {
        let inits: Vec<(Dylib, Symbol)> = {
            let table = self.waiting.lock();
            let inputs = table.inputs.values();
            inputs
                .filter(|input| dylib.is_none_or(|dylib| input.dylib == *dylib))
                .filter_map(|input| Some((input.dylib.clone(), input.init?)))
                .collect()
        };
        for (dylib, init) in inits {
            let lookup = Lookup::new([(dylib, Visibility::All)]).weak(init);
            // On failure it continues to wait.
            let _ = self.names.session().lookup(lookup);
        }
    }

    /// Makes the data of an image wait, if it needs missing names; returns whether it does.
    pub(super) fn wait_with_data(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &mut Image,
        missing: &[Missing],
    ) -> Result<Option<Symbol>, Error> {
        let [(_, module)] = image.modules.as_slice() else {
            return Ok(None);
        };
        let mut reader = module.readers.reader()?;
        let Some(object) = reader.compile_data(&module.plan())? else {
            return Ok(None);
        };
        drop(reader);
        let name = module.readers.bitcode().name().to_owned();
        let object = self.layers.object(&name, object)?;
        let session = self.names.session();
        let (symbols, waits) = {
            let mut graph = Graph::new(vec![Object::parse(&name, &object)?])?;
            for name in &image.discarded {
                graph.discard(name);
            }
            let mut undefined = graph.undefined();
            let waits =
                undefined.any(|name| missing.iter().any(|missing| missing.symbol == name.name));
            drop(undefined);
            let hidden = image.hidden();
            let places = graph
                .places()
                .filter(|place| !weak::is_own(&place.definition));
            let symbols: Vec<(Symbol, Flags)> = places
                .map(|place| {
                    let definition = &place.definition;
                    let mut flags = Flags::NONE;
                    if !definition.hidden && !hidden.contains(definition.name) {
                        flags = flags.with(Flags::EXPORTED);
                    }
                    if definition.binding != Binding::Strong {
                        flags = flags.with(Flags::WEAK);
                    }
                    (session.intern(definition.name), flags)
                })
                .collect();
            (symbols, waits)
        };
        if !waits {
            return Ok(None);
        }
        let init = session.intern(&format!("uruk.init.{}", image.suffix()));
        let kept = Image {
            number: image.number,
            life: Arc::clone(&image.life),
            ..Image::default()
        };
        tracker.define(WaitingData {
            core: Arc::downgrade(self),
            image: std::mem::replace(image, kept),
            object: object.into(),
            symbols,
            init,
        })?;
        Ok(Some(init))
    }
}

impl WaitingData {
    /// The names it refers to, and those of them without a definition.
    fn references(&self, core: &Core, dylib: &Dylib) -> Result<(Vec<Symbol>, Vec<Symbol>), Error> {
        let session = core.names.session();
        let mut graph = Graph::new(vec![Object::parse(self.name(), &self.object)?])?;
        for name in &self.image.discarded {
            graph.discard(name);
        }
        // The module itself has the label spaces.
        let others = graph.undefined().filter(|it| labelled(it.name).is_none());
        let all: Vec<(&str, bool)> = others.map(|it| (it.name, it.weak)).collect();
        let strong = all.iter().filter(|(_, weak)| !weak).map(|(name, _)| *name);
        let missing = core.undefined_of(dylib, strong)?;
        let all = all.iter().map(|(name, _)| session.intern(name));
        Ok((all.collect(), missing))
    }

    /// Links the data; returns the number of the image.
    fn link(
        &self,
        core: &Arc<Core>,
        tracker: &Tracker,
        responsibility: &Responsibility,
        references: Vec<Symbol>,
    ) -> Result<(u64, uruk_session::LookupResult), Error> {
        let mut graph = Graph::new(vec![Object::parse(self.name(), &self.object)?])?;
        for name in &self.image.discarded {
            graph.discard(name);
        }
        core.layers.link(self.name(), &mut graph)?;
        let session = core.names.session();
        let dylib = tracker.dylib();
        let is_function = |name: &str| core.names.is_ready_function(&dylib, name);
        let placed = core.place_image(tracker, &self.image, graph, &is_function)?;
        let names = names_of(&placed.placed, placed.tls_module(), &self.image.hidden());
        let addresses: Vec<(Symbol, u64)> = names
            .iter()
            .map(|name| {
                (
                    session.intern(&name.name),
                    core.names.known_as(name.definition),
                )
            })
            .filter(|(symbol, _)| responsibility.covers(*symbol))
            .collect();
        responsibility.resolve(&addresses)?;
        let found = core.resolved(&dylib, references)?;
        let modules = || self.image.modules.iter().map(|(_, module)| &**module);
        let resolve = |name: &str, need| {
            let space = core.label_space(modules(), name);
            space.or_else(|| core.resolve_found(&found, name, need))
        };
        let linked =
            core.finish_image(tracker, &self.image, placed, Stay::Always, true, resolve)?;
        core.note_hooks(&self.image, &linked.started);
        Ok((self.image.number, found))
    }
}

impl Unit for WaitingData {
    fn name(&self) -> &str {
        let module = self.image.modules.first();
        module.map_or("", |(_, module)| module.readers.bitcode().name())
    }

    fn interface(&self) -> Interface {
        let mut symbols = self.symbols.clone();
        symbols.push((self.init, Flags::SIDE_EFFECTS_ONLY));
        Interface {
            symbols,
            init: Some(self.init),
        }
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let Some(core) = self.core.upgrade() else {
            return responsibility.fail(SessionError::Ended);
        };
        let _pass = gate::enter();
        let dylib = responsibility.dylib();
        let key = responsibility.tracker();
        let Some(tracker) = key.ok().and_then(|key| core.names.session().tracker(key)) else {
            // The input was removed meanwhile.
            return;
        };
        let references = match self.references(&core, &dylib) {
            Ok((references, missing)) if missing.is_empty() => references,
            Ok((_, missing)) => {
                let error = SessionError::not_found(&dylib, missing);
                // Fails only if it was removed meanwhile; then no lookup waits.
                let _ = responsibility.fail_retryable(error, *self);
                return;
            }
            Err(error) => return responsibility.fail(error.into()),
        };
        match self.link(&core, &tracker, &responsibility, references) {
            Ok((number, found)) => {
                core.waiting.forget(number);
                let symbols = responsibility.symbols().iter().map(|(symbol, _)| *symbol);
                let group = uruk_session::DependenceGroup {
                    symbols: symbols.collect(),
                    dependences: found.dependences(),
                };
                // A failure is reported to the waiting lookups.
                let _ = responsibility.emit(&[group]);
                core.retry_failed();
            }
            Err(error) => responsibility.fail(error.into()),
        }
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        self.symbols.retain(|(own, _)| *own != symbol);
        self.image
            .discarded
            .push(dylib.session().name(symbol).into());
    }
}
