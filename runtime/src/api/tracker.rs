//! Trackers: definitions that were added together are removed together.

use std::path::Path;
use std::sync::Arc;

use uruk_codegen::Bitcode;
use uruk_session::{AbsoluteSymbols, Alias, SessionError, TrackerKey};

use crate::api::dylib::Dylib;
use crate::api::jit::Jit;
use crate::api::lookup::Visibility;
use crate::api::unit::{Flags, Resource, Symbol};
use crate::code::life::Life;
use crate::code::tracked::Tracked;
use crate::error::{Error, Missing};
use crate::fork::gate;
use crate::load::source::InputSource;
use crate::replace::quiet::scrubbed;
use crate::session::Session;
use crate::units::LazyObject;

/// The handle by which a set of definitions of one dylib is removed. Clones are the same tracker;
/// dropping the last leaves its definitions to the dylib.
///
/// ```
/// let jit = uruk::Jit::new()?;
/// let tracker = jit.main().create_tracker()?;
/// tracker.add_ir("m", "define i32 @one() { ret i32 1 }")?;
/// assert!(jit.lookup("one").is_ok());
/// // SAFETY: `one` is not called any more, and its data not used.
/// unsafe { tracker.remove()? };
/// assert!(jit.lookup("one").is_err());
/// # Ok::<(), uruk::Error>(())
/// ```
#[derive(Clone)]
pub struct Tracker {
    pub(crate) jit: Jit,
    pub(crate) tracker: Tracked,
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

    /// The tracker of definitions that were added without one.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn default_tracker(&self) -> Result<Tracker, Error> {
        let _pass = gate::enter();
        Ok(Tracker::of(&self.jit, self.dylib.default_tracker()?))
    }
}

/// Treatment of dylibs that search one that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removal {
    /// Refuse the removal, and list them.
    #[default]
    Refused,
    /// Take it out of their link orders: their lookups of its symbols fail from then on, calls of
    /// its functions go to the failure handler.
    Forced,
}

impl Dylib {
    /// Removes all definitions, as [`Tracker::remove`] does for each tracker.
    ///
    /// # Safety
    /// As [`Tracker::remove`].
    ///
    /// # Errors
    /// The dylib was removed.
    pub unsafe fn clear(&self) -> Result<(), Error> {
        let session = self.jit.session();
        let images = || session.names.lives.of(&self.dylib);
        Ok(leave(session, images, |_| self.dylib.clear())?)
    }

    /// Removes the dylib and all its definitions.
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
        let session = self.session();
        let mut removed: Vec<uruk_session::Dylib> = Vec::with_capacity(dylibs.len());
        for dylib in dylibs {
            if !Arc::ptr_eq(session, dylib.jit.session()) {
                let dylib = dylib.name().into();
                return Err(SessionError::ForeignDylib { dylib }.into());
            }
            if !removed.contains(&dylib.dylib) {
                removed.push(dylib.dylib.clone());
            }
        }
        {
            let _pass = gate::enter();
            searching(session, &removed, removal)?;
        }
        let lives = &session.names.lives;
        let images = || removed.iter().flat_map(|d| lives.of(d)).collect();
        leave(session, images, |left| {
            // A handler may have changed which dylibs search them.
            let searching = searching(session, &removed, removal).inspect_err(|_| {
                left.iter().for_each(|image| image.reopen());
            })?;
            session.names.session().remove_dylibs(&removed)?;
            for dylib in &removed {
                session.forget_dylib(dylib);
            }
            for (other, dylib) in searching {
                // The other dylib may have been removed meanwhile.
                let _ = other.remove_from_link_order(&dylib);
            }
            Ok(())
        })
    }
}

