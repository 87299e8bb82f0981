//! Prepares the input of a replacement: code and data that are linked and checked, and not
//! referenced yet. An error here leaves the program unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use uruk_base::{FunctionId, Tier};
use uruk_codegen::{Bitcode, CodegenError, Kind, SymbolId};
use uruk_session::Dylib;
use uruk_tiering::Purpose;

use crate::code::body::Body;
use crate::code::body::ModuleFunction;
use crate::code::module::Module;
use crate::code::names::{Definition, NewName};
use crate::code::static_names::{LOCAL_MARKER, static_name};
use crate::error::Error;
use crate::fork::gate;
use crate::fork::sacrificial;
use crate::load::image::Image;
use crate::load::input::function_base;
use crate::load::labels;
use crate::load::source::InputSource;
use crate::replace::state::Replacing;
use crate::version::BodyOf;
use crate::version::build::Built;
use crate::version::request::Request;
use uruk_base::Mode;

use super::Replacement;
use super::commit::{Change, What};
use super::hooks::InputHooks;
use super::migrate::{Migration, Move};
use super::plan::Planned;
use super::staging::Staging;

/// Code that was built for a function, with its version number.
pub(super) struct BuiltCode {
    pub(super) request: Request,
    pub(super) built: Unused,
    pub(super) depends: Arc<[FunctionId]>,
}

/// Code that is not referenced yet; discarded unless it is taken.
pub(super) struct Unused {
    replacing: Weak<Replacing>,
    id: FunctionId,
    built: Option<Built>,
}

impl Unused {
    /// Address of the code.
    fn entry(&self) -> Option<u64> {
        self.built.as_ref().map(|built| built.entry)
    }

    /// The code, to be filed and published.
    pub(super) fn take(mut self) -> Option<Built> {
        self.built.take()
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let (Some(built), Some(replacing)) = (self.built.take(), self.replacing.upgrade()) {
            let _pass = gate::enter();
            replacing.discard(self.id, built.unit, built.code);
        }
    }
}

/// Everything that was prepared for a commit.
pub(super) struct Prepared {
    pub(super) changes: Vec<Change>,
    pub(super) names: ReportedNames,
    pub(super) hooks: InputHooks,
    pub(super) moves: Vec<Move>,
}

/// Names that are reported to the embedder.
pub(super) struct ReportedNames {
    /// Functions that are replaced.
    pub(super) functions: Vec<String>,
    pub(super) added: Vec<String>,
    pub(super) globals_added: Vec<String>,
    pub(super) globals_kept: Vec<String>,
    /// Local variables of an object: they begin anew.
    pub(super) locals_new: Vec<String>,
}

/// Differences from the old definitions that the caller allowed: signatures, parts, new types.
pub(super) struct Allowed {
    pub(super) signatures: bool,
    /// Threads in loops continue in the new body, after this replacement and the next.
    loops: bool,
    /// Replacing functions of objects in part.
    pub(super) parts: bool,
    pub(super) migrations: Vec<Migration>,
}

impl Allowed {
    pub(super) fn by(replacement: &Replacement) -> Allowed {
        Allowed {
            signatures: replacement.allow_signatures,
            loops: replacement.osr,
            parts: replacement.allow_parts,
            migrations: replacement.migrations.clone(),
        }
    }
}

impl Replacing {
    /// Prepares a replacement from its source, on the calling thread.
    pub(super) fn prepare_source(
        self: &Arc<Self>,
        dylib: &Dylib,
        source: InputSource,
        allowed: &Allowed,
        staging: &Staging,
    ) -> Result<Prepared, Error> {
        match source {
            InputSource::Text { file, text } => {
                let bitcode = Bitcode::from_ir_text(&file, &text)?;
                self.prepare_replacement(dylib, bitcode, allowed, staging)
            }
            InputSource::Bitcode(bitcode) => {
                self.prepare_replacement(dylib, bitcode, allowed, staging)
            }
            InputSource::Object { file, bytes } => {
                self.prepare_object(dylib, &file, &bytes, allowed, staging)
            }
            InputSource::Undefined(file) => Err(Error::UnknownFormat { file }),
            // No archive replaces anything.
            InputSource::Archive(archive) => Err(Error::UnknownFormat {
                file: archive.name.clone(),
            }),
        }
    }

