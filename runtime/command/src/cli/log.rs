//! Log messages on standard error.

/// Starts logging at the level of this number of `-v`.
pub(super) fn init(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    tracing_subscriber::fmt()
        .with_env_filter(format!(
            "uruk={level},uruk_codegen={level},uruk_session={level}"
        ))
        .with_writer(|| uruk_files::Messages)
        // Escapes in names would look like those of colours.
        .with_ansi(false)
        .init();
}
