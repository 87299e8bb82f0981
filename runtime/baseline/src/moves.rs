//! Parallel moves as a sequence.
//!
//! At the end of a block the phis of the next one get their values, and before a call arguments get
//! to their places: all destinations change at the same time, and some are sources of others.
//!
//! A move may be done as soon as no pending move reads its destination. When no such move is left,
//! the rest are cycles: one member of a cycle is saved in a scratch register, which breaks the
//! cycle (Rideau, Serpette and Leroy, 2008). Constants read no spot and come last: those for memory
//! first, as they may need a scratch register themselves.

use crate::asm::{Gpr, Xmm};

/// A place of a value. Two spots of memory are the same or do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Spot {
    /// A general register.
    Gpr(Gpr),
    /// A vector register.
    Xmm(Xmm),
    /// An offset in bytes from the frame pointer.
    Frame(i32),
    /// An offset in bytes from the stack pointer: an outgoing argument. No move reads it.
    Outgoing(i32),
}

impl Spot {
    fn is_memory(self) -> bool {
        matches!(self, Spot::Frame(_) | Spot::Outgoing(_))
    }
}

/// The size of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub(crate) enum Size {
    B4,
    B8,
    B16,
}

/// The source of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source<T> {
    /// The contents of a spot.
    Spot(Spot),
    /// A constant, which reads no spot that is a destination.
    Constant(T),
}

/// One of several moves. Destinations are distinct. A transfer between a general and a vector
/// register is not a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move<T> {
    /// The destination.
    pub(crate) to: Spot,
    /// The source.
    pub(crate) from: Source<T>,
    /// Bytes.
    pub(crate) size: Size,
}

/// Registers that may be clobbered: no sources, and destinations of constants only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scratch {
    /// For moves from memory to memory, and for cycles.
    pub(crate) gpr: Gpr,
    /// The second one is used only for cycles, those of general registers and memory too.
    pub(crate) xmms: [Xmm; 2],
}

/// One move after the other: at most one of the two spots is memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<T> {
    /// `to = from`.
    Move {
        /// The destination.
        to: Spot,
        /// The source.
        from: Spot,
        /// Bytes.
        size: Size,
    },
    /// `to = constant`; if `to` is memory, it may change the first scratch register.
    Constant {
        /// The destination.
        to: Spot,
        /// The constant.
        constant: T,
        /// Bytes.
        size: Size,
    },
}

/// Buffers, kept between uses.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    /// Moves between spots that are still to be done.
    left: Vec<Pending>,
    /// Those of `left` whose destination no pending move reads.
    ready: Vec<usize>,
    /// Destinations of `left` with their places there, sorted.
    by_destination: Vec<(Spot, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    to: Spot,
    from: Spot,
    size: Size,
    /// The number of pending moves that read `to`.
    readers: u32,
    done: bool,
}

impl Mover {
    /// Calls `emit` with steps that have the effect of all moves at once.
    pub(crate) fn sequence<T: Copy>(
        &mut self,
        moves: &[Move<T>],
        scratch: Scratch,
        mut emit: impl FnMut(Step<T>),
    ) {
        self.left.clear();
        self.left.extend(moves.iter().filter_map(|one| {
            let Source::Spot(from) = one.from else {
                return None;
            };
            (from != one.to).then_some(Pending {
                to: one.to,
                from,
                size: one.size,
                readers: 0,
                done: false,
            })
        }));
        self.between_spots(scratch, &mut |to, from, size| {
            emit(Step::Move { to, from, size });
        });
        for to_memory in [true, false] {
            for one in moves {
                if let Source::Constant(constant) = one.from
                    && one.to.is_memory() == to_memory
                {
                    emit(Step::Constant {
                        to: one.to,
                        constant,
                        size: one.size,
                    });
                }
            }
        }
    }

    fn between_spots(&mut self, scratch: Scratch, emit: &mut impl FnMut(Spot, Spot, Size)) {
        self.by_destination.clear();
        let destinations = self.left.iter().enumerate();
        self.by_destination
            .extend(destinations.map(|(index, one)| (one.to, index)));
        self.by_destination.sort_unstable();
        for index in 0..self.left.len() {
            if let Some(read) = self.writer_of(self.left[index].from) {
                self.left[read].readers += 1;
            }
        }
        self.ready.clear();
        for index in 0..self.left.len() {
            if self.left[index].readers == 0 {
                self.ready.push(index);
            }
        }
        self.lines(scratch, emit);
        for index in 0..self.left.len() {
            if !self.left[index].done {
                self.circle(index, scratch, emit);
            }
        }
    }

