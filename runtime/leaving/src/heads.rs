//! Which loops of a body are counted at their heads, and can be left.

use crate::anatomy::Anatomy;
use crate::frame::{Crossing, Frame, Variable};
use crate::graph::{Graph, Loop, around};
use crate::reasons::{Forbidden, Reason};

/// Heads of one function at which a continuation may be offered.
const MOST_HEADS: usize = 64;

/// Variables that cross, over all heads of a function.
const MOST_CROSSING: usize = 512;

/// A loop of a version, as whoever offers continuations sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// The number of its first block.
    pub block: u32,
    /// The least of the loops around it that are counted, by its place among them: before its own.
    pub around: Option<u32>,
    /// What stands for the body and for what crosses: a continuation has the same.
    pub fingerprint: u64,
}

/// The loops of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heads {
    /// Those that are counted, in the order of their words.
    pub counted: Vec<Head>,
    /// Why others are not, with their number.
    pub refused: Vec<(Reason, u32)>,
}

/// Offsets of the words of one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// What is offered: an address, of 8 bytes, or null.
    pub slot: usize,
    /// How often the head was passed, of 4 bytes.
    pub count: usize,
    /// How often the loop was left, of 4 bytes.
    pub left: usize,
}

impl Heads {
    /// Bytes of the words of so many loops.
    pub const fn bytes(loops: usize) -> usize {
        loops * 16
    }

    /// Where the words of a loop are, the first being number 0, among those `of` so many.
    pub const fn places(number: usize, of: usize) -> Places {
        let count = of * 8 + number * 4;
        Places {
            slot: number * 8,
            count,
            left: count + of * 4,
        }
    }

    fn refuse(&mut self, reason: Reason, loops: usize) {
        let loops = u32::try_from(loops).unwrap_or(u32::MAX);
        match self.refused.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += loops,
            None if loops != 0 => self.refused.push((reason, loops)),
            None => {}
        }
    }
}

/// The control flow of a body.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// Its blocks.
    pub graph: &'a Graph,
    /// Its loops; `None` if there are too many to tell them apart.
    pub loops: Option<&'a [Loop]>,
    /// How many loops there are.
    pub count: u32,
    /// Blocks that a back edge leaves from, rising, each once.
    pub latches: &'a [u32],
}

/// Which loops of a body are counted at their heads and can be left, and what crosses there.
#[derive(Debug)]
pub struct Decision {
    /// What is said of it.
    pub heads: Heads,
    /// The latches of the other loops.
    pub latches: Vec<u32>,
    /// Those of the loops, by their places among all, in the order of their words.
    pub chosen: Vec<(usize, Crossing)>,
    /// Of the body, if a loop is counted.
    pub frame: Option<Frame>,
}

/// Decides for a body; `can_pass` says what of its variables can be passed.
pub fn decide(
    anatomy: &Anatomy,
    shape: Shape<'_>,
    can_pass: impl Fn(&Variable) -> bool,
) -> Decision {
    let mut none = Decision {
        heads: Heads::default(),
        latches: shape.latches.to_vec(),
        chosen: Vec::new(),
        frame: None,
    };
    let Some(loops) = shape.loops else {
        none.heads.refuse(Reason::TooLarge, shape.count as usize);
        return none;
    };
    if loops.is_empty() {
        return none;
    }
    let read = Forbidden::of(anatomy)
        .and_then(|forbidden| Ok((forbidden, Frame::of(anatomy, shape.graph)?)));
    let (forbidden, frame) = match read {
        Ok(read) => read,
        Err(reason) => {
            none.heads.refuse(reason, loops.len());
            return none;
        }
    };
    let mut heads = Heads::default();
    let mut crossing = |index: usize| {
        let it: &Loop = &loops[index];
        if let Some(reason) = forbidden.at(anatomy, shape.graph, it) {
            return Err(reason);
        }
        let what = frame.crossing(it.head)?;
        let mut crosses = what.variables.iter();
        match crosses.all(|&it| can_pass(&frame.variables[it as usize])) {
            true => Ok(what),
            false => Err(Reason::Type),
        }
    };
    let chosen = choose(loops, &mut crossing, &mut heads);
    if chosen.is_empty() {
        none.heads = heads;
        return none;
    }
    let place = |index: usize| chosen.iter().position(|(it, _)| *it == index);
    for (own, (index, what)) in chosen.iter().enumerate() {
        // Where flow is irreducible two can be around each other: the first is around the other.
        let mut outer = around(loops, *index).into_iter().filter_map(place);
        let outer = outer.find(|&at| at < own);
        heads.counted.push(Head {
            block: loops[*index].head,
            around: outer.map(|it| it as u32),
            fingerprint: what.fingerprint,
        });
    }
    let is_counted = |it: &&Loop| heads.counted.iter().any(|head| head.block == it.head);
    let others = loops.iter().filter(|it| !is_counted(it));
    let mut latches: Vec<u32> = others.flat_map(|it| it.latches.iter().copied()).collect();
    latches.sort_unstable();
    latches.dedup();
    Decision {
        heads,
        latches,
        chosen,
        frame: Some(frame),
    }
}

/// The loops that are to be counted, by their places, with what crosses; why others are not is
/// noted.
fn choose(
    loops: &[Loop],
    crossing: &mut dyn FnMut(usize) -> Result<Crossing, Reason>,
    heads: &mut Heads,
) -> Vec<(usize, Crossing)> {
    // Outer loops first: of an inner one there may be too many.
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by_cached_key(|&it| around(loops, it).len());
    let (mut chosen, mut crosses) = (Vec::new(), 0);
    for index in order {
        let what = match crossing(index) {
            Ok(what) => what,
            Err(reason) => {
                heads.refuse(reason, 1);
                continue;
            }
        };
        if chosen.len() == MOST_HEADS || crosses + what.variables.len() > MOST_CROSSING {
            heads.refuse(Reason::TooLarge, 1);
            continue;
        }
        crosses += what.variables.len();
        chosen.push((index, what));
    }
    chosen
}
