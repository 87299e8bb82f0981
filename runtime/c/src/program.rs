//! Whole programs: run in this process as the command does, to their end.

use std::ffi::{OsString, c_char, c_int};
use std::path::PathBuf;
use std::ptr;

use uruk::{Mode, Program, ProgramOptions, StatsFormat};

use crate::boundary::{Fault, give, guarded, place, sized, take, text, texts, unusable, unused};
use crate::error::uruk_error;
use crate::session::{session, uruk_jit};

/// No statistics at the end.
pub const URUK_STATS_NONE: c_int = 0;
/// Statistics as a table.
pub const URUK_STATS_TABLE: c_int = 1;
/// Statistics as JSON.
pub const URUK_STATS_JSON: c_int = 2;

/// How a program is loaded and run. A field of zero is as by default; `size` is that of this
/// struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_program_options {
    /// `sizeof(uruk_program_options)`.
    pub size: usize,
    /// The function to start at; `main` if null.
    pub entry: *const c_char,
    /// Where a timeline for Perfetto is written to at the end, or null.
    pub trace: *const c_char,
    /// Where a page about the run is written to at the end, or null.
    pub report: *const c_char,
    /// Where the order of first calls is kept, or null.
    pub first_calls: *const c_char,
    /// 1: everything is compiled before the program starts.
    pub eager: c_int,
    /// One of `URUK_STATS_...`, on standard error at the end.
    pub stats: c_int,
    /// 1: what the program exports counts for the libraries of the process.
    pub preempt_libraries: c_int,
    /// Must be 0.
    pub reserved: c_int,
}

/// A program that is loaded and checked, ready to run.
pub struct uruk_program(Program);

const NOTHING: uruk_program_options = uruk_program_options {
    size: size_of::<uruk_program_options>(),
    entry: ptr::null(),
    trace: ptr::null(),
    report: ptr::null(),
    first_calls: ptr::null(),
    eager: 0,
    stats: URUK_STATS_NONE,
    preempt_libraries: 0,
    reserved: 0,
};

/// # Safety
/// As for all pointers of the interface.
unsafe fn options_of(asked: *const uruk_program_options) -> Result<ProgramOptions, Fault> {
    let mut options = ProgramOptions::default();
    if asked.is_null() {
        return Ok(options);
    }
    // SAFETY: by the caller's promise; the struct is of integers and pointers.
    let asked = unsafe { sized(asked, NOTHING, "options")? };
    unused(asked.reserved)?;
    let path = |pointer: *const c_char, what: &str| match pointer.is_null() {
        true => Ok(None),
        // SAFETY: by the caller's promise.
        false => unsafe { text(pointer, what) }.map(|path| Some(PathBuf::from(path))),
    };
    if !asked.entry.is_null() {
        // SAFETY: by the caller's promise.
        options.entry = unsafe { text(asked.entry, "entry")? }.to_owned();
    }
    options.trace = path(asked.trace, "trace")?;
    options.report = path(asked.report, "report")?;
    options.first_calls = path(asked.first_calls, "first_calls")?;
    options.preempt_libraries = asked.preempt_libraries != 0;
    if asked.eager != 0 {
        options.mode = Mode::Eager;
    }
    options.stats = match asked.stats {
        URUK_STATS_NONE => None,
        URUK_STATS_TABLE => Some(StatsFormat::Table),
        URUK_STATS_JSON => Some(StatsFormat::Json),
        other => return Err(unusable("stats", &format!("there is no {other}"))),
    };
    Ok(options)
}

/// Reads files and binds them to one program; `options` may be null for defaults. `program` is to
/// be run, or freed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_program_load(
    jit: *const uruk_jit,
    files: *const *const c_char,
    count: usize,
    options: *const uruk_program_options,
    program: *mut *mut uruk_program,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, files, options, to) = unsafe {
            let files = texts(files, count, "files")?;
            (
                session(jit)?,
                files,
                options_of(options)?,
                place(program, "program")?,
            )
        };
        let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
        *to = give(uruk_program(Program::load(jit, &files, options)?));
        Ok(())
    })
}

/// Runs a program on the main thread and ends the process with its status; it comes back only if an
/// argument cannot be used. Arguments begin behind the program's name. Frees `program` where it
/// runs it; it stays as it is after an error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_program_run(
    program: *mut uruk_program,
    arguments: *const *const c_char,
    count: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the array.
        let arguments = unsafe { texts(arguments, count, "arguments")? };
        if program.is_null() {
            return Err(unusable("program", "a null pointer"));
        }
        let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
        // SAFETY: the caller's promises, of the handle and of the program.
        unsafe { Box::from_raw(program).0.run(&arguments) }
    })
}

/// Frees a program that is not run; nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_program_free(program: *mut uruk_program) {
    // SAFETY: the caller's promise of the handle.
    unsafe { take(program) };
}
