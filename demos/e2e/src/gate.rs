//! Gates: what is expected to work by now.
//!
//! Every case belongs to a gate, a letter; `demos/cases/GATE` holds the last
//! gate that is open. Cases of later gates are shown as ignored, so that a green
//! run says what it covers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A gate; `A` comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gate(char);

impl Gate {
    /// The gate of cases that must always pass.
    pub const FIRST: Self = Self('A');

    /// Reads a gate's letter.
    pub fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [letter @ b'A'..=b'Z'] => Some(Self(char::from(*letter))),
            _ => None,
        }
    }

    /// The last open gate: `URUK_GATE`, else the file `GATE` beside the cases.
    ///
    /// # Errors
    /// Neither holds a letter; the text says what they hold.
    pub fn open() -> Result<Self, String> {
        let path = cases_folder().join("GATE");
        let text = match env::var("URUK_GATE") {
            Ok(text) => text,
            Err(_) => fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        Self::parse(text.trim()).ok_or_else(|| format!("`{}` is not a gate", text.trim()))
    }
}

/// Where the cases are.
pub fn cases_folder() -> PathBuf {
    let demos = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    demos.unwrap_or(Path::new(".")).join("cases")
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn gates_are_ordered_letters() {
        assert!(Gate::parse("B") > Some(Gate::FIRST));
        assert_eq!(Gate::parse("b"), None);
        assert_eq!(Gate::parse("AB"), None);
    }
}
