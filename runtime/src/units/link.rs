//! Objects from which a unit makes its definitions: linked into the session's memory, with the
//! dependences that its relocations show.
//!
//! An object's definitions are resolved as soon as they have their places, before its references
//! are looked up: so units that refer to each other's data find each other. A reference is waited
//! for until it has an address. References that were not ready then are the ones that the object's
//! definitions depend on. References to functions with stubs use these, and cause no wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_link::{Binding, Graph, Kind as LinkKind, Object};
use uruk_session::{DependenceGroup, Flags, SessionError, Symbol, Tracker};

use crate::api::unit::Responsibility;
use crate::code::names::{Definition, NewName};
use crate::code::object_file::ObjectFile;
use crate::code::objects::ObjectCode;
use crate::error::{Error, Missing};
use crate::load::image::Image;
use crate::load::objects::is_function;
use crate::load::objects::object_files;
use crate::load::placed::Stay;
use crate::load::placed::{PlacedImage, names_of};
use crate::load::weak;
use crate::session::Session;

/// The promised symbols of its unit that an object defines.
struct Promised {
    /// Functions with stubs, by name.
    functions: HashMap<Box<str>, FunctionId>,
    /// The object, as these functions' bodies refer to it.
    file: Arc<ObjectFile>,
}

impl Session {
    /// Links an object whose definitions fulfil `responsibility`, and completes that. Under a pass.
    pub(crate) fn link_for(
        self: &Arc<Self>,
        mut responsibility: Responsibility,
        name: &str,
        bytes: Arc<[u8]>,
    ) -> Result<(), Error> {
        match self.link_promised(&mut responsibility, name, bytes) {
            Ok(groups) => Ok(responsibility.emit(&groups)?),
            Err(error) => {
                responsibility.fail(error.clone());
                Err(error)
            }
        }
    }

    fn link_promised(
        self: &Arc<Self>,
        responsibility: &mut Responsibility,
        name: &str,
        bytes: Arc<[u8]>,
    ) -> Result<Vec<DependenceGroup>, Error> {
        let session = self.names.session();
        let dylib = responsibility.inner().dylib();
        let tracker = self.tracker_of(responsibility)?;
        let bytes: Arc<[u8]> = match self.layers.changes_objects() {
            true => self.layers.object(name, bytes.to_vec())?.into(),
            false => bytes,
        };
        let object = Object::parse(name, &bytes)?;
        let (file, apart) = object_files(std::slice::from_ref(&object)).remove(0);
        let mut graph = Graph::new(vec![object])?;
        self.layers.link(name, &mut graph)?;
        self.claim_others(responsibility, &mut graph)?;
        let functions = self.promised_functions(responsibility, &graph);
        graph.preempt(|definition| functions.contains_key(definition.name));
        let bypassed: Vec<Box<str>> = graph.bypassed().into_iter().map(Box::from).collect();
        let promised = Promised {
            file: Arc::new(ObjectFile::new(file, apart, bypassed)),
            functions,
        };
        let image = Image {
            number: self.next_image(),
            late: true,
            objects: vec![(name.to_owned(), Arc::clone(&bytes))],
            ..Image::default()
        };
        self.names.lives.note(&tracker, &image.life);
        let undefined: Vec<Symbol> = graph
            .undefined()
            .filter(|undefined| !promised.functions.contains_key(undefined.name))
            .map(|undefined| session.intern(undefined.name))
            .collect();
        // The promised symbols are not ready yet, and the linker finds out where stubs are.
        let is_function = |name: &str| {
            promised.functions.contains_key(name) || self.names.is_ready_function(&dylib, name)
        };
        let placed = self.place_image(&tracker, &image, graph, &is_function)?;
        let names = names_of(&placed.placed, placed.tls_module(), &HashSet::new());
        self.resolve_promised(responsibility, &placed, &names, &promised)?;
        let found = self.resolved(&dylib, undefined)?;
        let resolve = |name: &str, need| {
            if let Some(&id) = promised.functions.get(name) {
                return Some(self.resolved_stub(id));
            }
            self.resolve_found(&found, name, need)
        };
        // A unit that makes better code guarantees that nothing else leads into this.
        let improves = |id: &FunctionId| self.unit_of(*id).is_some_and(|it| it.improver.is_some());
        let stay = match promised.functions.values().any(improves) {
            true => Stay::IfHeld,
            false => Stay::Always,
        };
        let named = !names.is_empty();
        let linked = self.finish_image(&tracker, &image, placed, stay, named, resolve)?;
        self.keep_until_called(&promised, linked.bodies, &linked.holding);
        self.note_hooks(&image, &linked.started);
        let symbols = responsibility.symbols().iter().map(|(symbol, _)| *symbol);
        Ok(vec![DependenceGroup {
            symbols: symbols.collect(),
            dependences: found.dependences(),
        }])
    }

