//! Binding as a value: [`Loader::bind`] finds out which definitions of an image's inputs count, and
//! [`Loader::enter`] is the one place where that changes the session.

use std::sync::Arc;

use uruk_base::{FunctionId, Mode};
use uruk_codegen::{Kind, Linkage, Placement, Structor, SymbolId};
use uruk_session::{Dylib, Tracker};

use crate::code::body::ModuleFunction;
use crate::code::bonds::Remaining;
use crate::code::module::Module;
use crate::code::names::{Definition, NewName};
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::load::bind::{self, Binding};
use crate::load::hooks::{Hook, Target, priority_of};
use crate::load::image::Image;
use crate::load::input::{Input, ObjectSymbol, function_base};
use crate::load::loader::Loader;

/// Definitions in the object files of an image, with the index of the input.
pub(super) type ObjectSymbols = Vec<(usize, Vec<ObjectSymbol>)>;

/// The inputs of an image, bound. None of their names is defined yet.
pub(super) struct BoundImage {
    image: Image,
    choice: Binding,
    object_symbols: ObjectSymbols,
}

impl Loader {
    /// Binds the inputs of an image: all that is found out about them, and what of them counts. Only
    /// the image's number is taken in the session.
    pub(super) fn bind(
        self: &Arc<Self>,
        tracker: &Tracker,
        mut image: Image,
        object_symbols: ObjectSymbols,
    ) -> Result<BoundImage, Error> {
        let dylib = &tracker.dylib();
        image.number = self.next_image();
        self.number_locals(tracker, &image)?;
        let mut choice = self.bind_inputs(dylib, &image, &object_symbols)?;
        self.check_yielded(dylib, &image, &object_symbols, &choice.yielded)?;
        for (file, module) in &image.modules {
            let plan = &mut choice.plans[*file];
            self.plan_own(dylib, module.readers.summary(), plan, image.suffix());
        }
        Ok(BoundImage {
            image,
            choice,
            object_symbols,
        })
    }

    /// Enters a bound image: its names are defined, and functions that are compiled one by one get
    /// their stubs.
    pub(super) fn enter(
        self: &Arc<Self>,
        tracker: &Tracker,
        bound: BoundImage,
        mode: Mode,
    ) -> Result<Image, Error> {
        let BoundImage {
            mut image,
            choice,
            object_symbols,
        } = bound;
        let dylib = &tracker.dylib();
        let remaining = image.remaining.clone();
        let remaining = remaining.as_deref();
        self.bind_to(tracker, &image.life, remaining, &choice.yielded)?;
        if !image.objects.is_empty() {
            let yielded = choice.yielded.into_iter().map(|(name, _)| name);
            image.discarded.extend(yielded);
        }
        image.apart = self.define_apart(tracker, remaining, choice.apart)?;
        let mut plans = choice.plans;
        for (file, module) in &image.modules {
            module.set_plan(Arc::new(std::mem::take(&mut plans[*file])));
        }
        self.bound.register(tracker, &image.modules)?;
        for (_, module) in &image.modules {
            let count = self.define_functions(tracker, remaining, module, mode)?;
            self.counters.defined(count, mode);
        }
        for (_, module) in &image.modules {
            self.define_aliases(tracker, remaining, module, &mut image.ifuncs)?;
        }
        for (file, module) in &image.modules {
            let lost = &choice.dropped_keys[*file];
            let summary = module.readers.summary();
            let hooks = |list: &[Structor]| hooks_of(*file, module, list, lost);
            image.constructors.extend(hooks(&summary.constructors));
            image.destructors.extend(hooks(&summary.destructors));
        }
        for (_, symbols) in &object_symbols {
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
