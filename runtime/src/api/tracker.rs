//! Trackers: what was added together is removed together.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uruk_codegen::Bitcode;
use uruk_session::{AbsoluteSymbols, Alias, SessionError, TrackerKey};

use crate::api::dylib::Dylib;
use crate::api::error::{Error, Missing};
use crate::api::jit::Jit;
use crate::api::lookup::Visibility;
use crate::api::unit::{Flags, Resource, Symbol};
use crate::core::Core;
use crate::fork::gate;
use crate::load::Source;
use crate::removal::life::Life;
use crate::replace::scrubbed;
use crate::units::LazyObject;

/// The handle by which a set of definitions of one dylib is removed. Clones are the same
/// tracker; dropping the last leaves what is under it to the dylib.
///
/// ```
/// let jit = uruk::Jit::new()?;
/// let tracker = jit.main().create_tracker()?;
/// tracker.add_ir("m", "define i32 @one() { ret i32 1 }")?;
/// assert!(jit.lookup("one").is_ok());
/// // SAFETY: nobody calls `one` any more, or uses its data.
/// unsafe { tracker.remove()? };
/// assert!(jit.lookup("one").is_err());
/// # Ok::<(), uruk::Error>(())
/// ```
#[derive(Clone)]
pub struct Tracker {
    pub(crate) jit: Jit,
    pub(crate) tracker: Tracked,
}

/// A handle of the session's that may go anywhere: the last one takes the session's lock.
#[derive(Clone)]
pub(crate) struct Tracked {
    tracker: uruk_session::Tracker,
    end: gate::End,
}

impl From<uruk_session::Tracker> for Tracked {
    fn from(tracker: uruk_session::Tracker) -> Tracked {
        Tracked {
            tracker,
            end: gate::End::default(),
        }
    }
}

impl std::ops::Deref for Tracked {
    type Target = uruk_session::Tracker;

    fn deref(&self) -> &uruk_session::Tracker {
        &self.tracker
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl std::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tracker.fmt(f)
    }
}

impl Dylib {
    /// A tracker for definitions of this dylib.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn create_tracker(&self) -> Result<Tracker, Error> {
        let _pass = gate::enter();
        Ok(Tracker {
            jit: self.jit.clone(),
            tracker: self.dylib.create_tracker()?.into(),
        })
    }

    /// The tracker of what is added without one.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn default_tracker(&self) -> Result<Tracker, Error> {
        let _pass = gate::enter();
        Ok(Tracker::of(&self.jit, self.dylib.default_tracker()?))
    }
}

/// What to do about dylibs that search one that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removal {
    /// Do nothing, and say which they are.
    #[default]
    Refused,
    /// Take it out of their link orders: what they look up there fails from then on,
    /// calls of its functions go to the failure handler.
    Forced,
}

impl Dylib {
    /// Removes all definitions, as [`Tracker::remove`] does for each tracker.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// The dylib was removed.
    pub unsafe fn clear(&self) -> Result<(), Error> {
        let core = self.jit.core();
        let images = || core.names.lives.of(&self.dylib);
        Ok(leave(core, images, |_| self.dylib.clear())?)
    }

    /// Removes the dylib and all that is in it.
    ///
    /// # Safety
    /// As [`Tracker::remove`].
    ///
    /// # Errors
    /// [`Error::DylibInUse`], [`Error::MainDylib`], or that it was removed before; nothing is
    /// changed then, unless a handler made others search it: handlers are not run again.
    pub unsafe fn remove(&self, removal: Removal) -> Result<(), Error> {
        // SAFETY: by the caller's promise.
        unsafe { self.jit.remove_dylibs(std::slice::from_ref(self), removal) }
    }
}

