//! The choice of a source.
//!
//! [`open`] tries kinds in order and reports why each rejected kind failed. A kind that opens is
//! accepted only after it has delivered: while its cost per sample is measured on the calling
//! thread (about 3 ms), samples must arrive. Some virtual machines have cycle counters that count
//! and never interrupt.

use std::sync::Arc;

use crate::exclude::Excluded;
use crate::perf::{Perf, reserve_descriptors};
use crate::sample::Kind;
use crate::source::{Sizes, Source, SourceError};
use crate::timers::Timers;

/// The kinds of source that the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Cycles, the software clock, thread timers: the first that works.
    #[default]
    Auto,
    /// perf events: cycles where there are any, else the software clock.
    Perf,
    /// The software clock of perf events.
    CpuClock,
    /// Thread timers.
    Timers,
    /// No samples.
    Off,
}

impl Choice {
    /// Prepares the process, which may have one thread now, for a source that is opened beside
    /// others.
    pub fn prepare(self) {
        match self {
            Choice::Auto | Choice::Perf | Choice::CpuClock => reserve_descriptors(),
            Choice::Timers | Choice::Off => {}
        }
    }
}

/// An open source, and the kinds that were rejected.
pub struct Opened {
    /// The source, not started; none if sampling is off or nothing works.
    pub source: Option<Box<dyn Source>>,
    /// Kinds that were tried and do not work, with the reasons.
    pub rejected: Vec<(Kind, SourceError)>,
}

/// Opens the first source of `choice` that works. Threads in `excluded`, now or
/// later, are not sampled. Takes about 3 ms of CPU time, in which the calling thread
/// is sampled.
#[must_use]
pub fn open(choice: Choice, sizes: Sizes, excluded: &Arc<Excluded>) -> Opened {
    let kinds: &[Kind] = match choice {
        Choice::Auto => &[Kind::Cycles, Kind::CpuClock, Kind::Timers],
        Choice::Perf => &[Kind::Cycles, Kind::CpuClock],
        Choice::CpuClock => &[Kind::CpuClock],
        Choice::Timers => &[Kind::Timers],
        Choice::Off => &[],
    };
    let mut opened = Opened {
        source: None,
        rejected: Vec::new(),
    };
    for &kind in kinds {
        match open_kind(kind, choice, sizes, excluded.clone()) {
            Ok(source) => {
                opened.source = Some(source);
                break;
            }
            Err(error) => opened.rejected.push((kind, error)),
        }
    }
    opened
}

fn open_kind(
    kind: Kind,
    choice: Choice,
    sizes: Sizes,
    excluded: Arc<Excluded>,
) -> Result<Box<dyn Source>, SourceError> {
    Ok(match kind {
        Kind::Cycles | Kind::CpuClock => {
            let perf = Perf::open(kind, sizes, excluded)?;
            if choice == Choice::Auto {
                perf.check_descriptors()?;
            }
            Box::new(perf)
        }
        Kind::Timers => Box::new(Timers::open(sizes, None, excluded)?),
    })
}
