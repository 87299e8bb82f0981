//! Files loaded after the program began: their words that the dynamic loader filled in with names
//! of other libraries are overwritten.
//!
//! That needs a stable list of libraries, all of them relocated. Another thread may be opening one,
//! whose words the loader must still write and would then find read-only, or closing one. The
//! loader's own lock prevents that; a thread that opens or closes a library holds it from the first
//! step to the last, constructors included. `dlsym` holds it as well while it calls a resolver
//! (`STT_GNU_IFUNC`), so the work is the resolver of a name that the stand-in defines ([`BIND`]).
//!
//! No thread waits for the lock with a pass: a constructor that forks waits for passes. Under it
//! passes may be taken.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use uruk_base::locks::Mutex;

use super::{ProgramExport, Writes, filter_of, stand_in_for};
use crate::fork::gate;
use crate::fork::shield::Shield;
use crate::host::llvm;
use crate::host::loaded::{self, Loaded};

/// The name whose resolver is [`bind_opened`].
pub(super) const BIND: &CStr = c"uruk.bind.opened";

/// The definitions to which later opened libraries are bound.
struct Opened {
    names: BTreeMap<CString, ProgramExport>,
    /// The stand-in's handle, after the attempt to make one.
    stand_in: OnceLock<Option<usize>>,
    /// Taken under the loader's lock only.
    done: Mutex<FinishedLibraries>,
}

/// Libraries that need no further writes, by their dynamic sections.
#[derive(Default)]
struct FinishedLibraries {
    /// Those of the start, and others that prefer their own names: by name, too, as another may be
    /// loaded at the same address.
    left: HashSet<(u64, String)>,
    /// Those that were written since the last unload.
    written: HashSet<u64>,
    unloads: u64,
}

static OPENED: OnceLock<Opened> = OnceLock::new();

thread_local! {
    /// Whether the library for which the calling thread is about to look up [`BIND`] was opened
    /// with its own names first.
    static DEEP: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Makes libraries that the program opens from now on call its exports. `loaded` exists already,
/// and so may the stand-in.
pub(super) fn begin(
    names: BTreeMap<CString, ProgramExport>,
    stand_in: Option<Option<usize>>,
    loaded: &[Loaded],
) {
    let left = loaded.iter().map(|one| (one.dynamic, one.name.clone()));
    let done = FinishedLibraries {
        left: left.collect(),
        ..FinishedLibraries::default()
    };
    let _ = OPENED.set(Opened {
        names,
        stand_in: stand_in.map_or_else(OnceLock::new, OnceLock::from),
        done: Mutex::new(done),
    });
}

unsafe extern "C-unwind" {
    /// Like libc's: constructors of the library may throw.
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlmopen(space: libc::Lmid_t, file: *const c_char, flags: c_int) -> *mut c_void;
}

/// `dlopen` as guest code sees it: loaded libraries call the program's exports.
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
    // No shield: constructors are code of the program. SAFETY: by the caller's promise.
    let handle = unsafe { dlopen(file, flags) };
    if !handle.is_null()
        && let Some(stand_in) = stand_in
    {
        // No handler runs in between, which might open a library, too.
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

/// Binds the opened libraries, if this thread requested it; the loader calls it under its lock. The
/// returned address is never used.
pub(super) extern "C" fn bind_opened() -> usize {
    if let (Some(deep), Some(opened)) = (DEEP.take(), OPENED.get()) {
        let _pass = gate::enter();
        opened.bind(deep);
    }
    bind_opened as *const () as usize
}

impl Opened {
    /// The stand-in's handle. It is made before the first library is opened, so that no constructor
    /// runs meanwhile whose thread would have the loader's lock.
    fn stand_in(&self) -> Option<usize> {
        if let Some(known) = self.stand_in.get() {
            return *known;
        }
        let _pass = gate::enter();
        let make = || stand_in_for(&self.names, &[]).map(|made| made.handle);
        *self.stand_in.get_or_init(make)
    }

    /// Makes libraries loaded since the last time call the program's exports. A library opened with
    /// its own names first (`deep`) is left as it is. Under the loader's lock.
    fn bind(&self, deep: bool) {
        let (loaded, unloads) = loaded::all();
        let mut done = self.done.lock();
        if done.unloads != unloads {
            // Another library may have been loaded at the address of an unloaded one.
            done.written.clear();
            done.unloads = unloads;
        }
        let mut writes = Writes::default();
        let wanted = filter_of(&self.names);
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
