//! Runs constructors and destructors of images.

use super::DestructorPlace;
use super::ImageHooks;
use crate::code::life::Life;
use crate::error::Error;
use crate::exits::record::ImageDestructors;
use crate::fork::gate;
use crate::fork::panics::caught;
use crate::fork::shield;
use crate::fork::threads;
use crate::guarded::guard;
use crate::guarded::passes::Limits;
use crate::load::image::Image;
use crate::load::loader::Loader;
use crate::load::started::Started;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use uruk_session::SessionError;

/// Calls a constructor without arguments. A C++ exception that leaves it ends the process by
/// `std::terminate`, as in a native program.
///
/// # Safety
/// The address is that of a constructor, whose code may run on this thread.
///
/// # Errors
/// An error or panic of a function of the host, or a trap.
pub(crate) unsafe fn construct(address: u64) -> Result<(), Error> {
    let empty = [std::ptr::null()];
    caught(|| {
        // SAFETY: by the caller's promise.
        let call =
            || unsafe { uruk_stubs::call_structor(address, 0, empty.as_ptr(), empty.as_ptr()) };
        let ended = guard::run(Limits::default(), call);
        ended.map_err(|trap| Error::Trap(Box::new(trap)))
    })
}

impl Loader {
    /// Schedules constructors for the next initialization.
    pub(crate) fn note_hooks(&self, image: &Image, started: &Started) {
        let hooks = ImageHooks::of(self, image, started);
        self.schedule().add(hooks);
    }

    /// Calls a destructor. In a program it is called natively; elsewhere its failure is reported,
    /// as no caller waits for it, and the remaining destructors still run.
    ///
    /// # Safety
    /// The address is that of a destructor, whose code may run on this thread.
    pub(crate) unsafe fn destroy(&self, address: u64) {
        if self.is_program() {
            // SAFETY: by the caller's promise.
            return unsafe { uruk_stubs::call_void(address) };
        }
        // SAFETY: by the caller's promise; a destructor takes no arguments, and ignores those it
        // gets.
        if let Err(cause) = unsafe { construct(address) } {
            let name = {
                let _pass = gate::enter();
                self.name_at(address)
            };
            let name = name.as_deref().unwrap_or("?");
            let context = format!("the destructor {name}");
            self.names
                .session()
                .report(&SessionError::unit(&context, cause));
        }
    }
}

impl Loader {
    /// Adds destructors of an image, with their priorities and in running order, after its
    /// constructors have run. Those of an image that was removed meanwhile are not called any more.
    pub(crate) fn note_destructors(&self, image: u64, life: &Arc<Life>, of: &[(u32, u64)]) {
        let _pass = gate::enter();
        let initialization = self.destructors().begin();
        self.note_destructors_of(initialization, image, life, of);
    }

    /// Like [`Loader::note_destructors`], for one of several images that are initialized together.
    /// Under a pass.
    fn note_destructors_of(
        &self,
        initialization: u64,
        image: u64,
        life: &Arc<Life>,
        of: &[(u32, u64)],
    ) {
        let life = life.root();
        let mut destructors = self.destructors();
        if life.is_closed() {
            return;
        }
        let number = life.number();
        let all = of.iter().enumerate().map(|(index, &(priority, address))| {
            let place = DestructorPlace {
                initialization,
                priority,
                image,
                index: Reverse(index),
            };
            (place, (number, address))
        });
        destructors.left.extend(all);
    }

    /// Runs the due constructors of the images selected by `wanted`, by the numbers of their lives.
    /// The order is by priority over all of them; of equal ones, those of the image that was added
    /// first.
    ///
    /// # Safety
    /// Their code may run, on this thread.
    ///
    /// # Errors
    /// The error of the first constructor that fails: its image is not initialized, the others stay
    /// due with their remaining constructors.
    pub(crate) unsafe fn run_due(&self, wanted: &dyn Fn(u64) -> bool) -> Result<(), Error> {
        // They are taken out before one runs, which may call this function, or add others.
        loop {
            let together = {
                let _pass = gate::enter();
                let images = self.schedule().take(wanted);
                Together {
                    loader: self,
                    initialization: self.destructors().begin(),
                    images: images.into_iter().map(Some).collect(),
                }
            };
            if together.images.is_empty() {
                return Ok(());
            }
            // SAFETY: by the caller's promise.
            unsafe { together.run()? };
        }
    }

