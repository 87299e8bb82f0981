//! Demangles names of Rust and C++.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, Symbol};

/// Whether a name is a mangled one of Rust or C++.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_Z")
}

/// The demangled name, if it is mangled and can be read.
pub(crate) fn written(name: &str) -> Cow<'_, str> {
    if let Ok(demangled) = rustc_demangle::try_demangle(name) {
        return Cow::Owned(format!("{demangled:#}"));
    }
    if !name.starts_with("_Z") {
        return Cow::Borrowed(name);
    }
    let symbol = Symbol::new(name).ok();
    let text = symbol.and_then(|symbol| symbol.demangle(&DemangleOptions::new()).ok());
    text.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// A text with each mangled name in it demangled.
pub(crate) fn written_in(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_part) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        // A sentence's end, and the rest of a path, are not part of a name.
        let name = word.trim_end_matches('.');
        let is_path = before.ends_with('/') || after.starts_with('/');
        out.push_str(before);
        match is_mangled(name) && !is_path {
            true => {
                out.push_str(&written(name));
                out.push_str(&word[name.len()..]);
            }
            false => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether mangled names may contain this character.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

#[cfg(test)]
mod tests {
    use super::{written, written_in};

    #[test]
    fn names_are_as_they_were_written() {
        assert_eq!(written("_Z5roundi"), "round(int)");
        assert_eq!(written("_ZN2ns3FooE"), "ns::Foo");
        assert_eq!(written("_RNvC6_123foo3bar"), "123foo::bar");
        for other in ["main", "_Zonk", "_R", "_Z", ""] {
            assert_eq!(written(other), other);
        }
    }

    #[test]
    fn a_text_keeps_all_but_mangled_names() {
        let text =
            "exchanged: _Z5roundi\nnote: `_ZN2ns1fEv`, and main.\n/_Z5roundi/f.o: _Z5roundi.\n";
        let expected =
            "exchanged: round(int)\nnote: `ns::f()`, and main.\n/_Z5roundi/f.o: round(int).\n";
        assert_eq!(written_in(text), expected);
        assert_eq!(written_in(""), "");
        assert_eq!(written_in("größer _Z"), "größer _Z");
    }
}
