//! The heap allocations of one link: drafts while they are written, sealed afterwards.

use std::ops::Range;

use uruk_heap::{Draft, Pool, Sealed};
use uruk_link::{Laid, Linked, Placement, Segment, TlsPlace};

use crate::error::Error;
use crate::host::tls;
use crate::version::compiler::Compiler;

/// One allocation per segment that has any bytes.
pub(crate) struct Drafts {
    segments: [Option<Draft>; 3],
    /// Zero-initialized bytes of the read-write segment.
    zeros: usize,
}

const SEGMENTS: [(Segment, Pool); 3] = [
    (Segment::Code, Pool::Code),
    (Segment::ReadOnly, Pool::ReadOnly),
    (Segment::ReadWrite, Pool::ReadWrite),
];

impl Compiler {
    /// Allocates the segments of `laid`.
    pub(crate) fn allocate(&self, laid: &Laid<'_>) -> Result<Drafts, Error> {
        let mut segments = [None, None, None];
        for (held, (segment, pool)) in segments.iter_mut().zip(SEGMENTS) {
            let shape = laid.segment(segment);
            let size = shape.size + shape.zero_fill;
            if size != 0 {
                *held = Some(self.heap.allocate(pool, size, shape.align)?);
            }
        }
        let zeros = laid.segment(Segment::ReadWrite).zero_fill;
        Ok(Drafts { segments, zeros })
    }
}

impl Drafts {
    /// The addresses of the segments; an empty one gets the address of another, so that distances
    /// to it are in reach.
    pub(crate) fn placement(&self, tls: Option<tls::TemplatePlace>) -> Placement {
        let addresses = self
            .segments
            .each_ref()
            .map(|d| d.as_ref().map(Draft::address));
        let any = addresses.iter().flatten().next().copied().unwrap_or(0);
        let [code, read_only, read_write] = addresses.map(|a| a.unwrap_or(any));
        let tls = tls.map(|at| TlsPlace {
            module: at.module,
            static_offset: at.static_offset,
        });
        Placement {
            code,
            read_only,
            read_write,
            tls,
        }
    }

    /// Zero-initialized bytes of the read-write segment.
    pub(crate) fn zeros(&self) -> usize {
        self.zeros
    }

    /// The range of the code segment.
    pub(crate) fn code_range(&self) -> Range<u64> {
        self.segments[0]
            .as_ref()
            .map_or(0..0, |d| d.address()..d.address() + d.len() as u64)
    }

    /// Copies the linked bytes; zero-filled tails stay untouched.
    pub(crate) fn write(&mut self, linked: &Linked) -> Result<(), Error> {
        let bytes = [&linked.code, &linked.read_only, &linked.read_write];
        for (draft, bytes) in self.segments.iter_mut().zip(bytes) {
            if let Some(draft) = draft
                && !bytes.is_empty()
            {
                draft.write(0, bytes)?;
            }
        }
        Ok(())
    }

    /// Makes the code executable.
    pub(crate) fn seal(self) -> Result<Vec<Sealed>, Error> {
        let mut sealed = Vec::with_capacity(self.segments.len());
        for draft in self.segments.into_iter().flatten() {
            sealed.push(draft.seal()?);
        }
        Ok(sealed)
    }
}