    /// Does all ready moves, and those that become ready.
    fn lines(&mut self, scratch: Scratch, emit: &mut impl FnMut(Spot, Spot, Size)) {
        while let Some(index) = self.ready.pop() {
            let Pending { to, from, size, .. } = self.left[index];
            self.left[index].done = true;
            step(to, from, size, scratch, emit);
            self.is_read(from);
        }
    }

    /// The move whose destination is a spot.
    fn writer_of(&self, spot: Spot) -> Option<usize> {
        let found = self.by_destination.binary_search_by_key(&spot, |it| it.0);
        found.ok().map(|at| self.by_destination[at].1)
    }

    /// Records that a spot has one reader less.
    fn is_read(&mut self, spot: Spot) {
        let waiting = self.writer_of(spot);
        if let Some(index) = waiting.filter(|&index| !self.left[index].done) {
            self.left[index].readers -= 1;
            if self.left[index].readers == 0 {
                self.ready.push(index);
            }
        }
    }

    /// Does the cycle that a move is part of: each member is read once, by the next one.
    fn circle(&mut self, index: usize, scratch: Scratch, emit: &mut impl FnMut(Spot, Spot, Size)) {
        let Pending { to, from, size, .. } = self.left[index];
        let in_vector = |spot| matches!(spot, Spot::Xmm(_));
        // Moves through memory need the first general scratch register.
        let aside = if in_vector(to) || in_vector(from) || !self.is_of_registers(index) {
            Spot::Xmm(scratch.xmms[1])
        } else {
            Spot::Gpr(scratch.gpr)
        };
        emit(aside, from, size);
        self.left[index].done = true;
        self.is_read(from);
        self.lines(scratch, emit);
        emit(to, aside, size);
    }

    /// Whether all of a cycle is in registers, so that it does not need the first scratch register.
    fn is_of_registers(&self, index: usize) -> bool {
        let mut at = index;
        loop {
            let from = self.left[at].from;
            if from.is_memory() {
                return false;
            }
            match self.writer_of(from) {
                Some(next) if next != index => at = next,
                _ => return true,
            }
        }
    }
}

