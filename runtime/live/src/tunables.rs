//! Settings of the C library's allocator for a program of `uruk live`, or `uruk run --tune`.
//!
//! glibc's `malloc` takes a lock, and `free` another, once a process has a second thread, which ours is.
//! Lua's binary-trees takes 12.9 to 13.5 ms an iteration, and 15 beside a thread that does nothing;
//! sqlite 17.9 and 18.5. Blocks from a thread's own cache need no lock, but that cache holds seven
//! blocks of a size. With [`COUNT`] of them the two take 12.7 and 17.7 ms, and have 3.0 MB resident
//! instead of 2.9, and 4.6 instead of 4.0.
//!
//! The setting is an environment variable that glibc reads before any code of the process runs, so only
//! the starting process can set it: `uruk run` executes itself again ([`start_again`]). Programs that
//! this one starts must not inherit it: it is removed before the program runs ([`take_ours`]).

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::start::has_own_rights;

/// Name of the environment variable.
pub const TUNABLES: &str = "GLIBC_TUNABLES";

/// Blocks of a size. The unusual spelling identifies the setting as ours.
const COUNT: &str = "glibc.malloc.tcache_count=0x1000";

/// The new value of the variable, if it was `before`. `None` if the user has set this limit.
#[must_use]
pub fn with_ours(before: Option<&OsStr>) -> Option<OsString> {
    const NAME: &[u8] = b"tcache_count";
    let before = before.unwrap_or_default();
    let asked = before.as_bytes().windows(NAME.len());
    if asked.into_iter().any(|part| part == NAME) {
        return None;
    }
    let mut value = before.to_owned();
    if !before.is_empty() {
        value.push(":");
    }
    value.push(COUNT);
    Some(value)
}

/// Offset of our setting in the variable's value, with its separator.
fn place_of_ours(value: &[u8]) -> Option<usize> {
    let rest = value.strip_suffix(COUNT.as_bytes())?;
    match rest {
        [] => Some(0),
        [other @ .., b':'] => Some(other.len()),
        _ => None,
    }
}

/// Restores the variable; returns whether our setting was there. Allocates nothing.
///
/// # Safety
/// No other code uses the environment meanwhile.
pub unsafe fn take_ours() -> bool {
    let name = c"GLIBC_TUNABLES";
    // SAFETY: a C string; by the caller's promise the value stays valid while it is read.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: as above.
    let place = place_of_ours(unsafe { CStr::from_ptr(value) }.to_bytes());
    match place {
        None => (),
        // SAFETY: a C string, and the caller's promise.
        Some(0) => unsafe {
            libc::unsetenv(name.as_ptr());
        },
        // SAFETY: within the value; the strings of the environment are the process's to write to.
        Some(place) => unsafe { value.add(place).write(0) },
    }
    place.is_some()
}

/// Executes the process again with our setting, if that was not done yet. Returns if the setting is in
/// place, if the user has set it, or if it cannot be set: the process then continues unchanged.
///
/// # Safety
/// The process has one thread.
pub unsafe fn start_again() {
    // The C library removes the setting from the environment of a process with rights of its own: it
    // would execute itself for ever.
    // SAFETY: by the caller's promise.
    if has_own_rights() || unsafe { take_ours() } {
        return;
    }
    let before = std::env::var_os(TUNABLES);
    if let Some(value) = with_ours(before.as_deref()) {
        // SAFETY: the caller's promise.
        unsafe {
            begin_again(TUNABLES, &value);
            take_ours();
        }
    }
}

/// Executes the process again, with the same arguments and one more variable in its environment. Returns
/// on failure; the variable is set then.
///
/// # Safety
/// No other thread uses the environment meanwhile.
pub unsafe fn begin_again(variable: &str, value: &OsStr) {
    let Ok(file) = std::env::current_exe() else {
        return;
    };
    let word = |word: &OsStr| CString::new(word.as_bytes());
    let words: Result<Vec<CString>, _> = std::env::args_os().map(|it| word(&it)).collect();
    let (Ok(words), Ok(file)) = (words, word(file.as_os_str())) else {
        return;
    };
    let pointers = words.iter().map(|word| word.as_ptr());
    let pointers: Vec<_> = pointers.chain([std::ptr::null()]).collect();
    // SAFETY: the caller's promise; C strings, and a list of them that ends with null. Not by
    // `Command`, which changes what signals do.
    unsafe {
        std::env::set_var(variable, value);
        libc::execv(file.as_ptr(), pointers.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    use super::{COUNT, place_of_ours, with_ours};

    #[test]
    fn it_comes_last_and_is_found_again() {
        for before in [None, Some("glibc.malloc.arena_max=1")] {
            let value = with_ours(before.map(OsStr::new)).expect("nobody asked");
            let place = place_of_ours(value.as_bytes()).expect("ours");
            let rest = OsStr::from_bytes(&value.as_bytes()[..place]);
            assert_eq!(rest, before.unwrap_or_default());
        }
        assert_eq!(with_ours(Some(OsStr::new(""))), Some(OsString::from(COUNT)));
    }

    #[test]
    fn what_somebody_else_says_stays() {
        let theirs = "glibc.malloc.tcache_count=16";
        assert_eq!(with_ours(Some(OsStr::new(theirs))), None);
        let longer = format!("x{COUNT}");
        for value in ["", theirs, &longer, "glibc.malloc.tcache_count=4096"] {
            assert_eq!(place_of_ours(value.as_bytes()), None, "{value}");
        }
    }
}
