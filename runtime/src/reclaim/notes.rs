//! Applies notes of publishers to the engine.

use tracing::warn;
use uruk_base::FunctionId;
use uruk_reclaim::{Block, Engine, Nanos, Span};

use crate::code::blocks::{BlockTable, NewBlock};
use crate::code::notes::Note;

use super::environment::space_of;

/// Applies a note to the engine.
pub(super) fn apply(engine: &mut Engine, table: &mut BlockTable, note: Note, now: Nanos) {
    let told = match note {
        Note::Live(piece) => {
            let NewBlock {
                function,
                version,
                fixed,
                ref code,
                ..
            } = piece;
            let range = code.range();
            let space = space_of(&code.memory);
            let id = table.add(piece);
            let block = Block {
                id,
                span: Span {
                    start: range.start,
                    end: range.end,
                },
                space,
                function: FunctionId(function.map_or(u32::MAX, FunctionId::index)),
                version,
                fixed,
            };
            engine.apply(uruk_reclaim::Note::Born(block), now)
        }
        Note::Retire(version) => match table.retire(version) {
            Some(id) => engine.apply(uruk_reclaim::Note::Retired(id), now),
            None => Ok(()),
        },
        Note::Request(kind, ticket) => {
            engine.apply(uruk_reclaim::Note::Request { kind, ticket }, now)
        }
        Note::Superseded(..) => Ok(()),
    };
    if let Err(cause) = told {
        warn!(%cause, "the table of code is not what it should be");
    }
}
