//! The body of a fuzz target: any bytes, all steps, no outcome but an error or
//! an image. Ordinary tests run it on damaged objects.

use crate::error::LinkError;
use crate::graph::Graph;
use crate::layout::{LayoutOptions, Segment};
use crate::linked::Linked;
use crate::object::Object;
use crate::placed::{Placement, TlsPlace};
use crate::symbol::Resolved;

/// Links `bytes` as one object, and then twice as two, with every external
/// symbol at one address. Returns what the first link gave.
///
/// # Errors
///
/// Whatever is wrong with the bytes.
///
/// # Panics
///
/// Never: that is what it is for. It checks that the segments have the sizes
/// that were announced.
pub fn link_any(bytes: &[u8]) -> Result<Linked, LinkError> {
    let first = link_objects(&[bytes], false);
    let _ = link_objects(&[bytes, bytes], true);
    first
}

fn link_objects(files: &[&[u8]], prune: bool) -> Result<Linked, LinkError> {
    let mut objects = Vec::with_capacity(files.len());
    for bytes in files {
        objects.push(Object::parse("fuzz.o", bytes)?);
    }
    let mut graph = Graph::new(objects)?;
    if prune {
        for undefined in graph.undefined().take(8) {
            assert!(
                !undefined.needed_by().is_empty(),
                "listed, and nobody needs it"
            );
        }
        graph.prune(|name| name.len() % 2 == 0);
        let first = graph.definitions().next().map(|definition| definition.name);
        if let Some(name) = first {
            graph.discard(name);
        }
    }
    // A damaged alignment must not cost gigabytes.
    let options = LayoutOptions {
        merge_read_only: prune,
        max_size: 16 << 20,
        ..LayoutOptions::default()
    };
    let laid = graph.layout(&options)?;
    let sizes = [Segment::Code, Segment::ReadOnly, Segment::ReadWrite]
        .map(|segment| laid.segment(segment).size);
    let tls = TlsPlace {
        module: 3,
        static_offset: Some(-0x4000),
    };
    let at = Placement {
        code: 0x1000_0000,
        read_only: 0x2000_0000,
        read_write: 0x3000_0000,
        tls: Some(tls),
    };
    let placed = laid.place(at)?;
    let definitions = placed.definitions().count();
    assert!(
        definitions <= files.iter().map(|file| file.len()).sum(),
        "more names than bytes"
    );
    let linked = placed.fix_up(|_, need| {
        Some(if need.thread_local {
            Resolved {
                static_tls: Some(-64),
                ..Resolved::thread_local(1, 16)
            }
        } else {
            Resolved::at(0x4000_0000)
        })
    })?;
    let bytes = [&linked.code, &linked.read_only, &linked.read_write];
    assert_eq!(
        bytes.map(Vec::len),
        sizes,
        "segments have the sizes announced"
    );
    Ok(linked)
}
