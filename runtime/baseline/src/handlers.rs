//! The table that a personality reads: landing pads of calls, and the types that they catch.
//!
//! The layout is that of GCC's `.gcc_except_table`, which the personalities of C++, Rust and
//! others share ("Exception Handling Tables" of the Itanium C++ ABI; LLVM's `EHStreamer.cpp`):
//!
//! ```text
//! ff  encoding of types or ff  [uleb: to the types' end]  01  uleb: bytes of call sites
//! call sites:  uleb from, uleb bytes, uleb landing pad or 0, uleb action + 1 or 0
//! actions:     sleb filter, sleb distance to the next one or 0
//! types:       4 bytes each, the first one last
//! lists of types for filters: uleb each, then 0
//! ```
//!
//! Offsets count from the function's start. A throw from a call without a call site terminates the
//! program, so the code between is a call site without a landing pad.

use rustc_hash::FxHashMap;

use crate::asm::Label;
use crate::code::Handlers;
use crate::ir::{Clause, Symbol};
use crate::leb128;

/// `DW_EH_PE_omit`.
const OMIT: u8 = 0xff;
/// `DW_EH_PE_indirect | DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
const INDIRECT_PCREL4: u8 = 0x9b;
/// `DW_EH_PE_uleb128`.
const ULEB128: u8 = 0x01;

/// The action of a call site, as call sites name it: 0 is cleanups only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Action(u32);

/// A range of calls with a landing pad.
#[derive(Debug, Clone, Copy)]
struct Site {
    from: Label,
    to: Label,
    pad: Label,
    action: Action,
}

/// The exceptions of a function, while it is emitted.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// Types by their number, from 1.
    types: Vec<Option<Symbol>>,
    type_ids: FxHashMap<Option<Symbol>, u32>,
    /// Lists of types of filters, encoded.
    filters: Vec<u8>,
    actions: Vec<u8>,
    /// Actions that were already written: landing pads are often alike.
    known: FxHashMap<Vec<i64>, Action>,
    sites: Vec<Site>,
}

impl Exceptions {
    /// Empties the tables; buffers keep their capacity.
    pub(crate) fn clear(&mut self) {
        self.types.clear();
        self.type_ids.clear();
        self.filters.clear();
        self.actions.clear();
        self.known.clear();
        self.sites.clear();
    }

    /// The number of a type in selectors; [`None`] is all types.
    pub(crate) fn type_id(&mut self, ty: Option<Symbol>) -> u32 {
        let types = &mut self.types;
        *self.type_ids.entry(ty).or_insert_with(|| {
            types.push(ty);
            types.len() as u32
        })
    }

    /// The action of a landing pad with these clauses.
    pub(crate) fn action(&mut self, cleanup: bool, clauses: &[Clause]) -> Action {
        let mut filters: Vec<i64> = clauses
            .iter()
            .map(|clause| match clause {
                Clause::Catch(ty) => i64::from(self.type_id(*ty)),
                Clause::Filter(types) => self.filter(types),
            })
            .collect();
        if filters.is_empty() {
            return Action(0);
        }
        if cleanup {
            filters.push(0);
        }
        if let Some(&action) = self.known.get(&filters) {
            return action;
        }
        // A chain in order of the clauses; each record is followed by the next one.
        let action = Action(self.actions.len() as u32 + 1);
        for (index, &filter) in filters.iter().enumerate() {
            leb128::signed(&mut self.actions, filter);
            // The distance counts from its own first byte, and takes one.
            let next = i64::from(index + 1 < filters.len());
            leb128::signed(&mut self.actions, next);
        }
        self.known.insert(filters, action);
        action
    }

    /// The number of a list of types: one less than minus its offset.
    fn filter(&mut self, types: &[Option<Symbol>]) -> i64 {
        let ids: Vec<u32> = types.iter().map(|&ty| self.type_id(ty)).collect();
        let offset = self.filters.len() as i64;
        for id in ids {
            leb128::unsigned(&mut self.filters, u64::from(id));
        }
        self.filters.push(0);
        -1 - offset
    }

    /// Adds a call site: exceptions of calls in a range go to a landing pad. Sites come in the
    /// order of the code.
    pub(crate) fn site(&mut self, from: Label, to: Label, pad: Label, action: Action) {
        self.sites.push(Site {
            from,
            to,
            pad,
            action,
        });
    }

    /// Whether no call leads to a landing pad: then there is no table.
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Writes the table of a function of `size` bytes, after labels are resolved.
    pub(crate) fn write(&self, size: u32, offset_of: impl Fn(Label) -> u32) -> Handlers {
        let sites = self.call_sites(size, offset_of);
        let has_types = !self.types.is_empty() || !self.filters.is_empty();
        let mut bytes = vec![OMIT, if has_types { INDIRECT_PCREL4 } else { OMIT }];
        let mut types = Vec::new();
        let sites_length = leb128::length(sites.len() as u64);
        // From after the distance field to the types' first byte.
        let content = 1 + sites_length + sites.len() + self.actions.len();
        let (padding, distance, length) = self.distance(content);
        if has_types {
            leb128::padded(&mut bytes, distance as u64, length);
        }
        bytes.push(ULEB128);
        leb128::unsigned(&mut bytes, sites.len() as u64);
        bytes.extend_from_slice(&sites);
        bytes.extend_from_slice(&self.actions);
        if has_types {
            bytes.resize(bytes.len() + padding, 0);
            for ty in self.types.iter().rev() {
                if let Some(symbol) = ty {
                    types.push((bytes.len() as u32, *symbol));
                }
                bytes.extend_from_slice(&[0; 4]);
            }
            bytes.extend_from_slice(&self.filters);
        }
        Handlers { bytes, types }
    }

    /// Returns the padding that puts the types at a multiple of 4, the distance from after the
    /// distance field to the types' end, and the bytes of that field.
    fn distance(&self, content: usize) -> (usize, usize, usize) {
        let types = 4 * self.types.len();
        let mut length = 1;
        loop {
            let before = 2 + length + content;
            let padding = before.next_multiple_of(4) - before;
            let distance = content + padding + types;
            // At a limit, a longer distance needs less padding and would then be shorter, so it may
            // be encoded in more bytes than it needs.
            if leb128::length(distance as u64) <= length {
                return (padding, distance, length);
            }
            length += 1;
        }
    }

    fn call_sites(&self, size: u32, offset_of: impl Fn(Label) -> u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut write = |from: u32, to: u32, pad: u32, action: u32| {
            for value in [from, to - from, pad, action] {
                leb128::unsigned(&mut bytes, u64::from(value));
            }
        };
        let mut done = 0;
        let mut sites = self.sites.iter().peekable();
        while let Some(site) = sites.next() {
            let from = offset_of(site.from);
            if done < from {
                write(done, from, 0, 0);
            }
            let mut to = offset_of(site.to);
            while let Some(next) = sites.next_if(|next| {
                next.pad == site.pad && next.action == site.action && offset_of(next.from) == to
            }) {
                to = offset_of(next.to);
            }
            write(from, to, offset_of(site.pad), site.action.0);
            done = to;
        }
        if done < size {
            write(done, size, 0, 0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
