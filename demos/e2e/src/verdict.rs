//! Comparing what two runs of the same program did.

use uruk_guests::execute::{Ending, Outcome};

use crate::trial::LogLine;

/// How much of a text a report shows.
const SHOWN_BYTES: usize = 2_000;

/// The differences of the outcome under test from the native one, in words. `None` if both runs did
/// the same. Standard error takes part only where `with_stderr`.
pub fn difference(native: &Outcome, ours: &Outcome, with_stderr: bool) -> Option<String> {
    let mut text = String::new();
    if native.ending != ours.ending {
        text.push_str(&format!(
            "ended with {}, natively {}\n",
            ending(ours.ending),
            ending(native.ending)
        ));
    }
    if native.stdout != ours.stdout {
        text.push_str(&first_difference("stdout", &native.stdout, &ours.stdout));
    }
    if with_stderr && native.stderr != ours.stderr {
        text.push_str(&first_difference("stderr", &native.stderr, &ours.stderr));
    } else if !text.is_empty() && !ours.stderr.is_empty() {
        text.push_str(&format!("stderr:\n{}\n", excerpt(&ours.stderr)));
    }
    (!text.is_empty()).then_some(text)
}

/// The first line of standard error that is missing, or must not be there.
pub fn unsaid(ours: &Outcome, log: &[LogLine]) -> Option<String> {
    let text = String::from_utf8_lossy(&ours.stderr);
    let holds = |line: &str, pieces: &[String]| {
        let after = |rest: &str, piece: &String| Some(rest.split_once(piece.as_str())?.1.len());
        let step = |left: usize, piece| after(&line[line.len() - left..], piece);
        pieces.iter().try_fold(line.len(), step).is_some()
    };
    let wrong = log
        .iter()
        .find(|wanted| text.lines().any(|line| holds(line, &wanted.pieces)) != wanted.present)?;
    let pieces = wrong.pieces.join(" .. ");
    let problem = if wrong.present { "no" } else { "a" };
    Some(format!(
        "{problem} line `{pieces}` on standard error:\n{}\n",
        excerpt(&ours.stderr)
    ))
}

/// How a process ended, in words.
pub fn ending(ending: Ending) -> String {
    match ending {
        Ending::Status(status) => format!("status {status}"),
        Ending::Signal(signal) => match signal_name(signal) {
            Some(name) => name.to_owned(),
            None => format!("signal {signal}"),
        },
        Ending::Timeout => "no end within its time limit".to_owned(),
    }
}

/// The signals that cases name.
const SIGNALS: [(&str, i32); 12] = [
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGSEGV", 11),
    ("SIGPIPE", 13),
    ("SIGTERM", 15),
];

/// The number of a signal that is given by name.
pub fn signal_number(name: &str) -> Option<i32> {
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}

fn signal_name(number: i32) -> Option<&'static str> {
    let found = SIGNALS.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| *name)
}

/// The end of a text, as much as fits a report.
pub fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut start = text.len().saturating_sub(SHOWN_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].trim_end().to_owned()
}

fn first_difference(what: &str, native: &[u8], ours: &[u8]) -> String {
    let native_lines: Vec<&[u8]> = native.split(|byte| *byte == b'\n').collect();
    let our_lines: Vec<&[u8]> = ours.split(|byte| *byte == b'\n').collect();
    let same = native_lines
        .iter()
        .zip(&our_lines)
        .take_while(|(a, b)| a == b)
        .count();
    let show = |lines: &[&[u8]]| match lines.get(same) {
        Some(line) => format!("{:?}", excerpt(line)),
        None => "nothing".to_owned(),
    };
    format!(
        "{what} differs in line {}: {}, natively {}\n",
        same + 1,
        show(&our_lines),
        show(&native_lines)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{difference, unsaid};
    use crate::trial::LogLine;
    use uruk_guests::execute::{Ending, Outcome};

    fn outcome(ending: Ending, stdout: &str) -> Outcome {
        Outcome {
            ending,
            stdout: stdout.into(),
            stderr: Vec::new(),
            wall: Duration::ZERO,
        }
    }

    #[test]
    fn the_first_differing_line_is_named() {
        let native = outcome(Ending::Status(0), "a\nb\n");
        assert_eq!(difference(&native, &native.clone(), true), None);
        let ours = outcome(Ending::Signal(11), "a\nc\n");
        let text = difference(&native, &ours, false).expect("they differ");
        assert!(text.contains("SIGSEGV"), "{text}");
        assert!(text.contains("line 2: \"c\", natively \"b\""), "{text}");
    }

    #[test]
    fn lines_are_found_by_their_pieces_in_order() {
        let mut ours = outcome(Ending::Status(0), "");
        ours.stderr = b"INFO sampling source=timers\nother\n".to_vec();
        let line = |text: &str, present| LogLine {
            present,
            ..LogLine::expected(text)
        };
        let judge = |text, present| unsaid(&ours, &[line(text, present)]).is_none();
        assert!(judge("INFO .. source", true));
        assert!(!judge("source .. INFO", true), "the other way round");
        assert!(!judge("sampling .. other", true), "in two lines");
        assert!(judge("sampling .. other", false));
        assert!(!judge("timers", false));
    }
}
