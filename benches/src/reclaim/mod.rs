//! Code that goes and code that moves: what replacing, removing and evacuating cost, what
//! threads see of it, and whether memory stays where it is.
//!
//! Reading order: `memory` (what is held), `program` (sessions), `world` (the runtime's
//! parts without a compiler), `callers` (threads that call meanwhile); `replacement`,
//! `delay`, `evacuation`, `removal`.

pub mod callers;
pub mod delay;
pub mod evacuation;
mod memory;
mod program;
pub mod removal;
pub mod replacement;
mod world;

pub use memory::held_bytes;
pub use removal::Who;
