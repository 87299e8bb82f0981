//! Guarded calls: values are checked against the function's type, faults and deadlines become
//! errors, and other threads can interrupt.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

use uruk::{DynFunc, GuestThread, Val};

use crate::boundary::{Fault, array, give, guarded, handle, place, take, text, unusable, value};
use crate::dylib::{dylib_of, uruk_dylib};
use crate::error::uruk_error;
use crate::session::{session, uruk_jit};

/// No value: `void`.
pub const URUK_VALUE_VOID: c_int = 0;
/// `i1`: 0 or 1 in `bits.integer`.
pub const URUK_VALUE_I1: c_int = 1;
/// `i8`, in `bits.integer`.
pub const URUK_VALUE_I8: c_int = 2;
/// `i16`, in `bits.integer`.
pub const URUK_VALUE_I16: c_int = 3;
/// `i32`, in `bits.integer`.
pub const URUK_VALUE_I32: c_int = 4;
/// `i64`, in `bits.integer`.
pub const URUK_VALUE_I64: c_int = 5;
/// `float`, in `bits.real`.
pub const URUK_VALUE_FLOAT: c_int = 6;
/// `double`, in `bits.real`.
pub const URUK_VALUE_DOUBLE: c_int = 7;
/// `ptr`, in `bits.pointer`.
pub const URUK_VALUE_PTR: c_int = 8;

/// The components of a value.
#[repr(C)]
#[derive(Clone, Copy)]
pub union uruk_bits {
    /// Of integers.
    pub integer: i64,
    /// Of floating-point numbers.
    pub real: f64,
    /// Of pointers.
    pub pointer: *mut c_void,
}

/// A value that a function is called with, or answers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_value {
    /// One of `URUK_VALUE_...`.
    pub kind: c_int,
    /// The value.
    pub bits: uruk_bits,
}

/// A function whose values are compared with its type at each call.
pub struct uruk_callable(DynFunc);

/// A thread that makes guarded calls.
pub struct uruk_thread(GuestThread);

pub(crate) fn val_of(given: &uruk_value) -> Result<Val, Fault> {
    let out = || unusable("value", "its integer does not fit into its kind");
    // SAFETY: each field has eight bytes, for which any value is valid.
    let (integer, real, pointer) =
        unsafe { (given.bits.integer, given.bits.real, given.bits.pointer) };
    Ok(match given.kind {
        URUK_VALUE_I1 => match integer {
            0 | 1 => Val::Bool(integer == 1),
            _ => return Err(out()),
        },
        // Signed or not: both are the same bits.
        URUK_VALUE_I8 => Val::I8(narrow(integer, 8).ok_or_else(out)? as i8),
        URUK_VALUE_I16 => Val::I16(narrow(integer, 16).ok_or_else(out)? as i16),
        URUK_VALUE_I32 => Val::I32(narrow(integer, 32).ok_or_else(out)? as i32),
        URUK_VALUE_I64 => Val::I64(integer),
        URUK_VALUE_FLOAT => Val::F32(real as f32),
        URUK_VALUE_DOUBLE => Val::F64(real),
        URUK_VALUE_PTR => Val::Ptr(pointer.cast()),
        other => return Err(unusable("value", &format!("there is no kind {other}"))),
    })
}

/// An integer that fits into `bits` bits, signed or unsigned.
fn narrow(integer: i64, bits: u32) -> Option<i64> {
    let fits = (-(1 << (bits - 1))..1_i64 << bits).contains(&integer);
    fits.then_some(integer)
}

pub(crate) fn value_of(val: &Val) -> Result<uruk_value, Fault> {
    let integer = |kind, integer| uruk_value {
        kind,
        bits: uruk_bits { integer },
    };
    let real = |kind, real| uruk_value {
        kind,
        bits: uruk_bits { real },
    };
    Ok(match val {
        Val::Void => integer(URUK_VALUE_VOID, 0),
        Val::Bool(one) => integer(URUK_VALUE_I1, i64::from(*one)),
        Val::I8(one) => integer(URUK_VALUE_I8, i64::from(*one)),
        Val::I16(one) => integer(URUK_VALUE_I16, i64::from(*one)),
        Val::I32(one) => integer(URUK_VALUE_I32, i64::from(*one)),
        Val::I64(one) => integer(URUK_VALUE_I64, *one),
        Val::F32(one) => real(URUK_VALUE_FLOAT, f64::from(*one)),
        Val::F64(one) => real(URUK_VALUE_DOUBLE, *one),
        Val::Ptr(pointer) => uruk_value {
            kind: URUK_VALUE_PTR,
            bits: uruk_bits {
                pointer: pointer.cast(),
            },
        },
        _ => return Err(unusable("result", "a struct is no value of this interface")),
    })
}