    /// Reads, binds, checks, compiles and links, on the calling thread, which LLVM can
    /// take down.
    pub(super) fn prepare_replacement(
        self: &Arc<Self>,
        dylib: &Dylib,
        bitcode: Bitcode,
        allowed: &Allowed,
        staging: &Staging,
    ) -> Result<Prepared, Error> {
        let module = self.read_module(bitcode, dylib)?;
        let mut planned = self.plan_replacement(&module, &allowed.migrations)?;
        let module = self.plan_module(module, &mut planned, staging);
        self.check_replacement(&module, &planned, allowed)?;
        let image = Image {
            number: planned.image,
            life: Arc::clone(&module.life),
            late: true,
            modules: vec![(0, Arc::clone(&module))],
            ..Image::default()
        };
        self.define_added(&module, &planned, staging)?;
        self.check_missing(&image)?;
        // The constructors of the data are not run again.
        self.link_data(staging.session_tracker(), &image, Mode::Lazy)?;
        let (changes, entries) = self.compile_members(&module, &planned, allowed.loops)?;
        for id in staging.stubs() {
            let version = self.versions.ids.next();
            self.make_first(id, version)?;
        }
        let moves = self.moves(&module, &planned, &allowed.migrations)?;
        moves.iter().for_each(|step| staging.add_moved(&step.moved));
        self.bound
            .register(staging.session_tracker(), &image.modules)?;
        let summary = module.readers.summary();
        let name = |id: &SymbolId| summary.symbols[id.index()].name.clone();
        let functions = changes.iter();
        let functions = functions.map(|change| self.name_of(change.id).to_owned());
        let names = ReportedNames {
            functions: functions.collect(),
            added: planned.added.iter().map(name).collect(),
            globals_added: planned.new_data.iter().map(name).collect(),
            globals_kept: planned.kept.iter().map(name).collect(),
            locals_new: Vec::new(),
        };
        Ok(Prepared {
            changes,
            names,
            hooks: self.hooks_of(&module, &planned, &entries),
            moves,
        })
    }

    /// Completes the module with its plan, and with data of the modules it replaces: their life,
    /// and the names of their locals and labels.
    fn plan_module(
        &self,
        mut module: Module,
        planned: &mut Planned,
        staging: &Staging,
    ) -> Arc<Module> {
        let summary = module.readers.summary();
        self.plan_own(&module.dylib, summary, &mut planned.plan, planned.image);
        module.life = staging.begin_life(
            planned.members.iter().map(|&(id, _)| id),
            planned.migrating.iter().map(|it| it.old),
        );
        let numbered = format!("{LOCAL_MARKER}{}.", planned.image);
        let own = planned.plan.imports.iter().filter(|import| import.defined);
        own.filter(|import| import.name.contains(&numbered))
            .for_each(|import| staging.add_local(&import.name));
        module.inherited = planned.locals.clone();
        if let ([old], true) = (&*planned.old, planned.added.is_empty()) {
            module.constants = old.constants.clone();
        }
        module.set_plan(Arc::new(planned.plan.clone()));
        module.labels = labels::inherited(&planned.old);
        let module = Arc::new(module);
        self.modules.note(&module);
        module
    }

    /// Compiles and links the bodies of all members; returns also the entry of each.
    fn compile_members(
        self: &Arc<Self>,
        module: &Arc<Module>,
        planned: &Planned,
        osr: bool,
    ) -> Result<(Vec<Change>, HashMap<FunctionId, u64>), Error> {
        let mut changes = Vec::with_capacity(planned.members.len());
        let mut entries = HashMap::new();
        for &(id, symbol) in &planned.members {
            let name = self.display_name_of(id).unwrap_or(c"?");
            let function = ModuleFunction {
                module: Arc::clone(module),
                symbol,
                name,
                origin: None,
            };
            let body = BodyOf {
                id,
                function: function.clone(),
                plan: module.plan(),
                crosses: false,
            };
            let code = self.prepare_code(body, osr)?;
            entries.extend(code.built.entry().map(|entry| (id, entry)));
            changes.push(Change {
                id,
                body: Body::Module(function),
                next: What::Code(Box::new(code)),
            });
        }
        Ok((changes, entries))
    }

