//! Each kind of root alone: found where it is, and only there.

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use common::{Holder, Stop, address, alone, check_keeps, handle, of, scan, scanned, until};
use uruk_roots::How;

/// Sleeps in a system call with one word on the stack.
#[inline(never)]
fn sleep_holding(i: usize) {
    let words = [black_box(address(i))];
    black_box(&words);
    // SAFETY: no memory is involved.
    unsafe { libc::pause() };
    black_box(&words);
}

#[test]
fn asleep_for_long() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        stop.ready();
        sleep_holding(8);
    });
    holder.wait_asleep();
    let report = check_keeps(&holder, 8);
    let how = of(&report, holder.tid).how;
    assert!(matches!(how, How::Blocked { .. }), "{how:?}");
    holder.wake_and_stop();
    // Threads of other tests may hold remains of other addresses.
    let after = scan();
    assert!(after.complete && !after.kept[8], "{after:#?}");
}

#[test]
fn running_in_a_loop() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        let words = [black_box(address(1))];
        stop.ready();
        while !stop.is_set() {
            black_box(&words);
        }
    });
    let report = check_keeps(&holder, 1);
    let how = of(&report, holder.tid).how;
    assert!(matches!(how, How::Running { .. }), "{how:?}");
    holder.stop();
}

/// Loops with the word in one place that `$hold` and `$clear` name; nowhere else.
macro_rules! spin_with {
    ($i:expr, $stop:expr, $hold:literal, $clear:literal) => {{
        let stop: &Stop = $stop;
        let flag = &raw const stop.stop;
        let ready = &raw const stop.ready;
        let word = !address($i);
        // SAFETY: reads one flag and sets the other; all registers used are named, the
        // red zone is this function's because nothing here is a call.
        unsafe {
            std::arch::asm!(
                "not rax",
                $hold,
                "xor eax, eax",
                "mov byte ptr [rdx], 1",
                "2:",
                "pause",
                "cmp byte ptr [rcx], 0",
                "je 2b",
                $clear,
                inout("rax") word => _,
                in("rcx") flag,
                in("rdx") ready,
                out("r12") _,
                out("xmm7") _,
            );
        }
    }};
}

#[test]
fn register_only() {
    let _alone = alone();
    let holder = Holder::start(|stop| spin_with!(2, stop, "mov r12, rax", "xor r12d, r12d"));
    check_keeps(&holder, 2);
    holder.stop();
}

#[test]
fn vector_register_only() {
    let _alone = alone();
    let holder = Holder::start(|stop| spin_with!(3, stop, "movq xmm7, rax", "pxor xmm7, xmm7"));
    check_keeps(&holder, 3);
    holder.stop();
}

#[test]
fn red_zone() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        spin_with!(
            4,
            stop,
            "mov qword ptr [rsp - 120], rax",
            "mov qword ptr [rsp - 120], 0"
        );
    });
    check_keeps(&holder, 4);
    holder.stop();
}

#[test]
fn register_of_a_sleeper() {
    let _alone = alone();
    let holder = Holder::start(|stop| {
        stop.ready();
        let word = !address(5);
        // SAFETY: `pause` ignores its arguments.
        unsafe {
            std::arch::asm!(
                "not rdi",
                "syscall",
                "xor edi, edi",
                inout("rax") libc::SYS_pause => _,
                inout("rdi") word => _,
                out("rcx") _,
                out("r11") _,
            );
        }
    });
    holder.wait_asleep();
    check_keeps(&holder, 5);
    holder.wake_and_stop();
}

static IN_HANDLER: AtomicI32 = AtomicI32::new(0);
static LEAVE_HANDLER: AtomicI32 = AtomicI32::new(0);

extern "C" fn spin_in_handler(_: libc::c_int) {
    IN_HANDLER.fetch_add(1, Ordering::Release);
    while LEAVE_HANDLER.load(Ordering::Relaxed) == 0 {
        std::hint::spin_loop();
    }
}

extern "C" fn sleep_in_handler(_: libc::c_int) {
    IN_HANDLER.fetch_add(1, Ordering::Release);
    while LEAVE_HANDLER.load(Ordering::Relaxed) == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
    }
}

