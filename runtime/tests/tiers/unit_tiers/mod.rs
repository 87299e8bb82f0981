//! Better code of units' functions: who asks for it, and what becomes of it whatever happens
//! meanwhile.

mod asking;
mod formula;
mod meanwhile;
mod versions;
