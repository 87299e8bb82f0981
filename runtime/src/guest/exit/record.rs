//! Handlers of the process's exit, and the keys under which the C library knows them.
//!
//! | field | writer | meaning |
//! |---|---|---|
//! | `Registered::keys` | [`at_exit`]; who runs one takes it out before | handlers of an image that is not closed, in the order of registration |
//! | the C library's list | [`at_exit`], under the lock of `REGISTERED` | all that are to run |
//!
//! A key that is in the table and not in the list is one whose handler the end of the process
//! has run: finalizing it does nothing. A handler that comes once its image is closed (by a
//! thread that is still in there, and a destructor keeps the image) is in the list only.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError};

use uruk_locks::{Mutex, MutexGuard};

use super::{Handler, register_at_exit, thread_end};
use crate::guest::threads;
use crate::life::{Gone, Hold, Life};
use crate::own;
use crate::service;
use crate::shield;

/// No address that the C library could take for a library's.
const KEYS: u64 = 1 << 63;

/// What the C library calls, and what has to be there for it.
pub(super) struct Record {
    pub(super) handler: Handler,
    pub(super) argument: *mut c_void,
    pub(super) holds: Vec<Hold>,
}

struct Registered {
    /// Keys given so far.
    count: u64,
    /// By number of the image.
    keys: BTreeMap<u64, Vec<u64>>,
}

static REGISTERED: Mutex<Registered> = Mutex::new(Registered {
    count: 0,
    keys: BTreeMap::new(),
});