/// Gives the thread an alternate stack in a mapping of its own.
fn with_alternate_stack(run: impl FnOnce()) {
    const BYTES: usize = 64 << 10;
    let memory = map(BYTES);
    let stack = libc::stack_t {
        ss_sp: memory as *mut _,
        ss_flags: 0,
        ss_size: BYTES,
    };
    // SAFETY: the memory is ours and outlives the use.
    unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
    run();
    let off = libc::stack_t {
        ss_flags: libc::SS_DISABLE,
        ..stack
    };
    // SAFETY: no thread runs on it.
    unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
    // SAFETY: ours.
    unsafe { libc::munmap(memory as *mut _, BYTES) };
}

fn map(bytes: usize) -> u64 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory as u64
}

/// The word in the red zone of code that is interrupted by `signals`, whose handlers
/// run on an alternate stack.
fn interrupted_by(signals: &[(i32, extern "C" fn(libc::c_int))], i: usize) {
    IN_HANDLER.store(0, Ordering::Relaxed);
    LEAVE_HANDLER.store(0, Ordering::Relaxed);
    let holder = Holder::start(move |stop| {
        with_alternate_stack(|| {
            spin_with!(
                i,
                stop,
                "mov qword ptr [rsp - 120], rax",
                "mov qword ptr [rsp - 120], 0"
            );
        });
    });
    for (count, &(signal, handler)) in signals.iter().enumerate() {
        handle(signal, handler as *const () as usize, libc::SA_ONSTACK);
        // SAFETY: a thread of ours.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), holder.tid, signal) };
        until("the handler runs", || {
            IN_HANDLER.load(Ordering::Acquire) == count as i32 + 1
        });
    }
    let sleeps = signals
        .last()
        .is_some_and(|last| last.1 as *const () == sleep_in_handler as *const ());
    if sleeps {
        holder.wait_asleep();
    }
    let report = check_keeps(&holder, i);
    let how = of(&report, holder.tid).how;
    assert_eq!(matches!(how, How::Blocked { .. }), sleeps, "{how:?}");
    LEAVE_HANDLER.store(1, Ordering::Relaxed);
    holder.wake_and_stop();
}

#[test]
fn alternate_stack() {
    let _alone = alone();
    interrupted_by(&[(libc::SIGUSR1, spin_in_handler)], 6);
    interrupted_by(&[(libc::SIGUSR1, sleep_in_handler)], 6);
}

#[test]
fn nested_handlers() {
    let _alone = alone();
    let first = (libc::SIGUSR1, spin_in_handler as extern "C" fn(libc::c_int));
    interrupted_by(&[first, (libc::SIGALRM, spin_in_handler)], 7);
    interrupted_by(&[first, (libc::SIGALRM, sleep_in_handler)], 7);
}

/// Holds what is left of a signal's frame, of which the stack pointer was overwritten, and more unless
/// it is `whole` otherwise.
#[inline(never)]
fn sleep_holding_a_rest(elsewhere: u64, whole: bool) {
    let mut words = [0_u64; 40];
    let vectors = (&raw const words[31] as u64) & !63;
    // The stack pointer, flags, the mark, and where the vector registers are.
    (words[20], words[22], words[23]) = (elsewhere, 0x246, 0x002b_0000_0000_0033);
    words[28] = if whole { vectors } else { 0 };
    black_box(&mut words);
    // SAFETY: no memory is involved.
    unsafe { libc::pause() };
    black_box(&mut words);
}

#[test]
fn a_rest_of_a_frame_leads_nowhere() {
    let _alone = alone();
    // Longer than stacks may be.
    let (elsewhere, length) = (map(128 << 20), 128 << 20);
    for whole in [false, true] {
        let holder = Holder::start(move |stop| {
            stop.ready();
            sleep_holding_a_rest(elsewhere + 4096, whole);
        });
        holder.wait_asleep();
        let how = of(&scan(), holder.tid).how;
        assert!(matches!(how, How::Blocked { .. }), "{how:?}");
        holder.wake_and_stop();
        let code = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: ours, and no other code uses it.
        unsafe { libc::mprotect(elsewhere as *mut _, length, code) };
    }
    // SAFETY: ours.
    unsafe { libc::munmap(elsewhere as *mut _, length) };
}

#[test]
fn registered_fiber() {
    let _alone = alone();
    let stack = map(64 << 10);
    let word = (stack + 4096) as *mut u64;
    // SAFETY: our memory.
    unsafe { word.write_volatile(address(8)) };
    assert!(!scan().kept[8]);
    let id = common::ROOTS
        .register_stack(stack..stack + (64 << 10))
        .expect("a place");
    let report = scan();
    assert!(report.complete && report.kept[8], "{report:#?}");
    assert_eq!(
        report.stacks.len(),
        2,
        "once before and once after the threads"
    );
    assert_eq!(report.stacks[0].keeps, [8]);
    common::ROOTS.unregister_stack(id);
    assert!(!scan().kept[8]);
    // SAFETY: ours.
    unsafe { libc::munmap(stack as *mut _, 64 << 10) };
    let id = common::ROOTS
        .register_stack(stack..stack + (64 << 10))
        .expect("a place");
    let report = scan();
    assert!(!report.complete && report.trouble.is_some(), "{report:#?}");
    common::ROOTS.unregister_stack(id);
}

