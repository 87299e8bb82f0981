//! Links the data of an image, and makes its definitions known.

use super::Image;
use super::LinkedImage;
use crate::code::find::label_space;
use crate::code::holding::ImageThreadLocals;
use crate::code::holding::Uses;
use crate::code::names::Definition;
use crate::code::objects::ObjectCode;
use crate::code::objects::Stubbed;
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::host::listed::{self, Listed, VariableRanges};
use crate::host::tls;
use crate::load::holding::HeldParts;
use crate::load::image::names_of_files;
use crate::load::labels::{AssemblyModule, Labelled};
use crate::load::loader::Loader;
use crate::load::objects::object_files;
use crate::load::own::OwnDefinitions;
use crate::load::placed::{
    ImageExports, PlacedImage, Preempted, Stay, extents_of, of_thread_locals, variables_of,
};
use crate::load::started::Started;
use crate::load::variables::{Part, PartContent, Ready, lay_out};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tracing::info;
use uruk_base::Mode;
use uruk_base::Part as Phase;
use uruk_heap::Sealed;
use uruk_link::Linked;
use uruk_link::{Graph, Hint, Kind as LinkKind, LayoutOptions, Need, Placed, Resolved};
use uruk_session::{Dylib, Tracker};

/// The definitions against which an image was linked.
#[derive(Default)]
struct Against {
    uses: Uses,
    /// Addresses of variables in the heap.
    addresses: Vec<u64>,
}

impl Against {
    fn note(&mut self, loader: &Loader, resolved: &Resolved) {
        loader
            .owners
            .note_use(resolved, &loader.heap, &mut self.uses);
        if resolved.slot.is_none() && loader.heap.contains(resolved.address) {
            self.addresses.push(resolved.address);
        }
    }
}

impl Loader {
    /// Compiles and links the data of an image, with its object files, as one. Functions of
    /// object files get stubs, unless everything is compiled ahead.
    pub(crate) fn link_data(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        mode: Mode,
    ) -> Result<Started, Error> {
        let _data = self.counters.parts.enter(Phase::Data);
        let start = Instant::now();
        let (mut objects, assembled) = self.compile_modules(image, mode)?;
        let mut ours = objects.len();
        for ((name, bytes), input) in image.objects.iter().zip(&image.object_inputs) {
            objects.push(Part::of_file(*input, name.clone(), (&**bytes).into()));
        }
        if self.layers.changes_objects() {
            for part in &mut objects {
                if let PartContent::File(bytes) = &mut part.content {
                    *bytes = self.layers.object(&part.name, bytes.to_vec())?.into();
                }
            }
        }
        let ready = objects.iter().map(Part::ready);
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        let parsed = ready.iter().map(Ready::object);
        let mut parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let copies = self.copies(&tracker.dylib(), image, &parsed);
        let defined = copies.define()?;
        let defined = defined.objects();
        ours += defined.len();
        let at = objects.len() - image.objects.len();
        let mut inputs: Vec<usize> = objects.iter().map(|part| part.file).collect();
        inputs.splice(at..at, defined.iter().map(|_| usize::MAX));
        drop(parsed.splice(at..at, defined));
        let files = object_files(&parsed[ours..]);
        let mut graph = Graph::new(parsed)?;
        let all = objects.iter().map(|part| part.name.as_str());
        self.layers
            .link(&all.collect::<Vec<_>>().join(", "), &mut graph)?;
        for name in &image.discarded {
            graph.discard(name);
        }
        let functions = match mode {
            Mode::Lazy if !files.is_empty() => {
                self.stub_objects(tracker, image, &mut graph, ours, files)?
            }
            _ => HashMap::new(),
        };
        let linked = self.link_image(tracker, image, graph, &assembled, Stay::Always)?;
        let mut started = self.publish_objects(functions, linked)?;
        started.files = inputs;
        started.copied = copies.copied();
        self.counters.linked_data(start);
        info!(objects = objects.len(), elapsed = ?start.elapsed(), "linked the data");
        Ok(started)
    }

