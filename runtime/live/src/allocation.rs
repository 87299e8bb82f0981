//! Programs that define their own allocator: they stay native, since the compiler, which runs in the
//! same process, would use it.

use std::ffi::CStr;

/// The C library's functions by which this library and LLVM allocate and free.
const ALLOCATION: [&CStr; 7] = [
    c"malloc",
    c"free",
    c"realloc",
    c"calloc",
    c"posix_memalign",
    c"aligned_alloc",
    c"memalign",
];

/// One function of [`ALLOCATION`] that the executable defines, if any. This library and LLVM would call
/// it from threads that the program does not know, and while that very function is compiled. A program
/// that only counts calls would count theirs.
pub(crate) fn own_allocation() -> Option<&'static CStr> {
    // SAFETY: asks the dynamic loader about addresses; the record is ours. Nothing is allocated.
    unsafe {
        let place = |address: *const libc::c_void| {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &mut info) != 0).then_some(info.dli_fbase)
        };
        let program = place(libc::getauxval(libc::AT_ENTRY) as *const libc::c_void)?;
        ALLOCATION.into_iter().find(|name| {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            place(found) == Some(program)
        })
    }
}

/// Address space below which threads share an arena.
const SMALL: libc::rlim_t = 4 << 30;

/// Makes all threads allocate in one arena of the C library if address space is limited. The C library
/// reserves 64 MiB for each arena, one for each thread: eight threads of a session would take 512 MiB
/// and leave nothing to the program. Called before the program begins; other allocators are unchanged.
pub(crate) fn share_arena() {
    // SAFETY: zeros are a valid value.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the record lives; the call changes a setting of the allocator, on the only thread.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0 && limit.rlim_cur < SMALL {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// C++'s functions that programs replace to manage their own memory (C's are checked before the library
/// begins). The library and LLVM would call them from threads that the program does not know, and while
/// such a function is itself compiled. The variants that forward to another one unless they are
/// replaced, for arrays and without exceptions, are listed for themselves.
pub(crate) const CPP_ALLOCATION: [&str; 10] = [
    "_Znwm",
    "_Znam",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdlPvm",
    "_ZdaPv",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
];
