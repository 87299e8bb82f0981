//! Display names of functions, kept for the life of the process, each once.
//!
//! Unwind rows and reports of frames point at them, also on threads that were about to read one
//! when its function was removed. They are packed like names of sessions ([`SymbolPool`]): one of
//! up to 10 bytes takes some 30.

use std::ffi::CStr;
use std::sync::LazyLock;

use uruk_session::SymbolPool;

/// Display names, each with its NUL.
static NAMES: LazyLock<SymbolPool> = LazyLock::new(SymbolPool::new);

/// A display name kept for the life of the process, once. Under a pass.
pub(crate) fn static_name(link_name: &str) -> &'static CStr {
    let mut name = display_name(link_name).replace('\0', "?");
    name.push('\0');
    let pool: &'static SymbolPool = &NAMES;
    let name = pool.name(pool.intern(&name));
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
}

/// Bytes of all these names, of all sessions.
pub(crate) fn static_bytes() -> usize {
    NAMES.bytes()
}

/// Marks the suffix of local link names: marker, then image, file and symbol number.
pub(crate) const LOCAL_MARKER: &str = ".uruk.";

/// The display name: without body prefix and local suffix.
pub(crate) fn display_name(link_name: &str) -> &str {
    let name = link_name
        .strip_prefix(uruk_codegen::BODY_PREFIX)
        .unwrap_or(link_name);
    name.rfind(LOCAL_MARKER).map_or(name, |at| &name[..at])
}

/// The function that a continuation of this name belongs to; `None` for other functions.
pub(crate) fn continued(name: &str) -> Option<&str> {
    let (whole, place) = name.rsplit_once("@loop")?;
    let digits = !place.is_empty() && place.bytes().all(|it| it.is_ascii_digit());
    digits.then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::static_name;
    use crate::fork::gate;

    #[test]
    fn a_name_is_kept_once() {
        let _pass = gate::enter();
        let name = static_name("one\0two");
        assert_eq!(name, c"one?two");
        assert!(std::ptr::eq(name, static_name("one?two")));
        assert_eq!(static_name("uruk.body.three.uruk.1.0.2"), c"three");
        assert_eq!(static_name(""), c"");
    }
}
