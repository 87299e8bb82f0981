//! Handlers of the process's exit, and the keys under which the C library knows them.
//!
//! | field | writer | meaning |
//! |---|---|---|
//! | `Registered::keys` | [`at_exit`]; the thread that runs one takes it out before | handlers of an image that is not closed, in the order of registration |
//! | the C library's list | [`at_exit`], under the lock of `REGISTERED` | all that will be run |
//!
//! A key that is in the table and not in the list belongs to a handler that the end of the process
//! has run: finalizing it does nothing. A handler that is registered after its image is closed is
//! in the list only. Its thread is still in the image, and a destructor keeps the image.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use uruk_base::locks::{Mutex, MutexGuard, ranks};

use super::{Handler, register_at_exit, thread_end};
use crate::code::directory::directories;
use crate::code::handles;
use crate::code::life::{Hold, ImageGone, Life};
use crate::fork::gate::{self, Pass};
use crate::fork::shield;
use crate::fork::threads;

/// A bit that no library's handle has.
const KEYS: u64 = 1 << 63;

/// A handler as the C library calls it, and the images that it needs.
pub(super) struct HandlerRecord {
    pub(super) handler: Handler,
    pub(super) argument: *mut c_void,
    pub(super) holds: Vec<Hold>,
}

struct Registered {
    /// Keys given so far.
    count: u64,
    /// The keys by number of the image.
    keys: BTreeMap<u64, Vec<u64>>,
    /// Numbers of images with forgettable registrations.
    forgettable: BTreeSet<u64>,
}

static REGISTERED: Mutex<Registered, ranks::Registered> = Mutex::new(Registered {
    count: 0,
    keys: BTreeMap::new(),
    forgettable: BTreeSet::new(),
});

