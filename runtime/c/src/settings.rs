//! A session's settings, and the callbacks among them.
//!
//! The struct begins with its size; fields that a caller's header lacks have defaults. Zero means
//! the default everywhere, so a struct of zero bytes with its size has all defaults.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use uruk::{
    Baseline, DirectoryCache, InputLimits, JitBuilder, Partition, SamplingChoice, Tiers,
    ToolSettings, Transform,
};

use crate::boundary::{Fault, Owned, owned_by, sized, text, tier, unusable, uruk_function, value};
use crate::error::{c_text, uruk_error};
use crate::events::uruk_event;

/// Functions begin at tier 1, and what is hot moves up: the default.
pub const URUK_TIERS_AUTO: c_int = 0;
/// The first source of samples that works: the default.
pub const URUK_SAMPLING_AUTO: c_int = 0;
/// Samples by events of perf.
pub const URUK_SAMPLING_PERF: c_int = 1;
/// Samples by the software clock of perf.
pub const URUK_SAMPLING_CPU_CLOCK: c_int = 2;
/// Samples by timers of threads.
pub const URUK_SAMPLING_TIMERS: c_int = 3;
/// No samples.
pub const URUK_SAMPLING_OFF: c_int = 4;

/// Default cost limit of trials: percent, and the initial credit.
const PERCENT: f64 = 2.0;
const CREDIT_MS: u64 = 250;

/// Bytes of an object: the callback's to read, or to be freed by `release`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct uruk_bytes {
    /// The bytes.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
    /// Called with `data` once they were copied; or null.
    pub release: Option<unsafe extern "C-unwind" fn(data: *const c_void)>,
}

/// Settings of a session; a field of zero is as by default. `size` is that of this struct.
///
/// Callbacks have `context` as their first argument, may be called on any thread and by several
/// at once, and not after `drop_context`, which is called once, whether there are callbacks or not: by
/// the last thread of the session, soon after its last handle was freed; at once if the session
/// could not be made, whatever was wrong (but for a `size` that cannot be).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uruk_settings {
    /// `sizeof(uruk_settings)`.
    pub size: usize,
    /// Threads that compile for first calls. Default: as many as processors.
    pub jobs: usize,
    /// Limit of bytes for code and data. Default: none.
    pub memory_limit: usize,
    /// Bytes of code that functions may have: beyond, code that is not used goes, and is
    /// compiled again by its next call. Default: no limit.
    pub code_budget: u64,
    /// Bytes of room for variables. Default: enough for most.
    pub static_data: usize,
    /// `URUK_TIERS_AUTO`, or 1, 2 or 3: all functions at that tier.
    pub tiers: c_int,
    /// 1: LLVM compiles at tier 1, too, instead of the baseline compiler.
    pub baseline_off: c_int,
    /// 1: tiers 2 and 3 may fuse multiplications and additions.
    pub contract: c_int,
    /// 1: idle processors compile ahead what is likely to be called next.
    pub speculate: c_int,
    /// 1: no function of one module is inlined into another.
    pub modules_apart: c_int,
    /// 1: code and data lie below 2 GiB.
    pub low_addresses: c_int,
    /// 1: each module is compiled whole by the first call of one of its functions.
    pub whole_modules: c_int,
    /// Where samples come from: one of `URUK_SAMPLING_...`.
    pub sampling: c_int,
    /// 1: the statistics tell where time went.
    pub time_parts: c_int,
    /// 1: perf's map of names is written.
    pub perf_map: c_int,
    /// 1: debuggers are told of code.
    pub gdb: c_int,
    /// 1: inputs are read in a child process first, within limits.
    pub untrusted: c_int,
    /// How long that child may take, in milliseconds; of the clock. Default: a minute.
    pub untrusted_ms: u64,
    /// Bytes of address space it may take. Default: 2 GiB.
    pub untrusted_memory: u64,
    /// Replacements that can be rolled back. Default: 8.
    pub replacements_kept: usize,
    /// Folder for jitdump files, or null.
    pub jitdump: *const c_char,
    /// Folder where compiled functions are kept for later runs, or null.
    pub cache_folder: *const c_char,
    /// The host's own, for the callbacks.
    pub context: *mut c_void,
    /// Called when the callbacks are not called any more.
    pub drop_context: Option<unsafe extern "C-unwind" fn(context: *mut c_void)>,
    /// Told of everything that happens; it must not call the session. The event is of no use
    /// after the call.
    pub on_event:
        Option<unsafe extern "C-unwind" fn(context: *mut c_void, event: *const uruk_event)>,
    /// Called with errors for which no caller waits. The error must not be used after the call.
    pub on_error:
        Option<unsafe extern "C-unwind" fn(context: *mut c_void, error: *const uruk_error)>,
    /// Called for a call whose function cannot be compiled (`cause` says why) or was removed
    /// (`cause` is null): the call continues in the function that is returned, with its own
    /// arguments. Runs on the calling thread, possibly in a signal handler. Without this, and for a
    /// null result, a line is written to standard error and the process ends.
    pub on_failed_call: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            function: *const c_char,
            cause: *const uruk_error,
        ) -> uruk_function,
    >,
    /// Changes the IR of a function (in a module of its own, where it is called
    /// `uruk.body.NAME`) before it is optimized, at each tier; null, or an error of
    /// `uruk_error_new`. The module is one of `libLLVM` in the version of
    /// `uruk_llvm_version`: only for hosts that link the same.
    pub transform_ir: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            module: *mut LLVMOpaqueModule,
            function: *const c_char,
            tier: c_int,
        ) -> *mut uruk_error,
    >,
    /// Changes an object before it is linked: `object` holds it, and is given another one, or
    /// left alone. Null, or an error of `uruk_error_new`.
    pub transform_object: Option<
        unsafe extern "C-unwind" fn(
            context: *mut c_void,
            name: *const c_char,
            object: *mut uruk_bytes,
        ) -> *mut uruk_error,
    >,
    /// 1: code counts its passes at entries and loops, for calls with fuel.
    pub count_fuel: c_int,
    /// 1: what happens is recorded, for `uruk_jit_report_page` and `uruk_jit_trace`.
    pub record: usize,
    /// 1: hot functions are compiled in several ways above tier 1, which take turns and are timed, and
    /// the fastest stays: `uruk_jit_tuning` tells. Code may then be slower for a moment.
    pub tune: usize,
    /// Percent of the program's processor time that trials may take which win nothing. Default: 2.
    pub tuning_percent: f64,
    /// Time that trials may take before any of it was earned, in milliseconds. Default: 250, or
    /// none if `tuned_before` knows functions and the percentage is not set.
    pub tuning_credit_ms: u64,
    /// Results of an earlier run on this machine, by `uruk_jit_tuning_text`, or null. Text that is
    /// of no use does no harm. Copied.
    pub tuned_before: *const c_char,
    /// 1: lines of the source are kept, where the bitcode has them, and stand in the texts of traps.
    /// First calls of functions that have them are slower.
    pub lines: usize,
    /// Is asked of each memory fault of the process first, before the guarded call that it would end: a
    /// collector's, whose pages are closed for its barriers. `access` is 0 for a read, 1 for a write, 2
    /// for instructions. An answer of 1: the cause is mended, and the instruction runs again; 0: it is
    /// another's. Runs in the signal's handler, and may do only what is async-signal-safe. From the
    /// first session that says so on it is asked as long as the process lives; there may be 16 of them.
    pub on_fault: Option<unsafe extern "C" fn(address: u64, access: c_int) -> c_int>,
}

