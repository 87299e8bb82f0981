//! Uses of signals by programs that a handshake must survive, and that must not see it.

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::{Holder, ROOTS, alone, handle, of, scan, until, wanted};
use uruk_roots::{How, Why, mask_changed, set_action, set_alternate_stack};

const CANDIDATES: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

static GOT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    GOT.fetch_add(1, Ordering::Relaxed);
}

fn runs() -> Holder {
    Holder::start(|stop| {
        stop.ready();
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    })
}

/// The kernel's action for a signal.
fn action(signal: i32) -> libc::sigaction {
    // SAFETY: an empty structure, filled by the call.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    action
}

fn put_back(signal: i32, action: &libc::sigaction) {
    // SAFETY: what was there before.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

/// The program's `sigaction`, as JIT'd code gets it.
fn program_handles(signal: i32, handler: usize, flags: i32) {
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if set_action(signal, Some(&action)).is_none() {
        handle(signal, handler, flags);
    }
}

fn program_has(signal: i32) -> usize {
    set_action(signal, None).map_or_else(|| action(signal).sa_sigaction, |a| a.sa_sigaction)
}

/// Scans on another thread, as fast as possible, while `act` runs on this one; it is told how
/// many there were.
fn beside_scans<R>(act: impl FnOnce(&AtomicU32) -> R) -> R {
    let (stop, scans) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wanted = wanted();
            while !stop.load(Ordering::Relaxed) {
                ROOTS.scan(&wanted, Duration::from_secs(2));
                scans.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = act(&scans);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs a little.
fn compute(turns: u32) {
    black_box((0..turns).fold(0u32, |sum, i| sum ^ black_box(i)));
}

#[test]
fn taken_away_by_code_that_is_not_jitted() {
    let _alone = alone();
    let holder = runs();
    assert!(scan().complete);
    assert_eq!(ROOTS.signal(), Some(libc::SIGURG));
    let before = CANDIDATES.map(action);
    let theirs = count as *const () as usize;
    GOT.store(0, Ordering::Relaxed);
    // A reset is undone; so is ignoring it.
    for reset in [libc::SIG_DFL, libc::SIG_IGN] {
        handle(libc::SIGURG, reset, 0);
        assert!(scan().complete);
        assert_eq!(program_has(libc::SIGURG), reset);
    }
    // A handler stays, and another signal asks.
    handle(libc::SIGURG, theirs, 0);
    assert!(scan().complete);
    assert_eq!(ROOTS.signal(), Some(libc::SIGWINCH));
    assert_eq!(action(libc::SIGURG).sa_sigaction, theirs);
    // The program handles both: no thread is asked, and everything is kept.
    handle(libc::SIGWINCH, theirs, 0);
    let report = scan();
    let why = Why::HandlerReplaced;
    assert_eq!(of(&report, holder.tid).how, How::Unanswered { why });
    assert!(report.kept.iter().all(|&kept| kept) && ROOTS.signal().is_none());
    assert_eq!(GOT.load(Ordering::Relaxed), 0);
    for (signal, action) in CANDIDATES.iter().zip(&before) {
        put_back(*signal, action);
    }
    assert!(scan().complete);
    program_handles(libc::SIGURG, libc::SIG_DFL, 0);
    holder.stop();
}

/// The program's own signals come, each once, also while ours come; it sees what it set.
#[test]
fn the_program_handles_them_itself() {
    let _alone = alone();
    let holder = runs();
    assert!(scan().complete);
    let theirs = count as *const () as usize;
    for both in [false, true] {
        let signals = &CANDIDATES[..1 + usize::from(both)];
        GOT.store(0, Ordering::Relaxed);
        let sent = beside_scans(|scans| {
            for &signal in signals {
                program_handles(signal, theirs, libc::SA_NODEFER);
                assert_eq!(program_has(signal), theirs);
            }
            let mut sent = 0;
            // With both taken each scan waits for the threads that run, in vain.
            let scanned = if both { 30 } else { 300 };
            while scans.load(Ordering::Relaxed) < scanned {
                // SAFETY: it has a handler.
                unsafe { libc::raise(libc::SIGURG) };
                sent += 1;
                compute(200);
            }
            sent
        });
        assert_eq!(GOT.load(Ordering::Relaxed), sent, "both: {both}");
        // With both taken, who runs is not asked.
        let signal = (!both).then_some(libc::SIGWINCH);
        assert_eq!((ROOTS.signal(), scan().complete), (signal, !both));
    }
    // Called once, and reset.
    GOT.store(0, Ordering::Relaxed);
    program_handles(libc::SIGURG, theirs, libc::SA_RESETHAND);
    // SAFETY: it has a handler, then none, which ignores it.
    (0..3).for_each(|_| unsafe { assert_eq!(libc::raise(libc::SIGURG), 0) });
    assert_eq!(GOT.load(Ordering::Relaxed), 1);
    assert_eq!(program_has(libc::SIGURG), libc::SIG_DFL);
    for signal in CANDIDATES {
        program_handles(signal, libc::SIG_DFL, 0);
    }
    assert_eq!(ROOTS.signal(), Some(libc::SIGURG));
    holder.stop();
}

static SEEN_MASK: AtomicU32 = AtomicU32::new(0);

extern "C" fn see_mask(_: libc::c_int) {
    let mut word = 0u64;
    let at = (&raw mut word).cast::<libc::sigset_t>();
    // SAFETY: the kernel writes the first word only.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            std::ptr::null::<libc::sigset_t>(),
            at,
            8,
        )
    };
    SEEN_MASK.store(word as u32, Ordering::Relaxed);
}

#[test]
fn its_handlers_run_with_the_mask_they_asked_for() {
    let _alone = alone();
    assert!(scan().complete);
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = see_mask as *const () as usize;
    // SAFETY: a valid set.
    unsafe { libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1) };
    let bit = |signal: i32| 1u32 << (signal - 1);
    for (flags, own) in [(0, bit(libc::SIGURG)), (libc::SA_NODEFER, 0)] {
        action.sa_flags = flags;
        assert!(set_action(libc::SIGURG, Some(&action)).is_some());
        // SAFETY: it has a handler.
        unsafe { libc::raise(libc::SIGURG) };
        let seen = SEEN_MASK.load(Ordering::Relaxed);
        assert_eq!(seen, bit(libc::SIGUSR1) | own, "{seen:#x}");
    }
    program_handles(libc::SIGURG, libc::SIG_DFL, 0);
}

