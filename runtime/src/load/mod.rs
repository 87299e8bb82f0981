//! From files to an image: read, bind, give every function its stub, check that no symbol is
//! missing, link its data. Functions are not compiled here, except in eager mode, which compiles
//! whole modules.
//!
//! | file | does |
//! |---|---|
//! | [`loader`] | the state: inputs that wait, constructors and destructors |
//! | [`start`], [`started`] | all steps, and the actions that remain when the image starts |
//! | [`source`], [`archive`], [`settled`], [`read`](self::read), [`untrusted`] | inputs, members of archives, symbol tables, inputs that a child reads first |
//! | [`bind`], [`input`], [`choose`], [`weak`], [`apart`], [`labels`], [`own`], [`edges`] | which definition of a name counts, and where it lies |
//! | [`image`], [`variables`](self::variables), [`placed`], [`copies`], [`objects`], [`holding`], [`bonds`] | one link of an image's data and objects, its memory and its names |
//! | [`hooks`] | constructors and destructors |
//! | [`missing`](self::missing), [`waiting`] | names without definition, inputs that wait for one |
//! | [`profile`](self::profile) | the runtime of clang's profiles |

pub(crate) mod apart;
pub(crate) mod archive;
pub(crate) mod bind;
pub(crate) mod bonds;
pub(crate) mod choose;
pub(crate) mod copies;
pub(crate) mod edges;
pub(crate) mod holding;
pub(crate) mod hooks;
pub(crate) mod image;
pub(crate) mod input;
pub(crate) mod labels;
pub(crate) mod loader;
mod missing;
pub(crate) mod objects;
pub(crate) mod own;
pub(crate) mod placed;
mod profile;
mod read;
pub(crate) mod settled;
pub(crate) mod source;
pub(crate) mod start;
pub(crate) mod started;
pub(crate) mod untrusted;
mod variables;
pub(crate) mod waiting;
pub(crate) mod weak;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::info;
use uruk_base::{FunctionId, Part};
use uruk_codegen::{Kind, Linkage, Placement, Structor, SymbolId};
use uruk_link::{Binding as LinkBinding, Graph, Kind as LinkKind, Object};
use uruk_session::{Dylib, Tracker};

use self::archive::Archives;
use crate::code::body::ModuleFunction;
use crate::code::bonds::Remaining;
use crate::code::counters::Counters;
use crate::code::life::Life;
use crate::code::module::Module;
use crate::code::names::{Definition, NewName};
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::load::hooks::{Hook, Target, priority_of};
use crate::load::image::Image;
use crate::load::input::Input;
use crate::load::input::ObjectSymbol;
use crate::load::input::function_base;
use crate::load::loader::Loader;
use crate::load::source::InputSource;
use uruk_base::Mode;

impl Loader {
    /// Binds `sources` to one image. Functions that will be compiled one by one are
    /// defined here; the others once they are linked.
    pub(crate) fn load(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<InputSource>,
        mode: Mode,
    ) -> Result<Image, Error> {
        let _reading = self.counters.parts.enter(Part::Reading);
        let dylib = &tracker.dylib();
        if dylib == self.names.host() {
            return Err(Error::ProcessDylib);
        }
        let start = Instant::now();
        let life: Arc<Life> = Arc::default();
        self.names.lives.note(tracker, &life);
        if let Some(remaining) = &remaining {
            remaining.note(&life);
        }
        let mut image = Image {
            life,
            remaining,
            ..Image::default()
        };
        let mut object_symbols = Vec::new();
        let mut archives = Archives::default();
        let (mut files, mut profiled) = (0, false);
        let mut sources = sources;
        while !sources.is_empty() {
            for source in sources {
                match source {
                    InputSource::Archive(archive) => archives.add(archive),
                    InputSource::Undefined(name) => archives.mention(name),
                    source => {
                        for source in source.modules() {
                            self.take(dylib, files, source, &mut image, &mut object_symbols)?;
                            files += 1;
                        }
                    }
                }
            }
            sources = archives.next(&image)?;
            if sources.is_empty() && !profiled && self.is_program() && profile::is_counted(&image)?
            {
                profiled = true;
                sources = profile::add_runtime(&mut archives, &image)?;
            }
        }
        let image = self.bind(tracker, image, &object_symbols, mode)?;
        if mode == Mode::Lazy {
            self.engines().read_ahead(&image.modules);
        }
        Counters::add_time(&self.counters.load_ns, start);
        info!(
            modules = image.modules.len(),
            objects = image.objects.len(),
            functions = self.counters.functions.load(Ordering::Relaxed),
            elapsed = ?start.elapsed(),
            "bound"
        );
        Ok(image)
    }

