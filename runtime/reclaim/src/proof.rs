//! The proof that a block is dead, as values that can only be obtained in the right order.
//!
//! 1. Unreachable blocks are chosen: their `Retire` step was taken.
//! 2. [`Fenced::new`] makes every store that led there visible to all threads.
//! 3. [`Fenced::scan`] consumes that and queries the threads, all of them listed after the fence. A
//!    thread examined then either holds the block and reports it, or can never enter it: no slot it
//!    can load holds the block, and no frame of it returns there.
//! 4. [`judge`] decides for each block whether that is proved.
//!
//! A fork between 2 and 4 makes the answer one about other threads: it proves nothing.

use crate::env::{Environment, EnvironmentError, MayHold, ScanAnswer};
use crate::ids::{BlockId, Span, ThreadId};

/// The result of a scan for one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No thread is in it or can return into it.
    Clear,
    /// These threads could return into it.
    Pinned(Vec<ThreadId>),
    /// A thread that did not answer could return into it.
    Unknown,
}

/// Reason for which a scan proved nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProof {
    /// Fence or scan failed.
    Failed(EnvironmentError),
    /// The process forked between fence and answer.
    Forked,
}

/// Unreachable blocks, and evidence that their unreachability is visible to every thread.
pub(crate) struct Fenced {
    ids: Vec<BlockId>,
    spans: Vec<Span>,
    generation: u64,
}

/// A scan's answer about blocks that were unreachable when it began.
pub(crate) struct Scanned {
    /// The queried blocks, by address.
    pub(crate) ids: Vec<BlockId>,
    /// The threads' answer.
    pub(crate) answer: ScanAnswer,
}

impl Fenced {
    /// Fences after the blocks became unreachable.
    pub(crate) fn new(
        env: &mut dyn Environment,
        generation: u64,
        mut unreachable: Vec<(Span, BlockId)>,
    ) -> Result<Fenced, EnvironmentError> {
        env.fence()?;
        unreachable.sort_unstable();
        Ok(Fenced {
            ids: unreachable.iter().map(|&(_, id)| id).collect(),
            spans: unreachable.iter().map(|&(span, _)| span).collect(),
            generation,
        })
    }

    /// Queries all threads.
    pub(crate) fn scan(self, env: &mut dyn Environment) -> Result<Scanned, NoProof> {
        let answer = env.scan(&self.spans).map_err(NoProof::Failed)?;
        if env.fork_generation() != self.generation {
            return Err(NoProof::Forked);
        }
        Ok(Scanned {
            ids: self.ids,
            answer,
        })
    }
}

/// The verdict on each of `count` ranges. At most `listed` threads are named by block. An answer
/// with a range that was not queried belongs to another query: it proves nothing.
pub(crate) fn judge(count: usize, answer: &ScanAnswer, listed: usize) -> Vec<Verdict> {
    let strange = answer.pins.iter().any(|pin| pin.range >= count);
    if answer.overflow || strange {
        return vec![Verdict::Unknown; count];
    }
    let mut verdicts = vec![Verdict::Clear; count];
    for missing in &answer.missing {
        match &missing.may_hold {
            MayHold::All => verdicts.fill(Verdict::Unknown),
            MayHold::Ranges(ranges) => {
                for &range in ranges {
                    match verdicts.get_mut(range) {
                        Some(verdict) => *verdict = Verdict::Unknown,
                        None => return vec![Verdict::Unknown; count],
                    }
                }
            }
        }
    }
    for pin in &answer.pins {
        let verdict = &mut verdicts[pin.range];
        match verdict {
            Verdict::Pinned(by) if by.len() >= listed => {}
            Verdict::Pinned(by) if by.contains(&pin.thread) => {}
            Verdict::Pinned(by) => by.push(pin.thread),
            Verdict::Clear | Verdict::Unknown => {
                *verdict = Verdict::Pinned(if listed > 0 { vec![pin.thread] } else { vec![] });
            }
        }
    }
    verdicts
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::env::{Missing, Pin, Silence};

    fn pin(range: usize, thread: i32) -> Pin {
        Pin {
            range,
            thread: ThreadId(thread),
        }
    }

    fn missing(may_hold: MayHold) -> Missing {
        Missing {
            thread: ThreadId(9),
            why: Silence::TimedOut,
            may_hold,
        }
    }

    #[test]
    fn only_what_everyone_denies_is_clear() {
        let mut answer = ScanAnswer {
            pins: vec![pin(1, 4), pin(1, 5), pin(1, 4)],
            ..ScanAnswer::default()
        };
        let held = Verdict::Pinned(vec![ThreadId(4), ThreadId(5)]);
        let clear = Verdict::Clear;
        assert_eq!(
            judge(3, &answer, 8),
            [clear.clone(), held.clone(), clear.clone()]
        );
        answer.missing = vec![missing(MayHold::Ranges(vec![2]))];
        assert_eq!(
            judge(3, &answer, 8),
            [clear, held.clone(), Verdict::Unknown]
        );
        answer.missing = vec![missing(MayHold::All)];
        let unknown = Verdict::Unknown;
        assert_eq!(
            judge(3, &answer, 8),
            [unknown.clone(), held, unknown.clone()]
        );
        answer.overflow = true;
        assert_eq!(judge(3, &answer, 8), vec![unknown; 3]);
    }

    #[test]
    fn answers_to_another_question_prove_nothing() {
        let strange = ScanAnswer {
            pins: vec![pin(2, 1)],
            ..ScanAnswer::default()
        };
        assert_eq!(judge(2, &strange, 8), vec![Verdict::Unknown; 2]);
        let strange = ScanAnswer {
            missing: vec![missing(MayHold::Ranges(vec![7]))],
            ..ScanAnswer::default()
        };
        assert_eq!(judge(2, &strange, 8), vec![Verdict::Unknown; 2]);
    }
}
