//! From sources to an image that can be started: load, check, link its data.

use std::sync::Arc;

use uruk_codegen::CodegenError;
use uruk_session::Tracker;

use crate::code::bonds::Remaining;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::sacrificial::{sacrificial, spared};
use crate::load::image::Image;
use crate::load::loader::Loader;
use crate::load::settled::Settled;
use crate::load::source::InputSource;
use crate::load::started::Started;
use std::collections::HashSet;
use uruk_base::Mode;
use uruk_codegen::Linkage;
use uruk_link::{Graph, Object};

impl Loader {
    /// Binds `sources`, checks that no symbol is missing, and compiles and links their data, on a
    /// thread that LLVM may stop. Names that may remain when the image is removed are added to
    /// `remaining`. If data waits for names, nothing is left to start. The image's references are
    /// `settled` before any of it is linked.
    pub(crate) fn load_and_start(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<InputSource>,
        mode: Mode,
        settled: Option<Settled>,
    ) -> Result<(Image, Option<Started>), Error> {
        let (loader, tracker) = (Arc::clone(self), tracker.clone());
        let file = sources
            .iter()
            .map(InputSource::name)
            .collect::<Vec<_>>()
            .join(", ");
        let lost = move |message: &str| {
            Error::Codegen(CodegenError::Fatal {
                module: file.clone(),
                unit: String::from("its data"),
                message: message.to_owned(),
            })
        };
        let no_bitcode = sources.iter().all(|source| {
            matches!(
                source,
                InputSource::Object { .. } | InputSource::Undefined(_)
            )
        });
        let work = move || loader.load_here(&tracker, remaining, sources, mode, settled);
        if no_bitcode {
            // LLVM is not involved, and a thread costs more than the link.
            let _pass = gate::enter();
            return work();
        }
        sacrificial("uruk-load", lost, work)
    }

    /// Like [`Loader::load_and_start`], on the calling thread, where LLVM is refused; `None` if it is
    /// needed. The caller must then remove definitions under `tracker`.
    pub(crate) fn load_spared(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        source: &InputSource,
    ) -> Option<Result<(Image, Option<Started>), Error>> {
        if !source.may_be_spared() {
            return None;
        }
        spared(|| self.load_here(tracker, remaining, vec![source.clone()], Mode::Lazy, None))
    }

    /// Like [`Loader::load_and_start`], on the calling thread.
    fn load_here(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<InputSource>,
        mode: Mode,
        settled: Option<Settled>,
    ) -> Result<(Image, Option<Started>), Error> {
        let mut image = self.load(tracker, remaining, sources, mode)?;
        if let Some(settled) = settled {
            settled.are(mentioned(&image)?);
        }
        self.engines().check_modules(&image.modules)?;
        match self.check_missing(&image) {
            Err(Error::MissingSymbols { missing }) if self.waiting.is_allowed(&tracker.dylib()) => {
                let number = image.number;
                let init = self.wait_with_data(tracker, &mut image, &missing)?;
                self.note_waiting(tracker, number, missing, init)?;
                if init.is_some() {
                    return Ok((image, None));
                }
            }
            checked => checked?,
        }
        let started = self.link_data(tracker, &image, mode)?;
        Ok((image, Some(started)))
    }
}

/// Names that files of an image reference.
///
/// # Errors
/// An object file cannot be read.
pub(crate) fn mentioned(image: &Image) -> Result<HashSet<String>, Error> {
    let mut mentioned = HashSet::new();
    for (_, module) in &image.modules {
        let symbols = module.readers.summary().symbols.iter();
        let declared = symbols
            .filter(|info| matches!(info.linkage, Linkage::Declared | Linkage::DeclaredWeak));
        mentioned.extend(declared.map(|info| info.name.clone()));
    }
    for (name, bytes) in &image.objects {
        let graph = Graph::new(vec![Object::parse(name, bytes)?])?;
        mentioned.extend(graph.undefined().map(|undefined| undefined.name.to_owned()));
    }
    Ok(mentioned)
}
