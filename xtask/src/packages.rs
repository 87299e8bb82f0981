//! The packages that embedders need: all that can be published, in dependency order.

/// Folder and name of each; what a package uses stands before it.
pub const PACKAGES: [(&str, &str); 21] = [
    ("runtime/base", "uruk-base"),
    ("runtime/files", "uruk-files"),
    ("runtime/baseline", "uruk-baseline"),
    ("runtime/bitcode", "uruk-bitcode"),
    ("runtime/late", "uruk-late"),
    ("runtime/leaving", "uruk-leaving"),
    ("runtime/lower", "uruk-lower"),
    ("runtime/codegen", "uruk-codegen"),
    ("runtime/heap", "uruk-heap"),
    ("runtime/link", "uruk-link"),
    ("profiler", "uruk-profiler"),
    ("runtime/reclaim", "uruk-reclaim"),
    ("runtime/report", "uruk-report"),
    ("runtime/roots", "uruk-roots"),
    ("runtime/session", "uruk-session"),
    ("stubs", "uruk-stubs"),
    ("tiering", "uruk-tiering"),
    ("runtime/tools", "uruk-tools"),
    ("runtime/unwind", "uruk-unwind"),
    ("runtime", "uruk"),
    ("runtime/c", "uruk-c"),
];
