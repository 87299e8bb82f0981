//! The text form of the controller's inputs. The tests read it, and repeat a recorded run on a
//! simulated machine (`tests/simulator`).
//!
//! ```text
//! uruk tiering stream 2
//! # a comment
//! 0 sampling ns=1000000
//! 210000 compiled f1 v1 tier=1 instructions=120 loops=1 nested=0 calls=2 ns=200000 counters=1
//! 1000000 samples f1 v1 count=1 ns=1000000
//! 1000000 counters f1 entries=3 loops=90000
//! 6000000 published f1 v2 tier=2 ns=3900000 counters=0
//! ```
//!
//! One line per input: the time in ns, never less than on the line before, the kind, and
//! its fields in the order of this table.
//!
//! | kind | fields |
//! |---|---|
//! | `compiled` | f v tier instructions loops nested calls ns counters |
//! | `counters` | f entries loops |
//! | `samples` | f v count ns |
//! | `sampling` | ns (0: off) |
//! | `opening` | ns (0: the compiler of tier 2 is ready) |
//! | `processor` | ns |
//! | `published` | f v tier ns counters |
//! | `late`, `failed` | f v tier ns |
//! | `cancelled`, `nomemory` | f v tier |
//! | `reverted` | f v tier counters |
//! | `pin` | f tier (0: none) |
//! | `request`, `bar` | f tier |
//! | `native` | thousandths: tier 2 over native code |
//! | `faster` | f, and thousandths: its version over native code |
//! | `times` | ns of the program, ns of the runtime |
//! | `replaced` | f |
//! | `caller` | f, and a function that calls it |
//! | `callers-told` | f |
//! | `pause`, `resume` | |

use std::fmt;
use std::io::{self, Write};

use crate::controller::{FirstCode, Outcome};
use crate::ids::{FunctionId, Nanos, Tier, VersionId};

/// First line of a stream.
pub const HEADER: &str = "uruk tiering stream 2";

/// An input of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// [`Controller::on_compiled`]
    Compiled(FunctionId, FirstCode),
    /// [`Controller::on_counters`]: entries and back edges
    Counters(FunctionId, u64, u64),
    /// [`Controller::on_samples`]
    Samples(FunctionId, VersionId, u32, Nanos),
    /// [`Controller::on_sampling`]
    Sampling(Option<Nanos>),
    /// [`Controller::on_opening`]
    Opening(Nanos),
    /// [`Controller::on_processor_time`]
    ProcessorTime(Nanos),
    /// [`Controller::finished`], with function and tier for the reader
    Finished(FunctionId, VersionId, Tier, Outcome),
    /// [`Controller::reverted`]: whether it has counters
    Reverted(FunctionId, VersionId, Tier, bool),
    /// [`Controller::pin`]
    Pin(FunctionId, Option<Tier>),
    /// [`Controller::request`]
    Request(FunctionId, Tier),
    /// [`Controller::replaced`]
    Replaced(FunctionId),
    /// See [`Controller::bar`].
    Bar(FunctionId, Tier),
    /// See [`Controller::compared_with_native`].
    ComparedWithNative(u32),
    /// [`Controller::faster_than_native`]
    FasterThanNative(FunctionId, u32),
    /// [`Controller::on_times`]
    Times(Nanos, Nanos),
    /// See [`Controller::hold`].
    Hold(FunctionId),
    /// See [`Controller::release`].
    Release(FunctionId),
    /// [`Controller::on_caller`]: a function, and its caller
    Caller(FunctionId, FunctionId),
    /// [`Controller::callers_told`]
    CallersTold(FunctionId),
    /// [`Controller::pause`]
    Pause,
    /// [`Controller::resume`]
    Resume,
}

