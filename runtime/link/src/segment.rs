//! Segments of an image, their shapes, and places in them.

use std::fmt;

/// A part of the image that is placed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Executable.
    Code,
    /// Constant once it is linked.
    ReadOnly,
    /// Writable data of the image.
    ReadWrite,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Segment::Code => "the code segment",
            Segment::ReadOnly => "the read-only segment",
            Segment::ReadWrite => "the read-write segment",
        })
    }
}

/// The room that a segment needs: `size + zero_fill` bytes in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentShape {
    /// Bytes with content.
    pub size: usize,
    /// Bytes after them that must read as zero and are never written here.
    pub zero_fill: usize,
    /// Alignment in bytes, a power of two.
    pub align: usize,
}

/// The room that each thread's copy of the thread-locals needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsShape {
    /// Bytes in all.
    pub size: usize,
    /// Alignment in bytes, a power of two.
    pub align: usize,
    /// Bytes with content, from the start; the rest is zero.
    pub file_size: usize,
}

/// A segment, or the template of thread-locals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    Code,
    ReadOnly,
    ReadWrite,
    Tls,
}

/// A place in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) region: Region,
    pub(crate) offset: u64,
}