    /// Compiles the parts of an image's modules that are not compiled function by function: one
    /// object each, with a flag whether it contains assembly. Where tier 1 works without LLVM, data
    /// does, unless an embedder inspects object files.
    fn compile_modules<'i>(
        &self,
        image: &'i Image,
        mode: Mode,
    ) -> Result<(Vec<Part<'i>>, Vec<AssemblyModule>), Error> {
        let mut objects: Vec<Part<'i>> = Vec::new();
        let mut assembled = Vec::new();
        let alone = mode == Mode::Lazy && self.baseline.is_on() && !self.layers.changes_objects();
        for (number, module) in &image.modules {
            let name = module.readers.bitcode().name().to_owned();
            if alone && let Some(data) = lay_out(module) {
                objects.extend(data.map(|data| Part {
                    name,
                    file: *number,
                    content: PartContent::Laid(data),
                }));
                continue;
            }
            let mut reader = module.readers.reader()?;
            let object = match mode {
                Mode::Eager => reader.compile_everything(&module.plan())?,
                Mode::Lazy => reader.compile_data(&module.plan())?,
            };
            if mode == Mode::Lazy && module.readers.summary().has_inline_asm {
                assembled.push(AssemblyModule {
                    module: Arc::clone(module),
                    file: *number,
                    object: objects.len(),
                });
            }
            objects.extend(object.map(|bytes| Part::of_file(*number, name, bytes.into())));
        }
        Ok((objects, assembled))
    }

    /// Makes the stubs of functions of object files lead to their bodies.
    fn publish_objects(
        &self,
        functions: Stubbed,
        mut linked: LinkedImage,
    ) -> Result<Started, Error> {
        for (name, (id, file)) in functions {
            // Aliases share a stub and its code.
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
        Ok(linked.started)
    }

    /// Links a graph and makes `tracker` hold it; functions of `assembled` modules get their
    /// labels.
    pub(crate) fn link_image(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        graph: Graph<'_>,
        assembled: &[AssemblyModule],
        stay: Stay,
    ) -> Result<LinkedImage, Error> {
        let dylib = &tracker.dylib();
        let is_function = |name: &str| {
            let own = self.names.find_own(dylib, name);
            matches!(own, Some(Definition::Function { .. }))
        };
        let placed = self.place_image(tracker, image, graph, &is_function)?;
        let edges = self.edges(&placed.placed);
        let mut named = ImageExports::of(image, &placed, assembled);
        let modules = || image.modules.iter().map(|(_, module)| &**module);
        let own = self.edge_names(dylib, image, &edges);
        named.bounds.extend(own);
        named.bounds.retain(|it| !self.is_native(dylib, &it.name));
        let resolve = |name: &str, need| {
            let edge = || edges.find(name).filter(|_| self.is_linkers(dylib, name));
            (label_space(&self.heap, modules(), name))
                .or_else(|| edge().map(Resolved::at))
                .or_else(|| self.resolve(dylib, name, need))
        };
        let linked = self.finish_image(tracker, image, placed, stay, named.any(), resolve)?;
        let ImageExports {
            names,
            bounds,
            labelled,
        } = std::mem::take(&mut named);
        self.define_names(tracker, image.remaining.as_deref(), names)?;
        self.names.define(tracker, bounds)?;
        labelled.into_iter().for_each(Labelled::publish);
        Ok(linked)
    }

    /// Places a whole graph, without writing it. `is_function` tells which names are known to be
    /// stubs.
    pub(crate) fn place_image<'g>(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        graph: Graph<'g>,
        is_function: &dyn Fn(&str) -> bool,
    ) -> Result<PlacedImage<'g>, Error> {
        let dylib = &tracker.dylib();
        let own = self.provide_own(tracker, image, &graph)?;
        let laid = graph.layout_with(&LayoutOptions::default(), |name| {
            if self.own_address(own.as_ref(), dylib, name).is_some() {
                return Hint::Near;
            }
            match is_function(name) {
                // Stubs and slots are in the reservation.
                true => Hint::Near,
                false => Hint::Unknown,
            }
        })?;
        // Threads that already run have no copy of later thread-locals.
        let early = self.is_program() && !image.late;
        let tls_place = match laid.tls() {
            Some(shape) => Some({
                match tls::place(shape.size, shape.align, early) {
                    Err(cause) if self.engines().reclaim_for_slots(&cause) => {
                        tls::place(shape.size, shape.align, early)?
                    }
                    place => place?,
                }
            }),
            None => None,
        };
        let is_fixed = tls_place.is_some_and(|place| place.static_offset.is_some());
        let unfixed = laid.tls().filter(|_| early && !is_fixed);
        let unfixed = unfixed.map(|shape| (shape.size, shape.align));
        // Freed if the link fails.
        let tls_owned = tls_place.and_then(tls::OwnedSlot::new);
        let drafts = self.allocate(&laid)?;
        let placed = laid.place(drafts.placement(tls_place))?;
        Ok(PlacedImage {
            own,
            thread_locals: ImageThreadLocals {
                place: tls_place,
                owned: tls_owned,
            },
            unfixed,
            drafts,
            placed,
        })
    }

    /// The address of a name, if each image has its own definition of it.
    fn own_address(&self, own: Option<&OwnDefinitions>, dylib: &Dylib, name: &str) -> Option<u64> {
        let address = own?.find(name)?;
        self.is_own(dylib, name).then_some(address)
    }

    /// Fixes an image up with the results of `resolve`, writes it and makes it findable. `named`
    /// says whether it exports names.
    pub(crate) fn finish_image(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        placed: PlacedImage<'_>,
        stay: Stay,
        named: bool,
        mut resolve: impl FnMut(&str, Need) -> Option<Resolved>,
    ) -> Result<LinkedImage, Error> {
        let PlacedImage {
            own,
            thread_locals,
            unfixed,
            mut drafts,
            placed,
        } = placed;
        let dylib = &tracker.dylib();
        let mut entries = self.note_bodies(&placed);
        let preempted = Preempted::of(&placed);
        let variables = variables_of(&placed);
        let extents = extents_of(&placed, self.is_program());
        let functions = stay.functions(&placed);
        let mut against = Against::default();
        let linked = placed.fix_up(|name, need| {
            let resolved = match self.own_address(own.as_ref(), dylib, name) {
                Some(address) => Resolved::at(address),
                None => resolve(name, need)?,
            };
            against.note(self, &resolved);
            Some(resolved)
        });
        let mut linked = linked.map_err(|cause| of_thread_locals(cause, unfixed))?;
        let starts = drafts.placement(thread_locals.place);
        entries.extend(linked.fdes.iter().map(|row| row.start));
        let stacks = &self.stacks;
        stacks.note_code(|| names_of_files(image), &linked.code, starts.code, entries);
        drafts.write(&linked)?;
        let (zeros, memory) = (drafts.zeros(), drafts.seal()?);
        self.register_rows(&linked.fdes, c"")?;
        let runs = runs_code(&linked);
        let held = linked.escapes || runs || named || thread_locals.place.is_some();
        let stays = stay == Stay::Always || held;
        // Before any owner can free it.
        if let (Some(place), Some(template)) = (thread_locals.place, linked.tls.take()) {
            tls::fill(place, template.image, template.size, template.align);
        }
        keep_constants(tracker, image)?;
        let listed = self.list(image, &memory, zeros, thread_locals.place, extents);
        let parts = HeldParts {
            listed,
            memory,
            uses: against.uses,
            zeros,
            apart: Arc::clone(&image.apart),
            unwind: linked.eh_frame.as_ref().map_or(0, |records| records.size),
            thread_locals,
            handle: None,
            runs,
        };
        let holding = self.hold(tracker, image, parts, stays)?;
        self.note_variables(image, dylib, variables, against.addresses);
        let (bodies, yielded) = preempted.told(&linked, &starts);
        Ok(LinkedImage {
            started: Started::of(&linked),
            bodies,
            holding,
            functions,
            yielded,
        })
    }

    /// Lists an image for libraries that search data, if the session lists images.
    fn list(
        &self,
        image: &Image,
        memory: &[Sealed],
        zeros: usize,
        thread_locals: Option<tls::TemplatePlace>,
        variables: VariableRanges,
    ) -> Option<Listed> {
        if !self.lists_images() {
            return None;
        }
        let shape = listed::ImageShape {
            memory,
            zeros,
            apart: &image.apart,
            thread_locals,
            variables,
            main: self.is_program() && !image.late,
        };
        Listed::new(&names_of_files(image), shape)
    }

    /// Notes the variables of an image with object files, and those it was linked against.
    fn note_variables(
        &self,
        image: &Image,
        dylib: &Dylib,
        variables: Vec<(String, u64)>,
        against: Vec<u64>,
    ) {
        let files = image.objects.iter().map(|(name, _)| name.as_str());
        let files: Vec<&str> = files.collect();
        if !files.is_empty() {
            let variables = variables.iter().map(|(name, size)| (name.as_str(), *size));
            let files = files.join(", ");
            self.objects
                .add_image(image.number, dylib, variables, files, against);
        }
    }

    /// Records the extents of an image's functions; returns their entries.
    fn note_bodies(&self, placed: &Placed<'_>) -> Vec<u64> {
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
        entries
    }
}

/// Makes `tracker` hold the constants of an image's functions until it is removed.
fn keep_constants(tracker: &Tracker, image: &Image) -> Result<(), Error> {
    let modules = image.modules.iter();
    let held = modules.filter_map(|(_, module)| module.constants.hand_over());
    let held: Vec<_> = held.collect();
    if !held.is_empty() {
        tracker.attach(image.life.guard(move || drop(held)))?;
    }
    Ok(())
}

/// Whether an image has constructors, destructors or resolvers.
fn runs_code(linked: &Linked) -> bool {
    let arrays = [&linked.preinit, &linked.init, &linked.fini];
    arrays.iter().any(|list| !list.is_empty()) || !linked.ifuncs.is_empty()
}
