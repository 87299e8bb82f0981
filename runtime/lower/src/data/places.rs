//! Places of variables: alignment, and sections.

use uruk_bitcode::ir::{Details, Global, Type, TypeId};

use super::values::Bytes;
use super::{Holds, Late, MOST_BYTES, Making, Section};
use crate::Refused;
use crate::refused::Covered;

/// Bytes of a line of the cache.
const LINE: u64 = 64;

/// Prefixes of section names with a meaning for LLVM.
const MEANING: [&str; 10] = [
    ".bss",
    ".sbss",
    ".tdata",
    ".tbss",
    ".gnu.",
    ".llvm.",
    ".note",
    ".text",
    ".eh_frame",
    ".l",
];

/// The initial content of a variable.
pub(super) enum Kept {
    Zeros,
    Bytes(Bytes),
}

impl Making<'_> {
    /// The alignment that LLVM gives a variable (see `getPreferredAlign` and `getGVAlignment`
    /// there), and that Uruk gives large variables (`align_for_vectors` in `runtime/codegen`).
    pub(super) fn alignment(&self, global: &Global, details: &Details, size: u64) -> u64 {
        let abi = u64::from(self.types.info(global.ty).align);
        let mut said = details.align;
        let is_plain = details.section.is_none() && !details.is_constant && !global.is_thread_local;
        if is_plain && size >= LINE && said < LINE {
            said = LINE;
        }
        if said != 0 && details.section.is_some() {
            return said;
        }
        let preferred = self.preferred(global.ty);
        match said {
            // Large ones at a multiple of 16.
            0 if size > 16 => preferred.max(16),
            0 => preferred,
            _ if said >= preferred => said,
            _ => said.max(abi),
        }
    }

    /// The alignment that a type has without an explicit one.
    fn preferred(&self, mut ty: TypeId) -> u64 {
        const OF_STRUCTS: u64 = 8;
        loop {
            let abi = u64::from(self.types.info(ty).align);
            match self.module.ty(ty) {
                Type::Struct(..) => return abi.max(OF_STRUCTS),
                // Types are made of earlier ones.
                &Type::Array(_, element) => ty = element,
                _ => return abi,
            }
        }
    }

    /// The section for content of that kind; `named` if the module names one.
    pub(super) fn section(&mut self, named: Option<&str>, holds: Holds) -> Covered<u32> {
        let name = match (named, holds) {
            (Some(name), _) => {
                if name.is_empty() || MEANING.iter().any(|it| name.starts_with(it)) {
                    return Err(Refused::Unread("a section with a meaning"));
                }
                name
            }
            (None, Holds::Variables) => ".data",
            (None, Holds::Constants) => ".rodata",
            (None, Holds::Addresses) => ".data.rel.ro",
            (None, Holds::Zeros) => ".bss",
            (None, Holds::ThreadLocals) => ".tdata",
            (None, Holds::ThreadLocalZeros) => ".tbss",
        };
        if let Some(&section) = self.sections.get(name) {
            return match self.data.sections[section as usize].holds == holds {
                true => Ok(section),
                false => Err(Refused::Unread("a section of two kinds")),
            };
        }
        let section = self.data.sections.len() as u32;
        self.sections.insert(name.into(), section);
        self.data.sections.push(Section {
            name: name.into(),
            holds,
            align: 1,
            bytes: Vec::new(),
            size: 0,
            fields: Vec::new(),
        });
        Ok(section)
    }

    /// Appends the initial content of a variable to a section; returns its offset.
    pub(super) fn put(&mut self, section: u32, kept: Kept, size: u64, align: u64) -> Covered<u64> {
        let it = &mut self.data.sections[section as usize];
        let at = it.size.checked_next_multiple_of(align);
        let end = at.and_then(|at| at.checked_add(size));
        let (Some(at), Some(end)) = (at, end) else {
            return Err(Refused::Unread("a large section"));
        };
        it.align = it.align.max(align);
        it.size = end;
        if let Kept::Bytes(bytes) = kept {
            if end > MOST_BYTES {
                return Err(Refused::Unread("a large section"));
            }
            it.bytes.resize(at as usize, 0);
            it.bytes.extend_from_slice(&bytes.bytes);
            let late = bytes
                .addresses
                .into_iter()
                .map(|(offset, width, address)| Late {
                    section,
                    at: at + offset,
                    width,
                    address,
                });
            self.late.extend(late);
        }
        Ok(at)
    }
}
