//! Objects as units: an object is linked on the first lookup of one of its symbols.

use std::sync::Arc;

use uruk_link::{Binding, Graph, Kind as LinkKind, Object};
use uruk_session::{Flags, Interface, Symbol};

use crate::api::dylib::Dylib;
use crate::api::jit::Jit;
use crate::api::unit::{Responsibility, Unit};
use crate::error::Error;
use crate::fork::errands::Errand;
use crate::fork::gate;
use crate::load::objects::is_function;
use crate::load::weak;

/// An ELF object that is linked when one of its symbols is looked up; for functions, when one is
/// called. [`Dylib::add_object`] links at once instead.
///
/// ```no_run
/// let jit = uruk::Jit::new()?;
/// let object = uruk::LazyObject::new(&jit, "x.o", std::fs::read("x.o").unwrap())?;
/// jit.main().define(object)?;
/// # Ok::<(), uruk::Error>(())
/// ```
#[derive(Debug)]
pub struct LazyObject {
    name: String,
    bytes: Arc<[u8]>,
    symbols: Vec<(Symbol, Flags)>,
    /// The symbol that stands for its constructors.
    init: Option<Symbol>,
}

impl LazyObject {
    /// Reads the symbol table of an object.
    ///
    /// # Errors
    /// Not an object for this machine.
    pub fn new(jit: &Jit, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<LazyObject, Error> {
        let bytes = bytes.into();
        let graph = Graph::new(vec![Object::parse(name, &bytes)?])?;
        let places = graph.places();
        let symbols = places
            .filter(|place| !weak::is_own(&place.definition))
            .map(|place| {
                let definition = &place.definition;
                let mut flags = Flags::NONE;
                if !definition.hidden {
                    flags = flags.with(Flags::EXPORTED);
                }
                match definition.binding {
                    Binding::Strong if !place.grouped => {}
                    Binding::Common => flags = flags.with(Flags::COMMON),
                    _ => flags = flags.with(Flags::WEAK),
                }
                if definition.kind == LinkKind::Function && is_function(&place) {
                    flags = flags.with(Flags::CALLABLE);
                }
                (jit.intern(definition.name), flags)
            });
        Ok(LazyObject {
            name: name.to_owned(),
            symbols: symbols.collect(),
            bytes: Arc::clone(&bytes),
            init: None,
        })
    }

    /// An object that defines the remaining symbols of a responsibility.
    pub(crate) fn again(name: &str, bytes: Arc<[u8]>, symbols: &[(Symbol, Flags)]) -> LazyObject {
        let is_init = |flags: Flags| flags.contains(Flags::SIDE_EFFECTS_ONLY);
        let init = symbols.iter().find(|(_, flags)| is_init(*flags));
        let others = symbols.iter().filter(|(_, flags)| !is_init(*flags));
        LazyObject {
            name: name.to_owned(),
            bytes,
            symbols: others.copied().collect(),
            init: init.map(|(symbol, _)| *symbol),
        }
    }

    /// Adds constructors, for which `init` stands.
    pub(crate) fn with_init(mut self, init: Symbol) -> LazyObject {
        self.init = Some(init);
        self
    }

    pub(crate) fn into_bytes(self) -> Arc<[u8]> {
        self.bytes
    }

    /// References of the object that no dylib in the search order of `dylib` defines.
    pub(crate) fn missing(&self, dylib: &Dylib) -> Result<Vec<Symbol>, Error> {
        let graph = Graph::new(vec![Object::parse(&self.name, &self.bytes)?])?;
        let needed = graph.undefined().filter(|undefined| !undefined.weak);
        let needed = needed.map(|undefined| undefined.name);
        let session = dylib.jit().session();
        let _pass = gate::enter();
        session.undefined_of(&dylib.dylib, needed)
    }
}

impl Unit for LazyObject {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Interface {
        let init = self.init.map(|init| (init, Flags::SIDE_EFFECTS_ONLY));
        Interface {
            symbols: self.symbols.iter().copied().chain(init).collect(),
            init: self.init,
        }
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let LazyObject { name, bytes, .. } = *self;
        let _ours = Errand::Ours.begin();
        // The waiting threads get the error.
        let _ = responsibility.link(&name, bytes);
    }

    fn discard(&mut self, _: &Dylib, symbol: Symbol) {
        self.symbols.retain(|(own, _)| *own != symbol);
    }
}