impl fmt::Display for Input {
    /// The line without its time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Compiled(function, first) => write_compiled(*function, first, f),
            Input::Counters(function, entries, loops) => {
                write!(f, "counters {function} entries={entries} loops={loops}")
            }
            Input::Samples(function, version, samples, time) => {
                write!(
                    f,
                    "samples {function} {version} count={samples} ns={}",
                    time.0
                )
            }
            Input::Sampling(period) => {
                write!(f, "sampling ns={}", period.unwrap_or(Nanos::ZERO).0)
            }
            Input::Opening(time) => write!(f, "opening ns={}", time.0),
            Input::ProcessorTime(used) => write!(f, "processor ns={}", used.0),
            Input::Finished(function, version, tier, outcome) => {
                let place = format!("{function} {version} tier={}", tier.number());
                write_outcome(&place, outcome, f)
            }
            Input::Reverted(function, version, tier, counters) => {
                let (tier, counters) = (tier.number(), u8::from(*counters));
                write!(
                    f,
                    "reverted {function} {version} tier={tier} counters={counters}"
                )
            }
            Input::Pin(function, tier) => {
                write!(f, "pin {function} tier={}", tier.map_or(0, Tier::number))
            }
            Input::Request(function, tier) => {
                write!(f, "request {function} tier={}", tier.number())
            }
            Input::Replaced(function) => write!(f, "replaced {function}"),
            Input::Bar(function, tier) => write!(f, "bar {function} {}", tier.number()),
            Input::ComparedWithNative(thousandths) => write!(f, "native {thousandths}"),
            Input::FasterThanNative(function, thousandths) => {
                write!(f, "faster {function} thousandths={thousandths}")
            }
            Input::Times(program, runtime) => {
                write!(f, "times ns={} ns={}", program.0, runtime.0)
            }
            Input::Hold(function) => write!(f, "hold {function}"),
            Input::Release(function) => write!(f, "release {function}"),
            Input::Caller(function, caller) => write!(f, "caller {function} {caller}"),
            Input::CallersTold(function) => write!(f, "callers-told {function}"),
            Input::Pause => f.write_str("pause"),
            Input::Resume => f.write_str("resume"),
        }
    }
}

fn write_compiled(
    function: FunctionId,
    first: &FirstCode,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let FirstCode {
        version,
        tier,
        facts,
        compile,
        counters,
    } = first;
    write!(
        f,
        "compiled {function} {version} tier={} instructions={} loops={} nested={} calls={} ns={} \
         counters={}",
        tier.number(),
        facts.instructions,
        facts.loops,
        u8::from(facts.nested),
        facts.calls,
        compile.0,
        u8::from(*counters),
    )
}

/// Writes the outcome of a compile; `place` are the words for function, version and tier.
fn write_outcome(place: &str, outcome: &Outcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match outcome {
        Outcome::Published { compile, counters } => {
            let counters = u8::from(*counters);
            write!(f, "published {place} ns={} counters={counters}", compile.0)
        }
        Outcome::Late { compile } => write!(f, "late {place} ns={}", compile.0),
        Outcome::Failed { compile } => write!(f, "failed {place} ns={}", compile.0),
        Outcome::Cancelled => write!(f, "cancelled {place}"),
        Outcome::NoMemory => write!(f, "nomemory {place}"),
    }
}

/// Writes a stream, up to a limit.
#[derive(Debug)]
pub struct Recorder<W> {
    writer: W,
    last: Nanos,
    /// Bytes that may still be written; `None` after the end.
    left: Option<u64>,
}

impl<W: Write> Recorder<W> {
    /// Begins a stream of at most about `limit` bytes; further inputs are left out, and a comment
    /// at the end says so.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(mut writer: W, limit: u64) -> io::Result<Recorder<W>> {
        writeln!(writer, "{HEADER}")?;
        Ok(Recorder {
            writer,
            last: Nanos::ZERO,
            left: Some(limit),
        })
    }

    /// Adds an input. A time before that of the last input is replaced by that.
    ///
    /// # Errors
    /// The writer's.
    pub fn record(&mut self, now: Nanos, input: &Input) -> io::Result<()> {
        let Some(left) = self.left else {
            return Ok(());
        };
        self.last = self.last.max(now);
        let line = format!("{} {input}\n", self.last.0);
        self.left = left.checked_sub(line.len() as u64);
        match self.left {
            Some(_) => self.writer.write_all(line.as_bytes()),
            None => writeln!(self.writer, "# cut here: the limit was reached"),
        }
    }

    /// Flushes the writer.
    ///
    /// # Errors
    /// The writer's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}
