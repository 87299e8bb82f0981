//! Allocation functions of a process that runs a program with its own.
//!
//! Natively the executable's `malloc` and `operator new` are used by the whole process: the C
//! library, the C++ library, plugins and their constructors. Here the executable is the runtime. So
//! the command exports all names of the two families itself, and the dynamic loader binds every
//! library to these *gates*, even one opened later, before its constructors run. A gate is
//! `mov r9, [rsp]; jmp [word]`: the return address becomes a sixth argument, which the functions
//! themselves ignore. The words hold:
//!
//! | until | the word holds | cost of a call |
//! |---|---|---|
//! | the program is loaded | [`gate`], which notes each block that is handed out | some ns |
//! | its end, if the program defines none of the family | the function of the C or C++ library | one jump |
//! | its end, if it does | [`gate`], which decides | some ns |
//! | its end, if it is a form of `operator new` that only calls one the program defines | the C++ library's function | one jump |
//!
//! The decision, once the program defines names of a family:
//!
//! - *Allocation.* The process's own function is called if the thread is the runtime's or inside it
//!   (it has a shield), or if the return address is in the runtime, LLVM, libraries that only LLVM
//!   needs, or the dynamic loader. Guest code never runs on those threads, and a compile never
//!   waits for a compile. Else the program's function is called.
//! - *Free.* The runtime's blocks are returned to the process's own functions, on any thread: each
//!   is noted ([`BlockSet`](super::blocks::BlockSet)), from the process's first on. A block that is
//!   not noted is the program's; if a thread of the runtime frees it, it is leaked, as guest code
//!   must not run there.
//!
//! The program may build on the process's functions (`dlsym(RTLD_NEXT, "malloc")`,
//! `__libc_malloc`), which bypass the gates. It may also leave out names of a family, which then
//! are the process's. Blocks of either kind are not noted, and are freed by the program's
//! functions, as natively.
//!
//! `operator delete` of the process's own is `free`, in libstdc++, in libc++ and in libraries
//! loaded before them; a block of its `operator new` is freed by its `free`.

use std::ffi::{CStr, CString, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::blocks::BlockSet;
use crate::fork::shield;
use crate::host::llvm;

/// The effect of a function on blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Returns one.
    Allocates,
    /// Stores one at the address in its first argument; returns zero on success.
    Stores,
    /// Takes one.
    Frees,
    /// Takes one and returns one.
    Reallocates,
    /// Reads one.
    Measures,
}

/// The families; a block is freed by its own family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Malloc,
    New,
}

use Family::{Malloc, New};
use Kind::{Allocates, Frees, Measures, Reallocates, Stores};

macro_rules! gates {
    ($(($index:literal, $name:literal, $family:expr, $kind:expr)),* $(,)?) => {
        /// The number of gates.
        pub const GATE_COUNT: usize = [$($index),*].len();
        const NAMES: [&CStr; GATE_COUNT] = [$($name),*];
        const FAMILIES: [Family; GATE_COUNT] = [$($family),*];
        const KINDS: [Kind; GATE_COUNT] = [$($kind),*];
        /// Jump targets of the gates.
        #[doc(hidden)]
        pub static GATES: [AtomicPtr<c_void>; GATE_COUNT] =
            [$(AtomicPtr::new(gate::<$index> as *const () as *mut c_void)),*];
    };
}

const FREE: usize = 1;