    /// The tracker that a responsibility's symbols are under now. Under a pass.
    pub(crate) fn tracker_of(
        &self,
        responsibility: &Responsibility,
    ) -> Result<Tracker, SessionError> {
        let inner = responsibility.inner();
        let tracker = self.names.session().tracker(inner.tracker()?);
        tracker.ok_or_else(|| SessionError::TrackerDefunct {
            dylib: inner.dylib().name().into(),
        })
    }

    /// Adds the object's definitions that the unit did not promise; weak definitions of symbols
    /// that are defined elsewhere yield.
    fn claim_others(
        &self,
        responsibility: &mut Responsibility,
        graph: &mut Graph<'_>,
    ) -> Result<(), Error> {
        let session = self.names.session();
        let mut others: Vec<(Symbol, Flags)> = Vec::new();
        let mut promised: HashSet<Symbol> = HashSet::new();
        for place in graph.places() {
            let definition = &place.definition;
            let symbol = session.intern(definition.name);
            if responsibility.covers(symbol) {
                promised.insert(symbol);
                continue;
            }
            if weak::is_own(definition) {
                continue;
            }
            let mut flags = match definition.hidden {
                true => Flags::NONE,
                false => Flags::EXPORTED,
            };
            if definition.binding != Binding::Strong || place.grouped {
                flags = flags.with(Flags::WEAK);
            }
            others.push((symbol, flags));
        }
        let lacking: Vec<Missing> = responsibility
            .symbols()
            .iter()
            .filter(|(_, flags)| !flags.contains(Flags::SIDE_EFFECTS_ONLY))
            .filter(|(symbol, _)| !promised.contains(symbol))
            .map(|(symbol, _)| Missing {
                symbol: session.name(*symbol).to_owned(),
                needed_by: vec![String::from("the unit that promised it")],
            })
            .collect();
        if !lacking.is_empty() {
            return Err(Error::MissingSymbols { missing: lacking });
        }
        let claimed = responsibility.claim(&others)?;
        for (symbol, _) in others {
            if !claimed.contains(&symbol) {
                graph.discard(session.name(symbol));
            }
        }
        Ok(())
    }

    /// The functions of the object that have stubs.
    fn promised_functions(
        &self,
        responsibility: &Responsibility,
        graph: &Graph<'_>,
    ) -> HashMap<Box<str>, FunctionId> {
        let session = self.names.session();
        let dylib = responsibility.inner().dylib();
        let functions = graph.places().filter(is_function);
        functions
            .filter_map(|place| {
                let name = place.definition.name;
                let symbol = session.intern(name);
                if !responsibility.covers(symbol) || !responsibility.names().has_stub(symbol) {
                    return None;
                }
                match self.names.find_own(&dylib, name)? {
                    Definition::Function { id } => Some((Box::from(name), id)),
                    _ => None,
                }
            })
            .collect()
    }

    /// Reports the addresses of the definitions to the session.
    fn resolve_promised(
        &self,
        responsibility: &Responsibility,
        placed: &PlacedImage<'_>,
        names: &[NewName],
        promised: &Promised,
    ) -> Result<(), Error> {
        let session = self.names.session();
        let bodies = placed.placed.preempted();
        let bodies = bodies.filter(|(place, _)| place.definition.kind == LinkKind::Function);
        let mut addresses: Vec<(Symbol, u64)> = bodies
            .filter(|(place, _)| promised.functions.contains_key(place.definition.name))
            .map(|(place, at)| (session.intern(place.definition.name), at))
            .collect();
        for name in names {
            let symbol = session.intern(&name.name);
            if responsibility.covers(symbol) {
                addresses.push((symbol, self.names.known_as(name.definition)));
            }
        }
        Ok(responsibility.resolve(&addresses)?)
    }

    /// Keeps code until its function's first call finds it ready.
    fn keep_until_called(
        &self,
        promised: &Promised,
        mut bodies: HashMap<Box<str>, std::ops::Range<u64>>,
        holding: &Arc<crate::code::holding::Holding>,
    ) {
        let mut functions = HashMap::new();
        for (name, &id) in &promised.functions {
            let Some(range) = bodies.remove(name) else {
                continue;
            };
            let code = ObjectCode {
                file: Arc::clone(&promised.file),
                range,
                holding: Arc::clone(holding),
            };
            functions.insert(id, code);
        }
        let _ = promised
            .file
            .functions
            .set(functions.keys().copied().collect());
        self.keep_linked(functions.into_iter());
    }
}
