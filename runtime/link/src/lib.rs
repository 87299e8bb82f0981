//! Linker of ELF x86-64 relocatable objects: turns them into placed and fixed-up bytes.
//!
//! Nothing here touches memory that is executed: the linker takes bytes and addresses and returns
//! bytes and tables. It does not depend on heaps, stubs or sessions.
//!
//! Invariants:
//! - Input never panics, for any bytes (`tests/damaged.rs`).
//! - The output depends on the arguments only.
//! - Nothing is silently left out: a relocation is applied in full, or the link fails and names it.
//!
//! Data goes one way, each step consuming the result of the one before:
//!
//! | step | from | to | file |
//! |---|---|---|---|
//! | parse | bytes | [`Object`] | `object.rs`, `section.rs`, `symbol.rs` |
//! | or take over | code or data in memory | [`Object`] | `assembled.rs`, `variables.rs` |
//! | join | objects | [`Graph`] | `graph.rs`, `frames.rs`, `preempt.rs`, `prune.rs`, `reach.rs` |
//! | lay out | graph | [`Laid`] | `layout.rs`, `segment.rs`, `got.rs`, `apart.rs` |
//! | place | addresses | [`Placed`] | `placed.rs` |
//! | fix up | addresses of externals | [`Linked`] | `fixup.rs`, `evaluate.rs`, `relocation.rs`, `relax.rs`, `unwind.rs` |
//! | move | another address | the same bytes, [`relocate`]d | `linear.rs`, `record.rs`, `moves.rs` |
//!
//! ```no_run
//! use uruk_link::{Graph, LayoutOptions, Object, Placement, Resolved};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bytes = std::fs::read("hello.o")?;
//! let graph = Graph::new(vec![Object::parse("hello.o", &bytes)?])?;
//! let laid = graph.layout(&LayoutOptions::default())?;
//! let at = Placement {
//!     code: 0x10_0000,
//!     read_only: 0x20_0000,
//!     read_write: 0x30_0000,
//!     ..Placement::default()
//! };
//! let linked = laid.place(at)?.fix_up(|name, _need| match name {
//!     "puts" => Some(Resolved::at(0x7fff_0000_1234)),
//!     _ => None,
//! })?;
//! print!("{}", linked.dump());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

// In reading order; blank lines keep rustfmt from sorting them.
mod error;
mod section;
mod segment;
mod symbol;

mod object;

mod assembled;
mod variables;

mod frames;
mod graph;
mod resolve;

mod preempt;
mod prune;
mod reach;

mod apart;
mod got;
mod layout;

mod linear;
mod placed;

mod relocation;

mod moves;
mod record;

mod relax;

mod evaluate;
mod fixup;

mod unwind;

mod linked;

pub use apart::{Constant, Reference, Referent};
pub use assembled::{Assembly, Form, Part, Target};
pub use error::{LinkError, Missing, Needer, Problem, Site};
pub use got::Hint;
pub use graph::{Graph, Undefined};
pub use layout::{Laid, LayoutOptions};
pub use linked::{EhFrame, FdeRow, Ifunc, Init, Linked, MappedSection, TlsTemplate};
pub use moves::{Immovable, Moves, relocate};
pub use object::{MAX_ALIGN, Object};
pub use placed::{Edges, Placed, Placement, TlsPlace};
pub use preempt::Place;
pub use reach::{Shortness, short_references, undefined_names};
pub use section::DEFAULT_PRIORITY;
pub use segment::{Segment, SegmentShape, TlsShape};
pub use symbol::{Binding, Definition, Kind, Need, Resolved};
pub use variables::{Access, Content, Variables, Width};
