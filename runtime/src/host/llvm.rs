//! The opening of LLVM's library, and its notifications.
//!
//! | session | opened |
//! |---|---|
//! | of an embedder | when it is made |
//! | of a program in a dedicated process ([`JitBuilder::late_llvm`]) | at its first use; by a background worker once the program has run for a while (`tiers::warmth`) |
//! | the same, of a program that is about to call the dynamic loader | before that ([`before_loader`]) |
//!
//! The thread that needs LLVM may be a worker that the guest waits for. The library is opened under
//! the dynamic loader's lock. A guest that has the lock itself, in a constructor of a library that
//! is being opened or in a callback of `dl_iterate_phdr`, would wait forever. Guests get there by
//! functions of the runtime, or by a library of their own: a program with such libraries has LLVM
//! from the start, too. The remaining case is libraries that the C library opens by itself (for
//! locales, names of hosts): their constructors run no guest code.
//!
//! It is opened after the C++ library ([`process`](super::process)), which is searched by the
//! allocation functions that an executable exports and that constructors of LLVM call. It is opened
//! before the loader can find the program's stand-in ([`preempt`](crate::guest::preempt)): else LLVM's
//! library, and its dependences, might be bound to the program's functions. They belong to the
//! runtime, whenever they are loaded: their words are not overwritten, and their allocations are
//! the runtime's ([`came`]).
//!
//! [`JitBuilder::late_llvm`]: crate::JitBuilder::late_llvm

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use uruk_codegen::CodegenError;

use crate::error::Error;
use crate::fork::gate;
use crate::host::loaded::{self, Loaded, closure};

/// Files loaded because of LLVM after the program began.
struct Came {
    /// Dynamic sections.
    dynamics: HashSet<u64>,
    /// Where LLVM's own library is loaded.
    base: Option<u64>,
    /// Code ranges, in the order of addresses.
    text: Vec<Range<u64>>,
}

static CAME: OnceLock<Came> = OnceLock::new();
/// Dynamic sections of the files loaded when the program began.
static BEFORE: OnceLock<HashSet<u64>> = OnceLock::new();

/// Opens the library, which stays open.
///
/// # Errors
/// It is not installed.
pub(crate) fn open() -> Result<(), Error> {
    Ok(uruk_late::open().map_err(CodegenError::from)?)
}

/// Opens the library before a guest calls the dynamic loader. A failure is reported later, by the
/// first use.
pub(crate) fn before_loader() {
    if !uruk_late::is_open() {
        let _pass = gate::enter();
        let _ = uruk_late::open();
    }
}

/// Notes the dynamic sections that are loaded when the program begins. Files that LLVM loads later
/// are then recognized.
pub(crate) fn expect(loaded: impl Iterator<Item = u64>) {
    if !uruk_late::is_open() && BEFORE.set(loaded.collect()).is_ok() {
        uruk_late::when_open(came);
    }
}

/// The index of LLVM's library among the loaded files, if it is open.
pub(crate) fn place(loaded: &[Loaded]) -> Option<usize> {
    let function = uruk_late::function()? as u64;
    loaded.iter().position(|one| one.holds(function))
}

/// LLVM's library, if it is open, else the loaded files that it will need: indexes.
pub(crate) fn needed(loaded: &[Loaded]) -> impl Iterator<Item = usize> {
    let place = place(loaded);
    let to_come = move |one: &Loaded| place.is_none() && uruk_late::needs(one.name());
    let needed = (0..loaded.len()).filter(move |&index| to_come(&loaded[index]));
    place.into_iter().chain(needed)
}

/// Notes the files that were loaded with LLVM. Called by the thread that opens it, before others
/// can call it.
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

/// Whether the library with that dynamic section was loaded with LLVM.
pub(crate) fn brought(dynamic: u64) -> bool {
    CAME.get()
        .is_some_and(|came| came.dynamics.contains(&dynamic))
}

/// Whether LLVM's library was loaded late, at that address.
pub(super) fn is_at(base: u64) -> bool {
    CAME.get().is_some_and(|came| came.base == Some(base))
}

/// Whether `address` is in code that was loaded with LLVM.
pub(crate) fn holds(address: u64) -> bool {
    let text = CAME.get().map_or(&[][..], |came| &came.text);
    let behind = text.partition_point(|range| range.start <= address);
    behind != 0 && address < text[behind - 1].end
}
