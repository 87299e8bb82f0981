//! Checks outputs before a run: at its end it is too late to name another file.

use std::fmt;
use std::path::Path;

use uruk_files::OutputPath;

/// Checks that each of `outputs` can be written, is not in `inputs`, and differs from the others.
pub(super) fn check<'a>(
    outputs: impl IntoIterator<Item = &'a (impl AsRef<Path> + 'a)>,
    inputs: &[&Path],
) -> Result<(), String> {
    let mut before: Vec<OutputPath> = Vec::new();
    for file in outputs {
        let file = file.as_ref();
        let refused = |cause: &dyn fmt::Display| {
            Err(format!("{} cannot be written: {cause}", file.display()))
        };
        let output = match OutputPath::new(file).and_then(|it| it.check().map(|()| it)) {
            Ok(output) => output,
            Err(cause) => return refused(&cause),
        };
        if let Some(input) = inputs.iter().find(|input| output.is_file(input)) {
            return refused(&format_args!("it is the input {}", input.display()));
        }
        if let Some(other) = before.iter().find(|other| output.is_same(other)) {
            return refused(&format_args!("it is the output {}", other.path().display()));
        }
        before.push(output);
    }
    Ok(())
}