/// A module of LLVM's C interface: `LLVMModuleRef` leads to one.
pub struct LLVMOpaqueModule {
    _of_llvm: [u8; 0],
}

impl Default for uruk_settings {
    fn default() -> uruk_settings {
        uruk_settings {
            size: size_of::<uruk_settings>(),
            jobs: 0,
            memory_limit: 0,
            code_budget: 0,
            static_data: 0,
            tiers: URUK_TIERS_AUTO,
            baseline_off: 0,
            contract: 0,
            speculate: 0,
            modules_apart: 0,
            low_addresses: 0,
            whole_modules: 0,
            sampling: URUK_SAMPLING_AUTO,
            time_parts: 0,
            perf_map: 0,
            gdb: 0,
            untrusted: 0,
            untrusted_ms: 0,
            untrusted_memory: 0,
            replacements_kept: 0,
            jitdump: ptr::null(),
            cache_folder: ptr::null(),
            context: ptr::null_mut(),
            drop_context: None,
            on_event: None,
            on_error: None,
            on_failed_call: None,
            transform_ir: None,
            transform_object: None,
            count_fuel: 0,
            record: 0,
            tune: 0,
            tuning_percent: 0.0,
            tuning_credit_ms: 0,
            tuned_before: ptr::null(),
            lines: 0,
            on_fault: None,
        }
    }
}

/// Sets `size` bytes of settings to defaults: `uruk_settings_init(&settings, sizeof settings)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_settings_init(settings: *mut uruk_settings, size: usize) {
    value((), || {
        let own = uruk_settings::default();
        // SAFETY: the caller's promise of the pointer. Padding is copied unchanged, and never read.
        unsafe { crate::boundary::put_sized(settings, size, &own, "settings") }
    });
}