    /// Reads the symbol table of an input.
    fn take(
        &self,
        dylib: &Dylib,
        file: usize,
        source: InputSource,
        image: &mut Image,
        object_symbols: &mut Vec<(usize, Vec<ObjectSymbol>)>,
    ) -> Result<(), Error> {
        let mut module = match source {
            InputSource::Bitcode(bitcode) => self.read_module(bitcode, dylib)?,
            InputSource::Text { file, text } => self.read_text(&file, &text, dylib)?,
            InputSource::Object { file: name, bytes } => {
                object_symbols.push((file, object_definitions(&name, &bytes)?));
                image.objects.push((name, bytes));
                image.object_inputs.push(file);
                return Ok(());
            }
            // Members are taken separately.
            InputSource::Archive(_) | InputSource::Undefined(_) => return Ok(()),
        };
        module.life = Arc::clone(&image.life);
        let module = Arc::new(module);
        self.modules.note(&module);
        image.modules.push((file, module));
        Ok(())
    }

    fn bind(
        self: &Arc<Self>,
        tracker: &Tracker,
        mut image: Image,
        object_symbols: &[(usize, Vec<ObjectSymbol>)],
        mode: Mode,
    ) -> Result<Image, Error> {
        let dylib = &tracker.dylib();
        image.number = self.images.fetch_add(1, Ordering::Relaxed);
        self.number_locals(tracker, &image)?;
        let number = image.suffix();
        let binding = self.bind_inputs(dylib, &image, object_symbols)?;
        self.check_yielded(dylib, &image, object_symbols, &binding.yielded)?;
        let remaining = image.remaining.as_deref();
        self.bind_to(tracker, &image.life, remaining, &binding.yielded)?;
        if !image.objects.is_empty() {
            let yielded = binding.yielded.iter().map(|(name, _)| name.clone());
            image.discarded.extend(yielded);
        }
        image.apart = self.define_apart(tracker, remaining, binding.apart)?;
        let mut plans = binding.plans;
        for (file, module) in &image.modules {
            let mut plan = std::mem::take(&mut plans[*file]);
            self.plan_own(dylib, module.readers.summary(), &mut plan, number);
            module.set_plan(Arc::new(plan));
        }
        self.bound.register(tracker, &image.modules)?;
        let remaining = image.remaining.clone();
        for (_, module) in &image.modules {
            let count = self.define_functions(tracker, remaining.as_deref(), module, mode)?;
            self.counters.functions.fetch_add(count, Ordering::Relaxed);
            if mode == Mode::Eager {
                self.counters.compiled.fetch_add(count, Ordering::Relaxed);
            }
        }
        for (_, module) in &image.modules {
            self.define_aliases(tracker, remaining.as_deref(), module, &mut image.ifuncs)?;
        }
        for (file, module) in &image.modules {
            let lost = &binding.dropped_keys[*file];
            let summary = module.readers.summary();
            let hooks = |list: &[Structor]| hooks_of(*file, module, list, lost);
            image.constructors.extend(hooks(&summary.constructors));
            image.destructors.extend(hooks(&summary.destructors));
        }
        for (_, symbols) in object_symbols {
            self.note_object(dylib, &mut image, symbols);
        }
        Ok(image)
    }

    /// Notes the functions that an object defines, and its definitions that lost to functions with
    /// stubs.
    fn note_object(&self, dylib: &Dylib, image: &mut Image, symbols: &[ObjectSymbol]) {
        let functions = symbols.iter().filter(|symbol| !symbol.data);
        image
            .object_functions
            .extend(functions.map(|symbol| Box::from(&*symbol.name)));
        for symbol in symbols.iter().filter(|symbol| !symbol.strong) {
            if let Some(Definition::Function { .. }) = self.names.find(dylib, &symbol.name) {
                image.discarded.push(symbol.name.clone().into());
            }
        }
    }