unsafe extern "C" {
    fn __cxa_finalize(dso: *mut c_void);
    #[link_name = "on_exit"]
    fn library_on_exit(
        handler: unsafe extern "C-unwind" fn(c_int, *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// The C library's key for the forgettable registrations of an image.
fn forgettable_key(image: u64) -> u64 {
    KEYS | image << 1 | 1
}

impl Registered {
    fn next_key(&mut self) -> u64 {
        self.count += 1;
        KEYS | self.count << 1
    }

    /// The handlers that `images` registered, by key and image.
    fn list(&self, images: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let of_image = |image: &u64| {
            let keys = self.keys.get(image).into_iter().flatten();
            let image = *image;
            keys.map(move |&key| (key, image))
        };
        let mut list: Vec<(u64, u64)> = images.iter().flat_map(of_image).collect();
        list.sort_unstable();
        list
    }

    /// Takes a handler out; false if it is already out.
    fn take(&mut self, key: u64, image: u64) -> bool {
        let Some(keys) = self.keys.get_mut(&image) else {
            return false;
        };
        // The last one, nearly always.
        let place = keys.iter().rposition(|&known| known == key);
        if let Some(place) = place {
            keys.remove(place);
        }
        if keys.is_empty() {
            self.keys.remove(&image);
        }
        place.is_some()
    }
}

/// The locked table, under a pass.
fn registered() -> MutexGuard<'static, Registered> {
    REGISTERED.lock()
}

/// The images of a registration, its owner first: the image whose handle is `dso`, else the first
/// that one of `addresses` belongs to. Empty if it concerns no code of the runtime.
pub(super) fn images(dso: *mut c_void, addresses: &[u64]) -> Result<Vec<Arc<Life>>, ImageGone> {
    let mut found: Vec<Arc<Life>> = Vec::new();
    found.extend(handles::image_of(dso as u64).transpose()?);
    for directory in directories() {
        for image in addresses.iter().filter_map(|&at| directory.life_at(at)) {
            for image in [image.root(), &image] {
                if !found.iter().any(|known| Arc::ptr_eq(known, image)) {
                    found.push(Arc::clone(image));
                }
            }
        }
    }
    Ok(found)
}

/// Holds all of them.
pub(super) fn hold_all(images: &[Arc<Life>]) -> Result<Vec<Hold>, ImageGone> {
    images.iter().map(Life::hold).collect()
}

/// Registers a handler of the process's exit; minus one on failure, or if its image was removed.
///
/// # Safety
/// 1. `handler` takes `argument`, and stays callable until its image is removed.
pub(super) unsafe fn at_exit(handler: Handler, argument: *mut c_void, dso: *mut c_void) -> c_int {
    let Some(register) = register_at_exit() else {
        return -1;
    };
    let _pass = gate::enter();
    let Ok(images) = images(dso, &[handler as *const () as u64, argument as u64]) else {
        return -1;
    };
    let Some(owner) = images.first() else {
        // SAFETY: duty 1; not JIT'd code, so it stays.
        return unsafe { register(handler as *mut c_void, argument, dso) };
    };
    let Ok(holds) = hold_all(&images) else {
        return -1;
    };
    let record = Box::new(HandlerRecord {
        handler,
        argument,
        holds,
    });
    let record = Box::into_raw(record);
    let mut registered = registered();
    let key = registered.next_key();
    // SAFETY: the record stays until it is run, and so do the images it holds.
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
        // SAFETY: of a box, and not taken by any other owner.
        drop(unsafe { Box::from_raw(record) });
    }
    status
}

/// Calls `register` with a key of the registration's owner, or with `dso` if it has none. `refused`
/// if the image was removed.
pub(super) fn forgettable(
    dso: *mut c_void,
    addresses: &[u64],
    refused: c_int,
    register: impl FnOnce(*mut c_void) -> c_int,
) -> c_int {
    let found = {
        let _pass = gate::enter();
        images(dso, addresses).and_then(|images| Ok((hold_all(&images)?, images)))
    };
    let Ok((holds, images)) = found else {
        return refused;
    };
    let Some(owner) = images.first() else {
        return register(dso);
    };
    // Without a pass: a fork may hold the C library's list of such handlers while it waits for
    // threads with a pass.
    let status = register(forgettable_key(owner.number()) as *mut c_void);
    let _pass = gate::enter();
    if status != 0 {
        drop(holds);
        return status;
    }
    let mut registered = registered();
    registered.forgettable.insert(owner.number());
    let closed = owner.is_closed();
    drop(registered);
    for (hold, image) in holds.into_iter().zip(&images) {
        // Handlers that are not forgotten with an image may be called at any time.
        if closed || !Arc::ptr_eq(image, owner) {
            std::mem::forget(hold);
        }
    }
    status
}

/// Runs a record; called by the C library, once.
///
/// # Safety
/// 1. `record` is that of a box, which is freed here.
unsafe extern "C-unwind" fn run_record(record: *mut c_void) {
    let record = record.cast::<HandlerRecord>();
    // SAFETY: duty 1.
    let (handler, argument) = unsafe { ((*record).handler, (*record).argument) };
    // The C library's lock is released meanwhile.
    let pass = take_pass();
    let ours = pass.is_some();
    drop(pass);
    // SAFETY: by the promise of the registering caller.
    unsafe { handler(argument) };
    if ours {
        keep_pass();
    }
    // SAFETY: duty 1. Not dropped by unwinding this frame: a handler may leave it by an exception.
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
        // SAFETY: by the promise of the registering caller.
        unsafe { handler(status, argument) };
        // SAFETY: as in `run_record`.
        drop(unsafe { Box::from_raw(record) });
    }
    type Kept = (
        unsafe extern "C-unwind" fn(c_int, *mut c_void),
        *mut c_void,
        Vec<Hold>,
    );
    let _pass = gate::enter();
    let addresses = [handler as *const () as u64, argument as u64];
    let held = images(std::ptr::null_mut(), &addresses).and_then(|images| hold_all(&images));
    let Ok(holds) = held else { return -1 };
    let record: Box<Kept> = Box::new((handler, argument, holds));
    let record = Box::into_raw(record);
    // SAFETY: the record stays until it is run, and so do the images it holds.
    let status = unsafe { library_on_exit(run, record.cast::<c_void>()) };
    if status != 0 {
        // SAFETY: of a box, and not taken by any other owner.
        drop(unsafe { Box::from_raw(record) });
    }
    status
}

/// `__cxa_finalize` of JIT'd code: with an image's own handle it runs that image's handlers.
///
/// # Safety
/// As `__cxa_finalize`.
pub(super) unsafe extern "C" fn cxa_finalize(dso: *mut c_void) {
    let image = {
        let _pass = gate::enter();
        handles::image_of(dso as u64)
    };
    match image {
        Some(Ok(image)) => run(&BTreeSet::from([image.number()])),
        Some(Err(ImageGone)) => {}
        // SAFETY: by the caller's promise.
        None => unsafe { __cxa_finalize(dso) },
    }
}

/// The remaining handlers of a set of images, as last searched.
#[derive(Default)]
struct RemainingHandlers {
    /// The number of keys given at that time.
    count: Option<u64>,
    /// By key and image, the next one last.
    list: Vec<(u64, u64)>,
}

impl Registered {
    /// Takes out the latest handler of `images`. Searches again if one was added meanwhile: a new
    /// one runs first.
    fn next(&mut self, images: &BTreeSet<u64>, found: &mut RemainingHandlers) -> Option<u64> {
        if found.count != Some(self.count) {
            found.count = Some(self.count);
            found.list = self.list(images);
        }
        // A handler already taken out was run by another handler's call.
        std::iter::from_fn(|| found.list.pop())
            .find(|&(key, image)| self.take(key, image))
            .map(|(key, _)| key)
    }
}

