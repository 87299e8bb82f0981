//! Statistics and memory, as structs that begin with their size.

use std::ffi::c_char;

use uruk::MemoryPurpose;

use crate::boundary::{guarded, nanoseconds, place, put_sized, unusable};
use crate::error::uruk_error;
use crate::session::{session, uruk_jit};

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
