//! Objects that are added and removed: the time, and the memory that stays. `memory` is what the
//! process holds, `removal` the experiment.

mod memory;
pub mod removal;

pub use memory::held_bytes;
pub use removal::Who;
