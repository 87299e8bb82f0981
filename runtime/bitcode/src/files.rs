//! Splits files of several modules, as LTO with split units writes them.
//!
//! A file is a sequence of blocks: an identification and a module for each module, and tables of
//! strings. A module's names are in the first table of strings behind it. Places inside a module are
//! counted from the word before its identification, so a module behind a magic number of its own is
//! a file like any other. LLVM's C interface reads files of one module only.

use crate::Refused;
use crate::module::{MAGIC, block, unwrap};
use crate::stream::What;
use crate::walk::Walk;

/// Bytes of a block, in the stream.
type Place = std::ops::Range<usize>;

/// A module in a file.
#[derive(Default)]
struct Part {
    /// Its identification, if it has one, and the module block.
    blocks: Vec<Place>,
    strings: Option<Place>,
}

/// The modules of a file of bitcode, each as a file of its own, in their order; empty if the file has
/// one module.
///
/// # Errors
/// The file's blocks do not follow each other. Their contents are not checked.
pub fn modules(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
    let stream = &bytes[unwrap(bytes)?];
    let parts = parts(stream)?;
    if parts.len() < 2 {
        return Ok(Vec::new());
    }
    let file = |part: &Part| {
        let mut file = (MAGIC as u32).to_le_bytes().to_vec();
        for place in part.blocks.iter().chain(&part.strings) {
            file.extend_from_slice(&stream[place.clone()]);
        }
        file
    };
    Ok(parts.iter().map(file).collect())
}

fn parts(stream: &[u8]) -> Result<Vec<Part>, Refused> {
    let mut walk = Walk::new(stream);
    if walk.cursor.fixed(32)? != MAGIC {
        return Err(walk.cursor.fail(What::Magic).into());
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut identification = None;
    // Fewer bits than the head of a block are padding.
    while walk.cursor.left() >= 64 {
        let start = walk.cursor.bit;
        if walk.cursor.fixed(2)? != 1 {
            return Err(walk.cursor.fail(What::Place).into());
        }
        let extent = walk.head()?;
        let place = (start / 8) as usize..(extent.end / 8) as usize;
        match extent.number {
            block::IDENTIFICATION => identification = Some(place),
            block::MODULE => parts.push(Part {
                blocks: identification.take().into_iter().chain([place]).collect(),
                strings: None,
            }),
            block::STRINGS => {
                let without = parts.iter_mut().rev();
                for part in without.take_while(|part| part.strings.is_none()) {
                    part.strings = Some(place.clone());
                }
            }
            _ => {}
        }
        walk.pass(extent);
    }
    Ok(parts)
}
