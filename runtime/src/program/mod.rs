//! A whole program in a session: its load, its run, and the files that it writes at its end.
//!
//! | file | does |
//! |---|---|
//! | [`run`] | loads a program, runs it as the program of this process, and ends with its status |
//! | [`outputs`] | files that are written when it ends |

mod outputs;
pub(crate) mod run;
