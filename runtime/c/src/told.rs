//! Statistics, memory and events, as structs that begin with their size.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use uruk::{Event, MemoryPurpose};

use crate::boundary::{guarded, number, place, put_sized, unusable};
use crate::error::{c_text, uruk_error};
use crate::session::{session, uruk_jit};

/// A version was compiled and linked.
pub const URUK_EVENT_COMPILED: c_int = 1;
/// A first call was answered.
pub const URUK_EVENT_ANSWERED: c_int = 2;
/// Calls run this version from now on.
pub const URUK_EVENT_PUBLISHED: c_int = 3;
/// A version could not be compiled; `message` says why.
pub const URUK_EVENT_FAILED: c_int = 4;
/// A version was ready too late.
pub const URUK_EVENT_DROPPED: c_int = 5;
/// A compile was ended early.
pub const URUK_EVENT_CANCELLED: c_int = 6;
/// A version turned out worse than the one before, which runs again.
pub const URUK_EVENT_REVERTED: c_int = 7;
/// Code went because it was not used.
pub const URUK_EVENT_EVICTED: c_int = 8;
/// Sampling began, or could not; `message` is the source.
pub const URUK_EVENT_SAMPLING: c_int = 9;
/// A worker was given up; `message` says why.
pub const URUK_EVENT_WORKER_LOST: c_int = 10;
/// All memory is searched for stacks from now on; `message` says why.
pub const URUK_EVENT_STACKS_SEARCHED: c_int = 11;
/// Two codes of a function were compared: `version` stays, and `message` says what was tried and what
/// came out.
pub const URUK_EVENT_TUNED: c_int = 12;
/// The time that a tuned function takes has changed: its codes are compared again.
pub const URUK_EVENT_DRIFTED: c_int = 13;
/// Code of no more use is not freed, from now on or as long as a call of the system is refused;
/// `message` says why.
pub const URUK_EVENT_CODE_STAYS: c_int = 14;

/// One thing that happened. Fields that say nothing about it are zero or null.
#[repr(C)]
pub struct uruk_event {
    /// Bytes of it that the library filled in.
    pub size: usize,
    /// Nanoseconds since the start of the session.
    pub at_ns: u64,
    /// The version, unique in the session.
    pub version: u64,
    /// Bytes of code.
    pub bytes: u64,
    /// Time that compiling and linking took, in nanoseconds.
    pub took_ns: u64,
    /// The function.
    pub function: *const c_char,
    /// The kind of the event.
    pub message: *const c_char,
    /// One of `URUK_EVENT_...`.
    pub kind: c_int,
    /// 1, 2 or 3; 0 for none.
    pub tier: c_int,
    /// The tier of the version that ran before; 0 for none.
    pub replaced_tier: c_int,
    /// 1 if the code goes on with a loop of the function.
    pub continues: c_int,
}

/// An event of C with the texts that it points to.
struct Told {
    event: uruk_event,
    function: Option<CString>,
    message: Option<CString>,
}

fn told(kind: c_int, at: Duration) -> Told {
    Told {
        event: uruk_event {
            size: size_of::<uruk_event>(),
            at_ns: nanoseconds(at),
            version: 0,
            bytes: 0,
            took_ns: 0,
            function: ptr::null(),
            message: ptr::null(),
            kind,
            tier: 0,
            replaced_tier: 0,
            continues: 0,
        },
        function: None,
        message: None,
    }
}

impl Told {
    fn of(mut self, function: &str, version: u64) -> Told {
        self.function = Some(c_text(function));
        self.event.version = version;
        self
    }

    fn at_tier(mut self, tier: uruk::Tier) -> Told {
        self.event.tier = number(Some(tier));
        self
    }

