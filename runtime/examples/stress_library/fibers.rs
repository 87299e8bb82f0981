//! Fibers that rest in the middle of a call of JIT'd code while their thread makes other calls.

use std::cell::Cell;
use std::ffi::c_void;

use uruk::Jit;

unsafe extern "C" {
    fn getcontext(context: *mut libc::ucontext_t) -> libc::c_int;
    fn makecontext(context: *mut libc::ucontext_t, start: extern "C" fn(), count: libc::c_int, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> libc::c_int;
}

type Work<'w> = &'w dyn Fn();

thread_local! {
    static HOME: Cell<*mut libc::ucontext_t> = const { Cell::new(std::ptr::null_mut()) };
    static AWAY: Cell<*mut libc::ucontext_t> = const { Cell::new(std::ptr::null_mut()) };
    static WORK: Cell<*const Work<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Called by JIT'd code: goes back to the thread's own stack, where this is a fiber.
#[inline(never)]
pub fn rest() {
    let (away, home) = (AWAY.get(), HOME.get());
    if !away.is_null() {
        // SAFETY: contexts of `on_fiber`, which lives as long as these are set.
        unsafe { swapcontext(away, home) };
    }
}

extern "C" fn start() {
    // SAFETY: set by `on_fiber`, whose frame outlives the fiber.
    let work = unsafe { &*WORK.get() };
    work();
}

/// Runs `work` on a fiber, and `between` while that rests.
pub fn on_fiber(jit: &Jit, work: Work<'_>, between: impl FnOnce()) {
    let mut stack = vec![0u64; 32 << 10];
    let range = stack.as_ptr_range();
    // SAFETY: the memory lives longer than the registration, which ends when nothing rests there.
    let held = unsafe { jit.register_stack(range.start as u64..range.end as u64) };
    let held = held.unwrap_or_else(|cause| crate::world::fail(&format!("a fiber: {cause}")));
    // SAFETY: contexts are integers and pointers.
    let mut home: Box<libc::ucontext_t> = unsafe { Box::new(std::mem::zeroed()) };
    // SAFETY: the same.
    let mut away: Box<libc::ucontext_t> = unsafe { Box::new(std::mem::zeroed()) };
    HOME.set(&raw mut *home);
    AWAY.set(&raw mut *away);
    WORK.set((&raw const work).cast());
    // SAFETY: fills the context.
    unsafe { getcontext(&mut *away) };
    away.uc_stack.ss_sp = stack.as_mut_ptr().cast::<c_void>();
    away.uc_stack.ss_size = stack.len() * 8;
    away.uc_link = &raw mut *home;
    // SAFETY: a filled context with a stack of its own.
    unsafe { makecontext(&mut *away, start, 0) };
    // SAFETY: two contexts; `rest` comes back.
    unsafe { swapcontext(&mut *home, &*away) };
    let resting = AWAY.replace(std::ptr::null_mut());
    between();
    AWAY.set(resting);
    // SAFETY: as above; the fiber's end comes back.
    unsafe { swapcontext(&mut *home, &*away) };
    AWAY.set(std::ptr::null_mut());
    stack.fill(0);
    drop(held);
}
