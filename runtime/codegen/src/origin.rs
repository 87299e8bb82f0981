//! Checks the machine a module was made for, by its triple and its data layout.
//!
//! | triple or layout | is |
//! |---|---|
//! | no triple, or one of an unknown processor (`unknown-unknown-unknown`, as llvmlite writes) | taken for this machine |
//! | `x86_64-*linux*` | this machine's |
//! | any other triple | refused |
//! | a layout with other byte order, sizes of pointers, alignments of words, names of symbols or address spaces | refused |
//! | a layout that differs in the rest (an older compiler's, without `i128:128`) | taken: code is made with this machine's |
//!
//! # Why
//! Layouts were ignored before. Code of a 32-bit machine, which contains its offsets, then ran and
//! was wrong. The check needs no LLVM, as modules are summarized without it.

/// Whether code of that triple can be taken for this machine's.
pub(crate) fn is_ours(triple: &str) -> bool {
    let processor = triple.split('-').next().unwrap_or_default();
    match processor {
        "" | "unknown" => true,
        "x86_64" => triple.contains("linux"),
        _ => false,
    }
}

/// The part of a layout that belongs to another machine, if any.
pub(crate) fn strange_part(layout: &str) -> Option<&str> {
    layout.split('-').find(|part| !is_common(part))
}

fn is_common(part: &str) -> bool {
    let mut fields = part.split(':');
    let kind = fields.next().unwrap_or_default();
    let first = fields.next().unwrap_or_default();
    match kind {
        "" | "e" => true,
        "E" => false,
        "m" => first == "e",
        "p" | "p0" => first == "64",
        "i64" | "f64" => first == "64",
        "i32" | "f32" => first == "32",
        "i16" => first == "16",
        "i8" => first == "8",
        "f80" => first == "128",
        // The address spaces of code, variables and stacks.
        _ if kind.starts_with(['P', 'G', 'A']) => kind[1..].parse() == Ok(0_u32),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples() {
        for ours in [
            "",
            "unknown-unknown-unknown",
            "x86_64-pc-linux-gnu",
            "x86_64-unknown-linux-musl",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "aarch64-linux-gnu",
            "x86_64-apple-darwin",
            "x86_64",
            "i686-pc-linux-gnu",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn layouts() {
        let ours = [
            "",
            "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
            // The layout of clang 14.
            "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-f80:128-n8:16:32:64-S128",
            "e",
        ];
        for layout in ours {
            assert_eq!(strange_part(layout), None, "{layout}");
        }
        let others = [
            ("E-m:e-i64:64-n32:64", "E"),
            ("e-m:o-i64:64-i128:128-n32:64-S128", "m:o"),
            (
                "e-m:e-p:32:32-p270:32:32-f64:32:64-f80:32-n8:16:32-S128",
                "p:32:32",
            ),
            ("e-i64:32", "i64:32"),
            ("e-P1", "P1"),
            ("e-f80:32", "f80:32"),
        ];
        for (layout, part) in others {
            assert_eq!(strange_part(layout), Some(part), "{layout}");
        }
    }

    #[test]
    fn what_is_no_layout_is_looked_at_without_a_fault() {
        for text in ["-", ":", "p:", "A", "Aé", "m", "p\u{0}:64", "---:::"] {
            let _ = strange_part(text);
        }
    }
}
