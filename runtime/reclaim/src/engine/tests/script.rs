//! A scripted environment that logs the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::block::{Block, Dead, Fixed};
use crate::env::{
    Copied, CopyError, Environment, EnvironmentError, MayHold, Memory, Missing, Pin, ScanAnswer,
    Silence, Swing,
};
use crate::ids::{BlockId, Nanos, Space, Span, ThreadId};

/// Bytes of every block.
pub(super) const SIZE: u64 = 1000;

/// A scripted environment that logs the calls.
#[derive(Default)]
pub(super) struct Script {
    pub(super) log: String,
    pub(super) generation: u64,
    pub(super) fork_in_scan: bool,
    pub(super) no_flip: bool,
    pub(super) no_fence: bool,
    pub(super) no_scan: bool,
    pub(super) room: Option<u64>,
    pub(super) fixed: BTreeSet<BlockId>,
    pub(super) superseded: BTreeSet<BlockId>,
    /// Threads by the start address of the block that they hold.
    pub(super) held: BTreeMap<u64, i32>,
    pub(super) silent: Option<MayHold>,
    pub(super) fragmented: u64,
    pub(super) copies: u64,
    pub(super) frozen: Vec<BlockId>,
    /// Most blocks handled between two calls of `reset`.
    pub(super) handled: u64,
}

impl Environment for Script {
    fn fork_generation(&self) -> u64 {
        self.generation
    }

    fn memory(&self) -> Memory {
        Memory {
            fragmented: self.fragmented,
            held: 0,
        }
    }

    fn flip(&mut self) -> Result<Space, EnvironmentError> {
        self.log.push_str("flip ");
        match self.no_flip {
            true => Err(EnvironmentError::NoSpace("told so".to_owned())),
            false => Ok(Space::B),
        }
    }

    fn copy(&mut self, block: &Block) -> Result<Copied, CopyError> {
        self.handled += 1;
        if self.fixed.contains(&block.id) {
            return Err(CopyError::Fixed(Fixed::OutOfReach));
        }
        if let Some(room) = &mut self.room {
            let Some(left) = room.checked_sub(1) else {
                return Err(CopyError::OutOfSpace {
                    asked: SIZE,
                    held: 0,
                });
            };
            *room = left;
        }
        let _ = write!(self.log, "copy {} ", block.id);
        self.copies += 1;
        let start = 0x8000_0000 + self.copies * 0x1000;
        Ok(Copied {
            id: BlockId(1_000_000 + self.copies),
            span: Span {
                start,
                end: start + SIZE,
            },
            space: Space::B,
        })
    }

    fn swing(&mut self, old: &Block, _new: &Block) -> Swing {
        match self.superseded.contains(&old.id) {
            true => Swing::Superseded,
            false => Swing::Done,
        }
    }

    fn fence(&mut self) -> Result<(), EnvironmentError> {
        self.log.push_str("fence ");
        match self.no_fence {
            true => Err(EnvironmentError::NoFence("told so".to_owned())),
            false => Ok(()),
        }
    }

    fn scan(&mut self, ranges: &[Span]) -> Result<ScanAnswer, EnvironmentError> {
        assert!(ranges.is_sorted());
        let _ = write!(self.log, "scan {} ", ranges.len());
        if self.no_scan {
            return Err(EnvironmentError::NoScan("told so".to_owned()));
        }
        self.generation += u64::from(self.fork_in_scan);
        let held = |(range, span): (usize, &Span)| {
            let thread = ThreadId(*self.held.get(&span.start)?);
            Some(Pin { range, thread })
        };
        let missing = self.silent.clone().map(|may_hold| Missing {
            thread: ThreadId(77),
            why: Silence::SignalBlocked,
            may_hold,
        });
        Ok(ScanAnswer {
            pins: ranges.iter().enumerate().filter_map(held).collect(),
            missing: missing.into_iter().collect(),
            longest_handshake: Nanos(9),
            ..ScanAnswer::default()
        })
    }

    fn drain_samples(&mut self) {
        self.log.push_str("drain ");
    }

    fn unregister(&mut self, block: &Block) {
        let _ = write!(self.log, "unregister {} ", block.id);
    }

    fn free(&mut self, batch: Vec<Dead>) {
        self.handled += batch.len() as u64;
        let frozen = batch.iter().filter(|dead| dead.frozen());
        self.frozen.extend(frozen.map(Dead::id));
        let _ = write!(self.log, "free {} ", batch.len());
    }
}