    fn saying(mut self, message: &str) -> Told {
        self.message = Some(c_text(message));
        self
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Calls `show` with an event in its C form, if it has one: samples have none.
pub(crate) fn with_event(event: &Event, show: impl FnOnce(*const uruk_event)) {
    let Some(mut told) = translated(event) else {
        return;
    };
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    told.event.function = pointer(&told.function);
    told.event.message = pointer(&told.message);
    show(&raw const told.event);
}

fn translated(event: &Event) -> Option<Told> {
    Some(match event {
        Event::Compiled {
            function,
            version,
            tier,
            continues,
            started,
            compiling,
            linking,
            bytes,
            ..
        } => {
            let took = *compiling + *linking;
            let mut told = told(URUK_EVENT_COMPILED, *started + took);
            told.event.took_ns = nanoseconds(took);
            told.event.bytes = *bytes;
            told.event.continues = c_int::from(*continues);
            told.of(function, *version).at_tier(*tier)
        }
        Event::Answered { function, at, .. } => told(URUK_EVENT_ANSWERED, *at).of(function, 0),
        Event::Published {
            function,
            version,
            tier,
            replaced,
            at,
            ..
        } => {
            let mut told = told(URUK_EVENT_PUBLISHED, *at);
            told.event.replaced_tier = number(replaced.map(|(_, tier)| tier));
            told.of(function, *version).at_tier(*tier)
        }
        Event::Failed {
            function,
            tier,
            message,
            at,
            ..
        } => {
            let told = told(URUK_EVENT_FAILED, *at).of(function, 0);
            told.at_tier(*tier).saying(message)
        }
        Event::Dropped {
            function,
            version,
            at,
            ..
        } => told(URUK_EVENT_DROPPED, *at).of(function, *version),
        Event::Cancelled {
            function,
            version,
            tier,
            at,
            ..
        } => told(URUK_EVENT_CANCELLED, *at)
            .of(function, *version)
            .at_tier(*tier),
        Event::Reverted {
            function,
            version,
            tier,
            at,
            ..
        } => told(URUK_EVENT_REVERTED, *at)
            .of(function, *version)
            .at_tier(*tier),
        Event::Evicted {
            function,
            version,
            bytes,
            at,
            ..
        } => {
            let mut told = told(URUK_EVENT_EVICTED, *at).of(function, *version);
            told.event.bytes = *bytes;
            told
        }
        Event::Sampling { source, at, .. } => {
            told(URUK_EVENT_SAMPLING, *at).saying(source.as_deref().unwrap_or("none"))
        }
        Event::WorkerLost { message, at } => told(URUK_EVENT_WORKER_LOST, *at).saying(message),
        Event::Tuned {
            function,
            tier,
            variant,
            verdict,
            ratio,
            version,
            at,
            ..
        } => {
            let told = told(URUK_EVENT_TUNED, *at).of(function, *version);
            let tried = format!("{variant}: {verdict}, {ratio} times as fast");
            told.at_tier(*tier).saying(&tried)
        }
        Event::Drifted { function, at, .. } => told(URUK_EVENT_DRIFTED, *at).of(function, 0),
        Event::CodeStays { cause, at } => told(URUK_EVENT_CODE_STAYS, *at).saying(cause),
        Event::StacksSearched { cause, at } => told(URUK_EVENT_STACKS_SEARCHED, *at).saying(cause),
        _ => return None,
    })
}

/// Counters of a session. Times are in nanoseconds; those of several threads add up. Arrays by tier
/// hold tier 1 first; tier 0 is native code, which the session did not compile.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct uruk_stats {
    /// Bytes of it that the library filled in.
    pub size: usize,
    /// Functions that were defined.
    pub functions: u64,
    /// Functions whose body was compiled.
    pub compiled: u64,
    /// Functions whose body failed to compile.
    pub failed: u64,
    /// Compiles that were ended early.
    pub cancelled: u64,
    /// Functions that wait for a better version, and compiles under way.
    pub queued: u64,
    /// Bytes of code of all versions.
    pub code_bytes: u64,
    /// Versions compiled, by tier.
    pub tier_versions: [u64; 3],
    /// Functions that run at it now, by tier.
    pub tier_functions: [u64; 3],
    /// Time that compiling took, by tier.
    pub tier_ns: [u64; 3],
    /// Functions that the baseline compiler compiled.
    pub baseline_compiled: u64,
    /// Reading symbol tables and binding them.
    pub load_ns: u64,
    /// Compiling and linking data.
    pub data_ns: u64,
    /// Extracting and compiling functions.
    pub emit_ns: u64,
    /// Linking functions.
    pub link_ns: u64,
    /// Since the session was made.
    pub wall_ns: u64,
    /// Samples taken.
    pub samples: u64,
    /// Samples lost.
    pub samples_lost: u64,
    /// Functions compiled before they were called.
    pub ahead_compiled: u64,
    /// Of those, functions that were called.
    pub ahead_called: u64,
    /// Bytes of code that calls reach.
    pub memory_live: u64,
    /// Bytes of code that no call reaches and that is not proved dead yet.
    pub memory_retired: u64,
    /// Bytes of that which a thread may return into.
    pub memory_pinned: u64,
    /// Bytes that code and data take in all.
    pub memory_held: u64,
    /// Bytes of replaced code that were freed.
    pub memory_freed: u64,
    /// Versions evicted because they were not used.
    pub evicted: u64,
    /// Versions of tier 0.
    pub native_versions: u64,
    /// Functions that run at it now.
    pub native_functions: u64,
    /// Bytes of their code, which are no bytes of the session's.
    pub native_bytes: u64,
    /// Trials of the tuner that ended.
    pub tuning_trials: u64,
    /// Those whose candidate was faster.
    pub tuning_won: u64,
    /// Times that a function was looked at again because its load had changed.
    pub tuning_drifted: u64,
    /// Processor time of trials that did not win.
    pub tuning_lost_ns: u64,
    /// Processor time of the program, as far as the tuner looked.
    pub tuning_ran_ns: u64,
}

/// Reads the counters of a session: `uruk_jit_stats(jit, &stats, sizeof stats)`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_stats(
    jit: *const uruk_jit,
    stats: *mut uruk_stats,
    size: usize,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promise of the handle.
        let own = translated_stats(&unsafe { session(jit)? }.stats());
        // SAFETY: the caller's promise of the pointer; words only.
        unsafe { put_sized(stats, size, &own, "stats") }
    })
}

