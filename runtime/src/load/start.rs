//! From sources to an image that can be started: load, check, link its data.

use std::sync::Arc;

use uruk_codegen::CodegenError;
use uruk_link::{Init, Linked};
use uruk_session::Tracker;

use crate::core::Core;
use crate::error::Error;
use crate::fork::gate;
use crate::fork::sacrificial::{sacrificial, spared};
use crate::load::Source;
use crate::load::archive::mentioned;
use crate::load::copies::Copied;
use crate::load::image::Image;
use crate::removal::bonds::Remaining;
use crate::units::Settled;
use uruk_base::Mode;

/// The actions that remain for the caller that starts an image.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) preinit: Vec<u64>,
    /// In running order, as are destructors.
    pub(crate) init: Vec<Init>,
    pub(crate) fini: Vec<Init>,
    /// By linked object: index of its file.
    pub(crate) files: Vec<usize>,
    /// Words to be filled with the result of a resolver.
    pub(crate) ifuncs: Vec<(u64, u64)>,
    /// Definitions of libraries that the program owns when it runs.
    pub(crate) copied: Vec<Copied>,
}

impl Started {
    pub(crate) fn of(linked: &Linked) -> Started {
        let ifuncs = linked.ifuncs.iter();
        Started {
            preinit: linked.preinit.iter().map(|init| init.address).collect(),
            init: linked.init.clone(),
            fini: linked.fini.clone(),
            files: Vec::new(),
            ifuncs: ifuncs.map(|ifunc| (ifunc.word, ifunc.resolver)).collect(),
            copied: Vec::new(),
        }
    }

    /// The file that requests a constructor or destructor.
    pub(crate) fn file(&self, init: &Init) -> usize {
        self.files.get(init.object).copied().unwrap_or(usize::MAX)
    }
}

impl Core {
    /// Binds `sources`, checks that no symbol is missing, and compiles and links their data, on a
    /// thread that LLVM may stop. Names that may remain when the image is removed are added to
    /// `remaining`. If data waits for names, nothing is left to start. The image's references are
    /// `settled` before any of it is linked.
    pub(crate) fn load_and_start(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<Source>,
        mode: Mode,
        settled: Option<Settled>,
    ) -> Result<(Image, Option<Started>), Error> {
        let (core, tracker) = (Arc::clone(self), tracker.clone());
        let file = sources
            .iter()
            .map(Source::name)
            .collect::<Vec<_>>()
            .join(", ");
        let lost = move |message: &str| {
            Error::Codegen(CodegenError::Fatal {
                module: file.clone(),
                unit: String::from("its data"),
                message: message.to_owned(),
            })
        };
        let no_bitcode = sources
            .iter()
            .all(|source| matches!(source, Source::Object { .. } | Source::Undefined(_)));
        let work = move || core.load_here(&tracker, remaining, sources, mode, settled);
        if no_bitcode {
            // LLVM is not involved, and a thread costs more than the link.
            let _pass = gate::enter();
            return work();
        }
        sacrificial("uruk-load", lost, work)
    }

    /// Like [`Core::load_and_start`], on the calling thread, where LLVM is refused; `None` if it is
    /// needed. The caller must then remove definitions under `tracker`.
    pub(crate) fn load_spared(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        source: &Source,
    ) -> Option<Result<(Image, Option<Started>), Error>> {
        if !source.may_be_spared() {
            return None;
        }
        spared(|| self.load_here(tracker, remaining, vec![source.clone()], Mode::Lazy, None))
    }

    /// Like [`Core::load_and_start`], on the calling thread.
    fn load_here(
        self: &Arc<Self>,
        tracker: &Tracker,
        remaining: Option<Arc<Remaining>>,
        sources: Vec<Source>,
        mode: Mode,
        settled: Option<Settled>,
    ) -> Result<(Image, Option<Started>), Error> {
        let mut image = self.load(tracker, remaining, sources, mode)?;
        if let Some(settled) = settled {
            settled.are(mentioned(&image)?);
        }
        self.check_host_types(&image)?;
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