    /// Takes out the next destructor of the images selected by `wanted`, see [`Destructors::next`].
    pub(crate) fn next_destructor(&self, wanted: impl Fn(u64, u64) -> bool) -> Option<u64> {
        let _pass = gate::enter();
        self.destructors().next(wanted)
    }

    /// Whether destructors are left of images with a selected life. Under a pass.
    pub(in crate::load) fn has_destructors(&self, wanted: impl Fn(u64) -> bool) -> bool {
        self.destructors().are_left(wanted)
    }
}

/// Images that are initialized together. On drop the remaining ones become due again.
struct Together<'c> {
    loader: &'c Loader,
    initialization: u64,
    /// Without those that are done.
    images: Vec<Option<ImageHooks>>,
}

impl Together<'_> {
    /// Calls the resolvers, then the constructors in order.
    ///
    /// # Safety
    /// As [`Loader::run_due`].
    unsafe fn run(mut self) -> Result<(), Error> {
        for hooks in self.images.iter_mut().flatten().filter(|it| !it.resolved) {
            // SAFETY: by the caller's promise; the image is not initialized.
            unsafe { hooks.resolve_ifuncs(self.loader) };
            hooks.resolved = true;
        }
        let mut order = Vec::new();
        for (at, hooks) in self.images.iter().enumerate() {
            // Images are in the order in which they were added.
            let due = hooks
                .iter()
                .flat_map(|it| it.constructors.iter().skip(it.ran));
            order.extend(due.map(|&(turn, address)| (turn, at, address)));
        }
        order.sort_by_key(|&(turn, at, _)| (turn, at));
        for at in 0..self.images.len() {
            self.settle(at);
        }
        for (_, at, address) in order {
            let Some(hooks) = &mut self.images[at] else {
                continue;
            };
            hooks.ran += 1;
            let removed = {
                let _pass = gate::enter();
                hooks.life.root().is_closed()
            };
            if removed {
                self.images[at] = None;
                continue;
            }
            // SAFETY: by the caller's promise.
            let done = unsafe { construct(address) };
            done.inspect_err(|_| self.images[at] = None)?;
            self.settle(at);
        }
        Ok(())
    }

    /// Marks an image as done whose constructors have all run.
    fn settle(&mut self, at: usize) {
        let done = |hooks: &mut ImageHooks| hooks.ran == hooks.constructors.len();
        let Some(mut hooks) = self.images[at].take_if(done) else {
            return;
        };
        let _pass = gate::enter();
        let ImageHooks { image, life, .. } = &hooks;
        self.loader
            .note_destructors_of(self.initialization, *image, life, &hooks.destructors);
        if hooks.is_some() && !hooks.life.root().is_closed() {
            (hooks.resolved, hooks.ran) = (false, 0);
            self.loader.schedule().done.insert(hooks.image, hooks);
        }
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        let mut left = self.images.drain(..).flatten().peekable();
        if left.peek().is_none() {
            return;
        }
        let _pass = gate::enter();
        let mut schedule = self.loader.schedule();
        left.filter(|hooks| !hooks.life.root().is_closed())
            .for_each(|hooks| schedule.add(hooks));
    }
}

/// Destructors of images as the ends of images run them.
impl ImageDestructors for Loader {
    fn run(&self, images: &BTreeSet<u64>) {
        while let Some(address) = self.next_destructor(|_, life| images.contains(&life)) {
            // SAFETY: a destructor of an image whose removal its caller allowed, and which exists.
            let call = || unsafe { self.destroy(address) };
            threads::as_guest(|| shield::lowered(call));
        }
    }

    fn has_any(&self, images: &BTreeSet<u64>) -> bool {
        self.has_destructors(|life| images.contains(&life))
    }
}