/// A move, through a scratch register if it is between memory and memory.
fn step(
    to: Spot,
    from: Spot,
    size: Size,
    scratch: Scratch,
    emit: &mut impl FnMut(Spot, Spot, Size),
) {
    if to.is_memory() && from.is_memory() {
        let through = match size {
            Size::B16 => Spot::Xmm(scratch.xmms[0]),
            _ => Spot::Gpr(scratch.gpr),
        };
        emit(through, from, size);
        emit(to, through, size);
    } else {
        emit(to, from, size);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Move, Mover, Scratch, Size, Source, Spot, Step};
    use crate::asm::{Gpr, Xmm};
    use uruk_testing::Random;

    const SCRATCH: Scratch = Scratch {
        gpr: Gpr::RAX,
        xmms: [Xmm::new(14), Xmm::new(15)],
    };

    /// The contents of each spot: a number, and how many bytes of it are known.
    type State = HashMap<Spot, (u32, Size)>;

    fn class(spot: Spot) -> u8 {
        match spot {
            Spot::Gpr(_) => 0,
            Spot::Xmm(_) => 1,
            Spot::Frame(_) | Spot::Outgoing(_) => 2,
        }
    }

    /// Carries out steps. Each must be one instruction.
    fn run(moves: &[Move<u32>], state: &mut State) -> usize {
        let mut steps = 0;
        Mover::default().sequence(moves, SCRATCH, |step| {
            steps += 1;
            match step {
                Step::Move { to, from, size } => {
                    let aside = Spot::Xmm(SCRATCH.xmms[1]);
                    let one_kind = class(to) == 2 || class(from) == 2 || class(to) == class(from);
                    assert!(one_kind || to == aside || from == aside);
                    assert!(!(to.is_memory() && from.is_memory()));
                    assert!(!(size == Size::B16 && (class(to) == 0 || class(from) == 0)));
                    let (value, known) = state[&from];
                    assert!(known >= size, "{from:?} holds {known:?}");
                    state.insert(to, (value, size));
                }
                Step::Constant { to, constant, size } => {
                    if to.is_memory() {
                        state.insert(Spot::Gpr(SCRATCH.gpr), (u32::MAX, Size::B8));
                    }
                    state.insert(to, (constant, size));
                }
            }
        });
        steps
    }

    fn spot(number: usize) -> Spot {
        match number {
            0..=3 => Spot::Gpr(Gpr::new(number as u8 + 8)),
            4..=6 => Spot::Xmm(Xmm::new(number as u8)),
            _ => Spot::Frame(number as i32 * -16),
        }
    }

    #[test]
    fn steps_do_what_moves_say() {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        for _ in 0..20_000 {
            // Sizes belong to values: a read of a spot is as wide as its contents.
            let mut state: State = HashMap::new();
            for number in 0..12 {
                let place = spot(number);
                let size = match class(place) {
                    0 => [Size::B4, Size::B8][random.below(2)],
                    _ => [Size::B4, Size::B8, Size::B16][random.below(3)],
                };
                state.insert(place, (number as u32, size));
            }
            let mut moves = Vec::new();
            for number in 0..12 {
                let to = spot(number);
                let from = spot(random.below(12));
                let size = state[&from].1;
                let fits = match (class(to), class(from)) {
                    (0, 1) | (1, 0) => false,
                    (0, _) => size != Size::B16,
                    _ => true,
                };
                if random.below(8) == 0 {
                    let from = Source::Constant(100 + number as u32);
                    let size = Size::B4;
                    moves.push(Move { to, from, size });
                } else if fits && random.below(8) != 0 {
                    let from = Source::Spot(from);
                    moves.push(Move { to, from, size });
                }
            }
            check(&moves, &state);
        }
    }

    /// All permutations of a few spots: only cycles.
    #[test]
    fn permutations() {
        let mut random = Random::new(7);
        for round in 0..2_000 {
            let range = [0..4, 4..7, 7..12, 0..12][round % 4].clone();
            let spots: Vec<usize> = range.clone().collect();
            let mut shuffled = spots.clone();
            for index in (1..shuffled.len()).rev() {
                shuffled.swap(index, random.below(index + 1));
            }
            let state: State = (0..12)
                .map(|number| (spot(number), (number as u32, Size::B8)))
                .collect();
            let moves: Vec<_> = spots
                .iter()
                .zip(&shuffled)
                .map(|(&to, &from)| Move {
                    to: spot(to),
                    from: Source::Spot(spot(from)),
                    size: Size::B8,
                })
                .filter(|one| match one.from {
                    Source::Spot(from) => class(one.to) + class(from) != 1,
                    Source::Constant(_) => true,
                })
                .collect();
            check(&moves, &state);
        }
    }

    #[track_caller]
    fn check(moves: &[Move<u32>], state: &State) {
        let mut after = state.clone();
        let steps = run(moves, &mut after);
        let mut least = 0;
        for one in moves {
            let expected = match one.from {
                Source::Spot(from) => state[&from].0,
                Source::Constant(constant) => constant,
            };
            assert_eq!(after[&one.to].0, expected, "{:?} of {moves:?}", one.to);
            least += usize::from(one.from != Source::Spot(one.to));
        }
        for (spot, before) in state {
            if !moves.iter().any(|one| one.to == *spot) {
                assert_eq!(after[spot].0, before.0, "{spot:?} of {moves:?}");
            }
        }
        // One step more for each cycle, and for each move between memory.
        assert!(steps <= least * 2 + 1, "{steps} steps for {moves:?}");
    }

    #[test]
    fn arguments_use_one_scratch_register() {
        let gpr = |register| Spot::Gpr(register);
        let moves = [
            (gpr(Gpr::RDI), gpr(Gpr::RSI)),
            (gpr(Gpr::RSI), gpr(Gpr::RDI)),
            (Spot::Outgoing(0), Spot::Frame(-24)),
            (Spot::Outgoing(8), gpr(Gpr::RDI)),
        ]
        .map(|(to, from)| Move {
            to,
            from: Source::<u32>::Spot(from),
            size: Size::B8,
        });
        let mut touched = Vec::new();
        Mover::default().sequence(&moves, SCRATCH, |step| {
            if let Step::Move { to, .. } = step {
                touched.push(to);
            }
        });
        assert!(!touched.contains(&gpr(Gpr::RCX)), "{touched:?}");
        assert_eq!(touched.len(), 6, "{touched:?}");
    }
}