gates![
    (0, c"malloc", Malloc, Allocates),
    (1, c"free", Malloc, Frees),
    (2, c"calloc", Malloc, Allocates),
    (3, c"realloc", Malloc, Reallocates),
    (4, c"memalign", Malloc, Allocates),
    (5, c"aligned_alloc", Malloc, Allocates),
    (6, c"posix_memalign", Malloc, Stores),
    (7, c"valloc", Malloc, Allocates),
    (8, c"pvalloc", Malloc, Allocates),
    (9, c"malloc_usable_size", Malloc, Measures),
    (10, c"_Znwm", New, Allocates),
    (11, c"_Znam", New, Allocates),
    (12, c"_ZnwmRKSt9nothrow_t", New, Allocates),
    (13, c"_ZnamRKSt9nothrow_t", New, Allocates),
    (14, c"_ZnwmSt11align_val_t", New, Allocates),
    (15, c"_ZnamSt11align_val_t", New, Allocates),
    (16, c"_ZnwmSt11align_val_tRKSt9nothrow_t", New, Allocates),
    (17, c"_ZnamSt11align_val_tRKSt9nothrow_t", New, Allocates),
    (18, c"_ZdlPv", New, Frees),
    (19, c"_ZdaPv", New, Frees),
    (20, c"_ZdlPvm", New, Frees),
    (21, c"_ZdaPvm", New, Frees),
    (22, c"_ZdlPvRKSt9nothrow_t", New, Frees),
    (23, c"_ZdaPvRKSt9nothrow_t", New, Frees),
    (24, c"_ZdlPvSt11align_val_t", New, Frees),
    (25, c"_ZdaPvSt11align_val_t", New, Frees),
    (26, c"_ZdlPvmSt11align_val_t", New, Frees),
    (27, c"_ZdaPvmSt11align_val_t", New, Frees),
    (28, c"_ZdlPvSt11align_val_tRKSt9nothrow_t", New, Frees),
    (29, c"_ZdaPvSt11align_val_tRKSt9nothrow_t", New, Frees),
];

/// Allocation functions by their first three arguments; a function ignores those it does not take.
type AllocationFunction = unsafe extern "C-unwind" fn(usize, usize, usize) -> usize;

/// The process's own functions, once looked up.
static OWN: [AtomicUsize; GATE_COUNT] = [const { AtomicUsize::new(0) }; GATE_COUNT];
/// The program's functions, zero for those it does not define.
static PROGRAMS: [AtomicUsize; GATE_COUNT] = [const { AtomicUsize::new(0) }; GATE_COUNT];
/// Whether the program's functions are used: set once, after the words above and [`RUNTIME`] were
/// written (release, with the acquire in [`decides`]).
static DECIDES: AtomicBool = AtomicBool::new(false);
/// Whether the executable has gates: set by the first call through one.
static USED: AtomicBool = AtomicBool::new(false);
/// Code ranges of the runtime, sorted by start.
static RUNTIME: OnceLock<Vec<Range<u64>>> = OnceLock::new();

static MALLOC_BLOCKS: BlockSet = BlockSet::new();
static NEW_BLOCKS: BlockSet = BlockSet::new();

unsafe extern "C" {
    fn __libc_malloc();
    fn __libc_free();
    fn __libc_calloc();
    fn __libc_realloc();
    fn __libc_memalign();
    fn __libc_valloc();
    fn __libc_pvalloc();
}

/// The index of the gate `name`.
pub(super) fn index_of(name: &str) -> Option<usize> {
    NAMES
        .iter()
        .position(|own| own.to_bytes() == name.as_bytes())
}

/// Whether this executable exports gates, and its libraries call them.
pub(super) fn are_there() -> bool {
    USED.load(Ordering::Relaxed)
}

/// The process's own function behind `address`, if that is the gate `name`.
pub(crate) fn behind(name: &CStr, address: u64) -> Option<u64> {
    let index = NAMES.iter().position(|own| *own == name)?;
    let name = CString::from(name);
    // SAFETY: a C string.
    let gate = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
    (are_there() && gate == address).then(|| own(index) as u64)
}

/// Finds the process's own functions of the C++ library, faster than by calling the loader.
pub(super) fn find_own(find: impl Fn(&str) -> Option<u64>) {
    let names = NAMES.iter().zip(&OWN).zip(&FAMILIES);
    for ((name, own), _) in names.filter(|(_, family)| **family == New) {
        if own.load(Ordering::Relaxed) == 0
            && let Some(found) = name.to_str().ok().and_then(&find)
        {
            own.store(found as usize, Ordering::Relaxed);
        }
    }
}

