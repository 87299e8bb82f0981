//! Detection whether the calling thread still is in its start function.
//!
//! Destructors of thread-locals run after that function, and Rust's standard library removes the
//! thread's alternate stack before them, even one that is not its own. A stack overflow would then
//! end the process. Asking the kernel (`sigaltstack`) at each guarded call takes 470 ns on the
//! machine where the call takes 45.
//!
//! The C library calls the thread's start function, and the code at the thread's end, from one
//! frame: the *base* here (`start_thread`; `__libc_start_call_main` of the first thread). The
//! return addresses of both calls lie in the same place, and differ. So the place and the address
//! are noted with the thread's first guarded call, and later ones begin by comparing it.
//!
//! | the address | search for the base | search for the alternate stack |
//! |---|---|---|
//! | is the noted one | no | no |
//! | is another one | yes | yes |
//! | was not found: on a fiber, above code without tables, in a program without shared libraries | at calls 1, 2, 4, 8, ... | at each call |
//!
//! `std::process::exit` removes the stack, too, and its frames are above the base's: destructors
//! and handlers that run from there are recognized, as code of the runtime ran before them
//! ([`leave`]). Those that were registered after the first guarded call run before it, and have no
//! alternate stack.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::guarded::stacks;

/// The place of the return address, and the noted value.
#[derive(Clone, Copy)]
struct Base {
    place: *const u64,
    noted: u64,
}

/// Differs from the noted value while no base is known.
static NOWHERE: u64 = 0;

const UNKNOWN: Base = Base {
    place: &raw const NOWHERE,
    noted: 1,
};

thread_local! {
    static BASE: Cell<Base> = const { Cell::new(UNKNOWN) };
    /// Number of successive searches without a base.
    static MISSED: Cell<u32> = const { Cell::new(0) };
}

/// Whether the thread may have left its start function, as noted by [`note`].
#[inline]
pub(super) fn is_left() -> bool {
    let base = BASE.get();
    // SAFETY: a word of the thread's own stack, below all of its frames but the base's, or a static.
    unsafe { base.place.read_volatile() != base.noted }
}

/// Makes the thread count as having left, until a base is noted.
pub(crate) fn leave() {
    BASE.set(UNKNOWN);
    MISSED.set(0);
}

/// Searches for the base, under the caller's frame.
pub(crate) fn note() {
    let missed = MISSED.get();
    BASE.set(UNKNOWN);
    MISSED.set(missed.saturating_add(1));
    if (missed == 0 || missed.is_power_of_two())
        && let Some(base) = find()
    {
        BASE.set(base);
        MISSED.set(0);
    }
}

/// A frame: the address where it continues, and its stack pointer then.
#[derive(Clone, Copy, Default)]
struct WalkedFrame {
    pc: u64,
    stack: u64,
}

/// The outermost frames of a walk, the last one at `met - 1`.
#[derive(Default)]
struct Outermost {
    frames: [WalkedFrame; Outermost::KEPT],
    met: usize,
}

impl Outermost {
    /// More frames than the C library has below a thread's function.
    const KEPT: usize = 8;
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
    fn _Unwind_GetCFA(context: *mut c_void) -> u64;
}

extern "C" fn look(context: *mut c_void, data: *mut c_void) -> c_int {
    /// Maximal frames of a walk.
    const MOST: usize = 1 << 16;
    const GO_ON: c_int = 0;
    const END: c_int = 4;
    // SAFETY: the unwinder's own, and the argument that `find` passes.
    let outermost = unsafe { &mut *data.cast::<Outermost>() };
    // SAFETY: likewise.
    let (pc, stack) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    outermost.frames[outermost.met % Outermost::KEPT] = WalkedFrame { pc, stack };
    outermost.met += 1;
    if outermost.met == MOST { END } else { GO_ON }
}

fn find() -> Option<Base> {
    let mut outermost = Outermost::default();
    // SAFETY: `look` gets the type it expects.
    unsafe { _Unwind_Backtrace(look, (&raw mut outermost).cast()) };
    let kept = outermost.met.min(Outermost::KEPT);
    // From the outermost inwards.
    let frames = (1..=kept).map(|back| outermost.frames[(outermost.met - back) % Outermost::KEPT]);
    // The first thread's outermost frame is the program's `_start`.
    let at = frames.clone().take(2).position(is_of_the_c_library)?;
    let base = frames
        .skip(at)
        .take_while(|&it| is_of_the_c_library(it))
        .last()?;
    let place = base.stack.wrapping_sub(8);
    // Not on a fiber's stack, which may be freed.
    if place % 8 != 0 || !stacks::is_within(place) {
        return None;
    }
    let (place, noted) = (place as *const u64, base.pc);
    // SAFETY: a word of the thread's own stack, in a frame that is still active.
    let found = unsafe { place.read_volatile() };
    (found == noted).then_some(Base { place, noted })
}

/// Whether a frame is of the library in which threads begin. Before glibc 2.34 there were two.
fn is_of_the_c_library(frame: WalkedFrame) -> bool {
    static LIBRARIES: OnceLock<[Option<usize>; 2]> = OnceLock::new();
    let libraries = LIBRARIES.get_or_init(|| {
        [c"gnu_get_libc_version", c"pthread_key_create"].map(|name: &CStr| {
            // SAFETY: calls the loader, with a terminated text.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            library_of(address)
        })
    });
    let library = library_of(frame.pc.wrapping_sub(1) as *const c_void);
    library.is_some()
        && libraries.contains(&library)
        && library != library_of(find as *const c_void)
}

/// Base address of the library that contains an address.
fn library_of(address: *const c_void) -> Option<usize> {
    // SAFETY: an empty structure, filled by the call.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then(|| info.dli_fbase.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes its base, and in a destructor checks that it was left.
    struct AtEnd(std::sync::mpsc::Sender<bool>);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            let left = is_left();
            note();
            // A base above the first is found there as well.
            self.0.send(left && !is_left()).expect("it waits");
        }
    }

    #[test]
    fn a_thread_leaves_its_function() {
        thread_local! {
            static END: Cell<Option<AtEnd>> = const { Cell::new(None) };
        }
        let (told, ends) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            assert!(is_left(), "it is not known");
            stacks::prepare();
            note();
            assert!(!is_left(), "it is found");
            END.set(Some(AtEnd(told)));
            leave();
            assert!(is_left());
            note();
            assert!(!is_left());
        });
        thread.join().expect("no panic");
        assert_eq!(ends.recv(), Ok(true));
    }
}
