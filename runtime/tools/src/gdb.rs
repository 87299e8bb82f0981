//! The GDB JIT interface: a list of ELF files in this process that debuggers read.
//!
//! A debugger finds the function and the list by their names (`__jit_debug_register_code`,
//! `__jit_debug_descriptor`), sets a breakpoint on the function, and reads the list when it is
//! called (GDB manual, "JIT Compilation Interface"). LLVM's libraries define the same two symbols.
//! Ours are weak: in an executable they still precede those of a shared library, which then uses
//! ours; if LLVM is linked statically the linker takes one of the two. A debugger reads the
//! functions of all files, so it sees the list either way. A stripped executable must export both.
//!
//! Each registration stops the program if a debugger is attached, and takes the memory of the file
//! in any case.
//!
//! # Invariants
//! - The list is changed under a lock; a debugger reads it only while the program is stopped in the
//!   function, when the list is consistent. At a `fork` no other thread may be inside a
//!   registration.
//! - An entry and its file keep their address until they are unregistered.

#![expect(unsafe_code, reason = "a list of raw pointers that debuggers read")]

use std::ptr;

use uruk_base::locks::{Mutex, MutexGuard};

const NO_ACTION: u32 = 0;
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// One file of the list, in the debuggers' layout.
#[repr(C)]
#[derive(Debug)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    file: *const u8,
    file_bytes: u64,
}

/// The list, in the debuggers' layout.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

const _: () = assert!(size_of::<Entry>() == 32 && size_of::<Descriptor>() == 24);

// The descriptor begins as version 1, no action, empty. The function is not empty, so
// that a breakpoint has an instruction of its own.
core::arch::global_asm!(
    ".pushsection .text.__jit_debug_register_code,\"ax\",@progbits",
    ".weak __jit_debug_register_code",
    ".type __jit_debug_register_code,@function",
    "__jit_debug_register_code:",
    "nop",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
    ".pushsection .data.__jit_debug_descriptor,\"aw\",@progbits",
    ".balign 8",
    ".weak __jit_debug_descriptor",
    ".type __jit_debug_descriptor,@object",
    "__jit_debug_descriptor:",
    ".long 1",
    ".long 0",
    ".quad 0",
    ".quad 0",
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    ".popsection",
);

unsafe extern "C" {
    static mut __jit_debug_descriptor: Descriptor;
    fn __jit_debug_register_code();
}

static LOCK: Mutex<()> = Mutex::new(());

/// The only access to the list.
struct List {
    _guard: MutexGuard<'static, ()>,
}

impl List {
    fn lock() -> List {
        List {
            _guard: LOCK.lock(),
        }
    }

    /// Notifies debuggers of an entry that was linked or unlinked.
    fn tell(&mut self, action: u32, entry: *mut Entry) {
        let list = &raw mut __jit_debug_descriptor;
        // SAFETY: we hold the lock, and the entry lives until after the call. Volatile, because
        // only a debugger reads the fields.
        unsafe {
            (&raw mut (*list).relevant).write_volatile(entry);
            (&raw mut (*list).action).write_volatile(action);
            __jit_debug_register_code();
            (&raw mut (*list).action).write_volatile(NO_ACTION);
            (&raw mut (*list).relevant).write_volatile(ptr::null_mut());
        }
    }

    fn first(&mut self) -> *mut *mut Entry {
        let list = &raw mut __jit_debug_descriptor;
        // SAFETY: only the address is taken.
        unsafe { &raw mut (*list).first }
    }
}

/// A registered file; dropping it unregisters.
#[derive(Debug)]
pub struct Registration {
    entry: *mut Entry,
    /// The file that the entry points to.
    file: Box<[u8]>,
}

// SAFETY: the entry is accessed under the lock only.
unsafe impl Send for Registration {}
// SAFETY: a shared registration gives only its size.
unsafe impl Sync for Registration {}

/// Registers an ELF file, for example of [`symfile`](super::symfile).
#[must_use]
pub fn register(file: Vec<u8>) -> Registration {
    let file = file.into_boxed_slice();
    let mut list = List::lock();
    let first = list.first();
    // SAFETY: we hold the lock.
    let next = unsafe { first.read_volatile() };
    let entry = Box::into_raw(Box::new(Entry {
        next,
        previous: ptr::null_mut(),
        file: file.as_ptr(),
        file_bytes: file.len() as u64,
    }));
    // SAFETY: we hold the lock; entries in the list live until they are unlinked.
    unsafe {
        if !next.is_null() {
            (*next).previous = entry;
        }
        first.write_volatile(entry);
    }
    list.tell(REGISTER, entry);
    Registration { entry, file }
}

impl Registration {
    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.file.len()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut list = List::lock();
        let first = list.first();
        // SAFETY: we hold the lock; the entry is linked, and so are its neighbours.
        unsafe {
            let Entry { next, previous, .. } = *self.entry;
            if previous.is_null() {
                first.write_volatile(next);
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
        list.tell(UNREGISTER, self.entry);
        // SAFETY: made from a box by `register`, unlinked, and not used any more after the debugger
        // was notified.
        drop(unsafe { Box::from_raw(self.entry) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of the list, first to last, with a check of the links back.
    fn files() -> Vec<Vec<u8>> {
        let mut list = List::lock();
        let mut files = Vec::new();
        // SAFETY: we hold the lock; entries in the list are whole.
        unsafe {
            let mut previous = ptr::null_mut();
            let mut at = list.first().read_volatile();
            while !at.is_null() {
                assert_eq!((*at).previous, previous);
                let bytes = std::slice::from_raw_parts((*at).file, (*at).file_bytes as usize);
                files.push(bytes.to_vec());
                (previous, at) = (at, (*at).next);
            }
        }
        files
    }

    #[test]
    fn the_list_is_what_is_registered() {
        let mut all: Vec<_> = (0..3u8).map(|n| register(vec![n])).collect();
        assert_eq!(files(), [[2], [1], [0]]);
        drop(all.remove(1));
        assert_eq!(files(), [[2], [0]]);
        drop(all.remove(1));
        assert_eq!(files(), [[0]]);
        assert_eq!(all[0].bytes(), 1);
        all.push(register(vec![7]));
        drop(all.remove(0));
        assert_eq!(files(), [[7]]);
        all.clear();
        assert!(files().is_empty());
    }
}