    /// Chooses the definition of each name.
    fn bind_inputs(
        &self,
        dylib: &Dylib,
        image: &Image,
        object_symbols: &[(usize, Vec<ObjectSymbol>)],
    ) -> Result<bind::Binding, Error> {
        let mut inputs: Vec<(usize, Input<'_>)> = Vec::new();
        for (file, module) in &image.modules {
            let summary = module.readers.summary();
            inputs.push((
                *file,
                Input::Module {
                    file: module.readers.bitcode().name(),
                    summary,
                },
            ));
        }
        for ((file, symbols), (name, _)) in object_symbols.iter().zip(&image.objects) {
            inputs.push((
                *file,
                Input::Object {
                    file: name,
                    symbols,
                },
            ));
        }
        inputs.sort_by_key(|(file, _)| *file);
        let in_order: Vec<Input<'_>> = inputs.into_iter().map(|(_, input)| input).collect();
        let modules = image.modules.iter();
        let symbols = modules.flat_map(|(_, module)| &module.readers.summary().symbols);
        let of_objects = object_symbols.iter().flat_map(|(_, symbols)| symbols);
        let surroundings =
            self.surroundings(dylib, symbols, of_objects, image.remaining.as_deref());
        let provided = |name: &str| self.names.find(dylib, name).is_some();
        bind::bind(image.suffix(), &in_order, &provided, &surroundings)
    }

    /// Gives each function that the module defines a stub, unless it is compiled with the rest;
    /// returns their number.
    fn define_functions(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        module: &Arc<Module>,
        mode: Mode,
    ) -> Result<u64, Error> {
        let plan = module.plan();
        let mut names = Vec::new();
        let mut count = 0;
        for (index, info) in module.readers.summary().symbols.iter().enumerate() {
            let symbol = SymbolId(index as u32);
            let import = plan.import(symbol);
            if info.kind != Kind::Function || !import.defined {
                continue;
            }
            count += 1;
            if info.placement != Placement::Own || mode == Mode::Eager {
                continue;
            }
            let id = self.stub_for(module, symbol, &import.name)?;
            let name = static_name(&import.name);
            self.set_function(
                id,
                ModuleFunction {
                    module: Arc::clone(module),
                    symbol,
                    name,
                    origin: None,
                },
            );
            let definition = Definition::Function { id };
            let weak = info.linkage != Linkage::Strong && info.linkage != Linkage::Local;
            names.push(NewName {
                name: import.name.clone(),
                definition,
                weak,
                hidden: info.hidden,
            });
        }
        let functions = names.iter().filter_map(NewName::function).collect();
        tracker.attach(self.engines().removal_of(&module.life, functions))?;
        self.define_names(tracker, remaining, names)?;
        Ok(count)
    }

    /// Defines aliases of functions; ifuncs get a stub of their own.
    fn define_aliases(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        module: &Arc<Module>,
        ifuncs: &mut Vec<(FunctionId, Target)>,
    ) -> Result<(), Error> {
        let summary = module.readers.summary();
        let plan = module.plan();
        let mut names = Vec::new();
        let mut own = Vec::new();
        for (index, info) in summary.symbols.iter().enumerate() {
            let import = plan.import(SymbolId(index as u32));
            if !import.defined {
                continue;
            }
            let weak = info.linkage == Linkage::Weak;
            match info.kind {
                Kind::Alias { .. } => {
                    let Some(base) = function_base(summary, SymbolId(index as u32)) else {
                        continue;
                    };
                    let base = &plan.import(base).name;
                    if let Some(definition) = self.names.find(&module.dylib, base) {
                        if let Definition::Function { id } = definition {
                            self.resolved_stub(id);
                        }
                        names.push(NewName {
                            name: import.name.clone(),
                            definition,
                            weak,
                            hidden: info.hidden,
                        });
                    }
                }
                Kind::Ifunc {
                    resolver: Some(resolver),
                } => {
                    let Some(base) = function_base(summary, resolver) else {
                        continue;
                    };
                    let id = self.allocate_stub()?;
                    own.push(id);
                    let definition = Definition::Function { id };
                    names.push(NewName {
                        name: import.name.clone(),
                        definition,
                        weak,
                        hidden: info.hidden,
                    });
                    let resolver = plan.import(base).name.clone();
                    ifuncs.push((id, Target::Name(module.dylib.clone(), resolver)));
                }
                _ => {}
            }
        }
        tracker.attach(self.engines().removal_of(&module.life, own))?;
        self.define_names(tracker, remaining, names)?;
        Ok(())
    }
}

/// Constructors or destructors of a file, except those whose group or variable is `lost`.
fn hooks_of(file: usize, module: &Module, list: &[Structor], lost: &[bool]) -> Vec<Hook> {
    let summary = module.readers.summary();
    let plan = module.plan();
    let kept = list
        .iter()
        .filter(|entry| !entry.key.is_some_and(|key| lost[key.index()]));
    kept.filter_map(|entry| {
        let function = function_base(summary, entry.function)?;
        let name = plan.import(function).name.clone();
        Some(Hook {
            priority: priority_of(entry),
            file,
            target: Target::Name(module.dylib.clone(), name),
        })
    })
    .collect()
}

fn object_definitions(file: &str, bytes: &[u8]) -> Result<Vec<ObjectSymbol>, Error> {
    let graph = Graph::new(vec![Object::parse(file, bytes)?])?;
    let near = graph.reached_near();
    Ok(graph
        .places()
        .filter(|place| !weak::is_own(&place.definition))
        .map(|place| (place.definition, place.grouped))
        .map(|(d, grouped)| ObjectSymbol {
            name: d.name.to_owned(),
            strong: d.binding == LinkBinding::Strong && !grouped,
            common: d.binding == LinkBinding::Common,
            hidden: d.hidden,
            data: d.kind == LinkKind::Data,
            thread_local: d.kind == LinkKind::Tls,
            grouped,
            far: !near.contains(d.name),
            size: d.size,
        })
        .collect())
}