/// A builder with these settings, whose callbacks share `owned`; null means all defaults.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn builder(
    settings: *const uruk_settings,
    owned: &Arc<Owned>,
) -> Result<JitBuilder, Fault> {
    if settings.is_null() {
        return Ok(uruk::Jit::builder());
    }
    // SAFETY: by the caller's promise; a struct of integers, pointers and nullable functions.
    let settings = unsafe { sized(settings, uruk_settings::default(), "settings")? };
    let builder = with_numbers(uruk::Jit::builder(), &settings)?;
    // SAFETY: by the caller's promise.
    let builder = unsafe { with_tuning(with_folders(builder, &settings)?, &settings)? };
    let builder = match settings.on_fault {
        Some(handler) => builder.on_fault(crate::faults::asking(handler)?),
        None => builder,
    };
    let builder = with_listeners(builder, &settings, owned);
    Ok(with_transforms(builder, &settings, owned))
}

/// The context of settings, which is dropped once: with its session, or at once if the session
/// could not be made.
///
/// # Safety
/// As for all pointers of the interface.
pub(crate) unsafe fn owned_of(settings: *const uruk_settings) -> Arc<Owned> {
    let end = std::mem::offset_of!(uruk_settings, drop_context) + size_of::<usize>();
    let fields = |settings: &uruk_settings| Owned::new(settings.context, settings.drop_context);
    // SAFETY: by the caller's promise; a struct of integers, pointers and nullable functions.
    let owned = unsafe { owned_by(settings, end, fields, uruk_settings::default()) };
    Arc::new(owned.unwrap_or_else(|| Owned::new(ptr::null_mut(), None)))
}

fn with_numbers(builder: JitBuilder, settings: &uruk_settings) -> Result<JitBuilder, Fault> {
    let mut builder = builder
        .fp_contract(settings.contract != 0)
        .speculate(settings.speculate != 0)
        .modules_apart(settings.modules_apart != 0)
        .low_addresses(settings.low_addresses != 0)
        .time_parts(settings.time_parts != 0)
        .record(settings.record != 0)
        .tiers(match settings.tiers {
            URUK_TIERS_AUTO => Tiers::Auto,
            number => Tiers::Fixed(tier(number)?),
        })
        .sampling(match settings.sampling {
            URUK_SAMPLING_AUTO => SamplingChoice::Auto,
            URUK_SAMPLING_PERF => SamplingChoice::Perf,
            URUK_SAMPLING_CPU_CLOCK => SamplingChoice::CpuClock,
            URUK_SAMPLING_TIMERS => SamplingChoice::Timers,
            URUK_SAMPLING_OFF => SamplingChoice::Off,
            other => return Err(unusable("sampling", &format!("there is no {other}"))),
        });
    if settings.baseline_off != 0 {
        builder = builder.baseline(Baseline::Off);
    }
    if settings.whole_modules != 0 {
        builder = builder.partition(Partition::Module);
    }
    let set = |number: usize| (number != 0).then_some(number);
    if let Some(jobs) = set(settings.jobs) {
        builder = builder.jobs(jobs);
    }
    if let Some(bytes) = set(settings.memory_limit) {
        builder = builder.memory_limit(bytes);
    }
    if let Some(bytes) = set(settings.static_data) {
        builder = builder.static_data(bytes);
    }
    if let Some(count) = set(settings.replacements_kept) {
        builder = builder.replacements_kept(count);
    }
    if settings.code_budget != 0 {
        builder = builder.code_budget(settings.code_budget);
    }
    if settings.untrusted != 0 {
        let mut limits = InputLimits::default();
        if settings.untrusted_ms != 0 {
            limits.time = Duration::from_millis(settings.untrusted_ms);
        }
        if settings.untrusted_memory != 0 {
            limits.memory = settings.untrusted_memory;
        }
        builder = builder.untrusted(limits);
    }
    Ok(builder.count_fuel(settings.count_fuel != 0)?)
}

/// # Safety
/// As for all pointers of the interface.
unsafe fn with_folders(
    mut builder: JitBuilder,
    settings: &uruk_settings,
) -> Result<JitBuilder, Fault> {
    let mut tools = ToolSettings::default();
    tools.perf_map = settings.perf_map != 0;
    tools.gdb = settings.gdb != 0;
    tools.lines = settings.lines != 0;
    if !settings.jitdump.is_null() {
        // SAFETY: by the caller's promise.
        tools.jitdump = Some(unsafe { text(settings.jitdump, "jitdump")? }.into());
    }
    if !settings.cache_folder.is_null() {
        // SAFETY: by the caller's promise.
        let folder = unsafe { text(settings.cache_folder, "cache_folder")? };
        builder = builder.object_cache(Arc::new(DirectoryCache::new(Path::new(folder))?));
    }
    Ok(builder.tools(tools))
}

