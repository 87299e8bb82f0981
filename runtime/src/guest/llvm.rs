//! When LLVM's library is opened, and who has to know of it.
//!
//! | session | opened |
//! |---|---|
//! | of an embedder | when it is made |
//! | of a program that was started for nothing else ([`JitBuilder::late_llvm`]) | at the first need of it; by a background worker once the program has run for a while (`tiers::warmth`) |
//! | the same, of a program that is about to call the dynamic loader | before that ([`before_loader`]) |
//!
//! Whoever needs LLVM may be a worker that the guest waits for. The library is opened under the
//! dynamic loader's lock; a guest that has the lock itself, in a constructor of a library that is
//! being opened or in a callback of `dl_iterate_phdr`, would wait for ever. Guests get there by
//! functions that are ours, or by a library of their own: a program with such libraries has LLVM
//! from the start, too. What is left are libraries that the C library opens by itself (for
//! locales, names of hosts): no code of a guest runs in their constructors.
//!
//! It is opened behind the C++ library ([`process`](super::process)), which the allocation
//! functions look for that an executable exports and that constructors of LLVM call; and before
//! what stands for the program ([`preempt`](super::preempt)) can be found by the loader: else
//! LLVM's library, and those that it needs, might be bound to the program's functions. They are
//! the runtime's, whenever they come: nothing of theirs is written, and what they allocate is the
//! runtime's ([`came`]).
//!
//! [`JitBuilder::late_llvm`]: crate::JitBuilder::late_llvm

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use uruk_codegen::CodegenError;

use super::preempt::loaded::{self, Loaded, closure};
use crate::api::error::Error;
use crate::fork::gate;

/// What was loaded because of LLVM after the program began.
struct Came {
    /// Dynamic sections.
    dynamics: HashSet<u64>,
    /// Where LLVM's own library is loaded.
    base: Option<u64>,
    /// In the order of addresses.
    text: Vec<Range<u64>>,
}

static CAME: OnceLock<Came> = OnceLock::new();
/// Dynamic sections of what was loaded when the program began.
static BEFORE: OnceLock<HashSet<u64>> = OnceLock::new();

/// Has the library open from now on.
///
/// # Errors
/// It is not there.
pub(crate) fn open() -> Result<(), Error> {
    Ok(uruk_late::open().map_err(CodegenError::from)?)
}

/// Has the library open before a guest calls the dynamic loader. If it cannot be, whoever needs
/// it says so.
pub(crate) fn before_loader() {
    if !uruk_late::is_open() {
        let _pass = gate::enter();
        let _ = uruk_late::open();
    }
}

/// The program begins, with that loaded: dynamic sections. What LLVM brings from now on is known.
pub(super) fn expect(loaded: impl Iterator<Item = u64>) {
    if !uruk_late::is_open() && BEFORE.set(loaded.collect()).is_ok() {
        uruk_late::when_open(came);
    }
}

/// Which of what is loaded is LLVM's library, if it is open.
pub(super) fn place(loaded: &[Loaded]) -> Option<usize> {
    let function = uruk_late::function()? as u64;
    loaded.iter().position(|one| one.holds(function))
}

/// LLVM's library, if it is open, else what is loaded that it will need: indexes.
pub(super) fn needed(loaded: &[Loaded]) -> impl Iterator<Item = usize> {
    let place = place(loaded);
    let to_come = move |one: &Loaded| place.is_none() && uruk_late::needs(one.name());
    let needed = (0..loaded.len()).filter(move |&index| to_come(&loaded[index]));
    place.into_iter().chain(needed)
}

/// Notes what came with LLVM. Called by who opens it, before anybody else can call it.
fn came() {
    let Some(before) = BEFORE.get() else { return };
    let (loaded, _) = loaded::all();
    let place = place(&loaded);
    let base = place.map(|index| loaded[index].base());
    let came = closure(&loaded, place).into_iter();
    let came: Vec<_> = came
        .map(|index| &loaded[index])
        .filter(|one| !before.contains(&one.dynamic))
        .collect();
    let text = came.iter().flat_map(|one| one.executable.iter().cloned());
    let mut text: Vec<_> = text.collect();
    text.sort_by_key(|range| range.start);
    let dynamics = came.iter().map(|one| one.dynamic).collect();
    let _ = CAME.set(Came {
        dynamics,
        base,
        text,
    });
}

/// Whether the library with that dynamic section came with LLVM.
pub(super) fn brought(dynamic: u64) -> bool {
    CAME.get()
        .is_some_and(|came| came.dynamics.contains(&dynamic))
}

/// Whether LLVM's library came, and was loaded there.
pub(super) fn is_at(base: u64) -> bool {
    CAME.get().is_some_and(|came| came.base == Some(base))
}

/// Whether `address` is in code that came with LLVM.
pub(super) fn holds(address: u64) -> bool {
    let text = CAME.get().map_or(&[][..], |came| &came.text);
    let behind = text.partition_point(|range| range.start <= address);
    behind != 0 && address < text[behind - 1].end
}
