//! The return addresses of a sleeping thread, by unwind tables: without words that ended calls left in
//! the holes of frames.
//!
//! A frame is unwound from its stack pointer alone as far as possible: callee-saved registers cannot be
//! seen (`look`). They become known where a frame has saved them.
//!
//! # Invariants
//! - A chain is given only if it is whole: every frame has an entry, each return address lies right
//!   below its frame's end and behind a call, and frames rise within the thread's own stack. The last
//!   frame is that of the start of the program or of the thread, and not of a context of `makecontext`.
//!   Otherwise there is no chain, and all words count as before: signal frames, code without tables,
//!   other stacks, registers that are not known.
//! - The requester must need only return addresses: the program counter and the arguments of the system
//!   call are scanned besides, and code is not entered by an address that is kept elsewhere.
//!
//! # Limits
//! Tables are trusted: assembly whose table gives a wrong size of a frame hides its callers. So are the
//! usual places of return addresses: an address that assembly keeps in a register over a system call is
//! seen neither here nor by scans of stacks.
//!
//! # Source
//! DWARF 5, section 6.4; the System V ABI for x86-64, section 3.7.

use std::ops::Range;
use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection as _, X86_64,
};

use crate::resumable::ends_in_call;
use crate::sys;
use crate::tables::{FrameEntry, Tables};

/// Most frames of a thread.
const FRAMES: usize = 100_000;

/// Most bytes of the code in which a program starts.
const ENTRY: u64 = 256;

/// Callee-saved registers.
const KEPT: [Register; 6] = [
    X86_64::RBX,
    X86_64::RBP,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
];

/// The registers of a frame, as far as they are known.
#[derive(Clone, Debug)]
struct Registers {
    pc: u64,
    sp: u64,
    kept: [Option<u64>; 6],
}

impl Registers {
    fn get(&self, register: Register) -> Option<u64> {
        match register {
            X86_64::RSP => Some(self.sp),
            register => {
                let at = KEPT.iter().position(|it| *it == register)?;
                self.kept[at]
            }
        }
    }
}

/// A step to the caller.
enum Step {
    Caller(Registers),
    /// There is no caller.
    Last,
}

/// The return addresses of a thread that sleeps in a system call at `pc` with `sp`, on its own stack,
/// which is `own`; `None` if they cannot be determined with certainty.
pub(crate) fn return_addresses(
    tables: &mut Tables,
    (pc, sp): (u64, u64),
    own: &Range<u64>,
    is_first: bool,
) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    let mut context = UnwindContext::new();
    let mut registers = Registers {
        pc,
        sp,
        kept: [None; 6],
    };
    for depth in 0..FRAMES {
        // A call may be the last instruction of its function.
        let at = registers.pc.checked_sub(u64::from(depth > 0))?;
        let entry = tables.find(at)?;
        match step(tables, &mut context, &entry, at, &registers, own)? {
            Step::Caller(caller) => {
                found.push(caller.pc);
                registers = caller;
            }
            Step::Last => {
                // Code of ours, in which calls of guests begin, has no caller by its table either.
                let is_start = match is_first {
                    true => at.wrapping_sub(entry_point()) < ENTRY,
                    false => tables.are_of_one_file(at, c_library()) && !is_context(tables, &entry),
                };
                return is_start.then_some(found);
            }
        }
    }
    None
}

/// An address in the C library, which starts threads. Another library may define its functions for
/// creating threads.
fn c_library() -> u64 {
    libc::gnu_get_libc_version as *const () as u64
}

/// Whether an entry is that of the function to which the first function of a context returns. The stack
/// of such a context may lie in a frame of the thread's own stack.
fn is_context(tables: &mut Tables, entry: &FrameEntry) -> bool {
    let start = CONTEXT_START.get().copied().unwrap_or_default();
    let other = tables.find(start);
    start != 0 && other.is_some_and(|it| it.address() == entry.address())
}

