//! How each variable of a body crosses: escape of the addresses of `alloca`s, and values used
//! outside of their block.

use crate::anatomy::{Anatomy, Carried, Code, Facts, NONE};
use crate::frame::{COPIED_BYTES, Kind, Variable};
use crate::meaning::Meaning;
use crate::numbers::holders;
use crate::reasons::{Reason, is_saved, only_goes_back};

/// Facts about one pointer, from its uses.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) captured: bool,
    kept: bool,
    /// Whether it holds only saved stack pointers that are only restored.
    stack: bool,
    /// Number of stores of saved stack pointers.
    saves: u32,
}

impl Uses {
    /// Records a use of a pointer by `user`; if that derives another pointer, returns whether by
    /// constants alone.
    pub(crate) fn note(&mut self, anatomy: &Anatomy, pointer: u32, user: u32) -> Option<bool> {
        let it = anatomy.at(user);
        match it.code {
            Code::Load => {
                self.kept |= it.facts.has(Facts::SPECIAL);
                self.stack &= only_goes_back(anatomy, user);
            }
            Code::Store => {
                self.kept |= it.facts.has(Facts::SPECIAL);
                let value = anatomy.first_of(user);
                self.captured |= value == Some(pointer);
                let is_save = is_saved(anatomy, value);
                self.stack &= is_save;
                self.saves += u32::from(is_save);
            }
            Code::GetElementPtr | Code::BitCast => {
                self.stack = false;
                if anatomy.first_of(user) == Some(pointer) && it.facts.has(Facts::POINTER) {
                    return Some(it.facts.has(Facts::FIXED));
                }
                self.captured = true;
            }
            _ if it.meaning.is_marker() => {}
            _ if it.meaning == Meaning::Memory => {
                self.stack = false;
                self.kept |= it.facts.has(Facts::SPECIAL);
            }
            _ => {
                self.stack = false;
                self.captured = true;
            }
        }
        None
    }
}

/// The input of an analysis. Facts about values are indexed by their numbers.
pub(crate) struct Reading<'a> {
    pub(crate) anatomy: &'a Anatomy,
    /// How `alloca`s of the entry cross; those of saved stack pointers do not.
    rooms: Vec<(u32, Kind)>,
    /// `alloca`s of saved stack pointers.
    pub(crate) stacks: Vec<u32>,
    /// The root of a pointer derived from an `alloca` and constants; empty if none is.
    pub(crate) derived: Vec<u32>,
}

impl<'a> Reading<'a> {
    /// Finds the static `alloca`s and how each would cross.
    pub(crate) fn of(anatomy: &'a Anatomy) -> Result<Reading<'a>, Reason> {
        let mut reading = Reading {
            anatomy,
            rooms: Vec::with_capacity(anatomy.rooms.len()),
            stacks: Vec::new(),
            derived: Vec::new(),
        };
        if anatomy.scalable {
            return Err(Reason::Type);
        }
        let mut work = Vec::new();
        for room in &anatomy.rooms {
            let value = anatomy.value(room.instruction);
            let uses = reading.examine(value, &mut work);
            if uses.stack {
                reading.stacks.push(value);
                continue;
            }
            let is_simple = anatomy.at(room.instruction).carried.fills_its_bytes();
            let kind = match () {
                () if uses.captured || uses.kept || room.bytes > COPIED_BYTES => Kind::Kept {
                    bytes: room.bytes,
                    alone: !uses.captured,
                },
                () if room.single && is_simple => Kind::Scalar,
                () => Kind::Bytes(room.bytes),
            };
            reading.rooms.push((value, kind));
        }
        if anatomy.numbers {
            reading.read_type_numbers();
        }
        Ok(reading)
    }

    /// Finds type numbers, which each function assigns itself and which are recomputed at their
    /// uses.
    fn read_type_numbers(&mut self) {
        for (at, it) in (0..).zip(&self.anatomy.instructions) {
            if it.meaning == Meaning::TypeNumber {
                let value = self.anatomy.value(at);
                self.derive(value, value);
            }
        }
    }

    fn derive(&mut self, value: u32, of: u32) {
        if self.derived.is_empty() {
            self.derived = vec![NONE; self.anatomy.values()];
        }
        self.derived[value as usize] = of;
    }

    /// Finds the uses of the address of an `alloca`.
    fn examine(&mut self, room: u32, work: &mut Vec<(u32, bool)>) -> Uses {
        let anatomy = self.anatomy;
        let mut uses = Uses {
            stack: true,
            ..Uses::default()
        };
        // Pointers derived from it, and whether by constants alone.
        work.push((room, true));
        while let Some((pointer, constant)) = work.pop() {
            let block = anatomy.maker(pointer).map(|it| anatomy.block_of(it));
            for &user in anatomy.users_of(pointer) {
                uses.captured |= !constant && block != Some(anatomy.block_of(user));
                if let Some(fixed) = uses.note(anatomy, pointer, user) {
                    let made = anatomy.value(user);
                    if constant && fixed {
                        self.derive(made, room);
                    }
                    work.push((made, constant && fixed));
                }
            }
        }
        uses.stack &= uses.saves > 0 && !uses.captured && !uses.kept;
        uses
    }

    /// The variables, and the index of each value among them: arguments, results used outside of
    /// their block, phis, `alloca`s.
    pub(crate) fn variables(&self) -> Result<(Vec<Variable>, Vec<u32>), Reason> {
        let anatomy = self.anatomy;
        let beyond = anatomy.beyond();
        let mut variables: Vec<Variable> = Vec::new();
        let mut places = vec![NONE; anatomy.values()];
        let mut rooms = self.rooms.iter().peekable();
        let parameters = anatomy.parameters.len();
        for (value, &is_beyond) in beyond.iter().enumerate() {
            let kind = match rooms.peek() {
                Some(&&(room, kind)) if room as usize == value => {
                    rooms.next();
                    kind
                }
                _ if !is_beyond => continue,
                _ if value < parameters => value_kind(anatomy.parameters[value].carried)?,
                _ => {
                    let derived = self.derived.get(value);
                    let is_derived = derived.is_some_and(|&it| it != NONE);
                    if is_derived || self.stacks.contains(&(value as u32)) {
                        continue;
                    }
                    value_kind(self.result_of((value - parameters) as u32))?
                }
            };
            places[value] = variables.len() as u32;
            variables.push(Variable {
                value: value as u32,
                kind,
            });
        }
        Ok((variables, places))
    }

    fn result_of(&self, made: u32) -> Carried {
        let it = self.anatomy.at(made);
        match it.code {
            // Its `carried` is that of the contents; the result is an address.
            Code::Alloca => Carried::Whole(crate::Simple::pointer(0)),
            _ => it.carried,
        }
    }

    /// The variables that may hold a number that is valid in one version only.
    pub(crate) fn numbered(&self, places: &[u32]) -> Result<Vec<u32>, Reason> {
        if !self.anatomy.numbers {
            return Ok(Vec::new());
        }
        let stays = |value: u32| {
            let room = self.rooms.binary_search_by_key(&value, |it| it.0);
            room.is_ok_and(|at| !matches!(self.rooms[at].1, Kind::Kept { alone: false, .. }))
        };
        let holders = holders(self.anatomy, stays)?;
        let places = holders.iter().map(|&it| places[it as usize]);
        Ok(places.filter(|&it| it != NONE).collect())
    }
}

/// How a value crosses.
fn value_kind(carried: Carried) -> Result<Kind, Reason> {
    match carried {
        Carried::Never => Err(Reason::Type),
        Carried::Stored => Ok(Kind::Stored),
        Carried::Whole(_) => Ok(Kind::Value),
    }
}