/// A request on its way does not end the image that `exec` makes.
#[test]
fn an_exec_beside_scans() {
    let _alone = alone();
    for _ in 0..100 {
        // SAFETY: the child makes two threads, which is not promised to work in a child of a
        // process with threads, but does here; then it is another program.
        let child = unsafe { libc::fork() };
        if child == 0 {
            ROOTS.after_fork_child();
            beside_scans(|scans| {
                while scans.load(Ordering::Relaxed) < 5 {
                    compute(100);
                }
                let args = [c"true".as_ptr(), std::ptr::null()];
                // SAFETY: a list of strings with its end.
                unsafe { libc::execv(c"/bin/true".as_ptr(), args.as_ptr()) };
            });
            // SAFETY: ends the child.
            unsafe { libc::_exit(3) };
        }
        let mut status = 0;
        until("the child ends", || {
            // SAFETY: our child.
            unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) == child }
        });
        assert_eq!(status, 0, "status {status:#x}");
    }
}

/// Blocks all signals by the library's call, as JIT'd code does, and takes what is there.
#[test]
fn nothing_is_left_for_who_blocks_and_takes_signals() {
    let _alone = alone();
    assert!(scan().complete);
    let found = beside_scans(|scans| {
        let mut found = 0;
        while scans.load(Ordering::Relaxed) < 300 {
            // SAFETY: sets made by the calls before they are used.
            unsafe {
                let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
                mask_changed();
                let none: libc::timespec = std::mem::zeroed();
                found += u32::from(libc::sigtimedwait(&all, std::ptr::null_mut(), &none) > 0);
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            }
            compute(50);
        }
        found
    });
    assert_eq!(found, 0);
    assert!(scan().complete);
}

