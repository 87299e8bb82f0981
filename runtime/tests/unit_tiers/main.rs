//! Better code of units' functions: who asks for it, and what becomes of it whatever happens
//! meanwhile.

#[path = "../support/unit.rs"]
#[allow(dead_code)]
mod unit;

mod asking;
mod formula;
mod meanwhile;
mod versions;
