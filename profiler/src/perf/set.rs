//! The events of one rate: one for each thread and CPU, all writing to the rings of
//! their CPUs.

use std::os::fd::AsFd;

use crate::perf::event::{Counts, Event, Plan};
use crate::perf::ring::Ring;
use crate::source::SourceError;

/// The ring of one CPU. It belongs to an event that counts nothing, because a ring
/// must be mapped for some event, and sets of events come and go.
#[derive(Debug)]
pub(super) struct Lane {
    cpu: usize,
    pub(super) ring: Ring,
    owner: Event,
}

impl Lane {
    /// The ring of a CPU; `None` if the CPU is offline.
    pub(super) fn open(
        cpu: usize,
        tid: i32,
        ring_bytes: usize,
    ) -> Result<Option<Lane>, SourceError> {
        let plan = Plan {
            counts: Counts::Nothing,
            period: 1,
            inherit: false,
        };
        let Some(owner) = open(plan, tid, cpu)? else {
            return Ok(None);
        };
        let ring = Ring::map(owner.as_fd(), ring_bytes)?;
        Ok(Some(Lane { cpu, ring, owner }))
    }

    /// Whether the descriptor of the ring's event is still open and ours.
    pub(super) fn is_open(&self) -> bool {
        self.owner.is_open()
    }
}

/// Events of one rate.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) hz: u32,
    plan: Plan,
    events: Vec<Event>,
    enabled: bool,
}

impl Set {
    pub(super) fn new(hz: u32, plan: Plan) -> Set {
        Set {
            hz,
            plan,
            events: Vec::new(),
            enabled: false,
        }
    }

    pub(super) fn descriptors(&self) -> usize {
        self.events.len()
    }

    /// Opens the events of a thread on all CPUs; none for a thread that ended.
    pub(super) fn cover(&mut self, tid: i32, lanes: &[Lane]) -> Result<(), SourceError> {
        let before = self.events.len();
        let result = lanes.iter().try_for_each(|lane| {
            if let Some(event) = open(self.plan, tid, lane.cpu)? {
                event.write_to(&lane.owner)?;
                if self.enabled {
                    event.set_enabled(true);
                }
                self.events.push(event);
            }
            Ok(())
        });
        if result.is_err() {
            // A thread sampled on some CPUs only would get too little weight.
            self.events.truncate(before);
        }
        result
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        if self.enabled != enabled {
            self.enabled = enabled;
            for event in &self.events {
                event.set_enabled(enabled);
            }
        }
    }
}

/// The event; `None` if the CPU is offline or the thread ended.
fn open(plan: Plan, tid: i32, cpu: usize) -> Result<Option<Event>, SourceError> {
    match Event::open(plan, tid, Some(cpu)) {
        Ok(event) => Ok(Some(event)),
        Err(SourceError::Open {
            errno: libc::ENODEV | libc::ESRCH,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}