/// Returns the remaining dylibs that search the ones to be removed, each with the one it searches,
/// if all may be removed.
fn searching(
    session: &Session,
    removed: &[uruk_session::Dylib],
    removal: Removal,
) -> Result<Vec<(uruk_session::Dylib, uruk_session::Dylib)>, Error> {
    let mut all = Vec::new();
    for dylib in removed {
        if *dylib == session.main {
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

/// Runs the exit handlers of images that are about to be removed, and those that a handler adds.
/// Then calls the removal with the images that were closed, under the pass under which no further
/// handler was found.
fn leave<R>(
    session: &Arc<Session>,
    images: impl Fn() -> Vec<Arc<Life>>,
    remove: impl FnOnce(Vec<Arc<Life>>) -> R,
) -> R {
    let mut all = Vec::new();
    loop {
        let left = {
            let _pass = gate::enter();
            let mut left = session.names.lives.going(images());
            left.retain(|image| !image.is_closed());
            if left.is_empty() {
                return scrubbed(|| remove(all));
            }
            left
        };
        session.leave(&left);
        all.extend(left);
    }
}

impl PartialEq for Tracker {
    /// Whether both are handles of one tracker.
    fn eq(&self, other: &Tracker) -> bool {
        let same = self.tracker.key() == other.tracker.key();
        same && Arc::ptr_eq(self.jit.session(), other.jit.session())
    }
}

impl Eq for Tracker {}

impl Tracker {
    /// The dylib of the definitions.
    pub fn dylib(&self) -> Dylib {
        self.jit.dylib_of(&self.tracker.dylib())
    }

    /// The tracker's key in [`MemoryReport`](crate::MemoryReport)s.
    pub fn key(&self) -> TrackerKey {
        self.tracker.key()
    }

    /// Whether it was removed, or transferred to another.
    pub fn is_defunct(&self) -> bool {
        let _pass = gate::enter();
        self.tracker.is_defunct()
    }

    /// Keeps a resource until the tracker's definitions are removed; the resource attached last is
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

    /// Like [`Dylib::add_bitcode`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::add_bitcode`], and that the tracker was removed.
    pub fn add_bitcode(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add(InputSource::Bitcode(Bitcode::new(name, bytes)))
    }

    /// Like [`Dylib::add_ir`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::add_ir`], and that the tracker was removed.
    pub fn add_ir(&self, name: &str, text: &str) -> Result<(), Error> {
        self.add(InputSource::text(name, text))
    }

    /// Like [`Dylib::add_module`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::add_module`], and that the tracker was removed.
    pub fn add_module(&self, module: &inkwell::module::Module<'_>) -> Result<(), Error> {
        let name = module.get_name().to_string_lossy().into_owned();
        self.add_bitcode(&name, module.write_bitcode_to_memory().as_slice())
    }

    /// Like [`Dylib::add_object`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::add_object`], and that the tracker was removed.
    pub fn add_object(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add(InputSource::Object {
            file: name.to_owned(),
            bytes: bytes.into(),
        })
    }

    /// Like [`Dylib::add_file`], under this tracker; but no archives, whose members are added on demand.
    ///
    /// # Errors
    /// As [`Dylib::add_file`], and that the tracker was removed.
    pub fn add_file(&self, path: &Path) -> Result<(), Error> {
        self.add(InputSource::read(path)?)
    }

    /// Like [`Dylib::alias`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::alias`], and that the tracker was removed.
    pub fn alias(&self, aliases: impl IntoIterator<Item = Alias>) -> Result<(), Error> {
        self.reexport(&self.dylib(), Visibility::All, aliases)
    }

    /// Like [`Dylib::reexport`], under this tracker.
    ///
    /// # Errors
    /// As [`Dylib::reexport`], and that the tracker was removed.
    pub fn reexport(
        &self,
        source: &Dylib,
        seen: Visibility,
        aliases: impl IntoIterator<Item = Alias>,
    ) -> Result<(), Error> {
        let aliases: Vec<Alias> = aliases.into_iter().collect();
        let define = || self.tracker.reexport(&source.dylib, seen, aliases);
        self.jit.session().change_aliases(define)
    }

    /// Like [`Dylib::define_addresses`], under this tracker.
    ///
    /// # Safety
    /// As [`Dylib::define_addresses`], until the tracker is removed.
    ///
    /// # Errors
    /// As [`Dylib::define_addresses`], and that the tracker was removed.
    pub unsafe fn define_addresses(
        &self,
        symbols: impl IntoIterator<Item = (Symbol, u64, Flags)>,
    ) -> Result<(), Error> {
        let symbols = AbsoluteSymbols::new(symbols);
        let define = || self.tracker.define(symbols);
        self.jit.session().change_names(define)
    }

    /// Removes the tracker's definitions. Names go first, then calls go to the failure handler
    /// ([`JitBuilder::on_failure`](crate::JitBuilder::on_failure)). Then the memory is freed: code
    /// when no thread can return into it, data when no code is left that was linked against it.
    /// Threads inside finish there.
    ///
    /// Before that, exit handlers run, as when a library is closed: on this thread, latest first,
    /// each once. Destructors of C++'s `thread_local` objects of this thread are first. Then those
    /// of inputs that [`Jit::initialize`] has initialized run (`llvm.global_dtors`, `.fini_array`),
    /// unless [`Jit::deinitialize`] has run them; then handlers that its code registered with
    /// `atexit` and `__cxa_atexit`. They may register others, end the process, remove other
    /// trackers; an exception that leaves one ends the process. As long as other threads have
    /// `thread_local` objects of it, the removed code has no names any more, but stays otherwise.
    /// It also stays until a key of `pthread_key_create` is deleted whose destructor is in it. Must
    /// be called without a lock that a handler could take.
    ///
    /// Definitions that modules elsewhere share with it, as they define them weakly too (inline
    /// variables and functions, classes, `common` variables), stay as long as those modules,
    /// handlers included. Only its other names are free before.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let tracker = jit.main().create_tracker()?;
    /// tracker.add_ir("m", "define i64 @thrice(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }")?;
    /// assert!(jit.lookup("thrice").is_ok());
    /// // SAFETY: no address of its data is kept.
    /// unsafe { tracker.remove()? };
    /// assert!(jit.lookup("thrice").is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. Addresses of its data, or of functions of object files, that the program or its host took
    ///    are not used any more. A tail call of one of its functions may still be using its
    ///    arguments: its strings are data.
    ///
    /// # Errors
    /// It was removed before.
    pub unsafe fn remove(&self) -> Result<(), Error> {
        let session = self.jit.session();
        let images = || session.names.lives.under(&self.tracker);
        Ok(leave(session, images, |_| self.tracker.remove())?)
    }

    /// Moves all definitions to another tracker of the same dylib. This one is defunct then.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let (first, second) = (jit.main().create_tracker()?, jit.main().create_tracker()?);
    /// first.add_ir("m", "@word = global i64 7")?;
    /// first.transfer_to(&second)?;
    /// // SAFETY: the address of `word` is not used.
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

    fn add(&self, source: InputSource) -> Result<(), Error> {
        self.jit.session().admit(&source)?;
        self.add_admitted(source)
    }

    pub(super) fn add_admitted(&self, source: InputSource) -> Result<(), Error> {
        if let InputSource::Archive(archive) = source {
            return Err(Error::UnknownFormat {
                file: archive.name.clone(),
            });
        }
        if let InputSource::Object { file, bytes } = &source
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
        self.jit.session().add(&self.tracker, source)
    }

    /// Queues an object to be linked once the symbols it needs are defined, if they may be missing
    /// and are. Returns whether it waits.
    fn wait_with_object(&self, file: &str, bytes: &Arc<[u8]>) -> Result<bool, Error> {
        let session = self.jit.session();
        let dylib = {
            let _pass = gate::enter();
            let dylib = self.tracker.dylib();
            if !session.waiting.is_allowed(&dylib) {
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
        let number = session.next_image();
        let init = self.jit.intern(&format!("uruk.init.{number}"));
        self.define(object.with_init(init))?;
        let _pass = gate::enter();
        session.note_waiting(&self.tracker, number, missing, Some(init))?;
        Ok(true)
    }
}
