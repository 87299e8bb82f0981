//! Marks of threads that keep their meaning on both sides of a `fork`.

use std::ptr;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// The mark of the calling thread: a number that no other living thread has, which the thread that
/// forks keeps in the child; not 0. Takes no lock and allocates nothing.
#[must_use]
pub fn thread_mark() -> usize {
    MARK.with(|mark| ptr::from_ref(mark).addr())
}
