//! Constructs that forbid OSR, and why.
//!
//! | reason | what would go wrong |
//! |---|---|
//! | [`Reason::Arguments`] | `va_start` behind the head would read arguments of the wrong frame |
//! | [`Reason::FrameAddress`] | the address of a frame, or of a return address, would be the continuation's |
//! | [`Reason::SavedStack`] | a restored stack pointer may not be one that this frame saved |
//! | [`Reason::Labels`] | another body numbers its labels in another way |
//! | [`Reason::TailCall`] | a `musttail` call releases its frame, and there would now be two |
//! | [`Reason::Coroutine`] | its frame is not on the stack yet |
//! | [`Reason::Type`] | tokens, and vectors of unknown size, cannot be kept in memory |
//! | [`Reason::Exception`] | a landing pad picks its handler by a number, and each function numbers its own |
//! | [`Reason::Entry`] | the head is a landing pad: an exception is in flight |
//! | [`Reason::TooLarge`] | the analysis would take too long |
//! | [`Reason::Other`] | `asm goto`, garbage collectors, funclets, functions that return twice |
//! | [`Reason::Changed`] | an embedder transforms the compiled IR |
//! | [`Reason::Lost`] | code of tier 1 does not keep a value up to the head |

use std::fmt;

use crate::anatomy::{Anatomy, Code, Facts};
use crate::graph::{Graph, Loop};
use crate::meaning::Meaning;

/// The reason why a loop does not support OSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// `va_start` behind the head.
    Arguments,
    /// The function takes the address of its frame.
    FrameAddress,
    /// The stack pointer is restored to a value that may not be this frame's.
    SavedStack,
    /// The continuation is of another body, and one of the two has labels with addresses.
    Labels,
    /// A `musttail` call behind the head.
    TailCall,
    /// The function is a coroutine that is not split yet.
    Coroutine,
    /// A value without a memory representation lives across.
    Type,
    /// The selector of a landing pad lives across.
    Exception,
    /// The head is a landing pad.
    Entry,
    /// Too many values times blocks, or too many variables would cross.
    TooLarge,
    /// An unsupported construct: no long-running loop has needed it.
    Other,
    /// The embedder transforms code before it is optimized.
    Changed,
    /// Code of tier 1 does not keep a value that lives across, or other code is compiled now.
    Lost,
}

impl Reason {
    /// All reasons, in the order of the table.
    pub const ALL: [Reason; 13] = [
        Reason::Arguments,
        Reason::FrameAddress,
        Reason::SavedStack,
        Reason::Labels,
        Reason::TailCall,
        Reason::Coroutine,
        Reason::Type,
        Reason::Exception,
        Reason::Entry,
        Reason::TooLarge,
        Reason::Other,
        Reason::Changed,
        Reason::Lost,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Arguments => "variable arguments",
            Reason::FrameAddress => "frame address",
            Reason::SavedStack => "saved stack",
            Reason::Labels => "labels",
            Reason::TailCall => "tail call",
            Reason::Coroutine => "coroutine",
            Reason::Type => "type",
            Reason::Exception => "exception",
            Reason::Entry => "entry",
            Reason::TooLarge => "too large",
            Reason::Other => "other",
            Reason::Changed => "changed code",
            Reason::Lost => "lost value",
        })
    }
}

/// The constructs of a body that forbid OSR, at all or at some heads.
#[derive(Debug)]
pub struct Forbidden {
    /// Blocks with the reason that they give: heads that reach them do not support OSR.
    blocks: Vec<(u32, Reason)>,
}

impl Forbidden {
    /// Finds the constructs of a body.
    ///
    /// # Errors
    /// The reason why no head of it supports OSR.
    pub fn of(anatomy: &Anatomy) -> Result<Forbidden, Reason> {
        if let Some(reason) = anatomy.whole {
            return Err(reason);
        }
        let mut blocks = Vec::new();
        for instruction in 0..anatomy.instructions.len() as u32 {
            if let Some(reason) = forbids(anatomy, instruction)? {
                blocks.push((anatomy.block_of(instruction), reason));
            }
        }
        Ok(Forbidden { blocks })
    }