/// Ends the phase in which all blocks are noted. `programs` has the program's functions by gate;
/// `runtime` has the code ranges whose calls are the runtime's. Called before the program runs.
pub(super) fn open(programs: &[(usize, u64)], mut runtime: Vec<Range<u64>>) {
    runtime.sort_by_key(|range| range.start);
    // Only the first program of a process has its functions called by libraries.
    if !are_there() || RUNTIME.set(runtime).is_err() {
        return;
    }
    for &(index, address) in programs {
        PROGRAMS[index].store(address as usize, Ordering::Relaxed);
    }
    DECIDES.store(true, Ordering::Release);
    for index in 0..GATE_COUNT {
        let (defines, family) = (
            |gate: usize| programs.iter().any(|&(own, _)| own == gate),
            FAMILIES[index],
        );
        let whole = programs.iter().any(|&(own, _)| FAMILIES[own] == family);
        let forwards = !defines(index) && forwards_to(index).is_some_and(defines);
        let own = own(index);
        if own != 0 && (!whole || forwards) {
            GATES[index].store(own as *mut c_void, Ordering::Release);
        }
    }
}

/// The gate through which the C++ library's form allocates, if it does not allocate itself. It may
/// jump there: without a frame in between, the return address remains that of the caller.
fn forwards_to(index: usize) -> Option<usize> {
    match index {
        11..=13 => Some(10),
        15..=17 => Some(14),
        _ => None,
    }
}

/// The process's own function of a gate; zero if its libraries have none. A library that was loaded
/// first (`LD_PRELOAD`), such as another allocator or a leak checker, has a complete family, so its
/// `free` accepts blocks of its `operator new`.
fn own(index: usize) -> usize {
    let known = OWN[index].load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // All at once, before the first block is handed out: `dlsym` frees the message of an earlier
    // failure, and allocates in glibc before 2.34.
    let of_libc = [
        (0, __libc_malloc as *const ()),
        (FREE, __libc_free as *const ()),
        (2, __libc_calloc as *const ()),
        (3, __libc_realloc as *const ()),
        (4, __libc_memalign as *const ()),
        (7, __libc_valloc as *const ()),
        (8, __libc_pvalloc as *const ()),
    ];
    if OWN[FREE].load(Ordering::Relaxed) == 0 {
        for (index, function) in of_libc {
            OWN[index].store(function as usize, Ordering::Relaxed);
        }
        for (index, _) in of_libc {
            find_next(index);
        }
    }
    if OWN[index].load(Ordering::Relaxed) == 0 {
        find_next(index);
    }
    OWN[index].load(Ordering::Relaxed)
}

/// Finds the first definition after the executable's.
fn find_next(index: usize) {
    // SAFETY: a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[index].as_ptr()) as usize };
    if next != 0 {
        OWN[index].store(next, Ordering::Relaxed);
    }
}

/// Calls an allocation function.
///
/// # Safety
/// 1. `function` is zero, or an allocation function that may be called so.
unsafe fn call(function: usize, a: usize, b: usize, c: usize) -> usize {
    if function == 0 {
        return 0;
    }
    // SAFETY: duty 1; a function of up to three words, which ignores the others.
    unsafe { std::mem::transmute::<usize, AllocationFunction>(function)(a, b, c) }
}

/// Whether the program's functions are used already.
fn decides() -> bool {
    DECIDES.load(Ordering::Acquire)
}

/// Whether guest code must not run on this thread now.
fn inside() -> bool {
    !shield::is_interruptible()
}

/// Whether a call that returns to `from` is the runtime's.
fn is_runtimes(from: usize) -> bool {
    let from = from as u64;
    let ranges = RUNTIME.get().map_or(&[][..], Vec::as_slice);
    let behind = ranges.partition_point(|range| range.start <= from);
    behind != 0 && from < ranges[behind - 1].end || llvm::holds(from)
}

