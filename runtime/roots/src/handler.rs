//! The signal handler: a running thread scans its own registers and stacks.
//!
//! It runs on whatever the thread was doing, on any stack, with all signals blocked:
//! no lock, no allocation, no thread-local (a thread without a library may have none),
//! no `errno`, no panic. It first repairs an interrupted system call (`rewind`), then
//! looks for a request with its own thread id; a late signal finds none.
//!
//! Roots of the interrupted code: its sixteen registers and program counter, its vector
//! registers (a compiler may spill to them), and its stacks by [`walk`].
//!
//! [`ANSWERS`] counts answers. Release here pairs with the acquire of whoever waits;
//! the work itself is ordered by its slot.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use uruk_locks::Mutex;

use crate::error::RootsError;
use crate::hits::Hits;
use crate::maps::Maps;
use crate::rewind::{self, Interrupted};
use crate::scratch::Scratch;
use crate::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys;
use crate::walk::{Copied, Ground, Own, Trouble, walk};

/// Requests that may be under way at once.
pub(crate) const SLOTS: usize = 64;

/// Words of the buffer that stacks are copied through.
pub(crate) const BUFFER: usize = 2048;

/// Words of the stack a handler answers on.
pub(crate) const STACK: usize = 4096;

/// What a thread is asked, and its answer.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) pid: i32,
    pub(crate) maps: Arc<Maps>,
    pub(crate) tcb: u64,
    pub(crate) limit: u64,
    pub(crate) hits: Hits,
    pub(crate) buffer: Scratch,
    /// What the handler runs on: the thread's own stack may have little room.
    pub(crate) stack: Scratch,
    /// Bytes scanned, or why not; `None` before.
    pub(crate) outcome: Option<Result<u64, Trouble>>,
    /// Time from the handler's first instruction to its answer.
    pub(crate) handler_ns: u64,
    /// Processor time of the scan, if it is [`timed`](Work::timed).
    pub(crate) worked_ns: Option<u64>,
    pub(crate) timed: bool,
    /// When the handler began.
    pub(crate) began_ns: u64,
}

/// The requests of the process.
pub(crate) static REQUESTS: [Slot<Box<Work>>; SLOTS] = [const { Slot::new() }; SLOTS];

/// Counts answers; whoever waits for one waits for a change of this.
pub(crate) static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// System calls made again, and those that ended with `EINTR` at our signal.
pub(crate) static REPEATED: AtomicU64 = AtomicU64::new(0);
pub(crate) static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

/// Our signal, or 0.
static SIGNAL: AtomicU32 = AtomicU32::new(0);

/// Installing happens once.
static INSTALLING: Mutex<()> = Mutex::new(());

extern "C" fn handler(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let began = sys::now_ns();
    // SAFETY: the kernel passes the interrupted context, writable, for the whole call.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    repair(context);
    let tid = sys::gettid() as u32;
    for slot in &REQUESTS {
        if let Some(mut claim) = slot.claim(tid) {
            claim.with(|work| answer_aside(context, work, began));
            claim.finish();
            // Release: pairs with the acquire in `Roots::settle`.
            ANSWERS.fetch_add(1, Ordering::Release);
            sys::futex_wake(ANSWERS.as_ptr(), 1);
        }
    }
}

fn register(context: &libc::ucontext_t, which: c_int) -> u64 {
    context
        .uc_mcontext
        .gregs
        .get(which as usize)
        .map_or(0, |&value| value as u64)
}

/// Makes an interrupted system call happen again where that is right.
fn repair(context: &mut libc::ucontext_t) {
    if register(context, libc::REG_RAX) as i64 == sys::EINTR {
        repair_call(context);
    }
}

