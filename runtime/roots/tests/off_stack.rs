//! Threads that left their own stack, and stacks of contexts that no thread is on.

mod common;

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Holder, Stop, address, alone, of, scan};

const STACK: usize = 64 << 10;

unsafe extern "C" {
    fn getcontext(context: *mut libc::ucontext_t) -> libc::c_int;
    fn makecontext(context: *mut libc::ucontext_t, start: extern "C" fn(), count: libc::c_int, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> libc::c_int;
}

thread_local! {
    static STOP: UnsafeCell<*const Stop> = const { UnsafeCell::new(std::ptr::null()) };
}

/// Runs on the other stack: spins, or sleeps if `SLEEPS`.
extern "C" fn elsewhere<const SLEEPS: bool>() {
    // SAFETY: set by this thread, which waits below.
    let stop = STOP.with(|held| unsafe { &**held.get() });
    stop.ready();
    while !stop.is_set() {
        if SLEEPS {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn leave(stop: &Stop, start: extern "C" fn()) {
    let frame = [address(4)];
    black_box(&frame);
    let mut stack = vec![0u64; STACK / 8];
    let mut home = Box::new(MaybeUninit::<libc::ucontext_t>::uninit());
    let mut away = Box::new(MaybeUninit::<libc::ucontext_t>::uninit());
    STOP.with(|held| {
        // SAFETY: no other code has it now.
        unsafe { *held.get() = stop };
    });
    // SAFETY: fills the context.
    unsafe { getcontext(away.as_mut_ptr()) };
    // SAFETY: filled above.
    let context = unsafe { away.assume_init_mut() };
    context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
    context.uc_stack.ss_size = STACK;
    context.uc_link = home.as_mut_ptr();
    // SAFETY: a filled context with a stack of its own, which outlives it.
    unsafe { makecontext(context, start, 0) };
    // SAFETY: both are contexts; the other one comes back here when it ends.
    unsafe { swapcontext(home.as_mut_ptr(), context) };
    black_box((&frame, &stack));
}

#[test]
fn left_its_own_stack() {
    let _alone = alone();
    for start in [elsewhere::<false>, elsewhere::<true>] {
        let holder = Holder::start(move |stop| leave(stop, start));
        // Words that earlier threads left on the stack count, too: all of it is scanned.
        let report = scan();
        let thread = of(&report, holder.tid);
        assert!(report.complete && thread.keeps.contains(&4), "{report:#?}");
        // The thread's stack is unregistered.
        assert!(report.unknown_stack.is_some(), "{report:#?}");
        holder.stop();
        assert_eq!(scan().unknown_stack, None);
    }
}

#[test]
fn contexts_are_scanned_as_far_as_they_are_there() {
    let _alone = alone();
    // SAFETY: a fresh mapping.
    let stack = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let start = stack as u64;
    // SAFETY: our memory.
    unsafe { ((start + 8192) as *mut u64).write_volatile(address(5)) };
    assert!(!scan().kept[5]);
    uruk_roots::note_context_stack(start..start + STACK as u64);
    // A guard at its end, as programs make them.
    // SAFETY: a page of ours.
    unsafe { libc::mprotect(stack, 4096, libc::PROT_NONE) };
    let report = scan();
    assert!(report.complete && report.kept[5], "{report:#?}");
    // SAFETY: ours.
    unsafe { libc::munmap(stack, STACK) };
    let report = scan();
    assert!(report.complete && !report.kept[5], "{report:#?}");
}

/// Where [`begun_on_given_memory`] tells that it runs, and when it ends.
static GIVEN: (AtomicBool, AtomicBool) = (AtomicBool::new(false), AtomicBool::new(false));

extern "C" fn begun_on_given_memory(_: *mut libc::c_void) -> *mut libc::c_void {
    let frame = [address(6)];
    black_box(&frame);
    GIVEN.0.store(true, Ordering::Release);
    while !GIVEN.1.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    black_box(&frame);
    std::ptr::null_mut()
}

/// Freed stacks are not reported, and the kernel reuses their addresses.
#[test]
fn threads_lie_where_stacks_were() {
    const SIZE: usize = 256 << 10;
    let _alone = alone();
    // The registered part, from and to, of the memory that a thread gets then, below inaccessible
    // memory: its end; all of it and the memory above; most of it.
    for (from, to) in [(SIZE / 2, SIZE + 4096), (0, SIZE + 8192), (8192, SIZE - 64)] {
        // SAFETY: a fresh mapping.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE + 8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let start = memory as u64;
        uruk_roots::note_context_stack(start + from as u64..start + to as u64);
        GIVEN.0.store(false, Ordering::Relaxed);
        GIVEN.1.store(false, Ordering::Relaxed);
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the mapping is ours; the thread has its lower part until it was joined.
        unsafe {
            libc::mprotect(memory.byte_add(SIZE), 8192, libc::PROT_NONE);
            let mut how = std::mem::zeroed::<libc::pthread_attr_t>();
            assert_eq!(libc::pthread_attr_init(&mut how), 0);
            assert_eq!(libc::pthread_attr_setstack(&mut how, memory, SIZE), 0);
            let begin = begun_on_given_memory;
            let none = std::ptr::null_mut();
            let made = libc::pthread_create(thread.as_mut_ptr(), &how, begin, none);
            assert_eq!(made, 0);
        }
        while !GIVEN.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let report = scan();
        GIVEN.1.store(true, Ordering::Release);
        // SAFETY: made above, joined once.
        unsafe { libc::pthread_join(thread.assume_init(), std::ptr::null_mut()) };
        assert!(report.complete && report.kept[6], "{report:#?}");
        // The addresses stay ours: of stacks that overlap none is believed.
        // SAFETY: ours.
        unsafe { libc::mprotect(memory, SIZE, libc::PROT_NONE) };
    }
}

/// Bytes of the stack of a process that `clone` makes.
const SHARED_STACK: usize = 64 << 10;

extern "C" fn on_this_memory(stop: *mut libc::c_void) -> libc::c_int {
    // SAFETY: of the test below, which waits for the end of this.
    let stop = unsafe { &*stop.cast::<AtomicBool>() };
    while !stop.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    0
}

#[test]
fn a_process_on_this_memory() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    let mut stack = vec![0u128; SHARED_STACK / 16];
    let top = stack.as_mut_ptr_range().end;
    let given = (&raw const stop).cast_mut().cast::<libc::c_void>();
    // SAFETY: a stack of its own; what runs there only looks at `stop`.
    let child = unsafe {
        libc::clone(
            on_this_memory,
            top.cast(),
            libc::CLONE_VM | libc::SIGCHLD,
            given,
        )
    };
    assert!(child > 0, "clone");
    let report = scan();
    stop.store(true, Ordering::Release);
    let mut status = 0;
    // SAFETY: a child of ours, which ends.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(
        report.trouble,
        Some(uruk_roots::ScanTrouble::SharedMemory { pid: child })
    );
    assert!(!report.complete && report.kept.iter().all(|&kept| kept));
    assert_eq!(scan().trouble, None);
    black_box(&stack);
}
