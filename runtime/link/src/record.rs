//! The records a link makes of the fields it fills, for a later move.
//!
//! A field belongs to one relocation, or is a word of the GOT, or the distance in a PLT entry. The
//! first reason against moving ends the records.

use crate::moves::{FieldKind, Immovable, KINDS, Moves, encode};
use crate::relocation::{Range, Rule};
use crate::segment::{Region, Segment};

/// A field that was filled, with the change that a move makes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The first changed byte, and the one after the last: the field, and the opcode before it if
    /// that was rewritten.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Start of the field.
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) range: Range,
    pub(crate) slope: i8,
    /// The address that the program may keep if it reads the field.
    pub(crate) leak: Option<Leak>,
    /// Whether the field holds an address of the image's own, code or data.
    pub(crate) escapes: bool,
}

impl Effect {
    /// The effect of filling the field of `rule` at `at`, and nothing else.
    pub(crate) fn plain(at: usize, rule: &Rule, slope: i8) -> Effect {
        Effect {
            start: at,
            end: at + rule.width,
            at,
            width: rule.width,
            range: rule.range,
            slope,
            leak: None,
            escapes: false,
        }
    }

    /// The effect, with `before` bytes in front of the field rewritten.
    pub(crate) fn rewriting(self, before: usize) -> Effect {
        let start = self.at.saturating_sub(before);
        Effect { start, ..self }
    }
}

/// A code address that the program can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leak {
    Function,
    Label,
}

/// Collects fields while an image is fixed up.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// Offsets in the code segment, by kind.
    fields: [Vec<u64>; KINDS.len()],
    immovable: Option<Immovable>,
    escapes: bool,
}

impl Recorder {
    /// Whether the program can get an address of the image's own from some field.
    pub(crate) fn escapes(&self) -> bool {
        self.escapes
    }

    /// Records a reason against moving; the first one counts.
    pub(crate) fn forbid(&mut self, reason: Immovable) {
        self.immovable.get_or_insert(reason);
    }

    /// Records a field at `offset` of a region.
    pub(crate) fn note(&mut self, region: Region, offset: u64, effect: &Effect) {
        self.escapes |= effect.escapes;
        if self.immovable.is_some() {
            return;
        }
        match (region, effect.leak) {
            (Region::Code, None) => {}
            (Region::Code, Some(Leak::Label)) => return self.forbid(Immovable::Labels { offset }),
            (Region::Code, Some(Leak::Function)) => {
                return self.forbid(Immovable::Functions { offset });
            }
            _ if effect.slope == 0 => return,
            (Region::ReadOnly, _) => return self.forbid(in_segment(Segment::ReadOnly, offset)),
            (Region::ReadWrite, _) => return self.forbid(in_segment(Segment::ReadWrite, offset)),
            (Region::Tls, _) => return self.forbid(Immovable::Template { offset }),
        }
        if effect.slope == 0 {
            return;
        }
        match FieldKind::of(effect.slope, effect.width, effect.range) {
            Some(kind) => self.fields[kind as usize].push(offset),
            None => self.forbid(Immovable::Narrow { offset }),
        }
    }

    /// The records of a segment with that alignment, or the reason against moving.
    pub(crate) fn finish(self, align: u64) -> (Moves, Option<Immovable>) {
        let fields = match self.immovable {
            None => self.fields,
            Some(_) => Default::default(),
        };
        (encode(fields, align), self.immovable)
    }
}

fn in_segment(segment: Segment, offset: u64) -> Immovable {
    Immovable::Segment { segment, offset }
}

#[cfg(test)]
mod tests {
    use super::{Effect, Leak, Recorder};
    use crate::moves::Immovable;
    use crate::relocation::{DISTANCE, WORD};
    use crate::segment::{Region, Segment};

    #[test]
    fn the_first_reason_counts_and_takes_the_records() {
        let mut recorder = Recorder::default();
        recorder.note(Region::Code, 4, &Effect::plain(0, &DISTANCE, -1));
        recorder.note(Region::ReadWrite, 24, &Effect::plain(0, &WORD, 1));
        recorder.note(Region::Tls, 8, &Effect::plain(0, &WORD, 1));
        let (moves, immovable) = recorder.finish(16);
        let segment = Segment::ReadWrite;
        let wanted = Immovable::Segment {
            segment,
            offset: 24,
        };
        assert_eq!((moves.len(), immovable), (0, Some(wanted)));
        for (slope, width, leak, wanted) in [
            (0, 4, Some(Leak::Label), Immovable::Labels { offset: 4 }),
            (
                1,
                8,
                Some(Leak::Function),
                Immovable::Functions { offset: 4 },
            ),
            (1, 2, None, Immovable::Narrow { offset: 4 }),
        ] {
            let mut recorder = Recorder::default();
            let plain = Effect::plain(0, &WORD, slope);
            let effect = Effect {
                width,
                leak,
                ..plain
            };
            recorder.note(Region::Code, 4, &effect);
            assert_eq!(recorder.finish(1).1, Some(wanted));
        }
    }
}
