//! Turns [`Laid`] into [`Placed`]: every definition gets its address.

use std::ops::Range;

use crate::error::LinkError;
use crate::got::PLT_ENTRY;
use crate::layout::{Cursor, Laid};
use crate::linear::Linear;
use crate::section::SectionId;
use crate::segment::{Home, Region, Segment};
use crate::symbol::{Bind, Definition, Kind, Origin, SymbolId};

/// Addresses for the segments of an image, as the running code sees them. An empty segment may have
/// any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placement {
    /// Address of the code segment.
    pub code: u64,
    /// Address of the read-only segment.
    pub read_only: u64,
    /// Address of the read-write segment.
    pub read_write: u64,
    /// The module of the image's thread-locals at run time.
    pub tls: Option<TlsPlace>,
}

/// Bounds of the parts of an image, for names that linkers define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    /// Machine code.
    pub code: Range<u64>,
    /// Variables with contents.
    pub data: Range<u64>,
    /// The end of variables that begin as zeros, which follow those.
    pub end: u64,
    /// The start of the GOT.
    pub got: u64,
}

/// The access to the image's thread-locals at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsPlace {
    /// The number by which `__tls_get_addr` identifies the image's template.
    pub module: u64,
    /// Start of each thread's copy relative to the thread pointer (negative on
    /// x86-64), if all threads have it at one distance.
    pub static_offset: Option<i64>,
}

/// An image with addresses, whose bytes are not fixed up yet.
#[derive(Debug)]
pub struct Placed<'d> {
    pub(crate) laid: Laid<'d>,
    pub(crate) at: Placement,
    /// Addresses of the constants that lie apart, by number.
    pub(crate) apart: Vec<u64>,
}

impl<'d> Laid<'d> {
    /// Gives the segments their addresses.
    ///
    /// # Errors
    ///
    /// An address that breaks the segment's alignment, or an end beyond the
    /// address space.
    pub fn place(self, at: Placement) -> Result<Placed<'d>, LinkError> {
        self.place_with(at, Vec::new())
    }

    /// Gives the segments their addresses, and the [`Laid::constants`] those in `apart`. A
    /// reference to a constant without an address is an error of its relocation.
    ///
    /// # Errors
    ///
    /// Like [`Laid::place`].
    pub fn place_with(self, at: Placement, apart: Vec<u64>) -> Result<Placed<'d>, LinkError> {
        check(Segment::Code, &self.code, at.code)?;
        check(Segment::ReadOnly, &self.read_only, at.read_only)?;
        check(Segment::ReadWrite, &self.read_write, at.read_write)?;
        Ok(Placed {
            laid: self,
            at,
            apart,
        })
    }
}

