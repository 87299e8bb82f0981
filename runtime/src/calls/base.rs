//! Whether the calling thread still is in the function that it began with.
//!
//! Destructors of thread-locals run after that function, and Rust's standard library takes the
//! thread's alternate stack away before them, also one that is not its own. The end of the stack
//! would end the process then. To ask the kernel (`sigaltstack`) at each guarded call takes 470 ns on the
//! machine where the call takes 45.
//!
//! The C library calls the function that a thread begins with, and what runs at the thread's end, from
//! one frame: the *base* here (`start_thread`; `__libc_start_call_main` of the first thread). The
//! return addresses of both calls lie in the same place, and differ. So the place and the address
//! are noted with the thread's first guarded call, and later ones begin with a look at it.
//!
//! | the address | the base is looked for | the alternate stack is looked for |
//! |---|---|---|
//! | is the noted one | no | no |
//! | is another one | yes | yes |
//! | was not found: on a fiber, above code without tables, in a program without shared libraries | at calls 1, 2, 4, 8, ... | at each call |
//!
//! `std::process::exit` takes the stack away, too, and its frames are above the base's: destructors and
//! handlers that run from there are known by code of ours which ran before them ([`leave`]). Those that were
//! registered after the first guarded call run before it, and have no alternate stack.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::stacks;

/// Where the return address lies, and the one that was noted.
#[derive(Clone, Copy)]
struct Base {
    place: *const u64,
    noted: u64,
}

/// Differs from what is noted where no base is known.
static NOWHERE: u64 = 0;

const UNKNOWN: Base = Base {
    place: &raw const NOWHERE,
    noted: 1,
};

thread_local! {
    static BASE: Cell<Base> = const { Cell::new(UNKNOWN) };
    /// How often no base was found in a row.
    static MISSED: Cell<u32> = const { Cell::new(0) };
}

/// Whether the thread may have left the function that it began with, as far as [`note`] found it.
#[inline]
pub(super) fn is_left() -> bool {
    let base = BASE.get();
    // SAFETY: a word of the thread's own stack, below all of its frames but the base's, or a static.
    unsafe { base.place.read_volatile() != base.noted }
}

/// From now on the thread counts as having left, until a base is noted.
pub(super) fn leave() {
    BASE.set(UNKNOWN);
    MISSED.set(0);
}

/// Looks for the base, under the caller's frame.
pub(super) fn note() {
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

/// A frame: what it goes on with, and the stack it has then.
#[derive(Clone, Copy, Default)]
struct Frame {
    pc: u64,
    stack: u64,
}

/// The outermost frames that a walk met, the last one at `met - 1`.
#[derive(Default)]
struct Outermost {
    frames: [Frame; Outermost::KEPT],
    met: usize,
}

impl Outermost {
    /// More than the C library has below a thread's function.
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
    /// Frames after which the walk ends.
    const MOST: usize = 1 << 16;
    const GO_ON: c_int = 0;
    const END: c_int = 4;
    // SAFETY: the unwinder's own, and what `find` gives.
    let outermost = unsafe { &mut *data.cast::<Outermost>() };
    // SAFETY: likewise.
    let (pc, stack) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    outermost.frames[outermost.met % Outermost::KEPT] = Frame { pc, stack };
    outermost.met += 1;
    if outermost.met == MOST { END } else { GO_ON }
}

fn find() -> Option<Base> {
    let mut outermost = Outermost::default();
    // SAFETY: `look` is given what it takes.
    unsafe { _Unwind_Backtrace(look, (&raw mut outermost).cast()) };
    let kept = outermost.met.min(Outermost::KEPT);
    // From the outermost on.
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
    // SAFETY: a word of the thread's own stack, in a frame that goes on.
    let found = unsafe { place.read_volatile() };
    (found == noted).then_some(Base { place, noted })
}

/// Whether a frame is of the library that threads begin in. Before glibc 2.34 there were two.
fn is_of_the_c_library(frame: Frame) -> bool {
    static LIBRARIES: OnceLock<[Option<usize>; 2]> = OnceLock::new();
    let libraries = LIBRARIES.get_or_init(|| {
        [c"gnu_get_libc_version", c"pthread_key_create"].map(|name: &CStr| {
            // SAFETY: asks the loader, with a text that ends.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            library_of(address)
        })
    });
    let library = library_of(frame.pc.wrapping_sub(1) as *const c_void);
    library.is_some()
        && libraries.contains(&library)
        && library != library_of(find as *const c_void)
}

/// Where the library begins that an address is in.
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

    /// Notes its base, and in a destructor that it is left.
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
