//! Images: files that were bound together, and what of them is not compiled function by
//! function, the data of their modules and their object files, linked as one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tracing::info;
use uruk_codegen::SymbolId;
use uruk_link::{Graph, Hint, Kind as LinkKind, LayoutOptions, Object, Placed, Resolved};
use uruk_session::Tracker;
use uruk_stubs::FunctionId;

use crate::bonds::Remaining;
use crate::core::{Core, Module, static_name};
use crate::error::Error;
use crate::guest::tls;
use crate::hooks::{Hook, Target};
use crate::labels::{Assembled, Labelled};
use crate::life::Life;
use crate::load::function_base;
use crate::materialize::Started;
use crate::names::{Definition, Name};
use crate::objects::{ObjectCode, object_files};
use crate::program::Mode;
use crate::removal::{Holding, Parts, ThreadLocals, Uses};
use crate::stats::Counters;
use crate::weak;

/// Files that were bound together.
#[derive(Default)]
pub(crate) struct Image {
    /// Its number in the session.
    pub(crate) number: u64,
    pub(crate) life: Arc<Life>,
    /// Where names go that may remain when it is removed.
    pub(crate) remaining: Option<Arc<Remaining>>,
    /// Whether threads of the program may run already.
    pub(crate) late: bool,
    pub(crate) modules: Vec<(usize, Arc<Module>)>,
    pub(crate) objects: Vec<(String, Arc<[u8]>)>,
    /// Functions that objects define.
    pub(crate) object_functions: Vec<Box<str>>,
    /// Definitions in objects that lost.
    pub(crate) discarded: Vec<Box<str>>,
    pub(crate) constructors: Vec<Hook>,
    pub(crate) destructors: Vec<Hook>,
    /// Functions chosen at start by a resolver: the function and its resolver's name.
    pub(crate) ifuncs: Vec<(FunctionId, Target)>,
}

impl Image {
    /// Names that its modules hide from other dylibs.
    pub(crate) fn hidden(&self) -> HashSet<Box<str>> {
        let mut hidden = HashSet::new();
        for (_, module) in &self.modules {
            let plan = module.plan();
            for (index, info) in module.readers.summary().symbols.iter().enumerate() {
                let import = plan.import(SymbolId(index as u32));
                if info.hidden && import.defined {
                    hidden.insert(import.name.clone());
                }
            }
        }
        hidden
    }

    /// True if `name` is a function that some file of the image defines.
    pub(crate) fn is_function(&self, name: &str) -> bool {
        let in_module = |module: &Module| {
            let summary = module.readers.summary();
            let mut symbols = summary.symbols.iter().enumerate();
            symbols.any(|(index, info)| {
                info.name == name
                    && info.linkage.is_definition()
                    && function_base(summary, SymbolId(index as u32)).is_some()
            })
        };
        self.modules.iter().any(|(_, module)| in_module(module))
            || self
                .object_functions
                .iter()
                .any(|function| &**function == name)
    }
}

/// An image that is linked: its names are defined, and nothing has run.
pub(crate) struct LinkedImage {
    pub(crate) started: Started,
    /// Functions behind stubs, by name.
    pub(crate) bodies: HashMap<Box<str>, Range<u64>>,
    pub(crate) holding: Arc<Holding>,
    /// Names of functions by address, of an image that may go.
    pub(crate) functions: HashMap<u64, String>,
    /// Variables that yielded to what was there, and the bytes they would have had.
    pub(crate) yielded: Vec<(Box<str>, Vec<u8>)>,
}

/// Whether the memory of an image stays as long as its tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    Always,
    /// Only if the program can come to hold an address in it that is not a function's.
    IfHeld,
}