impl Jit {
    /// Removes several dylibs in one step, in this order: all of them, or none. They may search
    /// each other.
    ///
    /// ```
    /// use uruk::Removal;
    ///
    /// let jit = uruk::Jit::new()?;
    /// let [one, two] = [jit.create_dylib("one")?, jit.create_dylib("two")?];
    /// one.add_to_link_order(&two)?;
    /// two.add_to_link_order(&one)?;
    /// // SAFETY: nothing of them is used.
    /// unsafe {
    ///     assert!(one.remove(Removal::Refused).is_err());
    ///     jit.remove_dylibs(&[one, two], Removal::Refused)?;
    /// }
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// As [`Tracker::remove`].
    ///
    /// # Errors
    /// As [`Dylib::remove`], of each; a dylib that searches another one and is removed with it does
    /// not count. `ForeignDylib` of one of another session.
    pub unsafe fn remove_dylibs(&self, dylibs: &[Dylib], removal: Removal) -> Result<(), Error> {
        let core = self.core();
        let mut removed: Vec<uruk_session::Dylib> = Vec::with_capacity(dylibs.len());
        for dylib in dylibs {
            if !Arc::ptr_eq(core, dylib.jit.core()) {
                let dylib = dylib.name().into();
                return Err(SessionError::ForeignDylib { dylib }.into());
            }
            if !removed.contains(&dylib.dylib) {
                removed.push(dylib.dylib.clone());
            }
        }
        {
            let _pass = gate::enter();
            searching(core, &removed, removal)?;
        }
        let lives = &core.names.lives;
        let images = || removed.iter().flat_map(|d| lives.of(d)).collect();
        leave(core, images, |left| {
            // A handler may have changed who searches them.
            let searching = searching(core, &removed, removal).inspect_err(|_| {
                left.iter().for_each(|image| image.reopen());
            })?;
            core.names.session().remove_dylibs(&removed)?;
            for dylib in &removed {
                core.forget_dylib(dylib);
            }
            for (other, dylib) in searching {
                // It may have been removed meanwhile.
                let _ = other.remove_from_link_order(&dylib);
            }
            Ok(())
        })
    }
}

/// The dylibs that search those that are to be removed and stay themselves, each with what it
/// searches; if all may be removed.
fn searching(
    core: &Core,
    removed: &[uruk_session::Dylib],
    removal: Removal,
) -> Result<Vec<(uruk_session::Dylib, uruk_session::Dylib)>, Error> {
    let mut all = Vec::new();
    for dylib in removed {
        if *dylib == core.main {
            return Err(Error::MainDylib);
        }
        if dylib.is_defunct() {
            let dylib = dylib.name().into();
            return Err(SessionError::DylibDefunct { dylib }.into());
        }
        let mut searching = dylib.searchers();
        searching.retain(|other| !removed.contains(other));
        if removal == Removal::Refused && !searching.is_empty() {
            return Err(Error::DylibInUse {
                dylib: dylib.name().to_owned(),
                by: searching.iter().map(|d| d.name().to_owned()).collect(),
            });
        }
        all.extend(searching.into_iter().map(|other| (other, dylib.clone())));
    }
    Ok(all)
}

/// Runs what images registered that are about to be removed, and what those registered that a
/// handler adds to them. Then removes them, told those that were left: under the pass under which
/// none was found any more.
fn leave<R>(
    core: &Arc<Core>,
    images: impl Fn() -> Vec<Arc<Life>>,
    remove: impl FnOnce(Vec<Arc<Life>>) -> R,
) -> R {
    let mut all = Vec::new();
    loop {
        let left = {
            let _pass = gate::enter();
            let mut left = core.names.lives.going(images());
            left.retain(|image| !image.is_closed());
            if left.is_empty() {
                return scrubbed(|| remove(all));
            }
            left
        };
        core.leave(&left);
        all.extend(left);
    }
}

impl PartialEq for Tracker {
    /// Whether both are handles of one tracker.
    fn eq(&self, other: &Tracker) -> bool {
        let same = self.tracker.key() == other.tracker.key();
        same && Arc::ptr_eq(self.jit.core(), other.jit.core())
    }
}

