//! Code that rests: it is ready, but not in its slot, and the next call puts it there.
//!
//! A slot says where calls go and not whether there were any. Code that is made to rest is found in
//! its slot again if it was called since, and only then ([`StubTable::rests`]): the bit of a clock
//! algorithm, for code of every kind, at no cost for calls but the first one, which takes well under
//! a microsecond. It is the state [`StubTable::prepare`] leaves a function in.
//!
//! While it is being done, and then only, who asks for the entry may be told that there is none.

use uruk_base::FunctionId;

use crate::shared::Shared;
use crate::state::Kind;
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::table::StubTable;

#[cfg(not(loom))]
impl StubTable {
    /// Takes the code of a function out of its slot, for the next call to put it there again.
    /// Whether it rests now: not if it has no code, callers are kept by a gate, or its code lies
    /// outside of the heap.
    ///
    /// Restrictions as for [`StubTable::publish`].
    pub fn rest(&self, function: FunctionId) -> bool {
        self.shared().rest(function)
    }

    /// Whether a function has code that was not called since it was made to
    /// [rest](StubTable::rest), or was [prepared](StubTable::prepare).
    pub fn rests(&self, function: FunctionId) -> bool {
        self.shared().cells.get(function).word().kind() == Kind::Prepared
    }
}

impl Shared {
    /// See [`StubTable::rest`].
    pub(crate) fn rest(&self, function: FunctionId) -> bool {
        let trampoline = self.cells.trampoline(function);
        self.change(function, |cell, word| {
            // Who closes a gate looks for code in the slot. While it is queued, `next` is the
            // list's.
            if word.kind() != Kind::Bound || word.gated() || word.queued() {
                return word.kind();
            }
            // Relaxed, all three: only who set *busy* stores here, and `settle` publishes it.
            let entry = cell.target.load(Ordering::Relaxed);
            let offset = entry.wrapping_sub(self.heap_base);
            if offset >= self.heap_size {
                return Kind::Bound;
            }
            cell.next.store(offset as u32, Ordering::Relaxed);
            cell.target.store(trampoline, Ordering::Relaxed);
            Kind::Prepared
        }) == Kind::Prepared
    }
}