impl Core {
    /// Compiles and links the data of an image, with its object files, as one. Functions of
    /// object files get stubs, unless everything is compiled ahead.
    pub(crate) fn materialize_data(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        mode: Mode,
    ) -> Result<Started, Error> {
        let start = Instant::now();
        let mut objects: Vec<(String, Cow<'_, [u8]>)> = Vec::new();
        let mut assembled = Vec::new();
        for (file, module) in &image.modules {
            let name = module.readers.bitcode().name().to_owned();
            let mut reader = module.readers.reader()?;
            let object = match mode {
                Mode::Eager => reader.compile_everything(&module.plan())?,
                Mode::Lazy => reader.compile_data(&module.plan())?,
            };
            if mode == Mode::Lazy && module.readers.summary().has_inline_asm {
                assembled.push(Assembled {
                    module: Arc::clone(module),
                    file: *file,
                    object: objects.len(),
                });
            }
            objects.extend(object.map(|bytes| (name, bytes.into())));
        }
        let ours = objects.len();
        for (name, bytes) in &image.objects {
            objects.push((name.clone(), (&**bytes).into()));
        }
        let parsed = objects
            .iter()
            .map(|(name, bytes)| Object::parse(name, bytes));
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let files = object_files(&parsed[ours..]);
        let mut graph = Graph::new(parsed)?;
        for name in &image.discarded {
            graph.discard(name);
        }
        let functions = match mode {
            Mode::Lazy if !files.is_empty() => {
                self.stub_objects(tracker, image, &mut graph, ours, files)?
            }
            _ => HashMap::new(),
        };
        let mut linked = self.link_image(tracker, image, graph, &assembled, Stay::Always)?;
        for (name, (id, file)) in functions {
            // Aliases share a stub, and their code.
            if let Some(range) = linked.bodies.remove(&name)
                && self.stubs.entry(id).is_none()
            {
                let holding = Arc::clone(&linked.holding);
                let code = ObjectCode {
                    file,
                    range,
                    holding,
                };
                self.publish_object(id, code)?;
            }
        }
        Counters::add_time(&self.counters.data_ns, start);
        info!(objects = objects.len(), elapsed = ?start.elapsed(), "linked the data");
        Ok(linked.started)
    }

    /// Links a graph and has `tracker` hold it; functions of `assembled` modules are told of
    /// their labels.
    pub(crate) fn link_image(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        graph: Graph<'_>,
        assembled: &[Assembled],
        stay: Stay,
    ) -> Result<LinkedImage, Error> {
        let dylib = &tracker.dylib();
        let own = self.provide_own(tracker, image, &graph)?;
        let own_address = |name: &str| {
            let address = own.as_ref()?.find(name)?;
            self.is_own(dylib, name).then_some(address)
        };
        let laid = graph.layout_with(&LayoutOptions::default(), |name| {
            if own_address(name).is_some() {
                return Hint::Near;
            }
            match self.names.find_own(dylib, name) {
                // Stubs and slots are in the reservation.
                Some(Definition::Function { .. }) => Hint::Near,
                _ => Hint::Unknown,
            }
        })?;
        let tls_place = match laid.tls() {
            Some(shape) => Some({
                // Threads that run already have no copy of what comes later.
                let early = self.is_program() && !image.late;
                match tls::place(shape.size, shape.align, early) {
                    Err(cause) if self.reclaim_for_slots(&cause) => {
                        tls::place(shape.size, shape.align, early)?
                    }
                    place => place?,
                }
            }),
            None => None,
        };
        // Given back if the link fails.
        let tls_owned = tls_place.and_then(tls::Owned::new);
        let tls_module = tls_place.map(|place| place.module);
        let mut drafts = self.allocate(&laid)?;
        let placed = laid.place(drafts.placement(tls_place))?;
        let own = placed.definitions();
        let yielding = placed.preempted().map(|(place, at)| (place.definition, at));
        let mut entries = Vec::new();
        for (definition, address) in own.chain(yielding) {
            if definition.kind == LinkKind::Function {
                entries.push(address);
                let end = address + definition.size.max(1);
                self.add_body(address, end, static_name(definition.name));
            }
        }
        let bounds = placed.bounds();
        let bounds: Vec<Name> = bounds
            .map(|(name, address)| Name::strong(name, Definition::Address(address)))
            .collect();
        let mut names = names_of(&placed, tls_module, &image.hidden());
        let assembled = assembled.iter();
        let mut labelled: Vec<Labelled> = assembled
            .map(|one| Labelled::new(one, image.number, &placed, tls_module))
            .collect();
        names.extend(labelled.iter_mut().flat_map(Labelled::take_names));
        let preempted: Vec<(Box<str>, LinkKind, u64, u64)> = placed
            .preempted()
            .map(|(place, at)| (place.definition, at))
            .map(|(definition, at)| {
                let name = definition.name.into();
                (name, definition.kind, definition.size, at)
            })
            .collect();
        let mut uses = Uses::default();
        let mut against = Vec::new();
        let own = placed.definitions().map(|(definition, _)| definition);
        let variables: Vec<(String, u64)> = own
            .filter(|definition| definition.kind == LinkKind::Data)
            .map(|definition| (definition.name.to_owned(), definition.size))
            .collect();
        let functions: HashMap<u64, String> = match stay {
            Stay::Always => HashMap::new(),
            Stay::IfHeld => {
                let named = placed.functions();
                named.map(|(at, name)| (at, name.to_owned())).collect()
            }
        };
        let mut linked = placed.fix_up(|name, need| {
            let resolved = match own_address(name) {
                Some(address) => Resolved::at(address),
                None => self.resolve(dylib, name, need)?,
            };
            self.note_use(&resolved, &mut uses);
            if resolved.slot.is_none() && self.heap.contains(resolved.address) {
                against.push(resolved.address);
            }
            Some(resolved)
        })?;
        let starts = drafts.placement(tls_place);
        let stacks = &self.reclaim.stacks;
        entries.extend(linked.fdes.iter().map(|row| row.start));
        stacks.note_code(|| names_of_files(image), &linked.code, starts.code, entries);
        drafts.write(&linked)?;
        let memory = drafts.seal()?;
        self.register_rows(&linked.fdes, c"")?;
        let arrays = [&linked.preinit, &linked.init, &linked.fini];
        let runs = arrays.iter().any(|list| !list.is_empty()) || !linked.ifuncs.is_empty();
        let named = !names.is_empty() || !bounds.is_empty();
        let held = linked.escapes || runs || named || tls_place.is_some();
        let stays = stay == Stay::Always || held;
        // Before anybody can give it back.
        if let (Some(place), Some(template)) = (tls_place, linked.tls.take()) {
            tls::fill(place, template.image, template.size, template.align);
        }
        Self::keep_constants(tracker, image)?;
        let parts = Parts {
            memory,
            uses,
            thread_locals: ThreadLocals {
                place: tls_place,
                owned: tls_owned,
            },
            handle: None,
        };
        let holding = self.hold(tracker, image, parts, stays)?;
        let remaining = image.remaining.as_deref();
        self.define_names(tracker, remaining, names)?;
        self.names.define(tracker, bounds)?;
        labelled.into_iter().for_each(Labelled::publish);
        let files = image.objects.iter().map(|(name, _)| name.as_str());
        let files: Vec<&str> = files.collect();
        if !files.is_empty() {
            let variables = variables.iter().map(|(name, size)| (name.as_str(), *size));
            let files = files.join(", ");
            self.objects
                .add_image(image.number, dylib, variables, files, against);
        }
        let bytes = |at: u64, size: u64| -> Vec<u8> {
            let segments = [
                (starts.code, &linked.code),
                (starts.read_only, &linked.read_only),
                (starts.read_write, &linked.read_write),
            ];
            let inside = segments.iter().find_map(|(start, bytes)| {
                let from = usize::try_from(at.checked_sub(*start)?).ok()?;
                bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?)
            });
            inside.map(<[u8]>::to_vec).unwrap_or_default()
        };
        let mut bodies = HashMap::new();
        let mut yielded = Vec::new();
        for (name, kind, size, at) in preempted {
            match kind {
                LinkKind::Function => {
                    bodies.insert(name, at..at + size.max(1));
                }
                LinkKind::Data => yielded.push((name, bytes(at, size))),
                _ => {}
            }
        }
        let addresses = |list: &[uruk_link::Init]| -> Vec<(u32, u64)> {
            let pairs = list.iter();
            pairs
                .map(|init| (u32::from(init.priority), init.address))
                .collect()
        };
        Ok(LinkedImage {
            started: Started {
                preinit: linked.preinit.iter().map(|init| init.address).collect(),
                init: addresses(&linked.init),
                fini: addresses(&linked.fini),
                ifuncs: linked
                    .ifuncs
                    .iter()
                    .map(|ifunc| (ifunc.word, ifunc.resolver))
                    .collect(),
            },
            bodies,
            holding,
            functions,
            yielded,
        })
    }
}

fn names_of_files(image: &Image) -> String {
    let modules = image.modules.iter();
    let modules = modules.map(|(_, module)| module.readers.bitcode().name());
    let objects = image.objects.iter().map(|(name, _)| name.as_str());
    let all: Vec<&str> = modules.chain(objects).collect();
    all.join(", ")
}

/// What an image defines for others, but for what yields.
fn names_of(placed: &Placed<'_>, tls_module: Option<u64>, hidden: &HashSet<Box<str>>) -> Vec<Name> {
    let shared = placed.definitions().filter(|(d, _)| !weak::is_own(d));
    let names = shared.map(|(definition, address)| {
        let meaning = match (definition.kind, tls_module) {
            (LinkKind::Tls, Some(module)) => Definition::Tls {
                module,
                offset: address,
            },
            _ => Definition::Address(address),
        };
        Name {
            name: definition.name.into(),
            definition: meaning,
            weak: definition.binding != uruk_link::Binding::Strong,
            hidden: definition.hidden || hidden.contains(definition.name),
        }
    });
    names.collect()
}
