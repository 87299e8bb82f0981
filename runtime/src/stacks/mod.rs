//! Stacks that the program makes itself: detects the code of the process that switches to them.
//! Frames on such a stack may return into code that is to be freed.
//!
//! | file | does |
//! |---|---|
//! | [`search`] | the state of a session: whether its code, or code of the process, switches stacks |
//! | [`switches`] | recognizes instructions that switch stacks |
//! | [`library`], [`foreign`] | the same for libraries of the process, and for code that others made |

pub(crate) mod foreign;
pub(crate) mod library;
pub(crate) mod search;
pub(crate) mod switches;
