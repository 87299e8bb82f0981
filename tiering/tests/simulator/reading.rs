//! Reads the text form of a controller's inputs, and passes them on.

use thiserror::Error;
use uruk_tiering::stream::{HEADER, Input};
use uruk_tiering::{Controller, Facts, FirstCode, FunctionId, Nanos, Outcome, Tier, VersionId};

/// Passes the input to a controller.
pub fn feed(input: Input, now: Nanos, controller: &mut Controller) {
    match input {
        Input::Compiled(function, first) => controller.on_compiled(now, function, &first),
        Input::Counters(function, entries, loops) => {
            controller.on_counters(now, function, entries, loops);
        }
        Input::Samples(function, version, samples, time) => {
            controller.on_samples(now, function, version, samples, time);
        }
        Input::Sampling(period) => controller.on_sampling(period),
        Input::Opening(time) => controller.on_opening(time),
        Input::ProcessorTime(used) => controller.on_processor_time(now, used),
        Input::Finished(_, version, _, outcome) => controller.finished(now, version, outcome),
        Input::Reverted(function, version, tier, counters) => {
            controller.reverted(now, function, version, tier, counters);
        }
        // The controller counts refused requests.
        Input::Pin(function, tier) => drop(controller.pin(function, tier)),
        Input::Request(function, tier) => drop(controller.request(function, tier)),
        Input::Replaced(function) => controller.replaced(function),
        Input::Bar(function, tier) => controller.bar(function, tier),
        Input::ComparedWithNative(thousandths) => controller.compared_with_native(thousandths),
        Input::FasterThanNative(function, thousandths) => {
            controller.faster_than_native(function, thousandths);
        }
        Input::Times(program, runtime) => controller.on_times(program, runtime),
        Input::Hold(function) => drop(controller.hold(function)),
        Input::Release(function) => controller.release(function),
        Input::Caller(function, caller) => controller.on_caller(function, caller),
        Input::CallersTold(function) => {
            controller.ask_callers(true);
            controller.callers_told(function);
        }
        Input::Pause => controller.pause(),
        Input::Resume => controller.resume(),
    }
}

/// An error in a line of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct StreamError {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// The error.
    pub problem: Problem,
}

/// The kind of error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first line is not that of a stream.
    #[error("a stream begins with {HEADER:?}, not with {0:?}")]
    Header(String),
    /// No number, or a number too large, where the time should be.
    #[error("{0:?} is not a time in ns")]
    Time(String),
    /// The time is less than that of the line before.
    #[error("{now} ns comes before {last} ns of the line before")]
    Backwards {
        /// This line's.
        now: u64,
        /// The line's before.
        last: u64,
    },
    /// No input has this name.
    #[error("there is no input {0:?}")]
    Kind(String),
    /// A field is missing or different.
    #[error("expected {expected:?} with a number, found {found:?}")]
    Field {
        /// The text expected before the number.
        expected: &'static str,
        /// The text found, empty at the end of the line.
        found: String,
    },
    /// The number does not fit its field.
    #[error("{number} is out of range for {field:?}")]
    Range {
        /// The field.
        field: &'static str,
        /// The number.
        number: u64,
    },
    /// The line has more text than the input has fields.
    #[error("{0:?} is too much")]
    Rest(String),
}

/// Reads a stream: times and inputs, in order.
///
/// # Errors
/// The first invalid line.
pub fn parse(text: &str) -> Result<Vec<(Nanos, Input)>, StreamError> {
    let mut lines = text.lines().enumerate();
    let at = |index: usize| {
        move |problem| StreamError {
            line: index + 1,
            problem,
        }
    };
    let (_, first) = lines.next().unwrap_or_default();
    if first.trim_end() != HEADER {
        let shown = first.chars().take(HEADER.len()).collect();
        return Err(at(0)(Problem::Header(shown)));
    }
    let mut inputs: Vec<(Nanos, Input)> = Vec::new();
    for (index, line) in lines {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (now, input) = parse_line(line).map_err(at(index))?;
        let last = inputs.last().map_or(Nanos::ZERO, |&(last, _)| last);
        if now < last {
            let (now, last) = (now.0, last.0);
            return Err(at(index)(Problem::Backwards { now, last }));
        }
        inputs.push((now, input));
    }
    Ok(inputs)
}

