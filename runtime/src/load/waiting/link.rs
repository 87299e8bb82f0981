//! Inputs that wait until their definitions are there.

use super::WaitingInput;
use crate::code::find::label_space;
use crate::error::{Error, Missing};
use crate::fork::gate;
use crate::load::image::Image;
use crate::load::loader::Loader;
use crate::load::placed::Stay;
use crate::load::placed::names_of;
use crate::load::weak;
use std::sync::{Arc, Weak};
use uruk_codegen::labelled;
use uruk_link::{Binding, Graph, Object};
use uruk_session::{
    Dylib, Flags, Interface, Lookup, Responsibility, SessionError, Symbol, Tracker, Unit,
    Visibility,
};

/// The data of an image that waits for names.
struct WaitingData {
    loader: Weak<Loader>,
    image: Image,
    object: Arc<[u8]>,
    symbols: Vec<(Symbol, Flags)>,
    init: Symbol,
}

impl Loader {
    /// Lists an input that needs missing names, until its tracker is removed.
    pub(crate) fn note_waiting(
        self: &Arc<Self>,
        tracker: &Tracker,
        number: u64,
        missing: Vec<Missing>,
        init: Option<Symbol>,
    ) -> Result<(), Error> {
        let input = WaitingInput {
            dylib: tracker.dylib(),
            missing,
            init,
        };
        self.waiting.lock().inputs.insert(number, input);
        let loader = Arc::downgrade(self);
        let forget = move || {
            if let Some(loader) = loader.upgrade() {
                loader.waiting.forget(number);
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
    pub(in crate::load) fn wait_with_data(
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
            loader: Arc::downgrade(self),
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
    fn references(
        &self,
        loader: &Loader,
        dylib: &Dylib,
    ) -> Result<(Vec<Symbol>, Vec<Symbol>), Error> {
        let session = loader.names.session();
        let mut graph = Graph::new(vec![Object::parse(self.name(), &self.object)?])?;
        for name in &self.image.discarded {
            graph.discard(name);
        }
        // The module itself has the label spaces.
        let others = graph.undefined().filter(|it| labelled(it.name).is_none());
        let all: Vec<(&str, bool)> = others.map(|it| (it.name, it.weak)).collect();
        let strong = all.iter().filter(|(_, weak)| !weak).map(|(name, _)| *name);
        let missing = loader.undefined_of(dylib, strong)?;
        let all = all.iter().map(|(name, _)| session.intern(name));
        Ok((all.collect(), missing))
    }

    /// Links the data; returns the number of the image.
    fn link(
        &self,
        loader: &Arc<Loader>,
        tracker: &Tracker,
        responsibility: &Responsibility,
        references: Vec<Symbol>,
    ) -> Result<(u64, uruk_session::LookupResult), Error> {
        let mut graph = Graph::new(vec![Object::parse(self.name(), &self.object)?])?;
        for name in &self.image.discarded {
            graph.discard(name);
        }
        loader.layers.link(self.name(), &mut graph)?;
        let session = loader.names.session();
        let dylib = tracker.dylib();
        let is_function = |name: &str| loader.names.is_ready_function(&dylib, name);
        let placed = loader.place_image(tracker, &self.image, graph, &is_function)?;
        let names = names_of(&placed.placed, placed.tls_module(), &self.image.hidden());
        let addresses: Vec<(Symbol, u64)> = names
            .iter()
            .map(|name| {
                (
                    session.intern(&name.name),
                    loader.names.known_as(name.definition),
                )
            })
            .filter(|(symbol, _)| responsibility.covers(*symbol))
            .collect();
        responsibility.resolve(&addresses)?;
        let found = loader.resolved(&dylib, references)?;
        let modules = || self.image.modules.iter().map(|(_, module)| &**module);
        let resolve = |name: &str, need| {
            let space = label_space(&loader.heap, modules(), name);
            space.or_else(|| loader.resolve_found(&found, name, need))
        };
        let linked =
            loader.finish_image(tracker, &self.image, placed, Stay::Always, true, resolve)?;
        loader.note_hooks(&self.image, &linked.started);
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
        let Some(loader) = self.loader.upgrade() else {
            return responsibility.fail(SessionError::Ended);
        };
        let _pass = gate::enter();
        let dylib = responsibility.dylib();
        let key = responsibility.tracker();
        let Some(tracker) = key.ok().and_then(|key| loader.names.session().tracker(key)) else {
            // The input was removed meanwhile.
            return;
        };
        let references = match self.references(&loader, &dylib) {
            Ok((references, missing)) if missing.is_empty() => references,
            Ok((_, missing)) => {
                let error = SessionError::not_found(&dylib, missing);
                // Fails only if it was removed meanwhile; then no lookup waits.
                let _ = responsibility.fail_retryable(error, *self);
                return;
            }
            Err(error) => return responsibility.fail(error.into()),
        };
        match self.link(&loader, &tracker, &responsibility, references) {
            Ok((number, found)) => {
                loader.waiting.forget(number);
                let symbols = responsibility.symbols().iter().map(|(symbol, _)| *symbol);
                let group = uruk_session::DependenceGroup {
                    symbols: symbols.collect(),
                    dependences: found.dependences(),
                };
                // A failure is reported to the waiting lookups.
                let _ = responsibility.emit(&[group]);
                loader.retry_failed();
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