#[test]
fn caller_counts() {
    let _alone = alone();
    let caller = std::thread::spawn(|| {
        let words = [address(2)];
        black_box(&words);
        let report = common::ROOTS.scan(&common::wanted(), common::LONG);
        black_box(&words);
        // SAFETY: no arguments.
        (report, unsafe { libc::gettid() })
    });
    let (report, tid) = caller.join().expect("the caller");
    let thread = of(&report, tid);
    assert!(matches!(thread.how, How::Caller { .. }), "{report:#?}");
    assert_eq!(common::middle(&thread.keeps), [2], "{report:#?}");
}

unsafe extern "C" {
    fn _setjmp(buffer: *mut u64) -> libc::c_int;
}

/// The frame to which `longjmp` may return is on the stack as long as that is allowed: the function that
/// called `setjmp` sleeps in a callee. glibc mangles the buffer itself.
#[test]
fn the_frame_of_setjmp() {
    let _alone = alone();
    #[inline(never)]
    fn calls_setjmp(stop: &Stop) {
        let mut buffer = [0u64; 64];
        // The return address of the frame, as a callee of JIT'd code would have it.
        let frame = [address(3)];
        black_box(&frame);
        // SAFETY: the buffer is large enough, and no code jumps.
        unsafe { _setjmp(buffer.as_mut_ptr()) };
        stop.ready();
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
        black_box((&buffer, &frame));
    }
    let holder = Holder::start(calls_setjmp);
    holder.wait_asleep();
    check_keeps(&holder, 3);
    holder.wake_and_stop();
}

/// Uses `bytes` of stack, then runs `last`.
#[inline(never)]
fn deep(bytes: usize, last: &dyn Fn()) {
    let words = [black_box(0u64); 100];
    black_box(&words);
    if bytes > 800 {
        deep(bytes - 800, last);
    } else {
        last();
    }
    black_box(&words);
}

#[test]
fn deep_stacks() {
    let _alone = alone();
    for bytes in [256 << 10, 8 << 20] {
        for sleeps in [false, true] {
            let holder = Holder::with_stack(bytes * 2, move |stop| {
                let words = [address(4)];
                black_box(&words);
                deep(bytes, &|| {
                    stop.ready();
                    if sleeps {
                        // SAFETY: no memory is involved.
                        unsafe { libc::pause() };
                    }
                    while !stop.is_set() {
                        std::hint::spin_loop();
                    }
                });
                black_box(&words);
            });
            if sleeps {
                holder.wait_asleep();
            }
            let report = check_keeps(&holder, 4);
            let how = of(&report, holder.tid).how;
            assert!(scanned(how) >= bytes as u64, "{how:?}");
            println!("{} KiB: {how:?}", bytes >> 10);
            holder.wake_and_stop();
        }
    }
}

/// A word that wanders up and down a long stack between short sleeps: a scan that read
/// one end before the move and the other after it would miss it.
#[test]
fn a_word_that_moves_between_sleeps() {
    let _alone = alone();
    const WORDS: usize = 64 << 10;
    let holder = Holder::with_stack(8 << 20, |stop| {
        let mut words = [0u64; WORDS];
        let words = black_box(words.as_mut_ptr());
        let put = |index: usize, word: u64| {
            // SAFETY: within the array.
            unsafe { words.add(index).write_volatile(word) };
        };
        let mut from = WORDS - 1;
        put(from, address(5));
        stop.ready();
        while !stop.is_set() {
            // SAFETY: no memory is involved.
            unsafe { libc::usleep(200) };
            let to = WORDS - 1 - from;
            put(to, address(5));
            put(from, 0);
            from = to;
        }
    });
    let began = Instant::now();
    let mut slept = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let report = scan();
        let thread = of(&report, holder.tid);
        assert!(report.complete && thread.keeps.contains(&5), "{report:#?}");
        slept += u32::from(matches!(thread.how, How::Blocked { .. }));
    }
    println!("{slept} scans of a sleeping thread");
    holder.stop();
}
