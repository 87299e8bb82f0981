//! The word of each thread in which JIT'd code counts its passes, at one distance from the thread
//! pointer.
//!
//! In an executable and the libraries it is started with that is a thread-local. Thread-locals of a
//! library that is opened later (`dlopen`, as Python does) lie at different distances in each
//! thread. The remaining place is the C library's block of each thread: glibc stores the values of
//! the first 32 keys of `pthread_key_create` in it. JIT'd code then counts in the value of a key.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `LEFT` | JIT'd code, by its address; [`set_left`] | [`left`] |
//! | the value of the key | likewise | likewise |
//! | `OF_KEY` | [`find_key`], once | all |
//!
//! # Invariants
//! - The place of the value is tested, not assumed: it is searched with two values, and the C
//!   library must read the words written there, on two threads. Otherwise there is no such word.
//! - The C library clears the values of an ending thread if it set one of them, so that a thread
//!   which reuses its block begins with 0: each thread sets its own ([`claim`]).

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::fork::{block_signals, restore_signals};
use crate::host::tls::thread_pointer;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(0) };
    /// Whether the thread has set the key's value.
    static CLAIMED: Cell<bool> = const { Cell::new(false) };
}

/// The distance of the key's value from the thread pointer in all threads; 0: `LEFT` is used.
static OF_KEY: AtomicI64 = AtomicI64::new(0);
static KEY: AtomicU32 = AtomicU32::new(0);

/// Words of a thread's block that are searched. glibc's keys end at the 162nd, the block after the
/// 280th.
const BLOCK: i64 = 192;

/// The distance of threads' words from the thread pointer; `None` if there is no common one.
pub(crate) fn distance() -> Option<i64> {
    static DISTANCE: OnceLock<Option<i64>> = OnceLock::new();
    *DISTANCE.get_or_init(|| {
        let own = distance_of_local();
        if on_another_thread(distance_of_local)? == own {
            return Some(own);
        }
        find_key()
    })
}

fn on_another_thread<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    // No handler of the program runs on the thread made for this.
    let signals = block_signals();
    let other = std::thread::Builder::new().spawn(run);
    restore_signals(&signals);
    other.ok()?.join().ok()
}

fn distance_of_local() -> i64 {
    LEFT.with(Cell::as_ptr) as i64 - thread_pointer()
}

/// The rest of the calling thread's slice.
pub(crate) fn left() -> i64 {
    match of_key() {
        None => LEFT.get(),
        // SAFETY: a word of the thread's block, which nothing else uses.
        Some(word) => unsafe { word.read_volatile() },
    }
}

pub(super) fn set_left(left: i64) {
    match of_key() {
        None => LEFT.set(left),
        // SAFETY: as above.
        Some(word) => unsafe { word.write_volatile(left) },
    }
}

/// The calling thread's value of the key, if that is used.
fn of_key() -> Option<*mut i64> {
    // Acquire: pairs with the release in `find_key`, after `KEY`.
    let distance = OF_KEY.load(Ordering::Acquire);
    let word = (distance != 0).then_some((thread_pointer() + distance) as *mut i64);
    if let Some(word) = word
        && !CLAIMED.replace(true)
    {
        claim(word);
    }
    word
}

/// Makes the C library register that the thread's value is not 0. The value stays: code may have
/// counted.
fn claim(word: *mut i64) {
    // SAFETY: a word of the thread's block, and a key of this module; glibc stores to it and
    // allocates nothing.
    unsafe {
        let counted = word.read_volatile();
        libc::pthread_setspecific(KEY.load(Ordering::Relaxed), ptr::without_provenance(1));
        word.write_volatile(counted);
    }
}

/// Makes a key whose value lies in each thread's block.
fn find_key() -> Option<i64> {
    let mut key = 0;
    // SAFETY: a key without a destructor.
    if unsafe { libc::pthread_key_create(&mut key, None) } != 0 {
        return None;
    }
    let here = place_of(key);
    let there = on_another_thread(move || place_of(key)).flatten();
    let Some(distance) = here.filter(|&here| Some(here) == there) else {
        // SAFETY: made above, and not used.
        unsafe { libc::pthread_key_delete(key) };
        return None;
    };
    KEY.store(key, Ordering::Relaxed);
    // Release: pairs with the acquire in `of_key`.
    OF_KEY.store(distance, Ordering::Release);
    Some(distance)
}

/// The distance of a key's value from the thread pointer in the calling thread; the value is 0
/// afterwards.
fn place_of(key: libc::pthread_key_t) -> Option<i64> {
    let set = |value: *const c_void| {
        // SAFETY: a key of this module.
        unsafe { libc::pthread_setspecific(key, value) == 0 }
    };
    // Values that are unique in the block: addresses in this frame.
    let marks = [0_u64; 3];
    let [first, second, third] = [0, 1, 2].map(|at| (&raw const marks[at]).cast::<c_void>());
    let at = |word: i64| (thread_pointer() + 8 * word) as *mut *const c_void;
    // SAFETY: words of the thread's block, which is longer in each release of glibc.
    let has = |word: i64, value| unsafe { at(word).read_volatile() } == value;
    if !set(first) {
        return None;
    }
    let mut found: Vec<i64> = (0..BLOCK).filter(|&word| has(word, first)).collect();
    let is_set = set(second);
    found.retain(|&word| is_set && has(word, second));
    let place = match found[..] {
        [word] => {
            // SAFETY: the place of the key's value; the result is compared.
            let read = unsafe {
                at(word).write_volatile(third);
                libc::pthread_getspecific(key)
            };
            (ptr::addr_eq(read, third)).then_some(8 * word)
        }
        _ => None,
    };
    (set(ptr::null()) && place.is_none_or(|place| has(place / 8, ptr::null()))).then_some(place)?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread's count in its value of a key is its own, and ends with the thread.
    #[test]
    fn values_of_keys_are_words_of_threads() {
        let mut key = 0;
        // SAFETY: a key without a destructor.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, None) }, 0);
        let here = place_of(key).expect("one of the first 32");
        for round in 0..3 {
            let ends = on_another_thread(move || {
                assert_eq!(place_of(key), Some(here));
                let word = (thread_pointer() + here) as *mut i64;
                // SAFETY: the value of the key, which is set, so that it is cleared.
                unsafe {
                    assert_eq!(
                        libc::pthread_setspecific(key, ptr::without_provenance(1)),
                        0
                    );
                    word.write_volatile(17 + round);
                    libc::pthread_getspecific(key).addr() as i64
                }
            });
            assert_eq!(ends, Some(17 + round));
        }
        let begins = on_another_thread(move || {
            // SAFETY: as above.
            unsafe { libc::pthread_getspecific(key) }.is_null()
        });
        assert_eq!(begins, Some(true));
        // SAFETY: as above.
        assert!(unsafe { libc::pthread_getspecific(key) }.is_null());
    }
}
