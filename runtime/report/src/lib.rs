//! Records a run of Uruk and renders it.
//!
//! The runtime reports events to a [`Recorder`]; [`Recorder::finish`] turns them into a
//! [`Recording`], which is plain data. Everything else here is a pure function of a recording (or
//! of a [`Comparison`]): text, a trace, a page.
//!
//! Invariants:
//! - The package reads no clock, starts no thread and opens no file: times come from the caller,
//!   output goes to a writer or a `String`.
//! - Every list has a limit ([`Limits`]); items beyond it are counted ([`Omitted`]) and the count
//!   is shown.
//! - No figure is guessed. An unknown figure is absent, and the page states the reason in its
//!   place.
//! - Renderers escape all text: names of functions, reasons and arguments are input.
//!
//! ```
//! use uruk_report::*;
//!
//! let recorder = Recorder::new(Run::default(), Nanos(0), Limits::default());
//! let (function, version) = (FunctionId(0), VersionId(0));
//! let compile = Compile {
//!     function,
//!     version,
//!     tier: Tier::Baseline,
//!     continues: false,
//!     place: Place::Worker(0),
//!     waited: Nanos(2_000),
//!     start: Nanos(10_000),
//!     end: Nanos(210_000),
//!     instructions: 40,
//!     code_bytes: 512,
//! };
//! recorder.compiled("main", &compile);
//! recorder.published(Nanos(215_000), function, version, Tier::Baseline);
//! let ending = Ending {
//!     time: Nanos(9_000_000),
//!     cpu: Nanos(8_000_000),
//!     exit: Some(0),
//!     defined: 1,
//! };
//! let recording = recorder.finish(ending).expect("the recorder is on");
//! assert!(html::run(&recording).contains("main"));
//! ```
//!
//! The modules in reading order: `recording` is the data, `limits` its bounds, `timeline` the
//! periods of samples; `recorder` receives events, `draft` stores them; `summary` computes figures;
//! `units` formats them; `text`, `trace` and `html` render a recording; `compare` holds and renders
//! runs side by side.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod compare;
mod draft;
pub mod html;
mod limits;
mod recorder;
mod recording;
mod summary;
pub mod text;
mod timeline;
pub mod trace;
mod units;

pub use compare::Comparison;
pub use limits::{Limits, Omitted};
pub use recorder::{Drain, Ending, Hit, Recorder};
pub use recording::{
    Compile, Event, EventKind, Exchange, Function, FunctionId, Link, Lookup, LookupKind, Nanos,
    Period, Place, Recording, Run, Sampling, State, Tier, Totals, Variant, Version, VersionId,
};
pub use summary::{PEAK_SAMPLES, PEAK_SHARE, Peak, PeakUnknown, Summary, TierFigures};