/// # Safety
/// As for all pointers of the interface.
unsafe fn with_tuning(builder: JitBuilder, settings: &uruk_settings) -> Result<JitBuilder, Fault> {
    let mut builder = builder.tune(settings.tune != 0);
    let percent = settings.tuning_percent;
    if !(0.0..=100_000.0).contains(&percent) {
        return Err(unusable(
            "tuning_percent",
            &format!("it cannot be {percent}"),
        ));
    }
    if percent != 0.0 || settings.tuning_credit_ms != 0 {
        let set = |number: f64| (number != 0.0).then_some(number);
        let credit = match settings.tuning_credit_ms {
            0 => CREDIT_MS,
            ms => ms,
        };
        let share = set(percent).unwrap_or(PERCENT) / 100.0;
        builder = builder.tuning_budget(share, Duration::from_millis(credit));
    }
    if !settings.tuned_before.is_null() {
        // SAFETY: by the caller's promise.
        let before = unsafe { text(settings.tuned_before, "tuned_before")? };
        builder = builder.tuned_before(before.to_owned());
    }
    Ok(builder)
}

fn with_listeners(
    mut builder: JitBuilder,
    settings: &uruk_settings,
    owned: &Arc<Owned>,
) -> JitBuilder {
    if let Some(told) = settings.on_event {
        let owned = Arc::clone(owned);
        builder = builder.on_event(move |event| {
            crate::events::with_event(event, |event| {
                // SAFETY: the host's own callback.
                unsafe { told(owned.get(), event) };
            });
        });
    }
    if let Some(told) = settings.on_error {
        let owned = Arc::clone(owned);
        builder = builder.on_error(move |error| {
            let error = uruk_error::of(&error.clone().into());
            // SAFETY: the host's own callback.
            unsafe { told(owned.get(), &raw const error) };
        });
    }
    if let Some(answer) = settings.on_failed_call {
        let owned = Arc::clone(owned);
        builder = builder.on_failed_call(Arc::new(move |call| {
            let function = c_text(call.function);
            let cause = call.cause.map(uruk_error::of);
            let error = cause.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the host's own callback.
            let next = unsafe { answer(owned.get(), function.as_ptr(), error) };
            match next {
                Some(next) => next as *const (),
                None => end_of(&function, cause.as_ref()),
            }
        }));
    }
    builder
}

/// Ends the process after a failed call without a host's answer.
fn end_of(function: &CString, cause: Option<&uruk_error>) -> ! {
    let function = function.to_string_lossy();
    match cause {
        Some(cause) => uruk_files::say!("uruk: cannot call {function}: {}", cause.shown()),
        None => uruk_files::say!("uruk: cannot call {function}: it was removed"),
    }
    // SAFETY: ends the process; none of its code runs on.
    unsafe { libc::_exit(uruk::EXIT_FAILURE) }
}

fn with_transforms(
    mut builder: JitBuilder,
    settings: &uruk_settings,
    owned: &Arc<Owned>,
) -> JitBuilder {
    if let Some(change) = settings.transform_ir {
        let owned = Arc::clone(owned);
        builder = builder.transform_ir(Transform::new(move |unit| {
            let function = c_text(unit.function);
            let module = unit.module.as_mut_ptr().cast();
            let tier = c_int::from(unit.tier.number());
            // SAFETY: the host's own callback, with a module that lives during the call.
            said(unsafe { change(owned.get(), module, function.as_ptr(), tier) })
        }));
    }
    if let Some(change) = settings.transform_object {
        let owned = Arc::clone(owned);
        builder = builder.transform_objects(Arc::new(move |name, object| {
            let name = c_text(name);
            let mut bytes = uruk_bytes {
                data: object.as_ptr().cast(),
                size: object.len(),
                release: None,
            };
            // SAFETY: the host's own callback.
            said(unsafe { change(owned.get(), name.as_ptr(), &raw mut bytes) })?;
            if bytes.data == object.as_ptr().cast() && bytes.size == object.len() {
                return Ok(object);
            }
            // SAFETY: the host promises that many bytes.
            unsafe { copied(bytes) }.map_err(|fault| fault.shown())
        }));
    }
    builder
}

/// The result of a callback as a `Result`.
pub(crate) fn said(error: *mut uruk_error) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: callbacks return errors of `uruk_error_new`, or errors that a function returned to
    // them.
    Err(unsafe { Box::from_raw(error) }.shown())
}

/// Copies the bytes of a callback, and releases them.
///
/// # Safety
/// The bytes exist.
pub(crate) unsafe fn copied(bytes: uruk_bytes) -> Result<Vec<u8>, Fault> {
    // SAFETY: by the caller's promise.
    let own = unsafe { crate::boundary::array(bytes.data.cast::<u8>(), bytes.size, "data") };
    let own = own.map(<[u8]>::to_vec);
    if let Some(release) = bytes.release {
        // SAFETY: the host's own callback, called once.
        unsafe { release(bytes.data) };
    }
    own
}
