//! The program's stacks: which code of the process switches between stacks, and which code a
//! thread may return into from one that is not its own.
//!
//! | file | does |
//! |---|---|
//! | [`search`] | what a session knows of switches of stacks in its code and in the process |
//! | [`switches`] | recognizes instructions that switch stacks |
//! | [`library`], [`foreign`] | the same for libraries of the process, and for code that others made |

pub(crate) mod foreign;
pub(crate) mod library;
pub(crate) mod search;
pub(crate) mod switches;