fn blocks(index: usize) -> &'static BlockSet {
    match FAMILIES[index] {
        Malloc => &MALLOC_BLOCKS,
        New => &NEW_BLOCKS,
    }
}

/// Target of all calls of a family while blocks are noted: arguments, and the return address.
///
/// # Safety
/// 1. As the function of that name.
unsafe extern "C-unwind" fn gate<const INDEX: usize>(
    a: usize,
    b: usize,
    c: usize,
    _: usize,
    _: usize,
    from: usize,
) -> usize {
    if !USED.load(Ordering::Relaxed) {
        USED.store(true, Ordering::Relaxed);
    }
    // SAFETY: duty 1.
    unsafe {
        match KINDS[INDEX] {
            Allocates | Stores => allocate(INDEX, [a, b, c], from),
            Frees => {
                free(INDEX, [a, b, c]);
                0
            }
            Reallocates => reallocate(INDEX, [a, b, c], from),
            Measures => {
                let programs = PROGRAMS[INDEX].load(Ordering::Relaxed);
                match programs == 0 || blocks(INDEX).holds(a) {
                    true => call(own(INDEX), a, b, c),
                    // The call cannot be served.
                    false if inside() => 0,
                    false => call(programs, a, b, c),
                }
            }
        }
    }
}

/// # Safety
/// 1. As the function of that gate.
unsafe fn allocate(index: usize, [a, b, c]: [usize; 3], from: usize) -> usize {
    let runtimes = !decides() || inside() || is_runtimes(from);
    let programs = PROGRAMS[index].load(Ordering::Relaxed);
    // SAFETY: duty 1.
    unsafe {
        if !runtimes {
            let chosen = if programs == 0 { own(index) } else { programs };
            return call(chosen, a, b, c);
        }
        let result = call(own(index), a, b, c);
        let block = match KINDS[index] {
            Stores if result != 0 => 0,
            Stores => *(a as *const usize),
            _ => result,
        };
        if block == 0 || blocks(index).note(block) {
            return result;
        }
        // A block that cannot be noted cannot be distinguished from the program's.
        call(own(FREE), block, 0, 0);
        match KINDS[index] {
            Stores => libc::ENOMEM as usize,
            _ => 0,
        }
    }
}

/// # Safety
/// 1. As the function of that gate.
unsafe fn free(index: usize, [a, b, c]: [usize; 3]) {
    let noted = a != 0 && blocks(index).take(a);
    let programs = PROGRAMS[index].load(Ordering::Relaxed);
    // SAFETY: duty 1.
    unsafe {
        if noted && FAMILIES[index] == New {
            // It was also noted as a `malloc` block if the process's `malloc` made it.
            MALLOC_BLOCKS.take(a);
            call(own(FREE), a, 0, 0);
        } else if noted || programs == 0 || !decides() {
            call(own(index), a, b, c);
        } else if !inside() {
            call(programs, a, b, c);
        }
    }
}

/// # Safety
/// 1. As the function of that gate.
unsafe fn reallocate(index: usize, [a, b, c]: [usize; 3], from: usize) -> usize {
    if a == 0 {
        // SAFETY: duty 1; of null it allocates.
        return unsafe { allocate(index, [a, b, c], from) };
    }
    let blocks = blocks(index);
    let noted = blocks.take(a);
    let programs = PROGRAMS[index].load(Ordering::Relaxed);
    // SAFETY: duty 1.
    unsafe {
        if !noted && programs != 0 && decides() {
            if !inside() {
                return call(programs, a, b, c);
            }
            // Only the program's own functions know the size of its block.
            *libc::__errno_location() = libc::ENOMEM;
            return 0;
        }
        let made = call(own(index), a, b, c);
        // If it cannot be noted, the program's function will see it; it has moved, so the call
        // cannot be undone.
        let stays = if made == 0 && b != 0 { a } else { made };
        if noted && stays != 0 {
            blocks.note(stays);
        }
        made
    }
}
