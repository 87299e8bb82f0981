//! All code of a session, and the names by which it is found. It belongs to the
//! [`CodeDirectory`](directory::CodeDirectory). Rooms above enter code there and look it up; the
//! directory knows none of them.
//!
//! | file | holds |
//! |---|---|
//! | [`directory`], [`find`], [`stub_names`] | the directory: functions, failures, retired versions; lookups by name and by address; stubs by name |
//! | [`names`], [`known`], [`bound`], [`moved`] | definitions by name; functions whose stub may be referenced; modules in the order in which they were bound; variables that got new storage |
//! | [`module`], [`modules`], [`locals`], [`parcels`], [`spaces`] | a module, the list of all; its inherited local names, the bodies that it offers to other modules, its label spaces |
//! | [`body`], [`object_file`], [`objects`], [`unit_body`], [`host_state`] | sources of a function's code: a module, an object file, a unit; state of the host that it refers to |
//! | [`table`], [`static_names`] | functions by the number of their stub, display names |
//! | [`records`], [`blocks`], [`bodies`], [`sampled`], [`tools`] | versions: their records, their memory, their addresses for backtraces, samples and tools |
//! | [`constants`], [`words`], [`loops`], [`kept`], [`holding`], [`sizes`], [`handles`] | constants, counters and loops of versions; resources of embedders; memory of images, its sizes, handles of images |
//! | [`life`], [`bonds`], [`suffix`], [`tracked`] | how long an image can be called, the images it is bound to, the number in its local names; trackers |
//! | [`removed`], [`recycle`], [`undefined`] | stubs of removed functions, when they are handed out again; functions whose names were undefined |
//! | [`causes`], [`service`], [`counters`] | why functions have no code, why no worker answers first calls, statistics |
//! | [`publications`], [`notes`] | publications against commits of replacements, notes to the thread that frees code |

pub(crate) mod blocks;
pub(crate) mod bodies;
pub(crate) mod body;
pub(crate) mod bonds;
pub(crate) mod bound;
mod causes;
pub(crate) mod constants;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod find;
pub(crate) mod handles;
pub(crate) mod holding;
pub(crate) mod host_state;
pub(crate) mod kept;
pub(crate) mod known;
pub(crate) mod life;
pub(crate) mod locals;
pub(crate) mod loop_exits;
pub(crate) mod loop_words;
pub(crate) mod loops;
pub(crate) mod module;
pub(crate) mod modules;
mod moved;
pub(crate) mod names;
pub(crate) mod notes;
pub(crate) mod object_file;
pub(crate) mod objects;
pub(crate) mod parcels;
pub(crate) mod publications;
pub(crate) mod records;
pub(crate) mod recycle;
pub(crate) mod removed;
pub(crate) mod sampled;
pub(crate) mod service;
pub(crate) mod sizes;
mod spaces;
pub(crate) mod static_names;
mod stub_names;
pub(crate) mod suffix;
pub(crate) mod table;
pub(crate) mod tools;
pub(crate) mod tracked;
pub(crate) mod undefined;
pub(crate) mod unit_body;
pub(crate) mod words;
