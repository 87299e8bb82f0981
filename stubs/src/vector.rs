//! The vector state that a first call must preserve, and the instruction that saves it.
//!
//! `mask = XCR0 & !(PKRU | AMX tile config | AMX tile data | LWP)`: all state that can carry an
//! argument or that a custom calling convention preserves. x87, MXCSR and components of future CPUs
//! (APX registers) are included. Tiles are caller-saved in every convention and 8 KiB large; PKRU
//! belongs to the thread.
//!
//! Sizes, from CPUID leaf 0xD (Intel SDM 1, 13.4.2 and 13.4.3):
//!
//! ```text
//! XSAVEC: 576, then for each component i >= 2 of mask, in order:
//!         rounded up to 64 if sub-leaf i has ECX[1], plus its EAX
//! XSAVE:  max(576, EBX + EAX of sub-leaf i) over components i >= 2 of mask
//! FXSAVE: 512
//! ```

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Components that are not saved.
const EXCLUDED: u64 = (1 << 9) | (1 << 17) | (1 << 18) | (1 << 62);
/// Legacy area and XSAVE header.
const HEADER_END: u32 = 576;
/// Alignment of an XSAVE area.
pub(crate) const ALIGN: u32 = 64;

/// The instruction that saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Compacted; writes only components in use.
    Xsavec,
    /// Standard format.
    Xsave,
    /// x87 and SSE only.
    Fxsave,
}

/// The way to save vector state on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VectorState {
    pub(crate) method: Method,
    /// Requested components; unused by FXSAVE.
    pub(crate) mask: u64,
    /// Bytes of the area, a multiple of [`ALIGN`].
    pub(crate) size: u32,
}

/// Size and offset of component i, from sub-leaf i of leaf 0xD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Component {
    size: u32,
    offset: u32,
    aligned: bool,
}

impl VectorState {
    /// Reads the CPU's features.
    pub(crate) fn detect() -> VectorState {
        #[allow(unused_unsafe, reason = "safe in newer compilers than our oldest")]
        // SAFETY: CPUID exists on x86-64.
        let (leaves, features) = unsafe { (__cpuid(0).eax, __cpuid(1).ecx) };
        let osxsave = features & (1 << 27) != 0;
        if !osxsave || leaves < 0xd {
            return VectorState::new(Method::Fxsave, 0, component);
        }
        // SAFETY: OSXSAVE says that XGETBV may be used.
        let mask = unsafe { enabled() } & !EXCLUDED;
        #[allow(unused_unsafe, reason = "as above")]
        // SAFETY: as above.
        let xsavec = unsafe { __cpuid_count(0xd, 1).eax } & (1 << 1) != 0;
        let method = if xsavec {
            Method::Xsavec
        } else {
            Method::Xsave
        };
        VectorState::new(method, mask, component)
    }

    fn new(method: Method, mask: u64, component: impl Fn(u32) -> Component) -> VectorState {
        let parts = (2..63).filter(|i| mask & (1 << i) != 0).map(component);
        let size = match method {
            Method::Fxsave => 512,
            Method::Xsave => parts.fold(HEADER_END, |size, part| size.max(part.offset + part.size)),
            Method::Xsavec => parts.fold(HEADER_END, |size, part| {
                let align = if part.aligned { ALIGN } else { 1 };
                size.next_multiple_of(align) + part.size
            }),
        };
        VectorState {
            method,
            mask,
            size: size.next_multiple_of(ALIGN),
        }
    }
}

/// XCR0.
///
/// # Safety
/// 1. CPUID says OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn enabled() -> u64 {
    // SAFETY: duty 1.
    unsafe { _xgetbv(0) }
}

fn component(i: u32) -> Component {
    #[allow(unused_unsafe, reason = "safe in newer compilers than our oldest")]
    // SAFETY: CPUID exists on x86-64.
    let leaf = unsafe { __cpuid_count(0xd, i) };
    Component {
        size: leaf.eax,
        offset: leaf.ebx,
        aligned: leaf.ecx & (1 << 1) != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of a CPU with AVX-512.
    fn avx512(i: u32) -> Component {
        let (offset, size) = match i {
            2 => (576, 256),
            5 => (1088, 64),
            6 => (1152, 512),
            7 => (1664, 1024),
            _ => unreachable!(),
        };
        let aligned = false;
        Component {
            size,
            offset,
            aligned,
        }
    }

    #[test]
    fn sizes() {
        let size = |method, mask| VectorState::new(method, mask, avx512).size;
        assert_eq!(size(Method::Fxsave, 0), 512);
        assert_eq!(size(Method::Xsave, 0b11), 576);
        assert_eq!(size(Method::Xsave, 0b111), 832);
        assert_eq!(size(Method::Xsave, 0xe7), 2688);
        assert_eq!(size(Method::Xsavec, 0xe7), 2432);
    }

    #[test]
    fn this_machine() {
        let state = VectorState::detect();
        assert_eq!(state.size % ALIGN, 0);
        assert!(state.size >= 512 && state.size <= 4096, "{state:?}");
        assert_eq!(state.mask & EXCLUDED, 0);
        if state.method != Method::Fxsave {
            assert_eq!(state.mask & 3, 3);
        }
    }
}