    /// The reason why the head of a loop does not support OSR, if there is one.
    pub fn at(&self, anatomy: &Anatomy, graph: &Graph, of: &Loop) -> Option<Reason> {
        let mut head = anatomy.blocks[of.head as usize].clone();
        let behind = head.find(|&it| !matches!(anatomy.at(it).code, Code::Phi | Code::Nothing));
        let is_pad = behind.is_none_or(|it| anatomy.at(it).code == Code::LandingPad);
        if is_pad {
            return Some(Reason::Entry);
        }
        if self.blocks.is_empty() {
            return None;
        }
        let mut reached = vec![false; graph.len()];
        let mut work = vec![of.head];
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut reached[block as usize], true) {
                work.extend(graph.successors(block));
            }
        }
        let mut found = self.blocks.iter();
        found
            .find(|(block, _)| reached[*block as usize])
            .map(|(_, reason)| *reason)
    }
}

/// The reason why no head that reaches an instruction supports OSR.
///
/// # Errors
/// The reason why no head of the body does.
fn forbids(anatomy: &Anatomy, instruction: u32) -> Result<Option<Reason>, Reason> {
    let it = anatomy.at(instruction);
    match it.code {
        Code::Odd => Err(Reason::Other),
        Code::Call | Code::Invoke => match it.meaning {
            Meaning::Frame => Err(Reason::FrameAddress),
            Meaning::Other => Err(Reason::Other),
            _ if it.facts.has(Facts::PASSES_SPECIALLY) => Err(Reason::Other),
            Meaning::StackRestore if !is_own_stack(anatomy, instruction) => Err(Reason::SavedStack),
            _ if it.facts.has(Facts::MUST_TAIL) => Ok(Some(Reason::TailCall)),
            Meaning::Arguments => Ok(Some(Reason::Arguments)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Whether a restored stack pointer was saved by this body: a result of `stacksave`, or the
/// contents of an `alloca`. The uses of the `alloca` show that it holds nothing else.
fn is_own_stack(anatomy: &Anatomy, restore: u32) -> bool {
    let made = |value: Option<u32>| value.and_then(|it| anatomy.maker(it));
    let Some(saved) = made(anatomy.first_of(restore)) else {
        return false;
    };
    if anatomy.at(saved).code != Code::Load {
        return anatomy.at(saved).meaning == Meaning::StackSave;
    }
    made(anatomy.first_of(saved)).is_some_and(|room| {
        let of = anatomy.at(room);
        let value = anatomy.value(room);
        of.code == Code::Alloca
            && of.facts.has(Facts::COUNTED)
            && anatomy.block_of(room) == 0
            && (anatomy.users_of(value).iter()).all(|&it| is_stack_access(anatomy, it, value))
    })
}

/// Whether a user is a load whose result is only restored, a store of a saved stack pointer, or a
/// lifetime marker.
fn is_stack_access(anatomy: &Anatomy, user: u32, room: u32) -> bool {
    let it = anatomy.at(user);
    match it.code {
        Code::Load => only_goes_back(anatomy, user),
        Code::Store => {
            let value = anatomy.first_of(user).filter(|&it| it != room);
            is_saved(anatomy, value)
        }
        _ => it.meaning.is_marker(),
    }
}

/// Whether the result of a load is only used to restore the stack pointer.
pub(crate) fn only_goes_back(anatomy: &Anatomy, load: u32) -> bool {
    let users = anatomy.users_of(anatomy.value(load));
    let mut meanings = users.iter().map(|&it| anatomy.at(it).meaning);
    meanings.all(|it| it == Meaning::StackRestore)
}

/// Whether a value is a saved stack pointer.
pub(crate) fn is_saved(anatomy: &Anatomy, value: Option<u32>) -> bool {
    let made = value.and_then(|it| anatomy.maker(it));
    made.is_some_and(|it| anatomy.at(it).meaning == Meaning::StackSave)
}