impl<'d> Placed<'d> {
    /// The global definitions of the image, with addresses. The address of a thread-local is its
    /// offset in the template, that of an ifunc its PLT entry, that of an absolute symbol its
    /// value.
    pub fn definitions(&self) -> impl Iterator<Item = (Definition<'d>, u64)> + '_ {
        self.laid
            .graph
            .defining_symbols()
            .map(|(id, definition)| (definition, self.defined(id)))
    }

    /// The local definitions of object `number` of the image, with addresses as in
    /// [`Placed::definitions`]. Temporary symbols of an assembler are left out.
    pub fn locals(&self, number: usize) -> impl Iterator<Item = (Definition<'d>, u64)> + '_ {
        let graph = &self.laid.graph;
        let info = graph.objects.get(number);
        let ids = info.map_or(0..0, crate::graph::ObjectInfo::symbols);
        ids.filter_map(move |index| {
            let symbol = &graph.symbols[index];
            let is_placed = match symbol.origin {
                Origin::Section(section) => graph.sections[section.index()].is_placed(),
                Origin::Absolute => true,
                _ => false,
            };
            let named = symbol.bind == Bind::Local && !symbol.name.is_empty();
            (named && is_placed).then(|| {
                let address = self.defined(SymbolId(index as u32));
                (graph.definition(symbol), address)
            })
        })
    }

    /// Names and addresses of the section bounds (`__start_NAME`, `__stop_NAME`) that some object
    /// of the image refers to.
    pub fn bounds(&self) -> impl Iterator<Item = (&'d str, u64)> + '_ {
        self.laid
            .graph
            .symbols
            .iter()
            .filter_map(|symbol| match symbol.origin {
                Origin::Bound { bound, end } => {
                    let (home, size) = self.laid.homes.bounds[bound as usize];
                    let size = if end { size } else { 0 };
                    Some((symbol.name, self.address(home).wrapping_add(size)))
                }
                _ => None,
            })
    }

    /// The bounds of the image's parts.
    pub fn edges(&self) -> Edges {
        let Placed { laid, at, .. } = self;
        let data = laid.read_write.content.unwrap_or(laid.read_write.end);
        Edges {
            code: at.code..at.code.wrapping_add(laid.homes.text_end),
            data: at.read_write..at.read_write.wrapping_add(data),
            end: at.read_write.wrapping_add(laid.read_write.end),
            got: self.address(laid.homes.got),
        }
    }

    /// Address of a symbol that the image defines.
    pub(crate) fn defined(&self, id: SymbolId) -> u64 {
        let symbol = &self.laid.graph.symbols[id.index()];
        match symbol.origin {
            Origin::Section(section) => {
                if symbol.kind == Kind::Ifunc
                    && let Some(entry) = self.plt_entry(id)
                {
                    return entry.value;
                }
                let start = match self.laid.homes.sections[section.index()] {
                    Some(home) => Some(self.address(home)),
                    None => self.constant(section),
                };
                start.map_or(0, |start| start.wrapping_add(symbol.value))
            }
            Origin::Common => self.common(id).map_or(0, |at| at.value),
            Origin::Absolute => symbol.value,
            Origin::Undefined | Origin::Bound { .. } | Origin::GotBase | Origin::TemplateBase => 0,
        }
    }

    /// Address of a section that lies apart from the image.
    pub(crate) fn constant(&self, section: SectionId) -> Option<u64> {
        let number = self.laid.number_of(section)?;
        self.apart.get(number).copied()
    }

    /// Address of a home; in the template, its offset there.
    pub(crate) fn address(&self, home: Home) -> u64 {
        self.linear(home).value
    }

    /// Address of a home, with its slope.
    pub(crate) fn linear(&self, home: Home) -> Linear {
        let (base, slope) = match home.region {
            Region::Code => (self.at.code, 1),
            Region::ReadOnly => (self.at.read_only, 0),
            Region::ReadWrite => (self.at.read_write, 0),
            Region::Tls => (0, 0),
        };
        Linear { value: base, slope }.plus(home.offset)
    }

    pub(crate) fn common(&self, id: SymbolId) -> Option<Linear> {
        let commons = &self.laid.homes.commons;
        let found = commons
            .binary_search_by_key(&id, |&(symbol, _)| symbol)
            .ok()?;
        Some(self.linear(commons[found].1))
    }

    pub(crate) fn plt_entry(&self, id: SymbolId) -> Option<Linear> {
        let number = self.laid.plan.entry(id)?.plt?;
        let offset = u64::from(number) * PLT_ENTRY;
        Some(self.linear(self.laid.homes.plt).plus(offset))
    }

    pub(crate) fn got_word(&self, number: u32) -> Linear {
        self.linear(self.laid.homes.got).plus(u64::from(number) * 8)
    }

    pub(crate) fn ifunc_word(&self, number: u32) -> Linear {
        self.linear(self.laid.homes.ifunc_words)
            .plus(u64::from(number) * 8)
    }
}

fn check(segment: Segment, cursor: &Cursor, address: u64) -> Result<(), LinkError> {
    let (size, align) = (cursor.end, cursor.align);
    if size == 0 || (address.is_multiple_of(align) && address.checked_add(size).is_some()) {
        return Ok(());
    }
    Err(LinkError::Misplaced {
        segment,
        address,
        size,
        align,
    })
}