#[inline(never)]
fn repair_call(context: &mut libc::ucontext_t) {
    let ip = register(context, libc::REG_RIP);
    let mut code = [0u64; rewind::CODE_BYTES / 8];
    let start = ip.wrapping_sub(rewind::CODE_BYTES as u64);
    let pid = sys::getpid();
    if sys::read_words(pid, start, &mut code) < code.len() {
        // The page before the call may be missing; its last word alone will do then.
        let Some(last) = code.last_mut() else { return };
        if sys::read_words(pid, ip.wrapping_sub(8), std::slice::from_mut(last)) == 0 {
            return;
        }
    }
    // SAFETY: words are bytes.
    let code: [u8; rewind::CODE_BYTES] = unsafe { std::mem::transmute(code) };
    if !code.ends_with(&[0x0f, 0x05]) {
        return;
    }
    let args = [
        libc::REG_RDI,
        libc::REG_RSI,
        libc::REG_RDX,
        libc::REG_R10,
        libc::REG_R8,
        libc::REG_R9,
    ]
    .map(|which| register(context, which));
    let word = |address| {
        let mut word = [0];
        (sys::read_words(pid, address, &mut word) == 1).then_some(word[0])
    };
    let decision = rewind::decide(&code, &args, word);
    let mask = &raw const context.uc_sigmask;
    // SAFETY: the kernel wrote the first word of the mask.
    let mask = unsafe { mask.cast::<u64>().read() };
    let own = 1u64 << (SIGNAL.load(Ordering::Relaxed).wrapping_sub(1) & 63);
    match decision {
        // A signal of the program's own will be handled next: the call ends by that.
        Interrupted::Again(_) if sys::pending() & !mask & !own != 0 => {}
        Interrupted::Again(number) => {
            let registers = &mut context.uc_mcontext.gregs;
            if let Some(rip) = registers.get_mut(libc::REG_RIP as usize) {
                *rip = ip.wrapping_sub(2) as i64;
            }
            if let Some(rax) = registers.get_mut(libc::REG_RAX as usize) {
                *rax = i64::from(number);
            }
            REPEATED.fetch_add(1, Ordering::Relaxed);
        }
        Interrupted::Stays => {
            INTERRUPTED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What [`answer`] is called with.
struct Job<'a> {
    context: &'a libc::ucontext_t,
    work: &'a mut Work,
    began: u64,
}

/// Answers on the stack of the request. The kernel's frame takes up to 4 KiB, and a thread
/// may have a stack of 16.
#[inline(never)]
fn answer_aside(context: &libc::ucontext_t, work: &mut Work, began: u64) {
    extern "C" fn run(job: *mut c_void) {
        // SAFETY: `answer_aside` passes its own job, which nobody else uses meanwhile.
        let job = unsafe { &mut *job.cast::<Job<'_>>() };
        answer(job.context, job.work, job.began);
    }
    let top = work.stack.as_mut_ptr_range().end as usize & !15;
    let mut job = Job {
        context,
        work,
        began,
    };
    // SAFETY: the stack belongs to this request, which one thread answers, once, with all
    // signals blocked; `run` neither unwinds nor touches it by another way, and comes back.
    // r12 survives calls.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {run}",
            "mov rsp, r12",
            top = in(reg) top,
            run = sym run,
            in("rdi") &raw mut job,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

fn answer(context: &libc::ucontext_t, work: &mut Work, began: u64) {
    let worked = work.timed.then(sys::thread_ns);
    for &register in context.uc_mcontext.gregs.iter().take(17) {
        work.hits.note(register as u64);
    }
    vector_registers(context, &mut work.hits);
    let low = context.uc_stack.ss_sp as u64;
    let high = low.saturating_add(context.uc_stack.ss_size as u64);
    let ground = Ground {
        maps: &work.maps,
        tcb: work.tcb,
        first: sys::gettid() == work.pid,
        alternate: (low, high),
        limit: work.limit,
    };
    let mut memory = Own(Copied {
        pid: work.pid,
        buffer: &mut work.buffer,
    });
    let sp = register(context, libc::REG_RSP);
    work.outcome = Some(walk(&mut memory, &ground, sp, &mut work.hits));
    work.began_ns = began;
    work.worked_ns = worked.map(|before| sys::thread_ns().wrapping_sub(before));
    work.handler_ns = sys::now_ns().wrapping_sub(began);
}

/// The saved `xsave` area: 512 bytes, and what `fx_sw_reserved` (at 464) says is more:
/// a magic number and the size of the whole.
fn vector_registers(context: &libc::ucontext_t, hits: &mut Hits) {
    const MAGIC: u32 = 0x4650_5853;
    let area = context.uc_mcontext.fpregs.cast::<u8>().cast_const();
    if area.is_null() || !(area as usize).is_multiple_of(8) {
        return;
    }
    // SAFETY: the kernel saved at least 512 bytes there, on the handler's own stack.
    let magic = unsafe { area.add(464).cast::<u32>().read() };
    // SAFETY: the same.
    let whole = unsafe { area.add(468).cast::<u32>().read() };
    let bytes = if magic == MAGIC {
        whole.clamp(512, 16384)
    } else {
        512
    };
    // SAFETY: the kernel says that many bytes were saved.
    let words = unsafe { std::slice::from_raw_parts(area.cast::<u64>(), bytes as usize / 8) };
    for &word in words {
        hits.note(word);
    }
}

fn action_of(signal: i32) -> io::Result<usize> {
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; writes the structure.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } {
        0 => Ok(action.sa_sigaction),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether `signal` still comes to our handler.
pub(crate) fn installed(signal: i32) -> bool {
    action_of(signal).is_ok_and(|action| action == handler as *const () as usize)
}

/// Installs the handler, once for the process: for `asked`, or the highest real-time
/// signal that has the default action. Returns the signal.
pub(crate) fn install(asked: Option<i32>) -> Result<i32, RootsError> {
    let _turn = INSTALLING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let current = SIGNAL.load(Ordering::Relaxed) as i32;
    if current != 0 && installed(current) && asked.is_none_or(|asked| asked == current) {
        return Ok(current);
    }
    let free = |&signal: &i32| action_of(signal).is_ok_and(|a| a == libc::SIG_DFL);
    let mut signals = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    let signal = match asked {
        Some(signal) => Some(signal).filter(free),
        None => signals.find(free),
    };
    let signal = signal.ok_or(RootsError::NoSignal { asked })?;
    // SAFETY: an empty structure of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let mask = &raw mut action.sa_mask;
    // All of them: `sigfillset` leaves out the two by which glibc cancels threads, and
    // a cancelled handler would keep its request for ever.
    // SAFETY: the set is longer than the kernel's one word.
    unsafe { mask.cast::<u64>().write(u64::MAX) };
    // SAFETY: a valid structure; the handler is async-signal-safe and lives for ever.
    if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
        let source = io::Error::last_os_error();
        return Err(RootsError::Install { signal, source });
    }
    SIGNAL.store(signal as u32, Ordering::Relaxed);
    Ok(signal)
}