    /// Compiles and links a body for a function, at the tier it runs at, or as first code. It is at
    /// most tier 2: the profile for tier 3 was counted in another body. Over native code, first
    /// code is of tier 2, whose loops could never be left: with `osr` it starts at tier 1.
    fn prepare_code(self: &Arc<Self>, body: BodyOf, osr: bool) -> Result<BuiltCode, Error> {
        let versions = self.versions.seen(body.id);
        let tier = match versions.published() {
            _ if osr && self.choices.is_over_native() => self.tier_to_leave(),
            // Native code is replaced by the code with which functions begin besides it.
            Some(published) if published.tier == Tier::Native => self.first_in_exchange(),
            Some(published) => published.tier.min(Tier::Optimized),
            None => self.first_in_exchange(),
        };
        self.prepare_code_at(body, tier)
    }

    /// The tier of code that replaces native code, and of its dependents. An exchange compiles
    /// hundreds of functions, most of which rarely run: LLVM takes 7 ms for one of sqlite, the
    /// baseline compiler 0.07. Hot functions are promoted.
    pub(super) fn first_in_exchange(&self) -> Tier {
        match self.choices.is_over_native() && self.choices.is_auto() {
            true => Tier::Baseline,
            false => self.choices.first(),
        }
    }

    pub(super) fn prepare_code_at(
        self: &Arc<Self>,
        body: BodyOf,
        tier: Tier,
    ) -> Result<BuiltCode, Error> {
        let request = Request {
            ahead: false,
            function: body.id,
            version: self.versions.ids.next(),
            tier,
            purpose: Purpose::Change,
        };
        let started = self.events.now();
        let how = self.choices.how(tier);
        let built = self
            .build_body(body.clone(), how)
            // A refusal is not a failure: the caller compiles at another tier.
            .inspect_err(|cause| match cause.is_refusal() {
                true => {}
                false => self.tell_failed(request, cause),
            })?;
        self.counters
            .add_compile(false, built.compiling, built.linking, built.bytes);
        self.tell_compiled(request, &built, None, started);
        let depends = self.depends_of(&body.function, &body.plan, &built);
        Ok(BuiltCode {
            request,
            built: Unused {
                replacing: Arc::downgrade(self),
                id: body.id,
                built: Some(built),
            },
            depends,
        })
    }

    /// Gives new functions stubs, and defines new aliases.
    fn define_added(
        &self,
        module: &Arc<Module>,
        planned: &Planned,
        staging: &Staging,
    ) -> Result<(), Error> {
        let summary = module.readers.summary();
        let plan = &planned.plan;
        let mut names = Vec::new();
        for &symbol in &planned.added {
            let link_name = &plan.import(symbol).name;
            let id = self.stub_for(module, symbol, link_name)?;
            staging.add_stub(id);
            let function = ModuleFunction {
                module: Arc::clone(module),
                symbol,
                name: static_name(link_name),
                origin: None,
            };
            self.set_function(id, function);
            let name = NewName::strong(link_name.clone(), Definition::Function { id });
            names.push(name.hidden(summary.symbols[symbol.index()].hidden));
        }
        self.names.define(staging.session_tracker(), names)?;
        let mut names = Vec::new();
        for (index, info) in summary.symbols.iter().enumerate() {
            let import = plan.import(SymbolId(index as u32));
            if !matches!(info.kind, Kind::Alias { .. }) || !import.defined {
                continue;
            }
            let base = function_base(summary, SymbolId(index as u32));
            let meaning =
                base.and_then(|base| self.names.find(&module.dylib, &plan.import(base).name));
            if let Some(definition) = meaning {
                if let Definition::Function { id } = definition {
                    self.resolved_stub(id);
                }
                names.push(NewName::strong(import.name.clone(), definition).hidden(info.hidden));
            }
        }
        self.names.define(staging.session_tracker(), names)?;
        Ok(())
    }

    /// Runs `work` on a thread that LLVM can take down.
    pub(crate) fn on_compile_thread<R: Send + 'static>(
        self: &Arc<Self>,
        what: String,
        work: impl FnOnce(&Arc<Replacing>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let lost = {
            let replacing = Arc::clone(self);
            move |message: &str| {
                replacing.tell_lost(message);
                Error::Codegen(CodegenError::Fatal {
                    module: what.clone(),
                    unit: String::from("a replacement"),
                    message: message.to_owned(),
                })
            }
        };
        let replacing = Arc::clone(self);
        sacrificial::sacrificial("uruk-replace", lost, move || work(&replacing))
    }
}
