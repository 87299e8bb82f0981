//! The signal handler: a running thread scans its own registers and stacks.
//!
//! It interrupts any code of the thread, with all signals blocked, on a stack of its own: no lock, no
//! allocation, no thread-local (a thread without a library may have none), no `errno`, no panic. It
//! first repairs an interrupted system call (`rewind`), then looks for a request with its own thread id;
//! a late signal finds none. A signal that is not ours is passed to the program's handler (`shadow`).
//!
//! `SA_ONSTACK` is set: coroutines and green threads that rely on an alternate stack have less room on
//! their own than the kernel's frame needs, and the memory below belongs to others. The room on an
//! alternate stack is known where JIT'd code sets it (`asking`).
//!
//! Roots of the interrupted code: its sixteen registers and program counter, its vector
//! registers (a compiler may spill to them), and its stacks by [`walk`].
//!
//! [`ANSWERS`] counts answers. Release here pairs with the acquire of the waiting requester; the work
//! itself is ordered by its slot.
//!
//! # Why
//! The handshake's signal is one that is ignored by default (SIGURG, else SIGWINCH): a
//! real-time one ends the process after `exec` and resets.

use std::arch::naked_asm;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::asking;
use crate::hits::Hits;
use crate::maps::Maps;
use crate::rewind::{self, Interrupted};
use crate::scratch::Scratch;
use crate::shadow::{self, CANDIDATES};
use crate::slot::Slot;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys;
use crate::walk::{Copied, Ground, Own, Trouble, walk};

/// Most requests in progress at once.
pub(crate) const SLOTS: usize = 64;

/// Words of the buffer that stacks are copied through.
pub(crate) const BUFFER: usize = 2048;

/// Bytes of a handler's stack.
const STACK: usize = 1 << 15;

/// The request to a thread, and its answer.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) pid: i32,
    pub(crate) maps: Arc<Maps>,
    pub(crate) tcb: u64,
    pub(crate) limit: u64,
    pub(crate) hits: Hits,
    pub(crate) buffer: Scratch,
    /// Bytes scanned, or the reason for a failure; `None` before the answer.
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

/// Counts answers; the requester waits for a change of this.
pub(crate) static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// System calls made again, and those that ended with `EINTR` at our signal.
pub(crate) static REPEATED: AtomicU64 = AtomicU64::new(0);
pub(crate) static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

/// Stacks of handlers, each of [`STACK`] bytes.
#[repr(C, align(4096))]
struct HandlerStacks(UnsafeCell<[[u8; STACK]; SLOTS]>);

// SAFETY: only the handler that took a stack's bit of `FREE` uses it.
unsafe impl Sync for HandlerStacks {}

static STACKS: HandlerStacks = HandlerStacks(UnsafeCell::new([[0; STACK]; SLOTS]));

/// Free stacks, one bit each.
static FREE: AtomicU64 = AtomicU64::new(u64::MAX);

const _: () = assert!(SLOTS == 64 && STACK == 1 << 15);

/// Entry point for the kernel. The thread may have no room for more than the kernel's frame (an
/// alternate stack of 2,048 bytes, a coroutine's), so nothing is put on its stack. A stack of ours is
/// taken, [`handle`] runs there, and the stack is given back before this returns to the kernel's frame,
/// or jumps to the handler of the program with all registers as the kernel set them. Callee-saved
/// registers are preserved: a library between the kernel and this may call it as a function.
///
/// If more handlers run at once than there are stacks, the others yield until one is free.
///
/// # Safety
/// Called with the kernel's arguments, and all signals blocked.
#[unsafe(naked)]
unsafe extern "C" fn entry(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    naked_asm!(
        // No unwinder goes beyond this frame.
        ".cfi_startproc",
        ".cfi_undefined rip",
        // The arguments stay in rdi, rsi and rdx, the stack is kept in r8, its number in r9.
        "mov r8, rsp",
        "lea r10, [rip + {free}]",
        "2:",
        "mov rax, [r10]",
        "bsf r9, rax",
        "jz 3f",
        "mov rcx, rax",
        "btr rcx, r9",
        "lock cmpxchg [r10], rcx",
        "jnz 2b",
        "lea rcx, [r9 + 1]",
        "shl rcx, {log}",
        "lea rsp, [rip + {stacks}]",
        "add rsp, rcx",
        "push r8",
        "push r9",
        "push rdi",
        "push rsi",
        "push rdx",
        // Calls are made at multiples of 16.
        "sub rsp, 8",
        "call {handle}",
        "add rsp, 8",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop r9",
        "pop rsp",
        "lea r10, [rip + {free}]",
        "lock bts [r10], r9",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4:",
        "ret",
        "3:",
        // Changes rax, rcx and r11 only.
        "mov eax, {sched_yield}",
        "syscall",
        "jmp 2b",
        ".cfi_endproc",
        free = sym FREE,
        stacks = sym STACKS,
        log = const STACK.trailing_zeros(),
        handle = sym handle,
        sched_yield = const libc::SYS_sched_yield,
    )
}

/// The address the handler is installed with.
pub(crate) fn entry_address() -> u64 {
    entry as *const () as u64
}

/// Frees all stacks, in the child after `fork`: its parent's other threads used them.
pub(crate) fn after_fork_child() {
    FREE.store(u64::MAX, Ordering::Relaxed);
}

