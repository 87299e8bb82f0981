//! Samples of where a program's threads spend their time: sources, the rate they run
//! at, and the map from addresses to code that changes.
//!
//! A [`Source`] makes [`Sample`]s of the threads of this process, those included that
//! the program makes itself. [`open`] takes the first that works: perf events, or
//! POSIX thread timers where those are forbidden. [`Sampler`] runs one and keeps its
//! measured cost within a budget. [`AddressMap`] says which code was at an address at
//! the time of a sample.
//!
//! # Invariants
//! - The sampled program notices nothing: no signal (perf events), or one real-time
//!   signal it does not use (timers); no system call returns `EINTR` because of us;
//!   descriptors are close-on-exec and have high numbers.
//! - Rings, queues, maps and the number of descriptors and timers have limits; samples
//!   and entries beyond a limit are counted.
//! - Nothing is assumed of code that the samples point into.
//! - Unsafe code is in `perf`, `timers` and `threads`.
//!
//! # Map, in reading order
//! `sample`; `source`: the trait; `rate`: how often; `sampler`: both together. Sources:
//! `perf`, `timers` (with `queue`, `calibrate`, `threads`, `exclude`); `choice`:
//! the first that works. Attribution: `map` over `entries`.

#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(not(loom))]
mod calibrate;
#[cfg(not(loom))]
mod choice;
mod entries;
#[cfg(not(loom))]
mod exclude;
#[cfg(all(test, not(loom)))]
mod fake;
mod map;
#[cfg(all(loom, test))]
mod model;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "system calls and a mapped ring")]
mod perf;
mod queue;
#[cfg(not(loom))]
mod rate;
mod sample;
#[cfg(not(loom))]
mod sampler;
#[cfg(not(loom))]
mod source;
mod sync;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "system calls")]
mod threads;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "a signal handler and system calls")]
mod timers;

#[cfg(not(loom))]
pub use choice::{Choice, Opened, open};
#[cfg(not(loom))]
pub use exclude::{Excluded, MAX_EXCLUDED};
pub use map::{AddressMap, Found, MapError, MapSize};
#[cfg(not(loom))]
pub use rate::{
    BURST_WAIT_NS, Decision, IDLE_WAIT_NS, Interval, MAX_WAIT_NS, MIN_WAIT_NS, RateControl,
    STEADY_WAIT_NS, Settings,
};
pub use sample::{Kind, Sample};
#[cfg(not(loom))]
pub use sampler::{Sampler, Summary};
#[cfg(not(loom))]
pub use source::{Coverage, Drained, Rates, Sizes, Source, SourceError};
#[cfg(not(loom))]
pub use threads::{current_tid, now, time_of_thread};
