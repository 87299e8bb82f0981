//! The CPU that this process runs on, as attributes of functions.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use inkwell::llvm_sys::core::LLVMDisposeMessage;
use inkwell::llvm_sys::target_machine::{LLVMGetHostCPUFeatures, LLVMGetHostCPUName};

use crate::handles::FunctionRef;

/// The CPU this process runs on.
struct Host {
    cpu: String,
    features: String,
}

/// Features of every CPU for this target, even if the host's list does not name them.
const ABI: [&str; 6] = ["+cx8", "+fxsr", "+mmx", "+sse", "+sse2", "+x87"];

impl Host {
    /// True if features that a function asks for add nothing to the host's.
    fn has(&self, own: &str) -> bool {
        let there = |one| self.features.split(',').any(|other| other == one);
        own.is_empty()
            || own
                .split(',')
                .all(|one| ABI.contains(&one) || (one.starts_with('+') && there(one)))
    }
}

fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let text = |raw: *mut c_char| {
            // SAFETY: LLVM returns a C string that is ours to dispose.
            unsafe {
                let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
                LLVMDisposeMessage(raw);
                text
            }
        };
        // SAFETY: both only look at the CPU.
        unsafe {
            Host {
                cpu: text(LLVMGetHostCPUName()),
                features: text(LLVMGetHostCPUFeatures()),
            }
        }
    })
}

/// Lets a function use all features of the host's CPU.
pub(crate) fn for_host(function: FunctionRef<'_>) {
    let host = host();
    let own = function.text("target-features");
    let features = match host.has(&own) {
        // Each text gets tables of its own in the target machine.
        true => host.features.clone(),
        // The later of two mentions counts: what the function asks for or forbids, it gets.
        false => format!("{},{own}", host.features),
    };
    function.set_text("target-cpu", &host.cpu);
    function.set_text("target-features", &features);
    function.remove_text("tune-cpu");
}

#[cfg(test)]
mod tests {
    use super::Host;

    #[test]
    fn what_the_host_has_needs_no_mention() {
        let host = Host {
            cpu: String::from("made-up"),
            features: String::from("+sse3,-avx,+popcnt"),
        };
        let check = |own: &str| host.has(own);
        assert!(check(""));
        assert!(check("+cx8,+sse2,+x87"));
        assert!(check("+popcnt,+sse3"));
        for own in [
            "+avx",
            "-avx",
            "-sse3",
            "+sse2,-sse3",
            "+sse",
            "popcnt",
            "+sse3,",
        ] {
            assert_eq!(check(own), own == "+sse", "{own}");
        }
    }
}