/// Answers requests to the thread; returns the handler of the program that is to run now, or 0.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> usize {
    let began = sys::now_ns();
    // SAFETY: the kernel passes the signal's data, all bytes of them.
    let info = unsafe { *info.cast::<sys::Info>() };
    // SAFETY: the kernel passes the interrupted context, writable, for the whole call.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let ours = asking::is_ours(&info);
    let wanted = shadow::wanted(signal);
    if ours || !wanted.is_handled() {
        repair(context);
    }
    let tid = sys::gettid();
    asking::came(tid);
    // Also on a signal of the program, behind which ours may have been lost.
    for slot in &REQUESTS {
        if let Some(mut claim) = slot.claim(tid as u32) {
            claim.with(|work| answer(context, work, began));
            claim.finish();
            // Release: pairs with the acquire in `Roots::settle`.
            ANSWERS.fetch_add(1, Ordering::Release);
            sys::futex_wake(ANSWERS.as_ptr(), 1);
        }
    }
    if ours || !wanted.is_handled() {
        return 0;
    }
    hand_on(signal, context, &wanted)
}

/// Prepares the thread for the handler of the program, as the kernel would have.
fn hand_on(signal: c_int, context: &libc::ucontext_t, wanted: &sys::Action) -> usize {
    if wanted.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
        shadow::reset(signal);
    }
    let own = match wanted.flags & libc::SA_NODEFER as u64 {
        0 => 1u64 << (signal.wrapping_sub(1) & 63),
        _ => 0,
    };
    sys::set_mask(mask_of(context) | wanted.mask | own);
    wanted.handler as usize
}

/// The signals the interrupted code blocks.
fn mask_of(context: &libc::ucontext_t) -> u64 {
    let mask = &raw const context.uc_sigmask;
    // SAFETY: the kernel wrote the first word of the mask.
    unsafe { mask.cast::<u64>().read() }
}

fn register(context: &libc::ucontext_t, which: c_int) -> u64 {
    context
        .uc_mcontext
        .gregs
        .get(which as usize)
        .map_or(0, |&value| value as u64)
}

/// Restarts an interrupted system call where that is right.
fn repair(context: &mut libc::ucontext_t) {
    match register(context, libc::REG_RAX) as i64 {
        sys::EINTR => repair_call(context, register(context, libc::REG_RIP)),
        // The kernel is about to continue a call that a stop interrupted, and forgets how when we
        // return: the call is begun anew.
        libc::SYS_restart_syscall => {
            let after = register(context, libc::REG_RIP).wrapping_add(2);
            repair_call(context, after);
        }
        _ => {}
    }
}

/// Restarts the call before `after`, the address of the next instruction.
#[inline(never)]
fn repair_call(context: &mut libc::ucontext_t, after: u64) {
    let Some(code) = code_before(after) else {
        return;
    };
    if !code.ends_with(&rewind::SYSCALL) {
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
    let pid = sys::getpid();
    let word = |address| {
        let mut word = [0];
        (sys::read_words(pid, address, &mut word) == 1).then_some(word[0])
    };
    let number = match after == rewind::own_call() {
        true => rewind::noted(xmm15(context)),
        false => rewind::number(&code),
    };
    match rewind::decide(number, &args, word) {
        // A signal of the program itself will be handled next: it ends the call.
        Interrupted::Again(_) if others_pending(mask_of(context)) => {}
        Interrupted::Again(number) => {
            let registers = &mut context.uc_mcontext.gregs;
            if let Some(rip) = registers.get_mut(libc::REG_RIP as usize) {
                *rip = after.wrapping_sub(2) as i64;
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

/// The bytes before `after`; the first ones are zeros if their page is missing.
fn code_before(after: u64) -> Option<[u8; rewind::CODE_BYTES]> {
    let mut code = [0u64; rewind::CODE_BYTES / 8];
    let start = after.wrapping_sub(rewind::CODE_BYTES as u64);
    let pid = sys::getpid();
    if sys::read_words(pid, start, &mut code) < code.len() {
        code = [0; rewind::CODE_BYTES / 8];
        let last = code.last_mut()?;
        if sys::read_words(pid, after.wrapping_sub(8), std::slice::from_mut(last)) == 0 {
            return None;
        }
    }
    // SAFETY: words are bytes.
    Some(unsafe {
        std::mem::transmute::<[u64; rewind::CODE_BYTES / 8], [u8; rewind::CODE_BYTES]>(code)
    })
}

/// Whether a signal is pending that the interrupted code does not block and the program handles. A stop
/// or an ignored signal ends no call.
fn others_pending(mask: u64) -> bool {
    let mut pending = sys::pending() & !mask;
    while pending != 0 {
        let signal = pending.trailing_zeros().wrapping_add(1) as i32;
        pending &= pending.wrapping_sub(1);
        let action = match CANDIDATES.contains(&signal) {
            true => Some(shadow::wanted(signal)),
            false => sys::action(signal),
        };
        if action.is_some_and(|action| action.is_handled()) {
            return true;
        }
    }
    false
}

/// The low word of `xmm15`, which lies at 160 + 15 * 16 of the saved area.
fn xmm15(context: &libc::ucontext_t) -> u64 {
    let area = context.uc_mcontext.fpregs.cast::<u64>().cast_const();
    if area.is_null() || !(area as usize).is_multiple_of(8) {
        return 0;
    }
    // SAFETY: the kernel saved at least 512 bytes there.
    unsafe { area.add(50).read() }
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

/// Notes words of the saved `xsave` area: 512 bytes, and more if `fx_sw_reserved` (at 464) says so, by a
/// magic number and the size of the whole.
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