#[test]
fn a_thread_with_a_small_alternate_stack_is_not_asked() {
    let _alone = alone();
    let large = Arc::new(AtomicBool::new(false));
    let its = large.clone();
    let holder = Holder::start(move |stop| {
        set_alternate_stack(512, || true);
        stop.ready();
        while !its.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        set_alternate_stack(0, || true);
        stop.stop.store(false, Ordering::Relaxed);
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    let report = scan();
    let why = Why::SmallStack;
    assert_eq!(of(&report, holder.tid).how, How::Unanswered { why });
    assert!(report.kept.iter().all(|&kept| kept));
    large.store(true, Ordering::Relaxed);
    until("it is asked again", || scan().complete);
    holder.stop();
}

/// Returns, as little as a handler can do.
#[unsafe(naked)]
extern "C" fn least(_: libc::c_int) {
    std::arch::naked_asm!("ret")
}

/// A stack above a page that cannot be touched, all its bytes alike.
struct Painted {
    low: *mut u8,
    bytes: usize,
}

impl Painted {
    const PAINT: u8 = 0xa5;
    const PAGE: usize = 4096;

    fn new(bytes: usize) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let whole = Self::PAGE + bytes;
        // SAFETY: a new mapping, whose lower page is made inaccessible.
        let low = unsafe {
            let low = libc::mmap(std::ptr::null_mut(), whole, protection, flags, -1, 0);
            libc::mprotect(low, Self::PAGE, libc::PROT_NONE);
            low.cast::<u8>().add(Self::PAGE)
        };
        let stack = libc::stack_t {
            ss_sp: low.cast(),
            ss_flags: 0,
            ss_size: bytes,
        };
        set_alternate_stack(bytes, || {
            // SAFETY: memory that stays.
            unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) == 0 }
        });
        Self { low, bytes }
    }

    fn paint(&self) {
        // SAFETY: its own memory, on which no thread runs.
        unsafe { self.low.write_bytes(Self::PAINT, self.bytes) };
    }

    /// Bytes from the lowest that was written to the top.
    fn used(&self) -> usize {
        // SAFETY: its own memory, which no thread writes now.
        let bytes = unsafe { std::slice::from_raw_parts(self.low, self.bytes) };
        let same = bytes.iter().take_while(|&&byte| byte == Self::PAINT);
        self.bytes - same.count()
    }
}

/// The handler puts nothing on the thread's stack but the kernel's frame, which leaves some
/// hundred bytes of a stack of 2,048 where registers are 256 bits wide.
#[test]
fn an_alternate_stack_takes_the_kernels_frame_alone() {
    let _alone = alone();
    let asked = Arc::new(AtomicBool::new(false));
    let its = asked.clone();
    handle(
        libc::SIGUSR1,
        least as *const () as usize,
        libc::SA_ONSTACK | libc::SA_SIGINFO,
    );
    let holder = Holder::start(move |stop| {
        let stack = Painted::new(64 << 10);
        stack.paint();
        // SAFETY: it has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        let kernels = stack.used();
        stack.paint();
        stop.ready();
        while !its.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let ours = stack.used();
        println!("{kernels} bytes for the kernel's frame, {ours} with our handler");
        assert!(kernels > 0 && ours == kernels, "{kernels} {ours}");
        while !stop.is_set() {
            std::hint::spin_loop();
        }
    });
    for _ in 0..20 {
        let report = scan();
        let how = of(&report, holder.tid).how;
        assert!(matches!(how, How::Running { .. }), "{how:?}");
    }
    asked.store(true, Ordering::Relaxed);
    holder.stop();
}
