//! What is loaded after the program began: its words that the dynamic loader filled in with
//! names of other libraries are written again.
//!
//! That needs the list of libraries to stand still, and all of them to be relocated: another
//! thread may be opening one, of which the loader has yet to write what it would then find
//! closed for writing, or closing one. The loader's own lock sees to it, which whoever opens or
//! closes holds from the first step to the last, constructors included. `dlsym` holds it as well
//! while a resolver (`STT_GNU_IFUNC`) says which function a name means, so the work is the
//! resolver of a name that the stand-in defines ([`BIND`]).
//!
//! Nobody waits for the lock with a pass: a constructor that forks waits for passes. Under it
//! others of ours may be taken.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{OnceLock, PoisonError};

use uruk_base::locks::Mutex;

use super::loaded::{self, Loaded};
use super::{Export, Wanted, Writes, stand_in_for};
use crate::fork::gate;
use crate::fork::shield::Shield;
use crate::guest::llvm;

/// The name whose resolver is [`bind_opened`].
pub(super) const BIND: &CStr = c"uruk.bind.opened";

/// What later opened libraries are bound to.
struct Opened {
    names: BTreeMap<CString, Export>,
    /// The stand-in's handle, once it was tried to make one.
    stand_in: OnceLock<Option<usize>>,
    /// Taken under the loader's lock only.
    done: Mutex<Done>,
}

/// Libraries that are left as they are, by their dynamic sections.
#[derive(Default)]
struct Done {
    /// Those of the start, and others that use their own names first: by name, too, as
    /// another may come to lie where one was.
    left: HashSet<(u64, String)>,
    /// Those that were written to since the last was unloaded.
    written: HashSet<u64>,
    unloads: u64,
}

static OPENED: OnceLock<Opened> = OnceLock::new();

thread_local! {
    /// How the library was opened (with its own names first?) for which the calling thread is
    /// about to ask for [`BIND`].
    static DEEP: Cell<Option<bool>> = const { Cell::new(None) };
}

/// From now on what the program opens calls what it exports. `loaded` is there already, and so
/// may be the stand-in.
pub(super) fn begin(
    names: BTreeMap<CString, Export>,
    stand_in: Option<Option<usize>>,
    loaded: &[Loaded],
) {
    let left = loaded.iter().map(|one| (one.dynamic, one.name.clone()));
    let done = Done {
        left: left.collect(),
        ..Done::default()
    };
    let _ = OPENED.set(Opened {
        names,
        stand_in: stand_in.map_or_else(OnceLock::new, OnceLock::from),
        done: Mutex::new(done),
    });
}

unsafe extern "C-unwind" {
    /// As libc's: constructors of the library may throw.
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlmopen(space: libc::Lmid_t, file: *const c_char, flags: c_int) -> *mut c_void;
}

/// `dlopen` as guest code sees it: what is loaded calls what the program exports.
///
/// # Safety
/// As `dlopen`: null or a C string, and a library that may be loaded.
pub(crate) unsafe extern "C-unwind" fn guest_dlopen(
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    llvm::before_loader();
    let opened = OPENED.get().filter(|_| !file.is_null());
    let stand_in = opened.and_then(Opened::stand_in);
    // No shield: constructors are code of the program's.
    // SAFETY: by the caller's promise.
    let handle = unsafe { dlopen(file, flags) };
    if !handle.is_null()
        && let Some(stand_in) = stand_in
    {
        // No handler comes between, which might open something, too.
        let _shield = Shield::raise();
        DEEP.set(Some(flags & libc::RTLD_DEEPBIND != 0));
        // SAFETY: an open handle that is never closed, and a C string.
        unsafe { libc::dlsym(stand_in as *mut c_void, BIND.as_ptr()) };
    }
    handle
}

/// `dlmopen` as guest code sees it.
///
/// # Safety
/// As `dlmopen`.
pub(crate) unsafe extern "C-unwind" fn guest_dlmopen(
    space: libc::Lmid_t,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    llvm::before_loader();
    // SAFETY: by the caller's promise.
    unsafe { dlmopen(space, file, flags) }
}

/// Binds what was opened, if this thread asked for it; the loader calls it under its lock. What
/// it returns is an address that nobody uses.
pub(super) extern "C" fn bind_opened() -> usize {
    if let (Some(deep), Some(opened)) = (DEEP.take(), OPENED.get()) {
        let _pass = gate::enter();
        opened.bind(deep);
    }
    bind_opened as *const () as usize
}

impl Opened {
    /// Its handle. It is made before the first library is opened, so that no constructor runs
    /// meanwhile whose thread would have the loader's lock.
    fn stand_in(&self) -> Option<usize> {
        if let Some(known) = self.stand_in.get() {
            return *known;
        }
        let _pass = gate::enter();
        let make = || stand_in_for(&self.names, &[]).map(|made| made.handle);
        *self.stand_in.get_or_init(make)
    }

    /// Has what was loaded since the last time call what the program exports. What was opened
    /// with its own names first (`deep`) is left as it is. Under the loader's lock.
    fn bind(&self, deep: bool) {
        let (loaded, unloads) = loaded::all();
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.unloads != unloads {
            // Another library may lie where one was.
            done.written.clear();
            done.unloads = unloads;
        }
        let mut writes = Writes::default();
        let wanted = Wanted::new(&self.names);
        for (index, one) in loaded.iter().enumerate() {
            let key = (one.dynamic, one.name.clone());
            let left = done.left.contains(&key) || llvm::brought(one.dynamic);
            if left || done.written.contains(&one.dynamic) {
                continue;
            }
            if deep {
                done.left.insert(key);
                continue;
            }
            writes.collect(&self.names, &wanted, one, index, false);
            done.written.insert(one.dynamic);
        }
        writes.write(&loaded, None);
    }
}
