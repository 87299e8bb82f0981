//! The ABI of libgcc: answering its queries, and querying it.
//!
//! libgcc's `uw_frame_state_for` calls
//! `_Unwind_Find_FDE (context->ra + _Unwind_IsSignalFrame (context) - 1, ..)`:
//! for a call frame the address it asks for is the last byte of the call, so a
//! call that never returns at the very end of a function still finds its own
//! row; a signal frame's is exact. Lookups need no adjustment of their own.

use std::ffi::{CStr, c_void};
use std::mem;
use std::ptr;

use crate::registry;
use crate::sync::{AtomicPtr, Ordering};

/// libgcc's `struct dwarf_eh_bases`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DwarfEhBases {
    /// Base of text-relative pointers; unused on x86-64.
    pub tbase: *mut c_void,
    /// Base of data-relative pointers.
    pub dbase: *mut c_void,
    /// First byte of the function.
    pub func: *mut c_void,
}

const _: () = assert!(size_of::<DwarfEhBases>() == 24);

type FindFde = unsafe extern "C" fn(*mut c_void, *mut DwarfEhBases) -> *const c_void;

const FIND_FDE: &CStr = c"_Unwind_Find_FDE";

/// libgcc's own function: null before it was looked up, [`absent`] if libgcc has none. Release,
/// with the acquire in [`find_fde`] as partner; every store has the same value.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The substitute for libgcc's function in a process that has none.
unsafe extern "C" fn absent(_: *mut c_void, _: *mut DwarfEhBases) -> *const c_void {
    ptr::null()
}

/// An address that is no code; [`interposed`] queries it.
static PROBE: u8 = 0;

/// Looks up libgcc's own function, once.
pub(crate) fn resolve_next() -> *mut c_void {
    // SAFETY: a plain query with a terminated name. RTLD_NEXT is relative to
    // the object that this code is linked into, so it never finds the function
    // that forwards to us.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, FIND_FDE.as_ptr()) };
    let next = if found.is_null() {
        absent as FindFde as *mut c_void
    } else {
        found
    };
    // Partner: the acquire in `find_fde`.
    NEXT.store(next, Ordering::Release);
    next
}

/// The body of `_Unwind_Find_FDE`: the frame description entry that covers `pc`, or null. It looks
/// JIT'd code up in the index, and passes everything else on to libgcc.
///
/// For JIT'd code it is lock-free and async-signal-safe. libgcc's function is
/// found when the first region is registered, or here if that is earlier.
///
/// # Safety
/// 1. `bases` is valid for a write, as libgcc guarantees.
pub unsafe extern "C" fn find_fde(pc: *mut c_void, bases: *mut DwarfEhBases) -> *const c_void {
    if let Some(found) = registry::find(pc.addr() as u64)
        && found.fde != 0
    {
        let func = ptr::with_exposed_provenance_mut(found.start as usize);
        let null = ptr::null_mut();
        // SAFETY: duty 1.
        unsafe {
            bases.write(DwarfEhBases {
                tbase: null,
                dbase: null,
                func,
            });
        }
        return ptr::with_exposed_provenance(found.fde as usize);
    }
    if ptr::addr_eq(pc, &raw const PROBE) {
        let null = ptr::null_mut();
        // SAFETY: duty 1.
        unsafe {
            bases.write(DwarfEhBases {
                tbase: null,
                dbase: null,
                func: pc,
            });
        }
        return (&raw const PROBE).cast();
    }
    // Partner: the release in `resolve_next`.
    let mut next = NEXT.load(Ordering::Acquire);
    if next.is_null() {
        next = resolve_next();
    }
    // SAFETY: `resolve_next` stored either libgcc's function of that name, which
    // has this type, or `absent`.
    let next = unsafe { mem::transmute::<*mut c_void, FindFde>(next) };
    // SAFETY: duty 1.
    unsafe { next(pc, bases) }
}

/// Whether libgcc's queries reach [`find_fde`]: the executable exports `_Unwind_Find_FDE` and
/// forwards it. If not, unwinding through JIT'd code needs [`FrameRegistration`].
pub fn interposed() -> bool {
    // SAFETY: a plain query with a terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FIND_FDE.as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: functions of that name have this type.
    let function = unsafe { mem::transmute::<*mut c_void, FindFde>(found) };
    let mut bases = DwarfEhBases {
        tbase: ptr::null_mut(),
        dbase: ptr::null_mut(),
        func: ptr::null_mut(),
    };
    let probe = (&raw const PROBE).cast_mut().cast();
    // SAFETY: `bases` is valid for writes.
    let answer = unsafe { function(probe, &raw mut bases) };
    ptr::addr_eq(answer, &raw const PROBE)
}

/// Whether libgcc calls [`find_fde`], in any way: it is queried for a function to test this.
pub fn is_asked() -> bool {
    let probe = (&raw const PROBE).cast_mut().cast::<c_void>();
    // SAFETY: looks up a frame description, that of the byte before the address.
    let found = unsafe { _Unwind_FindEnclosingFunction(probe.wrapping_byte_add(1)) };
    ptr::addr_eq(found, probe)
}

// In libgcc, which std links.
unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(pc: *mut c_void) -> *mut c_void;
    fn __register_frame(begin: *const c_void);
    fn __deregister_frame(begin: *const c_void);
}

/// A section of frame descriptions registered with libgcc, for hosts that cannot interpose
/// `_Unwind_Find_FDE`. libgcc 12 sorts each registration once and searches the list of them
/// linearly. So register few, large sections (the caller merges those of a region), and end them
/// last in, first out.
///
/// Dropping it leaves it registered, because ending it is unsafe.
#[derive(Debug)]
#[must_use = "ends only by `deregister`"]
pub struct FrameRegistration {
    begin: u64,
}

impl FrameRegistration {
    /// Registers the frame descriptions at `begin`.
    ///
    /// # Safety
    /// 1. `begin` is the first byte of a sequence of whole, fixed-up CIE and FDE
    ///    records that ends with a length of zero (as libgcc wants it; LLVM's
    ///    libunwind takes one FDE instead).
    /// 2. It is not empty, not registered already, and stays readable and
    ///    unchanged until [`FrameRegistration::deregister`].
    pub unsafe fn register(begin: u64) -> FrameRegistration {
        // SAFETY: the caller's duties.
        unsafe { __register_frame(ptr::with_exposed_provenance(begin as usize)) };
        FrameRegistration { begin }
    }

    /// Ends the registration.
    ///
    /// # Safety
    /// 1. No thread is unwinding through the range or has a frame in it.
    pub unsafe fn deregister(self) {
        // SAFETY: registered by `register`, once; the caller's duty.
        unsafe { __deregister_frame(ptr::with_exposed_provenance(self.begin as usize)) };
    }
}
