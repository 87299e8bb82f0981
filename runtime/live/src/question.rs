//! The question for an exchange, in one line: see [`control`](crate::control).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk::Level;

use crate::swap::Exchange;

/// Suffixes of a level: loops continue in new code; functions may change their types.
const OSR: &str = "+osr";
const SIGNATURES: &str = "+signatures";

/// The question for a rollback, at the level of the exchange unless another is asked for.
pub(crate) fn rollback_question(level: Option<Level>) -> String {
    match level {
        None => "rollback".to_owned(),
        Some(Level::Quiescent { wait }) => format!("rollback quiescent {}", wait.as_millis()),
        Some(_) => "rollback immediate".to_owned(),
    }
}

/// Parses a question: the level of the rollback, if it names one.
pub(crate) fn rollback(rest: &str) -> Option<Option<Level>> {
    match rest.split_once(' ').unwrap_or((rest, "")) {
        ("", "") => Some(None),
        ("immediate", "") => Some(Some(Level::Immediate)),
        ("quiescent", ms) => {
            let wait = Duration::from_millis(ms.parse().ok()?);
            Some(Some(Level::Quiescent { wait }))
        }
        _ => None,
    }
}

/// The question for an exchange by a file, of which `size` bytes of bitcode follow.
pub(crate) fn swap_question(exchange: &Exchange, file: &Path, size: usize) -> String {
    let (level, wait) = match exchange.level {
        Level::Quiescent { wait } => ("quiescent", format!(" {}", wait.as_millis())),
        _ => ("immediate", String::new()),
    };
    let osr = if exchange.osr { OSR } else { "" };
    let signatures = match exchange.allow_signatures {
        true => SIGNATURES,
        false => "",
    };
    let file = written(file);
    format!("swap {level}{osr}{signatures}{wait} {size} {file}")
}

/// Parses a question: the exchange, its file, and the number of bytes that follow.
pub(crate) fn exchange(rest: &str) -> Option<(Exchange, PathBuf, u64)> {
    let (words, rest) = rest.split_once(' ')?;
    let (words, allow_signatures) = without(words, SIGNATURES);
    let (level, osr) = without(words, OSR);
    let (level, file) = match level {
        "immediate" => (Level::Immediate, rest),
        // Quiescence promises that no thread returns into old code, which a frame below would do.
        "quiescent" if !osr => {
            let (ms, file) = rest.split_once(' ')?;
            let wait = Duration::from_millis(ms.parse().ok()?);
            (Level::Quiescent { wait }, file)
        }
        _ => return None,
    };
    let exchange = Exchange {
        level,
        osr,
        allow_signatures,
    };
    let (size, file) = file.split_once(' ')?;
    Some((exchange, read(file)?, size.parse().ok()?))
}

/// Words without a suffix, and whether they had it.
fn without<'w>(words: &'w str, last: &str) -> (&'w str, bool) {
    let rest = words.strip_suffix(last);
    (rest.unwrap_or(words), rest.is_some())
}

/// A path in one line, with any bytes.
fn written(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    let word = |&byte: &u8| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    bytes.map(word).collect()
}

fn read(word: &str) -> Option<PathBuf> {
    let mut parts = word.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (number, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(number, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::{exchange, rollback, rollback_question, swap_question};
    use crate::swap::Exchange;
    use uruk::Level;

    #[test]
    fn rollbacks_are_read_with_their_levels() {
        let wait = Duration::from_millis(20);
        for (level, words) in [
            (None, "rollback"),
            (Some(Level::Immediate), "rollback immediate"),
            (Some(Level::Quiescent { wait }), "rollback quiescent 20"),
        ] {
            assert_eq!(rollback_question(level), words);
            let rest = words.strip_prefix("rollback").map(str::trim_start);
            assert_eq!(rest.and_then(rollback), Some(level));
        }
        for words in ["quiescent", "quiescent x", "immediate 20", "now"] {
            assert_eq!(rollback(words), None, "{words}");
        }
    }

    #[test]
    fn levels_are_read_with_their_files() {
        let plain = Exchange::default();
        let both = Exchange {
            osr: true,
            allow_signatures: true,
            ..plain
        };
        let wait = Duration::from_millis(20);
        let quiescent = Exchange {
            level: Level::Quiescent { wait },
            allow_signatures: true,
            ..plain
        };
        for (meant, file, words) in [
            (plain, "/a b.o", "immediate 7 /a b.o"),
            (both, "/x.bc", "immediate+osr+signatures 7 /x.bc"),
            (quiescent, "/x.bc", "quiescent+signatures 20 7 /x.bc"),
        ] {
            assert_eq!(exchange(words), Some((meant, PathBuf::from(file), 7)));
            let question = swap_question(&meant, Path::new(file), 7);
            assert_eq!(question.strip_prefix("swap "), Some(words));
        }
        for bytes in [&b"/a\n%41\xff b"[..], b"/\xc3\xa4.o"] {
            let file = Path::new(OsStr::from_bytes(bytes));
            let question = swap_question(&plain, file, 7);
            assert!(!question.contains('\n'));
            let words = question.strip_prefix("swap ").expect("a question");
            assert_eq!(exchange(words), Some((plain, file.to_owned(), 7)));
        }
        for words in [
            "immediate 7 /a%4",
            "immediate /a",
            "quiescent 7 x.bc",
            "now 7 x.bc",
            "quiescent+osr 20 7 x.bc",
        ] {
            assert_eq!(exchange(words), None, "{words}");
        }
    }
}
