//! From files to an image: read, bind, give every function its stub, check that no symbol is
//! missing, link its data. Functions are not compiled here, except in eager mode, which compiles
//! whole modules.
//!
//! | file | does |
//! |---|---|
//! | [`loader`] | the state: inputs that wait, constructors and destructors |
//! | [`start`], [`started`] | all steps, and the actions that remain when the image starts |
//! | [`source`], [`archive`], [`settled`], [`untrusted`] | inputs, members of archives, inputs that a child reads first |
//! | [`bound`](self::bound) | binding as a value, and its entry into the session |
//! | [`bind`], [`input`], [`choose`], [`weak`], [`apart`], [`labels`], [`own`], [`edges`] | which definition of a name counts, and where it lies |
//! | [`image`], [`variables`](self::variables), [`placed`], [`copies`], [`objects`], [`holding`], [`bonds`] | one link of an image's data and objects, its memory and its names |
//! | [`hooks`] | constructors and destructors |
//! | [`missing`](self::missing), [`waiting`] | names without definition, inputs that wait for one |
//! | [`profile`](self::profile) | the runtime of clang's profiles |

pub(crate) mod apart;
pub(crate) mod archive;
pub(crate) mod bind;
pub(crate) mod bonds;
mod bound;
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
pub(crate) mod settled;
pub(crate) mod source;
pub(crate) mod start;
pub(crate) mod started;
pub(crate) mod untrusted;
mod variables;
pub(crate) mod waiting;
pub(crate) mod weak;

use std::sync::Arc;
use std::time::Instant;

use tracing::info;
use uruk_base::{Mode, Part};
use uruk_codegen::{Bitcode, ReaderPool};
use uruk_link::{Binding as LinkBinding, Graph, Kind as LinkKind, Object};
use uruk_session::{Dylib, Tracker};

use self::archive::Archives;
use self::bound::ObjectSymbols;
use crate::code::bonds::Remaining;
use crate::code::life::Life;
use crate::code::module::Module;
use crate::error::Error;
use crate::load::image::Image;
use crate::load::input::ObjectSymbol;
use crate::load::loader::Loader;
use crate::load::source::InputSource;

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
        let mut object_symbols = ObjectSymbols::new();
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
        let bound = self.bind(tracker, image, object_symbols)?;
        let image = self.enter(tracker, bound, mode)?;
        if mode == Mode::Lazy {
            self.engines().read_ahead(&image.modules);
        }
        self.counters.loaded(start);
        info!(
            modules = image.modules.len(),
            objects = image.objects.len(),
            functions = self.counters.functions(),
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
        object_symbols: &mut ObjectSymbols,
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

    /// Reads the symbol table of `bitcode`.
    pub(crate) fn read_module(&self, bitcode: Bitcode, dylib: &Dylib) -> Result<Module, Error> {
        let read = match self.baseline.is_on() {
            true => ReaderPool::without_llvm,
            false => ReaderPool::new,
        };
        let bitcode = self.layers.looking(bitcode)?;
        let readers = read(bitcode, self.readers, &self.reading_room)?;
        Ok(self.read_by(readers, dylib))
    }

    /// Like [`Loader::read_module`], for IR text.
    pub(super) fn read_text(&self, file: &str, text: &str, dylib: &Dylib) -> Result<Module, Error> {
        if self.layers.look.is_some() {
            return self.read_module(Bitcode::from_ir_text(file, text)?, dylib);
        }
        let readers = ReaderPool::from_ir_text(file, text, self.readers, &self.reading_room)?;
        Ok(self.read_by(readers, dylib))
    }

    fn read_by(&self, readers: ReaderPool, dylib: &Dylib) -> Module {
        let state = self.engines().state_for(readers.bitcode().name());
        Module::new(readers, dylib, state)
    }
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