/// The remaining words of a line.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    /// A number after `expected`, at most `most`.
    fn number(&mut self, expected: &'static str, most: u64) -> Result<u64, Problem> {
        let word = self.0.next().unwrap_or_default();
        let digits = word.strip_prefix(expected);
        let number: Option<u64> = digits.and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| Problem::Field {
            expected,
            found: word.to_owned(),
        })?;
        if number > most {
            let field = expected;
            return Err(Problem::Range { field, number });
        }
        Ok(number)
    }

    fn small(&mut self, expected: &'static str) -> Result<u32, Problem> {
        let number = self.number(expected, u64::from(u32::MAX))?;
        Ok(number as u32)
    }

    fn flag(&mut self, expected: &'static str) -> Result<bool, Problem> {
        Ok(self.number(expected, 1)? == 1)
    }

    fn function(&mut self) -> Result<FunctionId, Problem> {
        self.small("f").map(FunctionId)
    }

    fn version(&mut self) -> Result<VersionId, Problem> {
        self.number("v", u64::MAX).map(VersionId)
    }

    fn time(&mut self) -> Result<Nanos, Problem> {
        self.number("ns=", u64::MAX).map(Nanos)
    }

    /// A tier; `None` for 0.
    fn tier_or_none(&mut self) -> Result<Option<Tier>, Problem> {
        // 0 stands for none: native code is no input of a controller.
        let tier = Tier::from_number(self.number("tier=", 3)? as u8);
        Ok(tier.filter(|&tier| tier != Tier::Native))
    }

    fn tier(&mut self) -> Result<Tier, Problem> {
        let field = "tier=";
        self.tier_or_none()?
            .ok_or(Problem::Range { field, number: 0 })
    }
}

fn parse_line(line: &str) -> Result<(Nanos, Input), Problem> {
    let mut words = Words(line.split_whitespace());
    let time = words.0.next().unwrap_or_default();
    let now = time.parse().map_err(|_| Problem::Time(time.to_owned()))?;
    let kind = words.0.next().unwrap_or_default();
    let input = match kind {
        "compiled" => Input::Compiled(
            words.function()?,
            FirstCode {
                version: words.version()?,
                tier: words.tier()?,
                facts: Facts {
                    instructions: words.small("instructions=")?,
                    loops: words.small("loops=")?,
                    nested: words.flag("nested=")?,
                    calls: words.small("calls=")?,
                },
                compile: words.time()?,
                counters: words.flag("counters=")?,
            },
        ),
        "counters" => Input::Counters(
            words.function()?,
            words.number("entries=", u64::MAX)?,
            words.number("loops=", u64::MAX)?,
        ),
        "samples" => {
            let (function, version) = (words.function()?, words.version()?);
            Input::Samples(function, version, words.small("count=")?, words.time()?)
        }
        "opening" => Input::Opening(words.time()?),
        "sampling" => Input::Sampling(Some(words.time()?).filter(|&time| time != Nanos::ZERO)),
        "processor" => Input::ProcessorTime(words.time()?),
        "published" | "late" | "failed" | "cancelled" | "nomemory" => {
            let (function, version, tier) = (words.function()?, words.version()?, words.tier()?);
            Input::Finished(function, version, tier, outcome(kind, &mut words)?)
        }
        "reverted" => {
            let (function, version, tier) = (words.function()?, words.version()?, words.tier()?);
            Input::Reverted(function, version, tier, words.flag("counters=")?)
        }
        "pin" => Input::Pin(words.function()?, words.tier_or_none()?),
        "request" => Input::Request(words.function()?, words.tier()?),
        "replaced" => Input::Replaced(words.function()?),
        "bar" => Input::Bar(words.function()?, words.tier()?),
        "native" => {
            Input::ComparedWithNative(words.number("a speedup", u64::from(u32::MAX))? as u32)
        }
        "faster" => Input::FasterThanNative(words.function()?, words.small("thousandths=")?),
        "times" => Input::Times(words.time()?, words.time()?),
        "hold" => Input::Hold(words.function()?),
        "release" => Input::Release(words.function()?),
        "caller" => Input::Caller(words.function()?, words.function()?),
        "callers-told" => Input::CallersTold(words.function()?),
        "pause" => Input::Pause,
        "resume" => Input::Resume,
        other => return Err(Problem::Kind(other.to_owned())),
    };
    match words.0.next() {
        None => Ok((Nanos(now), input)),
        Some(rest) => Err(Problem::Rest(rest.to_owned())),
    }
}

fn outcome(kind: &str, words: &mut Words<'_>) -> Result<Outcome, Problem> {
    Ok(match kind {
        "published" => Outcome::Published {
            compile: words.time()?,
            counters: words.flag("counters=")?,
        },
        "late" => Outcome::Late {
            compile: words.time()?,
        },
        "failed" => Outcome::Failed {
            compile: words.time()?,
        },
        "cancelled" => Outcome::Cancelled,
        _ => Outcome::NoMemory,
    })
}
