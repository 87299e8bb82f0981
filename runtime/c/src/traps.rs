//! Numbers of the traps that end guarded calls.

use std::ffi::c_int;

use uruk::TrapKind;

/// It was no guarded call that failed.
pub const URUK_TRAP_NONE: c_int = 0;
/// A division by zero, or one whose result does not fit.
pub const URUK_TRAP_DIVISION: c_int = 1;
/// A floating-point operation, where these trap.
pub const URUK_TRAP_FLOATING_POINT: c_int = 2;
/// An instruction that the processor refuses: `llvm.trap`, `abort`-like code.
pub const URUK_TRAP_ILLEGAL: c_int = 3;
/// `llvm.debugtrap`.
pub const URUK_TRAP_BREAKPOINT: c_int = 4;
/// Memory that is not there.
pub const URUK_TRAP_MEMORY: c_int = 5;
/// The stack is used up.
pub const URUK_TRAP_STACK_OVERFLOW: c_int = 6;
/// A function of the host raised an error.
pub const URUK_TRAP_HOST: c_int = 7;
/// A function that was called has no code.
pub const URUK_TRAP_NOT_COMPILED: c_int = 8;
/// `uruk_jit_interrupt`.
pub const URUK_TRAP_INTERRUPTED: c_int = 9;
/// The call took longer than its limit.
pub const URUK_TRAP_DEADLINE: c_int = 10;
/// Something that this interface has no number for.
pub const URUK_TRAP_OTHER: c_int = 11;

/// The call made more passes than its fuel.
pub const URUK_TRAP_OUT_OF_FUEL: c_int = 12;
/// The call was not made: it was to have fuel, and its session does not count passes.
pub const URUK_TRAP_NOT_COUNTED: c_int = 13;
/// The call was not made: the system refuses a timer for its limit, or memory.
pub const URUK_TRAP_REFUSED: c_int = 14;

/// The number of the trap that ended a guarded call.
pub(crate) fn trap_of(kind: &TrapKind) -> c_int {
    match kind {
        TrapKind::Division => URUK_TRAP_DIVISION,
        TrapKind::FloatingPoint => URUK_TRAP_FLOATING_POINT,
        TrapKind::Illegal => URUK_TRAP_ILLEGAL,
        TrapKind::Breakpoint => URUK_TRAP_BREAKPOINT,
        TrapKind::Memory { .. } => URUK_TRAP_MEMORY,
        TrapKind::StackOverflow => URUK_TRAP_STACK_OVERFLOW,
        TrapKind::Host(_) => URUK_TRAP_HOST,
        TrapKind::NotCompiled { .. } => URUK_TRAP_NOT_COMPILED,
        TrapKind::Interrupted => URUK_TRAP_INTERRUPTED,
        TrapKind::Deadline(_) => URUK_TRAP_DEADLINE,
        TrapKind::OutOfFuel => URUK_TRAP_OUT_OF_FUEL,
        TrapKind::NotCounted => URUK_TRAP_NOT_COUNTED,
        TrapKind::Refused(_) => URUK_TRAP_REFUSED,
        _ => URUK_TRAP_OTHER,
    }
}
