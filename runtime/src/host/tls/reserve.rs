//! Static storage for the main program's thread-locals: a piece of the executable's own.
//!
//! Writes go into the calling thread's copy and into the image from which the C library initializes
//! new threads. Only the thread that loads programs takes and fills it.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Static storage for the main program's thread-locals, in bytes. Each thread has it on its stack.
/// With 4096, a stack of 16 KiB that a program gives a thread was too small. A signal of the
/// runtime in a first call has a frame of 3.7 KiB with AVX-512, and ended one of ten runs of a
/// program that frees code all the time.
const RESERVE_SIZE: usize = 3072;
/// Largest alignment a template in static storage may have.
const RESERVE_ALIGN: usize = 64;

/// It is written to, so it is a cell: a compiler may remove writes to a constant.
#[repr(align(64))]
struct Reserve(UnsafeCell<[u8; RESERVE_SIZE]>);

impl Reserve {
    fn start(&self) -> *mut u8 {
        self.0.get().cast::<u8>()
    }
}

thread_local! {
    // Not zero, so that it is part of the initialized image and not of its tail.
    static RESERVE: Reserve = const { Reserve(UnsafeCell::new([1; RESERVE_SIZE])) };
}

/// Start of the calling thread's reserve.
fn reserve() -> *mut u8 {
    RESERVE.with(Reserve::start)
}

/// Bytes of the reserve in use; only the thread that loads programs changes it.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Takes `size` bytes if they are free; returns their offset from the thread pointer.
pub(in crate::host) fn take_static(size: usize, align: usize) -> Option<i64> {
    if align > RESERVE_ALIGN {
        return None;
    }
    let from = RESERVED
        .load(Ordering::Relaxed)
        .next_multiple_of(align.max(1));
    let end = from.checked_add(size)?;
    if end > RESERVE_SIZE || image_of_reserve().is_none() {
        return None;
    }
    RESERVED.store(end, Ordering::Relaxed);
    let start = reserve() as i64;
    Some(start + from as i64 - thread_pointer())
}

/// The calling thread's thread pointer, from which its static storage is found.
pub(crate) fn thread_pointer() -> i64 {
    let pointer: i64;
    // SAFETY: the x86-64 ABI keeps the thread pointer at offset zero of its segment.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The thread-locals of the executable: the address of the image that new threads copy, its bytes,
/// those of a thread's block, and the alignment.
pub(in crate::host) fn of_executable() -> Option<(u64, [u64; 3])> {
    let (info, tls) = executable()?;
    let at = info.dlpi_addr.wrapping_add(tls.p_vaddr);
    Some((at, [tls.p_filesz, tls.p_memsz, tls.p_align]))
}

/// The loader's entry of the executable, and the header of its thread-locals.
fn executable() -> Option<(libc::dl_phdr_info, libc::Elf64_Phdr)> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader passes a live record; the first one is the executable's.
        unsafe { *out.cast::<Option<libc::dl_phdr_info>>() = Some(*info) };
        1
    }
    let mut info: Option<libc::dl_phdr_info> = None;
    // SAFETY: the callback writes to `info` only.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut info).cast::<c_void>()) };
    let info = info?;
    // SAFETY: the executable's headers stay mapped.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let tls = headers
        .iter()
        .find(|header| header.p_type == libc::PT_TLS)?;
    Some((info, *tls))
}

/// The address in the C library's image of the executable's thread-locals, at the place of the
/// reserve. `None` if this code is not part of the executable, or its thread-locals are not where
/// the ABI puts an executable's.
fn image_of_reserve() -> Option<*mut u8> {
    let (info, tls) = executable()?;
    let offset = (reserve() as u64).checked_sub(info.dlpi_tls_data as u64)?;
    // Inside the initialized part, which new threads copy.
    let inside = offset + RESERVE_SIZE as u64 <= tls.p_filesz;
    inside.then(|| (info.dlpi_addr + tls.p_vaddr + offset) as *mut u8)
}

/// Writes a template into the main thread's reserve and the image of new threads.
pub(in crate::host) fn fill_static(offset: i64, image: &[u8], size: usize) {
    let Some(base) = image_of_reserve() else {
        return;
    };
    let start = reserve() as i64;
    let mine = (thread_pointer() + offset) as *mut u8;
    let of_new_threads = base.wrapping_offset((thread_pointer() + offset - start) as isize);
    let page = 4096;
    let from = of_new_threads as usize & !(page - 1);
    let to = (of_new_threads as usize + size).next_multiple_of(page);
    // SAFETY: pages of the executable's thread-local image, private to the process;
    // nothing else writes there, and threads being made only read it.
    let writable = unsafe {
        libc::mprotect(
            from as *mut c_void,
            to - from,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    };
    let targets = if writable == 0 {
        &[mine, of_new_threads][..]
    } else {
        &[mine][..]
    };
    for &target in targets {
        // SAFETY: `take_static` gave `size` bytes at `offset` to this template alone,
        // in the thread's reserve and at the same place of the image.
        unsafe {
            std::ptr::write_bytes(target, 0, size);
            std::ptr::copy_nonoverlapping(image.as_ptr(), target, image.len().min(size));
        }
    }
    if writable == 0 {
        // SAFETY: as above.
        unsafe { libc::mprotect(from as *mut c_void, to - from, libc::PROT_READ) };
    }
}

/// Copies templates into the calling thread that were filled in after it started.
pub(in crate::host) fn refresh() {
    if let Some(image) = image_of_reserve() {
        let used = RESERVED.load(Ordering::Relaxed);
        let mine = reserve();
        // SAFETY: both are `RESERVE_SIZE` bytes, which `used` never exceeds; this thread's copy is
        // not in use yet.
        unsafe { std::ptr::copy_nonoverlapping(image, mine, used) };
    }
}
