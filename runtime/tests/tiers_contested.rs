//! Variants on native code that was faster. A program of its own: what trials compare is the processor time
//! of the process, of which other tests would be most.

#[path = "tiers/contested.rs"]
mod contested;
#[path = "tiers/support.rs"]
mod support;

use support::{Log, logged, wait_until};
