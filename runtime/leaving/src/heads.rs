//! Chooses the loops of a body that are counted at their heads and support OSR.

use crate::anatomy::Anatomy;
use crate::frame::{Crossing, Frame, Variable};
use crate::graph::{Graph, Loop, around};
use crate::reasons::{Forbidden, Reason};

/// Limit of OSR heads of one function.
const MOST_HEADS: usize = 64;

/// Limit of crossing variables, over all heads of a function.
const MOST_CROSSING: usize = 512;

/// A loop of a version that supports OSR, for the code that offers continuations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// The number of its first block.
    pub block: u32,
    /// The index of the innermost counted loop around it, which is less than its own.
    pub around: Option<u32>,
    /// The fingerprint of the body and the crossing variables: a continuation has the same.
    pub fingerprint: u64,
}

/// The loops of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heads {
    /// The counted loops, in the order of their words.
    pub counted: Vec<Head>,
    /// The reasons why others are not counted, with their number.
    pub refused: Vec<(Reason, u32)>,
}

/// Offsets of the words of one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// The address of the continuation, 8 bytes, or null.
    pub slot: usize,
    /// The processor's cycle counter when the count last reached zero, 8 bytes.
    pub when: usize,
    /// Negative: the number of passes of the head until it asks; 4 bytes.
    pub count: usize,
    /// The number of OSR exits, 4 bytes.
    pub left: usize,
    /// Not zero if the time may be noted in `when`, 4 bytes; the same word for all loops.
    pub timed: usize,
}

impl Heads {
    /// Bytes of the words of `loops` loops.
    pub const fn bytes(loops: usize) -> usize {
        loops * 24 + 8
    }

    /// Offsets of the words of loop `number`, from 0, among those of `of` loops.
    pub const fn places(number: usize, of: usize) -> Places {
        let count = of * 16 + number * 4;
        Places {
            slot: number * 8,
            when: of * 8 + number * 8,
            count,
            left: count + of * 4,
            timed: of * 24,
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
    /// Its loops; `None` if there are too many to compute.
    pub loops: Option<&'a [Loop]>,
    /// The number of loops.
    pub count: u32,
    /// Sources of back edges, rising, each once.
    pub latches: &'a [u32],
}

/// The loops of a body that are counted at their heads and support OSR, with the variables that
/// cross.
#[derive(Debug)]
pub struct Decision {
    /// The description for the version.
    pub heads: Heads,
    /// The latches of the other loops.
    pub latches: Vec<u32>,
    /// The counted loops, by their index among all, in the order of their words.
    pub chosen: Vec<(usize, Crossing)>,
    /// The analysis of the body, if a loop is counted.
    pub frame: Option<Frame>,
}

/// Decides for a body; `can_pass` tells whether a variable can be passed.
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
        // In irreducible flow two loops can be around each other: the first is then the outer one.
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

/// Chooses the loops to count, by their index, with the variables that cross; records the reasons
/// against others.
fn choose(
    loops: &[Loop],
    crossing: &mut dyn FnMut(usize) -> Result<Crossing, Reason>,
    heads: &mut Heads,
) -> Vec<(usize, Crossing)> {
    // Outer loops first: if there are too many, inner ones are dropped.
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
