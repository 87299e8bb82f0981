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
    /// The fingerprint of the body and the crossing variables: a continuation has the same. `None`
    /// if it is not known, or the loop cannot be left.
    pub fingerprint: Option<u64>,
}

/// The loops of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heads {
    /// The counted loops, in the order of their words.
    pub counted: Vec<Head>,
    /// The reasons why others are not counted, or cannot be left, with their number.
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
    /// The address of the code of the exit, 8 bytes, where it is compiled on request.
    pub exit: usize,
    /// Not zero if the time may be noted in `when`, 4 bytes; the same word for all loops.
    pub timed: usize,
}

impl Heads {
    /// Bytes of the words of `loops` loops.
    pub const fn bytes(loops: usize) -> usize {
        loops * 32 + 8
    }

    /// Offsets of the words of loop `number`, from 0, among those of `of` loops.
    pub const fn places(number: usize, of: usize) -> Places {
        let count = of * 24 + number * 4;
        Places {
            slot: number * 8,
            when: of * 8 + number * 8,
            count,
            left: count + of * 4,
            exit: of * 16 + number * 8,
            timed: of * 32,
        }
    }

    /// Adds a number of loops that cannot be left.
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

/// The loops of a body that are counted at their heads, chosen by its flow alone: whether they can
/// be left is not known.
#[derive(Debug)]
pub struct Candidates {
    /// The description for the version, without fingerprints.
    pub heads: Heads,
    /// The latches of the other loops.
    pub latches: Vec<u32>,
    /// The counted loops, by their index among all, in the order of their words.
    chosen: Vec<usize>,
}

impl Candidates {
    /// Chooses among the loops of a body.
    pub fn of(shape: Shape<'_>) -> Candidates {
        let mut all = Candidates {
            heads: Heads::default(),
            latches: shape.latches.to_vec(),
            chosen: Vec::new(),
        };
        let Some(loops) = shape.loops else {
            all.heads.refuse(Reason::TooLarge, shape.count as usize);
            return all;
        };
        let mut chosen = from_the_outside(loops);
        let others = chosen.len().saturating_sub(MOST_HEADS);
        all.heads.refuse(Reason::TooLarge, others);
        chosen.truncate(MOST_HEADS);
        all.heads.counted = counted(loops, &chosen, |_| None);
        all.latches = other_latches(loops, &all.heads.counted);
        all.chosen = chosen;
        all
    }

    /// Notes that a counted loop cannot be left after all.
    pub fn refuse(&mut self, place: usize, reason: Reason) {
        self.heads.counted[place].fingerprint = None;
        self.heads.refuse(reason, 1);
    }

    /// The variables that cross at each head, or the reason why the loop cannot be left, and the
    /// frame of the body; adds fingerprints and reasons to the description. `can_pass` tells whether
    /// a variable can be passed.
    pub fn describe(
        &mut self,
        anatomy: &Anatomy,
        shape: Shape<'_>,
        can_pass: impl Fn(&Variable) -> bool,
    ) -> Option<(Frame, Vec<Option<Crossing>>)> {
        let loops = shape.loops?;
        let whole = Whole::of(anatomy, shape);
        let whole = whole
            .inspect_err(|&reason| self.heads.refuse(reason, self.chosen.len()))
            .ok()?;
        let mut crossing = Vec::with_capacity(self.chosen.len());
        for (own, &index) in self.chosen.iter().enumerate() {
            let found = whole.crossing(anatomy, shape, &loops[index], &can_pass);
            let found = found.and_then(|found| match found.variables.len() > MOST_CROSSING {
                true => Err(Reason::TooLarge),
                false => Ok(found),
            });
            match found {
                Ok(found) => {
                    self.heads.counted[own].fingerprint = Some(found.fingerprint);
                    crossing.push(Some(found));
                }
                Err(reason) => {
                    self.heads.refuse(reason, 1);
                    crossing.push(None);
                }
            }
        }
        Some((whole.frame, crossing))
    }
}

/// The analysis of a body as a whole.
struct Whole {
    forbidden: Forbidden,
    frame: Frame,
}

impl Whole {
    fn of(anatomy: &Anatomy, shape: Shape<'_>) -> Result<Whole, Reason> {
        Ok(Whole {
            forbidden: Forbidden::of(anatomy)?,
            frame: Frame::of(anatomy, shape.graph)?,
        })
    }

    /// The variables that cross at the head of a loop.
    fn crossing(
        &self,
        anatomy: &Anatomy,
        shape: Shape<'_>,
        it: &Loop,
        can_pass: &impl Fn(&Variable) -> bool,
    ) -> Result<Crossing, Reason> {
        if let Some(reason) = self.forbidden.at(anatomy, shape.graph, it) {
            return Err(reason);
        }
        let what = self.frame.crossing(it.head)?;
        let mut crosses = what.variables.iter();
        match crosses.all(|&it| can_pass(&self.frame.variables[it as usize])) {
            true => Ok(what),
            false => Err(Reason::Type),
        }
    }
}

/// The indexes of loops, outer ones first: if there are too many, inner ones are dropped.
fn from_the_outside(loops: &[Loop]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by_cached_key(|&it| around(loops, it).len());
    order
}

/// The descriptions of the counted loops, by their index.
fn counted(
    loops: &[Loop],
    chosen: &[usize],
    fingerprint: impl Fn(usize) -> Option<u64>,
) -> Vec<Head> {
    let place = |index: usize| chosen.iter().position(|&it| it == index);
    let of_one = |(own, &index): (usize, &usize)| {
        // In irreducible flow two loops can be around each other: the first is then the outer one.
        let mut outer = around(loops, index).into_iter().filter_map(place);
        let outer = outer.find(|&at| at < own);
        Head {
            block: loops[index].head,
            around: outer.map(|it| it as u32),
            fingerprint: fingerprint(own),
        }
    };
    chosen.iter().enumerate().map(of_one).collect()
}

/// The latches of loops that are not counted at their heads.
fn other_latches(loops: &[Loop], counted: &[Head]) -> Vec<u32> {
    let is_counted = |it: &&Loop| counted.iter().any(|head| head.block == it.head);
    let others = loops.iter().filter(|it| !is_counted(it));
    let mut latches: Vec<u32> = others.flat_map(|it| it.latches.iter().copied()).collect();
    latches.sort_unstable();
    latches.dedup();
    latches
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
    let whole = match Whole::of(anatomy, shape) {
        Ok(whole) => whole,
        Err(reason) => {
            none.heads.refuse(reason, loops.len());
            return none;
        }
    };
    let mut heads = Heads::default();
    let crossing = |index: usize| whole.crossing(anatomy, shape, &loops[index], &can_pass);
    let chosen = choose(loops, crossing, &mut heads);
    if chosen.is_empty() {
        none.heads = heads;
        return none;
    }
    let indexes: Vec<usize> = chosen.iter().map(|(index, _)| *index).collect();
    heads.counted = counted(loops, &indexes, |own| Some(chosen[own].1.fingerprint));
    Decision {
        latches: other_latches(loops, &heads.counted),
        heads,
        chosen,
        frame: Some(whole.frame),
    }
}

/// Chooses the loops to count, by their index, with the variables that cross; records the reasons
/// against others.
fn choose(
    loops: &[Loop],
    crossing: impl Fn(usize) -> Result<Crossing, Reason>,
    heads: &mut Heads,
) -> Vec<(usize, Crossing)> {
    let (mut chosen, mut crosses) = (Vec::new(), 0);
    for index in from_the_outside(loops) {
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
