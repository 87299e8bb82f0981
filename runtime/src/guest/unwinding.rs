//! Exceptions through JIT'd frames in hosts that export nothing.
//!
//! libgcc calls its own `_Unwind_Find_FDE` for the frames of a walk, through a word that the
//! dynamic loader fills in by name. An executable that exports a function of that name is found by
//! the loader; in any other, the first session writes the runtime's function into that word.
//! Queries for other code are passed to libgcc's function.
//!
//! Where libgcc is linked into the executable, no such word exists: exceptions and panics end at
//! the first JIT'd frame, as at any code without unwind information. A warning is logged.

use std::ffi::{CStr, c_void};
use std::sync::Once;

use tracing::{debug, warn};

use crate::host::loaded;

/// The function that libgcc calls.
const ASKED: &CStr = c"_Unwind_Find_FDE";

/// Makes libgcc call the runtime's function. Under a pass; once in a process.
pub(crate) fn attend() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if uruk_unwind::is_asked() {
            return;
        }
        write_words();
        match uruk_unwind::is_asked() {
            true => debug!("libgcc asks for JIT'd frames, though the executable exports nothing"),
            false => warn!("no exception or panic can pass through JIT'd code in this process"),
        }
    });
}

/// Overwrites the words by which libgcc calls its own function.
fn write_words() {
    // SAFETY: a plain query with a terminated name.
    let own = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ASKED.as_ptr()) } as u64;
    let ours = uruk_unwind::find_fde
        as unsafe extern "C" fn(*mut c_void, *mut uruk_unwind::DwarfEhBases) -> *const c_void;
    let (loaded, _) = loaded::all();
    let mut libgcc = loaded.iter().filter(|library| library.holds(own));
    let Some(library) = libgcc.next().filter(|_| own != 0) else {
        return;
    };
    let mut words = Vec::new();
    // SAFETY: libgcc stays loaded as long as `std`, which needs it.
    unsafe {
        library.each_word(|word| {
            if word.name == ASKED {
                words.push((word.address, ours as usize as u64));
            }
        });
    }
    // SAFETY: as above; the function has the type that is called there, and answers as libgcc's
    // does for code that is not JIT'd.
    if !words.is_empty() && !unsafe { library.write(&words) } {
        warn!("the words of libgcc cannot be written");
    }
}
