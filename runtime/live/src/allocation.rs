//! Programs that allocate in their own way: they stay native, since the compiler, which runs in the
//! same process, would allocate there.

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

/// One of [`ALLOCATION`] that is the executable's, if any is: then this library and LLVM would
/// call it, from threads that the program does not know of, and while that very function is
/// compiled; a program that only counts calls would count theirs.
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

/// Where address space is limited, has all threads allocate in one arena of the C library. It reserves 64
/// MiB for each arena, one for each thread: eight threads of a session would take 512 MiB, and leave
/// nothing to the program. To be called before the program begins. Other allocators are left as they are.
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

/// C++'s functions by which programs give out and take back memory of their own (C's are looked
/// for before the library begins). The library and LLVM would use them, from threads that the
/// program does not know of, and while such a function is itself compiled. Those that hand on to
/// another of the list unless they are replaced, arrays' and the ones that do not throw, matter
/// for themselves, too.
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