/// Runs the handlers of the process's exit that `images` registered, latest first, including those
/// added meanwhile. Without a lock.
fn run(images: &BTreeSet<u64>) {
    let mut found = RemainingHandlers::default();
    loop {
        let next = {
            let _pass = gate::enter();
            registered().next(images, &mut found)
        };
        match next {
            Some(key) => finalize(key),
            None => return,
        }
    }
}

/// Destructors of images, which the images' loader keeps.
pub(crate) trait ImageDestructors {
    /// Runs the destructors of `images` whose constructors have run, latest first. Without a lock.
    fn run(&self, images: &BTreeSet<u64>);

    /// Whether there are any. Under a pass.
    fn has_any(&self, images: &BTreeSet<u64>) -> bool;
}

/// Runs the end of `images`, as [`run_and_close`] does, and keeps them open: handlers they register
/// later run at their next end.
pub(crate) fn run_ends(destructors: &impl ImageDestructors, images: &[Arc<Life>]) {
    let numbers: BTreeSet<u64> = images.iter().map(|image| image.number()).collect();
    loop {
        thread_end::run(&numbers);
        destructors.run(&numbers);
        run(&numbers);
        let _pass = gate::enter();
        let done = thread_end::is_done(&numbers) && !destructors.has_any(&numbers);
        if done && registered().list(&numbers).is_empty() {
            return;
        }
    }
}

/// Runs the end of `images`, in the order of the C library: destructors of the calling thread's
/// variables, destructors of the images, registered handlers; until none is left. Then closes the
/// images, so that they register no handler any more that could run. Returns the images that are
/// still held.
pub(crate) fn run_and_close(
    destructors: &impl ImageDestructors,
    images: &[Arc<Life>],
) -> Vec<Arc<Life>> {
    let numbers: BTreeSet<u64> = images.iter().map(|image| image.number()).collect();
    let (held, forgettable) = loop {
        thread_end::run(&numbers);
        destructors.run(&numbers);
        run(&numbers);
        let _pass = gate::enter();
        let mut registered = registered();
        let done = thread_end::is_done(&numbers) && !destructors.has_any(&numbers);
        if !done || !registered.list(&numbers).is_empty() {
            continue;
        }
        let held: Vec<Arc<Life>> = images
            .iter()
            .filter(|image| image.close())
            .cloned()
            .collect();
        let forgettable = numbers
            .iter()
            .filter(|image| registered.forgettable.remove(image));
        break (held, forgettable.copied().collect::<Vec<u64>>());
    };
    for image in images {
        let handles = {
            let _pass = gate::enter();
            image.handles()
        };
        // Handlers registered by the C library's own functions, which `dlsym` finds.
        handles.into_iter().for_each(finalize);
    }
    forgettable
        .into_iter()
        .map(forgettable_key)
        .for_each(finalize);
    held
}

thread_local! {
    /// The pass of a thread that is in [`finalize`], except while handlers run. It has no
    /// destructor, so it outlives the thread's destructors: the C library calls handlers then.
    static FINALIZING: Cell<Option<ManuallyDrop<Pass>>> = const { Cell::new(None) };
}

/// Takes the pass of this thread, if [`finalize`] has called the C library.
fn take_pass() -> Option<Pass> {
    FINALIZING.take().map(ManuallyDrop::into_inner)
}

fn keep_pass() {
    FINALIZING.set(Some(ManuallyDrop::new(gate::enter())));
}

/// Makes the C library run the handlers of a key, and forget them.
///
/// It has a lock for its list, which it does not hold while a handler runs, and which a child of
/// `fork` may find locked. A fork waits for passes, so the thread has one while it is in the C
/// library. Before glibc 2.36 a fork holds another lock meanwhile that is needed there. The thread
/// then has no pass, and such a child cannot register handlers, as natively.
fn finalize(key: u64) {
    let finalize = __cxa_finalize as *const () as u64;
    // SAFETY: handlers of images whose removal its caller allowed, and which exist: a record holds
    // them.
    let call = || unsafe { uruk_stubs::call_with(finalize, key) };
    threads::as_guest(|| match fork_waits_without_locks() {
        true => {
            keep_pass();
            call();
            drop(take_pass());
        }
        false => {
            shield::lowered(call);
        }
    });
}

/// Whether the C library's `fork` holds no lock of its own while it calls handlers: glibc 2.36
/// and later.
fn fork_waits_without_locks() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: a constant string of the C library.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        let mut numbers = version.to_str().unwrap_or_default().split('.');
        let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
        (next(), next()) >= (Some(2), Some(36))
    })
}
