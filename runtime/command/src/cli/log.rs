//! What is logged on standard error.

/// Logs from now on as `-v` was given so often.
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
        // Escapes in names would be as good as those of colours.
        .with_ansi(false)
        .init();
}
