//! A whole program in a session: its load, its run, and what is left when it ends.
//!
//! | file | does |
//! |---|---|
//! | [`run`] | loads a program, is it, and ends as it does |
//! | [`outputs`] | files that are written when it ends |

pub(crate) mod outputs;
pub(crate) mod run;
