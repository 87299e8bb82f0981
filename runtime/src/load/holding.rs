//! Takes the memory of a linked image into hold.

use std::sync::Arc;

use uruk_base::VersionId;
use uruk_heap::Sealed;
use uruk_reclaim::Fixed;
use uruk_session::Tracker;

use crate::code::blocks::{LinkedCode, NewBlock, Rest, split};
use crate::code::handles::Handle;
use crate::code::holding::Holding;
use crate::code::holding::HoldingParts;
use crate::code::holding::ImageThreadLocals;
use crate::code::holding::Retire;
use crate::code::holding::Uses;
use crate::code::sizes::Sizes;
use crate::error::Error;
use crate::host::listed::Listed;
use crate::host::mapping::Mapping;
use crate::load::image::Image;
use crate::load::loader::Loader;

/// The resources of an image that are held.
#[derive(Default)]
pub(crate) struct HeldParts {
    pub(crate) memory: Vec<Sealed>,
    /// Memory that it was linked against.
    pub(crate) uses: Uses,
    /// Bytes of its data that begin as zeros, and of its unwind records.
    pub(crate) zeros: usize,
    /// Memory of variables that are placed separately.
    pub(crate) apart: Arc<[Mapping]>,
    pub(crate) unwind: usize,
    pub(crate) thread_locals: ImageThreadLocals,
    /// Its place in the list of images, if it has one.
    pub(crate) listed: Option<Listed>,
    /// A handle that lies in the memory.
    pub(crate) handle: Option<Handle>,
    /// Whether it has constructors or destructors.
    pub(crate) runs: bool,
}

impl Loader {
    /// Makes the holding of memory of an image. The removal of `tracker` forgets the image; until
    /// then it holds the image if it `stays`. An image of functions alone has nothing to be held or
    /// forgotten: most replacements are such, and use the tracker of the functions they replaced.
    pub(crate) fn hold(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        parts: HeldParts,
        stays: bool,
    ) -> Result<Arc<Holding>, Error> {
        let HeldParts {
            runs,
            memory,
            uses,
            zeros,
            apart,
            unwind,
            thread_locals: ImageThreadLocals { place, owned },
            listed,
            handle,
        } = parts;
        let sizes = Sizes::of(&memory, zeros, unwind);
        let range = |memory: &Sealed| {
            let start = memory.address();
            start..start + memory.len() as u64
        };
        let apart_from_it = apart.iter().map(Mapping::range);
        let ranges = memory.iter().map(range).chain(apart_from_it).collect();
        let (code, data) = split(memory);
        let rest = Arc::new(Rest::new(data, None, uses).of_image(owned, listed, apart));
        let code = code.map(|memory| self.note_live(memory, &rest));
        let retired: Arc<dyn Retire> = Arc::clone(&self.notes) as _;
        let holding = self.owners.hold(HoldingParts {
            code: code.map(|version| (version, retired)),
            ranges,
            thread_locals: place.map(|place| place.module),
            life: Arc::clone(&image.life),
            sizes,
            handle,
            rest,
        });
        let hooks = image.constructors.len() + image.destructors.len() + image.ifuncs.len();
        if holding.is_known() || runs || hooks != 0 || !image.objects.is_empty() {
            self.bind_holding(tracker, image, &holding, stays)?;
        }
        Ok(holding)
    }

    /// Adds code of an image to the scanned code; returns its version in the table of code.
    fn note_live(&self, memory: Sealed, rest: &Arc<Rest>) -> VersionId {
        let version = self.versions.ids.next();
        let code = LinkedCode {
            memory,
            entry: 0,
            body_end: 0,
            text_size: 0,
            rows: Vec::new(),
            name: c"",
            unwind: 0,
            moves: None,
            rest: Arc::clone(rest),
        };
        self.notes.live(NewBlock {
            function: None,
            version,
            depends: Arc::default(),
            fixed: Some(Fixed::Referenced),
            code,
        });
        version
    }

    /// Makes the removal of `tracker` release an image: its memory once its life ends, its records
    /// once no image is bound to it.
    fn bind_holding(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        holding: &Arc<Holding>,
        stays: bool,
    ) -> Result<(), Error> {
        let held = stays.then(|| Arc::clone(holding));
        let loader = Arc::downgrade(self);
        tracker.attach(image.life.guard(move || {
            drop(held);
            if let Some(loader) = loader.upgrade() {
                loader.notes.start();
            }
        }))?;
        let loader = Arc::downgrade(self);
        let (number, thread_locals) = (image.number, holding.thread_locals());
        let life = Arc::clone(&image.life);
        tracker.attach(Box::new(move || {
            life.bonds.after(Box::new(move || {
                if let Some(loader) = loader.upgrade() {
                    loader.forget_image(number, thread_locals);
                }
            }));
        }))?;
        Ok(())
    }

    /// Drops constructors and destructors that did not run, and thread-locals.
    fn forget_image(&self, number: u64, thread_locals: Option<u64>) {
        self.schedule().forget(number);
        self.destructors().forget(number);
        self.objects.forget_image(number);
        if let Some(module) = thread_locals {
            self.names.forget_thread_locals(module);
        }
    }
}
