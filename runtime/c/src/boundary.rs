//! The common start and end of every function of the interface: checks arguments, turns panics into
//! errors, and stores results for the caller.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use uruk::Tier;

use crate::error::{URUK_ERROR_ARGUMENT, URUK_ERROR_PANIC, uruk_error};

/// Limit of the bytes of a caller's struct: a larger size is garbage.
const LARGEST: usize = 1 << 16;

/// An error that ends a function early.
pub(crate) type Fault = Box<uruk_error>;

/// A function or a variable of the host's or of a session, whatever its type: to be cast.
pub type uruk_function = Option<unsafe extern "C" fn()>;

/// The host's own pointer for callbacks.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: the library does not dereference it; the callbacks that do may run on any thread, as
// their host is required to allow.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A context with the function that is called when it is not needed any more.
pub(crate) struct Owned {
    pub(crate) context: Context,
    drop: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
}

impl Owned {
    pub(crate) fn new(
        context: *mut c_void,
        drop: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    ) -> Owned {
        Owned {
            context: Context(context),
            drop,
        }
    }

    /// The pointer.
    pub(crate) fn get(&self) -> *mut c_void {
        self.context.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the host's own drop function, called once.
            unsafe { drop(self.context.0) };
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| String::from("a panic without words"))
}

/// Runs a function's body; returns null, or the error. A guarded call around it cannot be left from
/// here (`uruk_raise` in a callback): frames of the library still have cleanups.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Fault>) -> *mut uruk_error {
    match catch_unwind(AssertUnwindSafe(|| uruk::covered(body))) {
        Ok(Ok(())) => ptr::null_mut(),
        Ok(Err(fault)) => Box::into_raw(fault),
        Err(panic) => Box::into_raw(uruk_error::new(URUK_ERROR_PANIC, &text_of(&*panic))),
    }
}

/// Overwrites the stack below the caller, where earlier calls of this thread left addresses of
/// code. Such addresses would lie in the frames of the next calls, and the search for return
/// addresses into old code would find them. Call a function that is not inlined next.
#[inline(never)]
pub(crate) fn scrub_stack() {
    std::hint::black_box(&mut [0_u64; 2048]);
}

/// Runs the body of a function that returns no error; `otherwise` if it fails.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Fault>) -> T {
    match catch_unwind(AssertUnwindSafe(|| uruk::covered(body))) {
        Ok(Ok(value)) => value,
        _ => otherwise,
    }
}

/// The error for an unusable argument.
pub(crate) fn unusable(what: &str, why: &str) -> Fault {
    uruk_error::new(URUK_ERROR_ARGUMENT, &format!("{what}: {why}"))
}

/// The value that a pointer of the caller leads to.
///
/// # Safety
/// The pointer is null or leads to a `T` that lives as long as `'a`.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Fault> {
    // SAFETY: by the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| unusable(what, "a null pointer"))
}

/// Checks a field that must be 0, so that a later version can give other values a meaning.
pub(crate) fn unused(field: c_int) -> Result<(), Fault> {
    match field {
        0 => Ok(()),
        other => Err(unusable("reserved", &format!("it must be 0, not {other}"))),
    }
}

/// Text of the caller.
///
/// # Safety
/// The pointer is null or leads to text that ends with a zero byte and lives as long as `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Fault> {
    if pointer.is_null() {
        return Err(unusable(what, "a null pointer"));
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str();
    text.map_err(|cause| unusable(what, &format!("not UTF-8: {cause}")))
}

/// An array of the caller; a null pointer is one of no elements if `count` is zero.
///
/// # Safety
/// The pointer is null or leads to `count` such values, which live as long as `'a`.
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Fault> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(unusable(what, "a null pointer")),
        // SAFETY: by the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Texts of the caller.
///
/// # Safety
/// As [`array`], and each as [`text`].
pub(crate) unsafe fn texts<'a>(
    pointer: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<Vec<&'a str>, Fault> {
    // SAFETY: by the caller's promise.
    let each = unsafe { array(pointer, count, what)? }.iter();
    // SAFETY: by the caller's promise.
    each.map(|one| unsafe { text(*one, what) }).collect()
}

/// The place of a result.
///
/// # Safety
/// The pointer is null, or may be written through as long as `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Fault> {
    // SAFETY: by the caller's promise; the caller's values are integers, pointers and structs of
    // them, for which any bytes are valid.
    unsafe { pointer.as_mut() }.ok_or_else(|| unusable(what, "a null pointer"))
}

/// Gives a value to the caller as a handle.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes a handle back, and drops it; does nothing for a null pointer.
///
/// # Safety
/// The pointer is null or was returned by [`give`], and is not used any more.
pub(crate) unsafe fn take<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: by the caller's promise.
        let owned = unsafe { Box::from_raw(pointer) };
        value((), || {
            drop(owned);
            Ok(())
        });
    }
}

/// The tier of a number.
pub(crate) fn tier(number: c_int) -> Result<Tier, Fault> {
    match number {
        1 => Ok(Tier::Baseline),
        2 => Ok(Tier::Optimized),
        3 => Ok(Tier::Guided),
        _ => Err(unusable("tier", &format!("{number} is none of 1, 2 and 3"))),
    }
}

/// The tier of a number; 0 is no tier.
pub(crate) fn tier_or_none(number: c_int) -> Result<Option<Tier>, Fault> {
    match number {
        0 => Ok(None),
        number => tier(number).map(Some),
    }
}

/// The number of a tier; 0 for none.
pub(crate) fn number(tier: Option<Tier>) -> c_int {
    tier.map_or(0, |tier| c_int::from(tier.number()))
}

