//! Undefined symbols as people who write Rust and C++ know them: demangled, one a line, and where
//! they are to be had.
//!
//! Rust's names are read by `rustc-demangle`; those of C++ by the C++ library's own
//! `__cxa_demangle`, where that library is: a program with such names needs it anyway.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;

use uruk::Missing;

/// As `__cxa_demangle` has it.
type CxaDemangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// The list, if a name of it is mangled.
pub(super) fn list(missing: &[Missing]) -> Option<String> {
    if !missing.iter().any(|one| is_mangled(&one.symbol)) {
        return None;
    }
    let mut text = String::from("undefined symbols:");
    for one in missing {
        let _ = write!(text, "\n  {}", shown(&one.symbol));
        for user in &one.needed_by {
            let user = match user.rsplit_once(": ") {
                Some((file, function)) => format!("{file}: {}", shown(function)),
                None => user.clone(),
            };
            let _ = write!(text, "\n    needed by {user}");
        }
    }
    Some(text)
}

/// What may help against it.
pub(super) fn tip(missing: &[Missing]) -> &'static str {
    let rust = |one: &Missing| is_of_std(&one.symbol);
    if missing.iter().any(rust) {
        return "of Rust's standard library, which `rustc -O -C lto=fat --emit=llvm-bc,link` puts \
                into the bitcode: without `link` it is left out";
    }
    if missing.iter().any(|one| is_mangled(&one.symbol)) {
        return "the file that defines them is to be named, too (`uruk run a.bc b.bc`), or a \
                library, by `-l NAME`";
    }
    "`-l NAME` adds a library of the program, such as `z` or `libz.so.1`"
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_Z") || name == "rust_eh_personality"
}

/// Whether a name is of `std`, or of what it is made of.
fn is_of_std(name: &str) -> bool {
    if name == "rust_eh_personality" {
        return true;
    }
    let Ok(demangled) = rustc_demangle::try_demangle(name) else {
        return false;
    };
    let text = format!("{demangled:#}");
    let text = text.trim_start_matches('<');
    ["std::", "core::", "alloc::"]
        .iter()
        .any(|of| text.starts_with(of))
}

/// A name as it was written, if it is mangled and can be read.
fn shown(name: &str) -> Cow<'_, str> {
    if let Ok(demangled) = rustc_demangle::try_demangle(name) {
        return Cow::Owned(format!("{demangled:#}"));
    }
    match name.starts_with("_Z").then(|| cpp(name)).flatten() {
        Some(written) => Cow::Owned(written),
        None => Cow::Borrowed(name),
    }
}

/// A name of C++, by its library.
fn cpp(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: the library stays open; a plain query by terminated names.
    let found = unsafe {
        let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, c"__cxa_demangle".as_ptr())
    };
    if found.is_null() {
        return None;
    }
    // SAFETY: the Itanium ABI's function of that name has that type.
    let demangle = unsafe { std::mem::transmute::<*mut libc::c_void, CxaDemangle>(found) };
    let mut status = 0;
    // SAFETY: a terminated name; no buffer, so what it answers is allocated by `malloc`, and ours.
    unsafe {
        let written = demangle(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &mut status,
        );
        if written.is_null() {
            return None;
        }
        let text = CStr::from_ptr(written).to_string_lossy().into_owned();
        libc::free(written.cast());
        Some(text)
    }
}
