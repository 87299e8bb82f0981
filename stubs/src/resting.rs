//! Resting code: it is ready, but not in its slot, and the next call stores it there.
//!
//! A slot holds the target of calls, but not whether calls were made. Code that is made to rest is
//! in its slot again if and only if it was called since ([`StubTable::rests`]). This is the
//! reference bit of a clock algorithm, for code of every kind. It costs calls nothing, except the
//! first one, which takes well under a microsecond. [`StubTable::prepare`] leaves a function in the
//! same state.
//!
//! Only while code is being made to rest, a reader of the entry may find none.

use uruk_base::FunctionId;

use crate::shared::Shared;
use crate::state::Kind;
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::table::StubTable;

#[cfg(not(loom))]
impl StubTable {
    /// Takes the code of a function out of its slot; the next call stores it there again. Returns
    /// whether it rests now. It does not if it has no code, is behind a closed gate, or its code
    /// lies outside of the heap.
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
            // A closing gate takes the code from the slot. While the cell is queued, `next` is the
            // list's.
            if word.kind() != Kind::Bound || word.gated() || word.queued() {
                return word.kind();
            }
            // Relaxed, all three: only the thread that set *busy* stores here, and `settle`
            // publishes it.
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
