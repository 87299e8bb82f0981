//! Addresses at which the dynamic loader mapped the files of the process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A file that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// The offset added to its addresses.
    pub base: u64,
    /// It is the executable.
    pub executable: bool,
}

/// All files that are loaded now; the executable first.
pub fn loaded() -> Vec<Loaded> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record; `data` is the list below.
        let (info, found) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
        let executable = found.is_empty();
        let file = match executable {
            true => PathBuf::from("/proc/self/exe"),
            // SAFETY: a C string that lives as long as the record.
            false => PathBuf::from(OsStr::from_bytes(
                unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
            )),
        };
        found.push(Loaded {
            file,
            base: info.dlpi_addr,
            executable,
        });
        0
    }
    let mut found: Vec<Loaded> = Vec::new();
    // SAFETY: `visit` uses the list as its own type.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

/// Offset from the thread pointer to each thread's block of a file's thread-locals, by the file's base.
/// Only for files whose blocks are in the room that the loader reserved in all threads. Call it on a
/// thread that runs no code of those files: the C library allocates other blocks only when the thread
/// first uses them, so that they are missing here.
pub fn thread_blocks() -> HashMap<u64, i64> {
    /// Room that the loader reserves lies right below the thread pointer.
    const FARTHEST: i64 = -(1 << 20);
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live record of that size; `data` is the map below.
        let (info, found) = unsafe { (&*info, &mut *data.cast::<HashMap<u64, Option<i64>>>()) };
        if size >= size_of::<libc::dl_phdr_info>() && !info.dlpi_tls_data.is_null() {
            let block = info.dlpi_tls_data as u64;
            let distance = block.wrapping_sub(thread_pointer()) as i64;
            if (FARTHEST..0).contains(&distance) {
                // Two files with one base (both at their linked addresses) cannot be told apart.
                let one = |before: &mut Option<i64>| *before = None;
                let entry = found.entry(info.dlpi_addr);
                entry.and_modify(one).or_insert(Some(distance));
            }
        }
        0
    }
    let mut found: HashMap<u64, Option<i64>> = HashMap::new();
    // SAFETY: `visit` uses the map as its own type.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    let known = found.into_iter();
    known
        .filter_map(|(base, distance)| Some((base, distance?)))
        .collect()
}

/// The thread pointer of the calling thread.
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the word that the psABI has at the thread pointer, which is its address.
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// Offset from the thread pointer to the calling thread's instance of the thread-local that the
/// process's files export under a name.
pub fn find_thread_local(name: &str) -> Option<i64> {
    let found = find(name)?;
    Some(found.wrapping_sub(thread_pointer()) as i64)
}

/// The address that the process's libraries, or the executable, export under a name.
pub fn find(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string; only the caller uses the address.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found as u64)
}

/// Whether an address only stands for a function of another file. An executable that is not
/// position-independent has such addresses, in its table of calls, for functions whose address it takes.
pub fn is_stand_in(address: u64) -> bool {
    unsafe extern "C" {
        /// The C library's function, which `libc` does not list.
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    /// Requests the entry of the symbol table.
    const SYMBOL: c_int = 1;
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: valid out pointers; the entry is the loader's, for as long as the file is loaded. It is
    // read before the file can be unloaded: the files concerned are never unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let told = dladdr1(address as *const c_void, &mut info, &mut symbol, SYMBOL);
        told != 0
            && info.dli_saddr as u64 == address
            && symbol
                .cast::<libc::Elf64_Sym>()
                .as_ref()
                .is_some_and(|symbol| symbol.st_shndx == object::elf::SHN_UNDEF.0)
    }
}