impl Eq for Tracker {}

impl Tracker {
    /// The dylib whose definitions are under it.
    pub fn dylib(&self) -> Dylib {
        self.jit.dylib_of(&self.tracker.dylib())
    }

    /// What it is called in [`MemoryReport`](crate::MemoryReport)s.
    pub fn key(&self) -> TrackerKey {
        self.tracker.key()
    }

    /// Whether it was removed, or transferred to another.
    pub fn is_defunct(&self) -> bool {
        let _pass = gate::enter();
        self.tracker.is_defunct()
    }

    /// Keeps something until what is under the tracker is removed; what was attached last is
    /// released first.
    ///
    /// # Errors
    /// The tracker was removed; the resource was released.
    pub fn attach(&self, resource: impl Resource + 'static) -> Result<(), Error> {
        let _pass = gate::enter();
        let resource = Box::new(resource);
        let release = move || gate::outside(|| resource.release());
        Ok(self.tracker.attach(Box::new(release))?)
    }

    /// [`Dylib::add_bitcode`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn add_bitcode(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add(Source::Bitcode(Bitcode::new(name, bytes)))
    }

    /// [`Dylib::add_ir`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn add_ir(&self, name: &str, text: &str) -> Result<(), Error> {
        self.add(Source::text(name, text))
    }

    /// [`Dylib::add_module`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn add_module(&self, module: &inkwell::module::Module<'_>) -> Result<(), Error> {
        let name = module.get_name().to_string_lossy().into_owned();
        self.add_bitcode(&name, module.write_bitcode_to_memory().as_slice())
    }

    /// [`Dylib::add_object`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn add_object(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add(Source::Object {
            file: name.to_owned(),
            bytes: bytes.into(),
        })
    }

    /// [`Dylib::add_file`], under this tracker; but no archives, whose members come as they are
    /// needed.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn add_file(&self, path: &Path) -> Result<(), Error> {
        self.add(Source::read(path)?)
    }

    /// [`Dylib::alias`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn alias(&self, aliases: impl IntoIterator<Item = Alias>) -> Result<(), Error> {
        self.reexport(&self.dylib(), Visibility::All, aliases)
    }

    /// [`Dylib::reexport`], under this tracker.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), Error> {
        let aliases: Vec<Alias> = aliases.into_iter().collect();
        let define = || self.tracker.reexport(&source.dylib, seen, aliases);
        self.jit.core().change_aliases(define)
    }

    /// [`Dylib::define_addresses`], under this tracker.
    ///
    /// # Safety
    /// As there, until the tracker is removed.
    ///
    /// # Errors
    /// As there, and that the tracker was removed.
    pub unsafe fn define_addresses(
        &self,
        symbols: impl IntoIterator<Item = (Symbol, u64, Flags)>,
    ) -> Result<(), Error> {
        let symbols = AbsoluteSymbols::new(symbols);
        let define = || self.tracker.tracker.define(symbols);
        self.jit.core().change_names(define)
    }

    /// Removes what is under the tracker: names first, then calls go to the failure
    /// handler ([`JitBuilder::on_failure`](crate::JitBuilder::on_failure)), then the
    /// memory goes, code when no thread can return into it, data when no code is left
    /// that was linked against it. Threads that are inside finish there.
    ///
    /// Before that, what is to be called at its end is called, as when a library is closed: on
    /// this thread, latest first, each once. Destructors of C++'s `thread_local` objects of this
    /// thread are first; then those of what [`Jit::initialize`] has initialized
    /// (`llvm.global_dtors`, `.fini_array`), unless [`Jit::deinitialize`] has run them; then
    /// handlers that its code registered with `atexit` and `__cxa_atexit`. They may register
    /// others, end the process, remove other trackers; an exception that one lets out ends the
    /// process. As long as other threads have `thread_local` objects of it, what was removed
    /// has no names any more, but stays otherwise. So it does until a key of `pthread_key_create` is deleted whose destructor is
    /// in there. To be called without a lock that a handler could want.
    ///
    /// What modules elsewhere have weak definitions of and share with it (inline variables and
    /// functions, classes, `common` variables) stays as long as they do, handlers included.
    /// Only its other names are free before.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let tracker = jit.main().create_tracker()?;
    /// tracker.add_ir("m", "define i64 @thrice(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }")?;
    /// assert!(jit.lookup("thrice").is_ok());
    /// // SAFETY: nobody keeps an address of its data.
    /// unsafe { tracker.remove()? };
    /// assert!(jit.lookup("thrice").is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. Nobody keeps using addresses of its data, or of functions of object files,
    ///    that the program or its host took. A call that is the last thing a function of it
    ///    does may still be using its arguments: its strings are data.
    ///
    /// # Errors
    /// It was removed before.
    pub unsafe fn remove(&self) -> Result<(), Error> {
        let core = self.jit.core();
        let images = || core.names.lives.under(&self.tracker);
        Ok(leave(core, images, |_| self.tracker.remove())?)
    }

    /// Moves everything to another tracker of the same dylib. This one is of no use then.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let (first, second) = (jit.main().create_tracker()?, jit.main().create_tracker()?);
    /// first.add_ir("m", "@word = global i64 7")?;
    /// first.transfer_to(&second)?;
    /// // SAFETY: nobody has the address of `word`.
    /// unsafe { second.remove()? };
    /// assert!(jit.lookup("word").is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// One of them was removed, or they belong to different dylibs.
    pub fn transfer_to(&self, other: &Tracker) -> Result<(), Error> {
        let _pass = gate::enter();
        Ok(self.tracker.transfer_to(&other.tracker)?)
    }

    pub(crate) fn of(jit: &Jit, tracker: uruk_session::Tracker) -> Tracker {
        Tracker {
            jit: jit.clone(),
            tracker: tracker.into(),
        }
    }

    fn add(&self, source: Source) -> Result<(), Error> {
        self.jit.core().admit(&source)?;
        self.add_admitted(source)
    }

    pub(crate) fn add_admitted(&self, source: Source) -> Result<(), Error> {
        if let Source::Archive(archive) = source {
            return Err(Error::UnknownFormat {
                file: archive.name.clone(),
            });
        }
        if let Source::Object { file, bytes } = &source
            && self.wait_with_object(file, bytes)?
        {
            return Ok(());
        }
        let _pass = gate::enter();
        if self.tracker.is_defunct() {
            return Err(SessionError::TrackerDefunct {
                dylib: self.tracker.dylib().name().into(),
            }
            .into());
        }
        self.jit.core().add(&self.tracker, source)
    }

    /// Has an object be linked once what it needs is there, if that may be missing and is.
    fn wait_with_object(&self, file: &str, bytes: &Arc<[u8]>) -> Result<bool, Error> {
        let core = self.jit.core();
        let dylib = {
            let _pass = gate::enter();
            let dylib = self.tracker.dylib();
            if !core.waiting.is_allowed(&dylib) {
                return Ok(false);
            }
            self.jit.dylib_of(&dylib)
        };
        let object = LazyObject::new(&self.jit, file, Arc::clone(bytes))?;
        let missing = object.missing(&dylib)?;
        if missing.is_empty() {
            return Ok(false);
        }
        let missing = missing.into_iter().map(|symbol| Missing {
            symbol: self.jit.name_of(symbol).to_owned(),
            needed_by: vec![file.to_owned()],
        });
        let missing = missing.collect();
        let number = core.images.fetch_add(1, Ordering::Relaxed);
        let init = self.jit.intern(&format!("uruk.init.{number}"));
        self.define(object.with_init(init))?;
        let _pass = gate::enter();
        core.note_waiting(&self.tracker, number, missing, Some(init))?;
        Ok(true)
    }
}
