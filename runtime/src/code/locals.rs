//! Meanings of local names of replaced modules.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Local names of functions and variables, and the link names each stands for.
pub(crate) type Locals = Arc<BTreeMap<Box<str>, Vec<Box<str>>>>;
