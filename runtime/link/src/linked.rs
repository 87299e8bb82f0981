//! The result of a link: bytes for each segment, and tables for the run time.

use std::fmt::Write as _;

use crate::moves::{Immovable, Moves};

/// A finished image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Linked {
    /// Bytes of the code segment.
    pub code: Vec<u8>,
    /// Bytes of the code segment, from its start, that are machine code. Constants, unwind records
    /// and the GOT follow.
    pub text_size: usize,
    /// Bytes of the read-only segment.
    pub read_only: Vec<u8>,
    /// Bytes of the read-write segment, without its zero-filled tail.
    pub read_write: Vec<u8>,
    /// One row per function with an unwind record, sorted by start.
    pub fdes: Vec<FdeRow>,
    /// The image's unwind records as one table, ended by a zero word.
    pub eh_frame: Option<EhFrame>,
    /// Functions to call before all constructors, in this order.
    pub preinit: Vec<Init>,
    /// Constructors, in the order in which they run.
    pub init: Vec<Init>,
    /// Destructors, in the order in which they run.
    pub fini: Vec<Init>,
    /// The initial contents of each thread's copy of the thread-locals.
    pub tls: Option<TlsTemplate>,
    /// Words to fill in before any code of the image runs.
    pub ifuncs: Vec<Ifunc>,
    /// The fields of the code segment to change when it moves ([`crate::relocate`]); empty if it
    /// cannot move. As a rule an image can move if it is linked with
    /// [`crate::LayoutOptions::merge_read_only`].
    pub moves: Moves,
    /// The reason why the image must stay where it was linked; `None` if the code segment can move
    /// by itself. Labels whose addresses are taken within one section leave no relocation: the
    /// producer of the object must keep track of them.
    pub immovable: Option<Immovable>,
    /// Whether the program can get an address of the image (of a local function, a constant, a
    /// variable) other than a preempted definition's or a return address. If not, the image is
    /// unused once no thread is in its functions.
    pub escapes: bool,
    /// The place of each section; empty unless [`crate::LayoutOptions::map`] is set.
    pub map: Vec<MappedSection>,
}

/// The unwind record of a range of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdeRow {
    /// First address of the function.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// Address of the record (of its length word).
    pub fde: u64,
}

impl FdeRow {
    /// The row after its code segment moved.
    #[must_use]
    pub fn moved(self, from: u64, to: u64) -> FdeRow {
        let distance = to.wrapping_sub(from);
        FdeRow {
            start: self.start.wrapping_add(distance),
            end: self.end.wrapping_add(distance),
            fde: self.fde.wrapping_add(distance),
        }
    }
}

/// The image's table of unwind records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EhFrame {
    /// Address of the first record.
    pub address: u64,
    /// Size in bytes, with the zero word that ends it.
    pub size: usize,
}

/// A function that runs before or after `main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// The number behind the section's name, [`crate::DEFAULT_PRIORITY`] without one. Constructors
    /// run in rising order, destructors in falling.
    pub priority: u32,
    /// The function.
    pub address: u64,
    /// Index of the object that contains the entry, among those of the graph.
    pub object: usize,
}

/// The initial contents of the image's thread-locals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsTemplate {
    /// The first bytes; the rest is zero.
    pub image: Vec<u8>,
    /// Bytes in all.
    pub size: usize,
    /// Alignment in bytes, a power of two.
    pub align: usize,
}

/// A word that must hold the final address of an indirect function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ifunc {
    /// Address of the 8-byte word, in the read-write segment.
    pub word: u64,
    /// Address of the function that returns the word's value.
    pub resolver: u64,
}

/// A section and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedSection {
    /// Number of the object, in the order given to [`crate::Graph::new`].
    pub object: u32,
    /// Index of the section in that file.
    pub section: u32,
    /// Its name.
    pub name: Box<str>,
    /// Its address; for thread-locals, its offset in the template.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Linked {
    /// The image's tables as text, for readers and for snapshots: everything but the bytes
    /// themselves.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let (code, constants, data) =
            (self.code.len(), self.read_only.len(), self.read_write.len());
        let _ = writeln!(text, "code {code} read-only {constants} read-write {data}");
        for MappedSection {
            object,
            section,
            name,
            address,
            size,
        } in &self.map
        {
            let _ = writeln!(
                text,
                "section {object}:{section} {name} {address:#x}+{size:#x}"
            );
        }
        for FdeRow { start, end, .. } in &self.fdes {
            let _ = writeln!(text, "unwind {start:#x}..{end:#x}");
        }
        for (label, list) in [
            ("preinit", &self.preinit),
            ("init", &self.init),
            ("fini", &self.fini),
        ] {
            for init in list {
                let Init {
                    priority,
                    address,
                    object,
                } = init;
                let _ = writeln!(text, "{label} {priority} {address:#x} of {object}");
            }
        }
        if let Some(TlsTemplate { image, size, align }) = &self.tls {
            let _ = writeln!(text, "tls {} of {size} align {align}", image.len());
        }
        for Ifunc { word, resolver } in &self.ifuncs {
            let _ = writeln!(text, "ifunc {word:#x} from {resolver:#x}");
        }
        text
    }
}