fn translated_stats(own: &uruk::Stats) -> uruk_stats {
    uruk_stats {
        size: size_of::<uruk_stats>(),
        functions: own.functions,
        compiled: own.compiled,
        failed: own.failed,
        cancelled: own.cancelled,
        queued: own.queued,
        code_bytes: own.code_bytes,
        tier_versions: own.tiers.each_ref().map(|tier| tier.versions),
        tier_functions: own.tiers.each_ref().map(|tier| tier.functions),
        tier_ns: own.tiers.each_ref().map(|tier| nanoseconds(tier.time)),
        baseline_compiled: own.baseline.compiled,
        load_ns: nanoseconds(own.load_time),
        data_ns: nanoseconds(own.data_time),
        emit_ns: nanoseconds(own.emit_time),
        link_ns: nanoseconds(own.link_time),
        wall_ns: nanoseconds(own.wall_time),
        samples: own.samples.0,
        samples_lost: own.samples.1,
        ahead_compiled: own.ahead.compiled,
        ahead_called: own.ahead.called,
        memory_live: own.memory.live,
        memory_retired: own.memory.retired,
        memory_pinned: own.memory.pinned,
        memory_held: own.memory.held,
        memory_freed: own.memory.freed_bytes,
        evicted: own.evictions.evicted,
        native_versions: own.native.versions,
        native_functions: own.native.functions,
        native_bytes: own.native.bytes,
        tuning_trials: own.tuning.trials.into(),
        tuning_won: own.tuning.won.into(),
        tuning_drifted: own.tuning.drifted.into(),
        tuning_lost_ns: nanoseconds(own.tuning.lost),
        tuning_ran_ns: nanoseconds(own.tuning.ran),
    }
}

/// Bytes that the session uses for one purpose, called as in its reports: `code`, `read-only`,
/// `data`, `zeroed`, `unwind`, `stubs`, `bitcode`, `waiting`, `unused`, `runtime`, `tables`; or for all of
/// them: `total`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uruk_jit_memory(
    jit: *const uruk_jit,
    purpose: *const c_char,
    bytes: *mut u64,
) -> *mut uruk_error {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (jit, name, to) = unsafe {
            let name = crate::boundary::text(purpose, "purpose")?;
            (session(jit)?, name, place(bytes, "bytes")?)
        };
        let report = jit.memory();
        let mut all = MemoryPurpose::ALL.into_iter();
        *to = match all.find(|purpose| purpose.to_string() == name) {
            Some(purpose) => report.of(purpose),
            None if name == "total" => report.total(),
            None => return Err(unusable("purpose", &format!("there is no `{name}`"))),
        };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use uruk::{Jit, NativeCode, Tier};

    use super::*;

    /// No function of the C interface makes native code a version; programs under `uruk live` have
    /// such versions.
    #[test]
    fn native_code_is_told_of() {
        extern "C" fn native() -> i32 {
            42
        }
        let jit = Jit::new().expect("a session");
        jit.add_ir("m", "define i32 @answer() { ret i32 42 }")
            .expect("a module");
        let entry = native as *const () as u64;
        let code = NativeCode {
            entry,
            code: entry..entry + 5,
            beside: Vec::new(),
            holds: Vec::new(),
        };
        // SAFETY: both return the same number.
        unsafe { jit.main().adopt("answer", &code) }.expect("a version");
        let told = |jit: &Jit| {
            let stats = translated_stats(&jit.stats());
            let native = [
                stats.native_versions,
                stats.native_functions,
                stats.native_bytes,
            ];
            (native, stats.tier_functions)
        };
        assert_eq!(told(&jit), ([1, 1, 5], [0, 0, 0]));
        jit.compile_at("answer", Tier::Optimized).expect("code");
        assert_eq!(told(&jit), ([1, 0, 5], [0, 1, 0]));
    }
}
