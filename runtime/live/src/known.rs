//! What is known of the names of one module, from the symbols and the memory of the process.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::choose::{Known, ROOM};
use crate::entries::Entries;
use crate::locked::Locked;
use crate::program::image::Image;
use crate::program::loaded;
use crate::program::symbols::Place;

/// The strings of a file, by their bytes with the zero at the end.
#[derive(Debug, Default)]
pub struct Strings {
    /// Where they begin; of those that are there twice, both places.
    places: HashMap<Vec<u8>, Vec<u64>>,
}

impl Strings {
    /// Of memory that is only read: what begins behind a zero and ends with one.
    ///
    /// # Safety
    /// The ranges are memory that can be read and does not change.
    pub unsafe fn of(constants: &[Range<u64>]) -> Strings {
        let mut strings = Strings::default();
        for range in constants {
            let size = (range.end - range.start) as usize;
            // SAFETY: by the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(range.start as *const u8, size) };
            let mut start = 0;
            while let Some(length) = bytes[start..].iter().position(|&byte| byte == 0) {
                let end = start + length + 1;
                strings.add(&bytes[start..end], range.start + start as u64);
                start = end;
            }
        }
        strings
    }

    /// Strings that end others are found, too: linkers merge those.
    fn add(&mut self, bytes: &[u8], at: u64) {
        /// Longer ones are not told from binary data, and would take memory by their square.
        const LONGEST: usize = 256;
        let whole = bytes.len();
        for skipped in 0..whole.min(LONGEST) {
            let rest = &bytes[skipped..];
            if skipped > 0 && whole > LONGEST {
                break;
            }
            let places = self.places.entry(rest.to_vec()).or_default();
            if places.len() < 2 {
                places.push(at + skipped as u64);
            }
        }
    }

    /// Where the bytes are, if that is at one place only.
    pub fn find(&self, bytes: &[u8]) -> Option<u64> {
        match self.places.get(bytes)?.as_slice() {
            [place] => Some(*place),
            _ => None,
        }
    }
}

/// What is known of a file.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub image: Image,
    /// Its strings.
    pub strings: Strings,
    /// First bytes of rooms.
    pub rooms: HashSet<u64>,
    /// What can be redirected.
    pub entries: Entries,
    /// Names whose bodies a module has that was added.
    pub taken: Locked<HashSet<String>>,
    /// Variables that a module had and that have no address.
    pub missing: Locked<HashSet<(usize, String)>>,
}

impl Program {
    /// Whether a module that was added has the body of that name.
    pub fn is_taken(&self, name: &str) -> bool {
        self.taken.with(|taken| taken.contains(name))
    }

    /// Keeps which variables of a module have no address.
    pub fn note_missing(&self, module: usize, names: &[String]) {
        let names = names.iter().map(|name| (module, name.clone()));
        self.missing.with(|missing| missing.extend(names));
    }

    /// Whether a module had a variable that has no address.
    pub fn is_missing(&self, module: usize, name: &str) -> bool {
        let name = (module, name.to_owned());
        self.missing.with(|missing| missing.contains(&name))
    }
}

/// What is known for one module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its file.
    pub program: Arc<Program>,
    /// Which of the file's objects it is.
    pub object: Option<usize>,
}

impl Known for Module {
    fn place(&self, name: &str, local: bool) -> Option<Place> {
        let symbols = &self.program.image.symbols;
        match local {
            true => symbols.local(self.object?, name),
            false => symbols.global(name),
        }
    }

    fn distance(&self, place: Place) -> Option<i64> {
        self.program.image.distance(place)
    }

    fn string(&self, bytes: &[u8]) -> Option<u64> {
        let place = self.program.strings.find(bytes)?;
        // What has a name is a variable, whose address differs from a string's.
        (!self.program.image.symbols.begins(place)).then_some(place)
    }

    fn has_room(&self, entry: u64) -> bool {
        let is_listed = self.program.rooms.contains(&entry.wrapping_sub(ROOM));
        is_listed && self.program.entries.check(entry).is_ok()
    }

    fn is_there(&self, name: &str) -> bool {
        self.program.image.symbols.global(name).is_some()
            || self.program.is_taken(name)
            || loaded::find(name).is_some()
    }

    fn is_taken(&self, name: &str) -> bool {
        self.program.is_taken(name)
    }
}