unsafe extern "C" {
    fn __cxa_finalize(dso: *mut c_void);
    #[link_name = "on_exit"]
    fn library_on_exit(
        handler: unsafe extern "C-unwind" fn(c_int, *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// Where the C library files what an image has it forget.
fn forgettable_key(image: &Life) -> u64 {
    KEYS | image.number() << 1 | 1
}

impl Registered {
    fn next_key(&mut self) -> u64 {
        self.count += 1;
        KEYS | self.count << 1
    }

    /// Takes the latest handler out that one of `images` registered.
    fn take_latest(&mut self, images: &[Arc<Life>]) -> Option<u64> {
        let last = |image: &Arc<Life>| {
            let keys = self.keys.get(&image.number())?;
            Some((*keys.last()?, image.number()))
        };
        let (key, image) = images.iter().filter_map(last).max()?;
        let keys = self.keys.get_mut(&image)?;
        keys.pop();
        if keys.is_empty() {
            self.keys.remove(&image);
        }
        Some(key)
    }
}

/// The lock, under a pass.
fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The images that a registration is about, the one that it goes with first: that whose handle
/// is `dso`, else the first that something at `addresses` belongs to. None if it is about no
/// code of ours.
pub(super) fn images(dso: *mut c_void, addresses: &[u64]) -> Result<Vec<Arc<Life>>, Gone> {
    let mut found: Vec<Arc<Life>> = Vec::new();
    found.extend(own::image_of(dso as u64).transpose()?);
    for core in service::sessions() {
        let inside = addresses.iter().filter_map(|&at| core.life_at(at));
        for image in inside {
            if !found.iter().any(|known| Arc::ptr_eq(known, &image)) {
                found.push(image);
            }
        }
    }
    Ok(found)
}

/// Keeps all of them.
pub(super) fn hold_all(images: &[Arc<Life>]) -> Result<Vec<Hold>, Gone> {
    images.iter().map(Life::hold).collect()
}

/// Registers a handler of the process's exit; minus one if it cannot be, or its image is gone.
///
/// # Safety
/// 1. `handler` takes `argument`, and stays callable until its image is removed.
pub(super) unsafe fn at_exit(handler: Handler, argument: *mut c_void, dso: *mut c_void) -> c_int {
    let Some(register) = register_at_exit() else {
        return -1;
    };
    let _pass = service::enter();
    let Ok(images) = images(dso, &[handler as *const () as u64, argument as u64]) else {
        return -1;
    };
    let Some(owner) = images.first() else {
        // SAFETY: duty 1; not ours, so it stays.
        return unsafe { register(handler as *mut c_void, argument, dso) };
    };
    let Ok(holds) = hold_all(&images) else {
        return -1;
    };
    let record = Box::new(Record {
        handler,
        argument,
        holds,
    });
    let record = Box::into_raw(record);
    let mut registered = registered();
    let key = registered.next_key();
    // SAFETY: the record stays until it is run, and what it calls with it.
    let status = unsafe {
        let run = run_record as *mut c_void;
        register(run, record.cast::<c_void>(), key as *mut c_void)
    };
    if status == 0 && !owner.is_closed() {
        let keys = &mut registered.keys;
        keys.entry(owner.number()).or_default().push(key);
    }
    drop(registered);
    if status != 0 {
        // SAFETY: of a box, and nobody took it.
        drop(unsafe { Box::from_raw(record) });
    }
    status
}

/// Has `register` tell the C library of something under a key of the image that it goes with,
/// or under `dso` if there is none. `refused` if the image is gone.
pub(super) fn forgettable(
    dso: *mut c_void,
    addresses: &[u64],
    refused: c_int,
    register: impl FnOnce(*mut c_void) -> c_int,
) -> c_int {
    let _pass = service::enter();
    let Ok(images) = images(dso, addresses) else {
        return refused;
    };
    let Some(owner) = images.first() else {
        return register(dso);
    };
    let Ok(holds) = hold_all(&images) else {
        return refused;
    };
    let registered = registered();
    let status = register(forgettable_key(owner) as *mut c_void);
    let closed = owner.is_closed();
    drop(registered);
    if status == 0 {
        for (hold, image) in holds.into_iter().zip(&images) {
            // What is not forgotten with an image may be called for ever.
            if closed || !Arc::ptr_eq(image, owner) {
                std::mem::forget(hold);
            }
        }
    }
    status
}

/// Called by the C library, once.
///
/// # Safety
/// 1. `record` is that of a box, which goes with this.
unsafe extern "C-unwind" fn run_record(record: *mut c_void) {
    let record = record.cast::<Record>();
    // SAFETY: duty 1.
    let (handler, argument) = unsafe { ((*record).handler, (*record).argument) };
    // SAFETY: by the promise of who registered it.
    unsafe { handler(argument) };
    // SAFETY: duty 1. Not by this frame's end: a handler may leave it by an exception.
    drop(unsafe { Box::from_raw(record) });
}

/// `on_exit`, whose handlers natively run at the end of the process only: the image stays.
///
/// # Safety
/// As `on_exit`.
pub(super) unsafe extern "C" fn on_exit(
    handler: unsafe extern "C-unwind" fn(c_int, *mut c_void),
    argument: *mut c_void,
) -> c_int {
    /// # Safety
    /// As for [`run_record`].
    unsafe extern "C-unwind" fn run(status: c_int, record: *mut c_void) {
        let record = record.cast::<Kept>();
        // SAFETY: as in `run_record`.
        let (handler, argument) = unsafe { ((*record).0, (*record).1) };
        // SAFETY: by the promise of who registered it.
        unsafe { handler(status, argument) };
        // SAFETY: as in `run_record`.
        drop(unsafe { Box::from_raw(record) });
    }
    type Kept = (
        unsafe extern "C-unwind" fn(c_int, *mut c_void),
        *mut c_void,
        Vec<Hold>,
    );
    let _pass = service::enter();
    let addresses = [handler as *const () as u64, argument as u64];
    let held = images(std::ptr::null_mut(), &addresses).and_then(|images| hold_all(&images));
    let Ok(holds) = held else { return -1 };
    let record: Box<Kept> = Box::new((handler, argument, holds));
    let record = Box::into_raw(record);
    // SAFETY: the record stays until it is run, and what it calls with it.
    let status = unsafe { library_on_exit(run, record.cast::<c_void>()) };
    if status != 0 {
        // SAFETY: of a box, and nobody took it.
        drop(unsafe { Box::from_raw(record) });
    }
    status
}

/// `__cxa_finalize` of JIT'd code: that of its own handle runs its image's handlers.
///
/// # Safety
/// As `__cxa_finalize`.
pub(super) unsafe extern "C" fn cxa_finalize(dso: *mut c_void) {
    let image = {
        let _pass = service::enter();
        own::image_of(dso as u64)
    };
    match image {
        Some(Ok(image)) => run(&[image]),
        Some(Err(Gone)) => {}
        // SAFETY: by the caller's promise.
        None => unsafe { __cxa_finalize(dso) },
    }
}

/// Runs the handlers of the process's exit that `images` registered, latest first, and those
/// that come meanwhile. Without a lock.
pub(crate) fn run(images: &[Arc<Life>]) {
    loop {
        let latest = {
            let _pass = service::enter();
            registered().take_latest(images)
        };
        match latest {
            Some(key) => finalize(key),
            None => return,
        }
    }
}

/// Runs what `images` registered, destructors of the calling thread's variables first, until
/// there is nothing left; and has them register nothing any more that could be run. Those that
/// somebody holds.
pub(crate) fn run_and_close(images: &[Arc<Life>]) -> Vec<Arc<Life>> {
    let held = loop {
        thread_end::run(images);
        let next = {
            let _pass = service::enter();
            let mut registered = registered();
            match registered.take_latest(images) {
                Some(key) => Err(key),
                None => Ok(images
                    .iter()
                    .filter(|image| image.close())
                    .cloned()
                    .collect()),
            }
        };
        match next {
            Ok(held) => break held,
            Err(key) => finalize(key),
        }
    };
    let handles = {
        let _pass = service::enter();
        own::handles_of(images)
    };
    let keys = images.iter().map(|image| forgettable_key(image));
    keys.chain(handles).for_each(finalize);
    held
}

/// Has the C library run what it knows under a key, and forget it.
fn finalize(key: u64) {
    let finalize = __cxa_finalize as *const () as u64;
    // SAFETY: handlers of images whose removal its caller allowed, which are there: a record
    // holds them.
    let call = || unsafe { uruk_stubs::call_with(finalize, key) };
    threads::as_guest(|| shield::lowered(call));
}
