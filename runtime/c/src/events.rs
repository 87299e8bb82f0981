//! Events, as structs that begin with their size.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use uruk::Event;

use crate::boundary::{nanoseconds, number};
use crate::error::c_text;

/// A version was compiled and linked.
pub const URUK_EVENT_COMPILED: c_int = 1;
/// A first call was answered.
pub const URUK_EVENT_ANSWERED: c_int = 2;
/// Calls run this version from now on.
pub const URUK_EVENT_PUBLISHED: c_int = 3;
/// A version could not be compiled; `message` says why.
pub const URUK_EVENT_FAILED: c_int = 4;
/// A version was ready too late.
pub const URUK_EVENT_DROPPED: c_int = 5;
/// A compile was ended early.
pub const URUK_EVENT_CANCELLED: c_int = 6;
/// A version turned out worse than the one before, which runs again.
pub const URUK_EVENT_REVERTED: c_int = 7;
/// Code went because it was not used.
pub const URUK_EVENT_EVICTED: c_int = 8;
/// Sampling began, or could not; `message` is the source.
pub const URUK_EVENT_SAMPLING: c_int = 9;
/// A worker was given up; `message` says why.
pub const URUK_EVENT_WORKER_LOST: c_int = 10;
/// All memory is searched for stacks from now on; `message` says why.
pub const URUK_EVENT_STACKS_SEARCHED: c_int = 11;
/// Two codes of a function were compared: `version` stays, and `message` says what was tried and what
/// came out.
pub const URUK_EVENT_TUNED: c_int = 12;
/// The time that a tuned function takes has changed: its codes are compared again.
pub const URUK_EVENT_DRIFTED: c_int = 13;
/// Code of no more use is not freed, from now on or as long as a call of the system is refused;
/// `message` says why.
pub const URUK_EVENT_CODE_STAYS: c_int = 14;

/// One thing that happened. Fields that say nothing about it are zero or null.
#[repr(C)]
pub struct uruk_event {
    /// Bytes of it that the library filled in.
    pub size: usize,
    /// Nanoseconds since the start of the session.
    pub at_ns: u64,
    /// The version, unique in the session.
    pub version: u64,
    /// Bytes of code.
    pub bytes: u64,
    /// Time that compiling and linking took, in nanoseconds.
    pub took_ns: u64,
    /// The function.
    pub function: *const c_char,
    /// The kind of the event.
    pub message: *const c_char,
    /// One of `URUK_EVENT_...`.
    pub kind: c_int,
    /// 1, 2 or 3; 0 for none.
    pub tier: c_int,
    /// The tier of the version that ran before; 0 for none.
    pub replaced_tier: c_int,
    /// 1 if the code goes on with a loop of the function.
    pub continues: c_int,
}

/// An event of C with the texts that it points to.
struct TranslatedEvent {
    event: uruk_event,
    function: Option<CString>,
    message: Option<CString>,
}

fn event(kind: c_int, at: Duration) -> TranslatedEvent {
    TranslatedEvent {
        event: uruk_event {
            size: size_of::<uruk_event>(),
            at_ns: nanoseconds(at),
            version: 0,
            bytes: 0,
            took_ns: 0,
            function: ptr::null(),
            message: ptr::null(),
            kind,
            tier: 0,
            replaced_tier: 0,
            continues: 0,
        },
        function: None,
        message: None,
    }
}

impl TranslatedEvent {
    fn of(mut self, function: &str, version: u64) -> TranslatedEvent {
        self.function = Some(c_text(function));
        self.event.version = version;
        self
    }

    fn at_tier(mut self, tier: uruk::Tier) -> TranslatedEvent {
        self.event.tier = number(Some(tier));
        self
    }

    fn saying(mut self, message: &str) -> TranslatedEvent {
        self.message = Some(c_text(message));
        self
    }
}

/// Calls `show` with an event in its C form, if it has one: samples have none.
pub(crate) fn with_event(event: &Event, show: impl FnOnce(*const uruk_event)) {
    let Some(mut translated) = translated(event) else {
        return;
    };
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    translated.event.function = pointer(&translated.function);
    translated.event.message = pointer(&translated.message);
    show(&raw const translated.event);
}

fn translated(event: &Event) -> Option<TranslatedEvent> {
    of_version(event)
        .or_else(|| of_function(event))
        .or_else(|| of_session(event))
}

/// An event in the life of a version.
fn of_version(all: &Event) -> Option<TranslatedEvent> {
    Some(match all {
        Event::Compiled {
            function,
            version,
            tier,
            continues,
            started,
            compiling,
            linking,
            bytes,
            ..
        } => {
            let took = *compiling + *linking;
            let mut compiled = event(URUK_EVENT_COMPILED, *started + took);
            compiled.event.took_ns = nanoseconds(took);
            compiled.event.bytes = *bytes;
            compiled.event.continues = c_int::from(*continues);
            compiled.of(function, *version).at_tier(*tier)
        }
        Event::Published {
            function,
            version,
            tier,
            replaced,
            at,
            ..
        } => {
            let mut published = event(URUK_EVENT_PUBLISHED, *at);
            published.event.replaced_tier = number(replaced.map(|(_, tier)| tier));
            published.of(function, *version).at_tier(*tier)
        }
        Event::Dropped {
            function,
            version,
            at,
            ..
        } => event(URUK_EVENT_DROPPED, *at).of(function, *version),
        Event::Cancelled {
            function,
            version,
            tier,
            at,
            ..
        } => event(URUK_EVENT_CANCELLED, *at)
            .of(function, *version)
            .at_tier(*tier),
        Event::Reverted {
            function,
            version,
            tier,
            at,
            ..
        } => event(URUK_EVENT_REVERTED, *at)
            .of(function, *version)
            .at_tier(*tier),
        Event::Evicted {
            function,
            version,
            bytes,
            at,
            ..
        } => {
            let mut evicted = event(URUK_EVENT_EVICTED, *at).of(function, *version);
            evicted.event.bytes = *bytes;
            evicted
        }
        _ => return None,
    })
}

/// An event of a function that is none of one version.
fn of_function(all: &Event) -> Option<TranslatedEvent> {
    Some(match all {
        Event::Answered { function, at, .. } => event(URUK_EVENT_ANSWERED, *at).of(function, 0),
        Event::Failed {
            function,
            tier,
            message,
            at,
            ..
        } => {
            let failed = event(URUK_EVENT_FAILED, *at).of(function, 0);
            failed.at_tier(*tier).saying(message)
        }
        Event::Tuned {
            function,
            tier,
            variant,
            verdict,
            ratio,
            version,
            at,
            ..
        } => {
            let tuned = event(URUK_EVENT_TUNED, *at).of(function, *version);
            let tried = format!("{variant}: {verdict}, {ratio} times as fast");
            tuned.at_tier(*tier).saying(&tried)
        }
        Event::Drifted { function, at, .. } => event(URUK_EVENT_DRIFTED, *at).of(function, 0),
        _ => return None,
    })
}

/// An event of the session as a whole.
fn of_session(all: &Event) -> Option<TranslatedEvent> {
    Some(match all {
        Event::Sampling { source, at, .. } => {
            event(URUK_EVENT_SAMPLING, *at).saying(source.as_deref().unwrap_or("none"))
        }
        Event::WorkerLost { message, at } => event(URUK_EVENT_WORKER_LOST, *at).saying(message),
        Event::CodeStays { cause, at } => event(URUK_EVENT_CODE_STAYS, *at).saying(cause),
        Event::StacksSearched { cause, at } => event(URUK_EVENT_STACKS_SEARCHED, *at).saying(cause),
        _ => return None,
    })
}