/// The function of the C library to which the first function of a context returns; 0 if it is unknown.
static CONTEXT_START: OnceLock<u64> = OnceLock::new();

/// Finds the start of the C library's contexts with the dynamic loader. Call it before threads are
/// scanned: a thread that waits for the end of a scan may hold the loader's lock.
pub fn learn_contexts() {
    CONTEXT_START.get_or_init(|| {
        // Not linked against: a file that names it is treated as one that switches stacks.
        // SAFETY: a C string; the loader gives an address or null.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"makecontext".as_ptr()) };
        match found.is_null() {
            true => 0,
            // SAFETY: the C library's function of that name, whose type this is.
            false => context_start(unsafe {
                std::mem::transmute::<*mut libc::c_void, MakeContext>(found)
            }),
        }
    });
}

type MakeContext = unsafe extern "C" fn(*mut libc::ucontext_t, extern "C" fn(), libc::c_int, ...);

fn context_start(make: MakeContext) -> u64 {
    extern "C" fn nothing() {}
    let mut stack = [0_u64; 512];
    // SAFETY: zeros are a valid value. The context is never entered; `makecontext` writes to it and to
    // its stack, which live, and of which that is the size.
    unsafe {
        let mut context: libc::ucontext_t = std::mem::zeroed();
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = size_of_val(&stack);
        make(&mut context, nothing, 0);
        let sp = context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
        let range = stack.as_ptr_range();
        match (range.start as u64..range.end as u64).contains(&sp) {
            true => std::ptr::with_exposed_provenance::<u64>(sp as usize).read_volatile(),
            false => 0,
        }
    }
}

/// The entry point of the program.
fn entry_point() -> u64 {
    // SAFETY: takes a number, cannot fail.
    unsafe { libc::getauxval(libc::AT_ENTRY) }
}

fn step(
    tables: &Tables,
    context: &mut UnwindContext<usize>,
    entry: &FrameEntry,
    at: u64,
    registers: &Registers,
    own: &Range<u64>,
) -> Option<Step> {
    let mut section = EhFrame::new(&entry.bytes, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(entry.base);
    let place = EhFrameOffset(entry.at);
    let described = section.fde_from_offset(&bases, place, EhFrame::cie_from_offset);
    let described = described.ok()?;
    if !described.contains(at) || described.is_signal_trampoline() {
        return None;
    }
    let row = described.unwind_info_for_address(&section, &bases, context, at);
    let row = row.ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let end = registers.get(register)?.checked_add_signed(offset)?;
    let rises = end > registers.sp && end.is_multiple_of(8);
    if !rises || end > own.end || registers.sp < own.start {
        return None;
    }
    match row.register(X86_64::RA) {
        RegisterRule::Undefined => return Some(Step::Last),
        RegisterRule::Offset(-8) => {}
        _ => return None,
    }
    let word = |at: u64| -> Option<u64> {
        let mut word = [0];
        let inside = own.contains(&at) && at.is_multiple_of(8);
        (inside && sys::read_words(tables.pid(), at, &mut word) == 1).then_some(word[0])
    };
    let pc = word(end.checked_sub(8)?)?;
    if !is_behind_a_call(tables, pc) {
        return None;
    }
    let mut kept = registers.kept;
    for (value, register) in kept.iter_mut().zip(KEPT) {
        match row.register(register) {
            // Without a rule, a register of this kind has the caller's value.
            RegisterRule::Undefined | RegisterRule::SameValue => {}
            RegisterRule::Offset(offset) => *value = word(end.checked_add_signed(offset)?),
            _ => *value = None,
        }
    }
    Some(Step::Caller(Registers { pc, sp: end, kept }))
}

/// Whether a call instruction ends at an address.
fn is_behind_a_call(tables: &Tables, pc: u64) -> bool {
    let before = pc.checked_sub(8).and_then(|from| tables.bytes(from, 8));
    before.is_some_and(|code| ends_in_call(&code))
}
