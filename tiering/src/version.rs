//! The life of one version: an enum and the one function that decides which steps are legal.
//!
//! ```text
//!   Wanted --Start--> Compiling --Link--> Ready --Publish--> Published --Retire--> Retired
//!     |              |             |  ^                  ^                    |
//!     |              |        Hold |  | Resume           +------ Restore -----+
//!     |              |             v  |
//!     |              |             Held --Drop--> Dropped
//!     +--------------+-------------+--> Failed or Dropped
//! ```
//!
//! | from | event | to | when |
//! |---|---|---|---|
//! | Wanted | `Start` | Compiling | a worker took it |
//! | Compiling | `Link` | Ready | its code is in memory, nothing refers to it |
//! | Ready | `Publish` | Published | its entry was stored into the slot |
//! | Published | `Retire` | Retired | another entry was stored over it |
//! | Ready | `Hold` | Held | it was to be published while its function is staged for replacement |
//! | Held | `Resume` | Ready | the replacement was abandoned |
//! | Held | `Drop` | Dropped | the replacement was committed, or it was cancelled |
//! | Retired | `Restore` | Published | the version after it was slower, or a set was rolled back |
//! | Wanted, Compiling, Ready | `Fail` | Failed | it could not be compiled or linked |
//! | Wanted, Compiling, Ready | `Drop` | Dropped | cancelled, or too late for the slot |
//!
//! A version of a set that replaces others begins as Ready: the set compiles and links it before it
//! is registered here.
//!
//! All other steps are refused. Failed and Dropped are final: later events for such a version are
//! late. A Published version can only be retired, so a slot always holds the entry of the one
//! version that is in this state.

use std::fmt;

use thiserror::Error;

/// The state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// Requested.
    Wanted,
    /// A worker compiles it.
    Compiling,
    /// Linked: the code is in memory and complete.
    Ready,
    /// Ready, and its function is being replaced.
    Held,
    /// The slot holds its entry.
    Published,
    /// No slot holds its entry; its code may be on some stack.
    Retired,
    /// Could not be compiled or linked.
    Failed,
    /// Compiled without use, or not compiled.
    Dropped,
}

/// An event in the life of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker begins.
    Start,
    /// The code is in memory.
    Link,
    /// It has to wait for the end of a replacement.
    Hold,
    /// The replacement was abandoned.
    Resume,
    /// The entry is stored into the slot.
    Publish,
    /// Another entry replaced it.
    Retire,
    /// Its entry is stored into the slot again.
    Restore,
    /// It cannot be compiled or linked.
    Fail,
    /// It is not needed any more.
    Drop,
}

/// A step that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a version that is {from} cannot take the step {event}")]
pub struct IllegalStep {
    /// The state of the version.
    pub from: VersionState,
    /// The event.
    pub event: Event,
}

impl VersionState {
    /// All states, in the order of a life.
    pub const ALL: [VersionState; 8] = [
        VersionState::Wanted,
        VersionState::Compiling,
        VersionState::Ready,
        VersionState::Held,
        VersionState::Published,
        VersionState::Retired,
        VersionState::Failed,
        VersionState::Dropped,
    ];

    /// The state that follows `event`.
    ///
    /// # Errors
    /// The step is not in the table of this module; the state stays.
    pub fn step(self, event: Event) -> Result<VersionState, IllegalStep> {
        use VersionState::{Compiling, Dropped, Failed, Held, Published, Ready, Retired, Wanted};
        match (self, event) {
            (Wanted, Event::Start) => Ok(Compiling),
            (Compiling, Event::Link) | (Held, Event::Resume) => Ok(Ready),
            (Ready, Event::Hold) => Ok(Held),
            (Ready, Event::Publish) | (Retired, Event::Restore) => Ok(Published),
            (Published, Event::Retire) => Ok(Retired),
            (Wanted | Compiling | Ready, Event::Fail) => Ok(Failed),
            (Wanted | Compiling | Ready | Held, Event::Drop) => Ok(Dropped),
            (from, event) => Err(IllegalStep { from, event }),
        }
    }
}

impl fmt::Display for VersionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VersionState::Wanted => "wanted",
            VersionState::Compiling => "compiling",
            VersionState::Ready => "ready",
            VersionState::Held => "held",
            VersionState::Published => "published",
            VersionState::Retired => "retired",
            VersionState::Failed => "failed",
            VersionState::Dropped => "dropped",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Start => "start",
            Event::Link => "link",
            Event::Hold => "hold",
            Event::Resume => "resume",
            Event::Publish => "publish",
            Event::Retire => "retire",
            Event::Restore => "restore",
            Event::Fail => "fail",
            Event::Drop => "drop",
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const EVENTS: [Event; 9] = [
        Event::Start,
        Event::Link,
        Event::Hold,
        Event::Resume,
        Event::Publish,
        Event::Retire,
        Event::Restore,
        Event::Fail,
        Event::Drop,
    ];

    /// The table of the module, generated from the code.
    #[test]
    fn the_legal_steps() {
        let mut table = String::new();
        for from in VersionState::ALL {
            for event in EVENTS {
                if let Ok(to) = from.step(event) {
                    table += &format!("{from} {event} {to}\n");
                }
            }
        }
        assert_eq!(
            table,
            "wanted start compiling\n\
             wanted fail failed\n\
             wanted drop dropped\n\
             compiling link ready\n\
             compiling fail failed\n\
             compiling drop dropped\n\
             ready hold held\n\
             ready publish published\n\
             ready fail failed\n\
             ready drop dropped\n\
             held resume ready\n\
             held drop dropped\n\
             published retire retired\n\
             retired restore published\n"
        );
    }

    /// Code reaches a slot only after it was linked, in any order of events.
    #[test]
    fn published_comes_after_ready() {
        let mut reached = vec![(VersionState::Wanted, false)];
        let mut index = 0;
        while let Some(&(state, was_ready)) = reached.get(index) {
            assert!(state != VersionState::Published || was_ready);
            for event in EVENTS {
                if let Ok(to) = state.step(event) {
                    let next = (to, was_ready || to == VersionState::Ready);
                    if !reached.contains(&next) {
                        reached.push(next);
                    }
                }
            }
            index += 1;
        }
        assert!(index >= VersionState::ALL.len());
    }

    #[test]
    fn a_refused_step_names_both() {
        let error = VersionState::Dropped.step(Event::Publish).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a version that is dropped cannot take the step publish"
        );
    }
}