/// A function to be called with values. `type` is its type as LLVM writes it, needed for functions
/// of objects and units only; null otherwise. `callable` is to be freed, and keeps its session
/// alive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_dylib_callable(
    dylib: *const uruk_dylib,
    name: *const c_char,
    r#type: *const c_char,
    callable: *mut *mut uruk_callable,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (dylib, name, to) = unsafe {
            let to = place(callable, "callable")?;
            (dylib_of(dylib)?, text(name, "name")?, to)
        };
        *to = ptr::null_mut();
        let function = match r#type.is_null() {
            // SAFETY: the caller's promise of the code.
            true => unsafe { dylib.dynamic_function(name)? },
            // SAFETY: the caller's promises, of the pointer and of the type.
            false => unsafe { dylib.dynamic_function_as(name, text(r#type, "type")?)? },
        };
        *to = give(uruk_callable(function));
        Ok(())
    })
}

/// Calls a function. What goes wrong in JIT'd code is an error, of the code `URUK_ERROR_TRAP`: a
/// division by zero, a memory fault, a stack overflow, `limit_ms` (0 is none) passed, and so on;
/// `uruk_error_trap` says which, and the error's names are the functions that it happened in,
/// innermost first. What JIT'd code had under way is left as it is, not unwound. `result` may be
/// null. A function of the host that JIT'd code calls may leave the call by an exception, which
/// passes to the caller, or by a `longjmp` over it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn uruk_callable_call(
    callable: *const uruk_callable,
    values: *const uruk_value,
    count: usize,
    limit_ms: u64,
    result: *mut uruk_value,
) -> *mut uruk_error {
    // SAFETY: the caller's promises.
    unsafe { call(callable, (values, count), limit_ms, None, result) }
}

/// As `uruk_callable_call`, with a limit of passes, which ends the same call at the same place each
/// time (`URUK_TRAP_OUT_OF_FUEL`), in a session that counts them (`count_fuel` of its settings).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn uruk_callable_call_with_fuel(
    callable: *const uruk_callable,
    values: *const uruk_value,
    count: usize,
    limit_ms: u64,
    passes: u64,
    result: *mut uruk_value,
) -> *mut uruk_error {
    // SAFETY: the caller's promises.
    unsafe { call(callable, (values, count), limit_ms, Some(passes), result) }
}

/// # Safety
/// As for all pointers of the interface.
unsafe fn call(
    callable: *const uruk_callable,
    (values, count): (*const uruk_value, usize),
    limit_ms: u64,
    fuel: Option<u64>,
    result: *mut uruk_value,
) -> *mut uruk_error {
    let mut prepared = None;
    let refused = guarded(|| {
        // SAFETY: by the caller's promise.
        let (callable, values) = unsafe {
            (
                handle(callable, "callable")?,
                array(values, count, "values")?,
            )
        };
        let values = values.iter().map(val_of);
        prepared = Some((callable, values.collect::<Result<Vec<Val>, Fault>>()?));
        Ok(())
    });
    let Some((callable, values)) = prepared else {
        return refused;
    };
    let limit = (limit_ms != 0).then(|| Duration::from_millis(limit_ms));
    // Outside of the code that catches panics: an exception of the host's must pass, and Rust
    // cannot catch it.
    let answer = callable.0.call_with(values, limit, fuel);
    guarded(move || {
        let answer = answer?;
        // SAFETY: by the caller's promise.
        if let Some(result) = unsafe { result.as_mut() } {
            *result = value_of(&answer)?;
        }
        Ok(())
    })
}

/// Passes that the calling thread has made in code that counts them.
#[unsafe(no_mangle)]
pub extern "C" fn uruk_thread_fuel_used() -> u64 {
    GuestThread::fuel_used()
}

/// The function's type as LLVM writes it, to be freed by `uruk_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_callable_type(callable: *const uruk_callable) -> *mut c_char {
    value(ptr::null_mut(), || {
        // SAFETY: the caller's promise of the handle.
        let callable = unsafe { handle(callable, "callable")? };
        Ok(crate::error::give_text(callable.0.ty()))
    })
}

/// Frees a callable; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_callable_free(callable: *mut uruk_callable) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(callable) };
}

/// A handle of the calling thread, to interrupt its guarded calls by; to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn uruk_thread_current() -> *mut uruk_thread {
    value(ptr::null_mut(), || {
        Ok(give(uruk_thread(GuestThread::current())))
    })
}

/// Ends the innermost guarded call of a thread by `URUK_TRAP_INTERRUPTED`; 0 if it is in none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_interrupt(
    jit: *const uruk_jit,
    thread: *const uruk_thread,
) -> c_int {
    value(0, || {
        // SAFETY: the caller's promises of the handles.
        let (jit, thread) = unsafe { (session(jit)?, handle(thread, "thread")?) };
        Ok(c_int::from(jit.interrupt(&thread.0)))
    })
}

/// Frees a handle of a thread; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_thread_free(thread: *mut uruk_thread) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(thread) };
}