/// A time in nanoseconds, as results have it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a struct that begins with its size, as the caller's header knows it. Fields that the
/// caller lacks are taken from `known`; fields that this library does not know must be zero.
///
/// # Safety
/// 1. The pointer is null or leads to as many bytes as its first word says.
/// 2. Bytes of a `T` of the caller's are a `T`: it is of integers, pointers and functions that
///    may be null. Its first field is its size.
pub(crate) unsafe fn sized<T: Copy>(pointer: *const T, known: T, what: &str) -> Result<T, Fault> {
    if pointer.is_null() {
        return Err(unusable(what, "a null pointer"));
    }
    // SAFETY: by the caller's promise, the size comes first.
    let size = unsafe { pointer.cast::<usize>().read() };
    let own = size_of::<T>();
    if size < size_of::<usize>() || size > LARGEST {
        return Err(unusable(what, &format!("its size cannot be {size}")));
    }
    if size > own {
        // SAFETY: by the caller's promise, so many bytes are there.
        let more = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(own), size - own) };
        if more.iter().any(|byte| *byte != 0) {
            let why = "it has fields that this version of the library does not know";
            return Err(unusable(what, why));
        }
    }
    let mut value = known;
    // SAFETY: no more bytes than either has; what comes of it is a `T` by the caller's promise.
    unsafe {
        let to = (&raw mut value).cast::<u8>();
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), to, size.min(own));
    }
    Ok(value)
}

/// The context that a struct of the caller owns, if it can be read, even if the rest of the struct
/// is invalid: `fields` are the context and its `drop` in a `T`, and `drop` ends at `end`.
///
/// # Safety
/// As [`sized`].
pub(crate) unsafe fn owned_by<T: Copy>(
    pointer: *const T,
    end: usize,
    fields: impl FnOnce(&T) -> Owned,
    known: T,
) -> Option<Owned> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise, the size comes first.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(end..=LARGEST).contains(&size) {
        return None;
    }
    let mut value = known;
    // SAFETY: as in `sized`.
    unsafe {
        let to = (&raw mut value).cast::<u8>();
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), to, size.min(size_of::<T>()));
    }
    Some(fields(&value))
}

/// Writes a struct of the library to the caller's memory of `size` bytes; bytes that the library
/// does not know become zero.
///
/// # Safety
/// The pointer is null, or `size` bytes may be written there; a `T` has no padding.
pub(crate) unsafe fn put_sized<T: Copy>(
    pointer: *mut T,
    size: usize,
    from: &T,
    what: &str,
) -> Result<(), Fault> {
    if pointer.is_null() {
        return Err(unusable(what, "a null pointer"));
    }
    if size < size_of::<usize>() || size > LARGEST {
        return Err(unusable(what, &format!("its size cannot be {size}")));
    }
    let own = size_of::<T>();
    // SAFETY: by the caller's promise.
    unsafe {
        let to = pointer.cast::<u8>();
        ptr::write_bytes(to, 0, size);
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to, size.min(own));
        pointer.cast::<usize>().write(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{uruk_error_code, uruk_error_free, uruk_error_text};

    #[test]
    fn a_panic_becomes_an_error() {
        let error = guarded(|| panic!("number {}", 7));
        // SAFETY: an error of this library, freed once.
        unsafe {
            assert_eq!(uruk_error_code(error), URUK_ERROR_PANIC);
            assert_eq!(CStr::from_ptr(uruk_error_text(error)), c"number 7");
            uruk_error_free(error);
        }
        assert_eq!(value(3, || -> Result<i32, Fault> { panic!("again") }), 3);
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Pair {
        size: usize,
        first: u64,
        second: u64,
    }

    const KNOWN: Pair = Pair {
        size: 24,
        first: 10,
        second: 20,
    };

    #[test]
    fn structs_of_other_sizes() {
        // Four words: headers that are older, equal, and newer.
        for (words, expected) in [
            ([16, 1, 99, 99], Some((1, 20))),
            ([24, 1, 2, 99], Some((1, 2))),
            ([32, 1, 2, 0], Some((1, 2))),
            ([32, 1, 2, 3], None),
            ([0, 1, 2, 3], None),
            ([7, 1, 2, 3], None),
            ([1 << 20, 1, 2, 3], None),
        ] {
            let words: [u64; 4] = words;
            // SAFETY: so many bytes exist, except where the size is refused before.
            let read = unsafe { sized(words.as_ptr().cast::<Pair>(), KNOWN, "pair") };
            let read = read.ok().map(|pair| (pair.first, pair.second));
            assert_eq!(read, expected, "{words:?}");
        }
    }

    #[test]
    fn structs_are_written_as_far_as_there_is_room() {
        let mut words = [7_u64; 4];
        // SAFETY: there is room for the given size.
        unsafe { put_sized(words.as_mut_ptr().cast(), 16, &KNOWN, "pair") }.expect("room");
        assert_eq!(words, [16, 10, 7, 7]);
        // SAFETY: as above.
        unsafe { put_sized(words.as_mut_ptr().cast(), 32, &KNOWN, "pair") }.expect("room");
        assert_eq!(words, [32, 10, 20, 0]);
    }

    #[test]
    fn text_of_the_caller() {
        // SAFETY: terminated texts, and a null pointer.
        unsafe {
            assert_eq!(text(c"name".as_ptr(), "it").ok(), Some("name"));
            assert!(text(c"\xff".as_ptr(), "it").is_err());
            assert!(text(ptr::null(), "it").is_err());
            assert_eq!(array::<u8>(ptr::null(), 0, "it").ok(), Some(&[][..]));
            assert!(array::<u8>(ptr::null(), 1, "it").is_err());
        }
    }
}
