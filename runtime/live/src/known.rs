//! Meaning of the names of one module, by the symbols and the memory of the process.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use uruk::live::rebound::{PlainResult, PlainType};

use crate::arguments;
use crate::choose::{Known, OF, ROOMS, Text, session_name};
use crate::entries::Entries;
use crate::locked::Locked;
use crate::program::image::Image;
use crate::program::loaded;
use crate::program::locals::KeptNames;
use crate::program::mentions::Mentions;
use crate::program::symbols::{Place, PlaceKind};

/// The strings of a file whose addresses it mentions, by their bytes with the zero at the end. Includes
/// strings that are the end of another one, as linkers merge them.
#[derive(Debug, Default)]
pub struct Strings {
    places: HashMap<Vec<u8>, Vec<u64>>,
}

impl Strings {
    /// Strings in memory that is only read.
    ///
    /// # Safety
    /// The ranges are memory that can be read and does not change.
    pub unsafe fn of(constants: &[Range<u64>], mentions: &Mentions) -> Strings {
        /// Longer ones cannot be told from binary data.
        const LONGEST: usize = 64 << 10;
        let mut strings = Strings::default();
        for range in constants {
            for &address in mentions.within(range) {
                let size = ((range.end - address) as usize).min(LONGEST);
                // SAFETY: by the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
                if let Some(length) = bytes.iter().position(|&byte| byte == 0) {
                    let places = strings.places.entry(bytes[..=length].to_vec());
                    places.or_default().push(address);
                }
            }
        }
        strings
    }

    /// Places of these bytes.
    fn all(&self, bytes: &[u8]) -> &[u64] {
        self.places.get(bytes).map_or(&[], Vec::as_slice)
    }

    /// Place of these bytes, among those for which `counts` says that they may be a string's.
    pub fn find(&self, bytes: &[u8], counts: impl Fn(u64) -> bool) -> Text {
        let mut places = self.all(bytes).iter().copied().filter(|&it| counts(it));
        match (places.next(), places.next()) {
            (None, _) => Text::Nowhere,
            (Some(place), None) => Text::At(place),
            (Some(_), Some(_)) => Text::Several,
        }
    }
}

/// Facts about a file.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub image: Image,
    /// Its number among the examined files of the process; the executable's is 0.
    pub number: usize,
    /// Its strings.
    pub strings: Strings,
    /// First bytes of rooms.
    pub rooms: HashSet<u64>,
    /// Entries that can be redirected.
    pub entries: Entries,
    /// Names whose bodies an added module has.
    pub taken: Locked<HashSet<String>>,
    /// Variables of modules that have no address.
    pub missing: Locked<HashSet<(usize, String)>>,
    /// Places of strings that files of new code brought. They stay: the program may keep their
    /// addresses.
    texts: Locked<HashMap<Vec<u8>, u64>>,
    /// Answers of the dynamic loader by name.
    bound: Locked<HashMap<String, Bound>>,
}

/// The native meaning of a name that a library sees outside of its own modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The library's own definition, and the address by which all files know it.
    Own(Place, u64),
    /// Another file's definition.
    Elsewhere(u64),
    /// No file defines it.
    Nowhere,
}

impl Program {
    /// Facts about a file, with its number.
    ///
    /// # Safety
    /// The file is loaded at its base, and stays so.
    pub unsafe fn new(image: Image, number: usize) -> Program {
        // SAFETY: by the caller's promise.
        let (rooms, strings, entries) = unsafe {
            (
                image.rooms(),
                Strings::of(&image.constants, &image.mentions),
                Entries::new(image.text.clone()),
            )
        };
        Program {
            image,
            number,
            strings,
            rooms,
            entries,
            taken: Locked::default(),
            missing: Locked::default(),
            texts: Locked::default(),
            bound: Locked::default(),
        }
    }

    /// The library's own name without folders; empty of an executable.
    pub fn library(&self) -> &str {
        let name = self.image.file.file_name().and_then(|name| name.to_str());
        match self.image.executable {
            true => "",
            false => name.unwrap_or_default(),
        }
    }

    /// The meaning of a name that a library's modules see outside of themselves. It is the first
    /// definition in the search order of the process's files, unless the library's linker bound it to
    /// the library's own (hidden and protected names, `-Bsymbolic`).
    fn bound(&self, name: &str) -> Bound {
        if let Some(known) = self.bound.with(|bound| bound.get(name).copied()) {
            return known;
        }
        let own = self.image.symbols.global(name);
        if let Some(own) = own.filter(|own| own.kind == PlaceKind::ThreadLocal) {
            return self.bound_in_threads(name, own);
        }
        let kept = own.filter(|own| !own.exported || !self.image.bound_late.contains(name));
        let bound = match (kept, own, loaded::find(name)) {
            (Some(own), ..) | (None, Some(own), None) => Bound::Own(own, own.address),
            (None, Some(own), Some(found)) if found == own.address => Bound::Own(own, found),
            // Calls reach its own; its address is one in the executable.
            (None, Some(own), Some(found))
                if own.kind == PlaceKind::Function && loaded::is_stand_in(found) =>
            {
                Bound::Own(own, found)
            }
            (None, _, Some(found)) => Bound::Elsewhere(found),
            (None, None, None) => Bound::Nowhere,
        };
        self.bound.with(|all| all.insert(name.to_owned(), bound));
        bound
    }

    /// Like [`bound`](Program::bound), for a thread-local of the library.
    fn bound_in_threads(&self, name: &str, own: Place) -> Bound {
        let late = own.exported && self.image.bound_late.contains(name);
        let reached = late.then(|| loaded::find_thread_local(name)).flatten();
        match reached.is_none_or(|reached| Some(reached) == self.image.distance(own)) {
            true => Bound::Own(own, own.address),
            false => Bound::Nowhere,
        }
    }

    /// Whether an added module has the body of that name.
    pub fn is_taken(&self, name: &str) -> bool {
        self.taken.with(|taken| taken.contains(name))
    }

    /// Address of a string for new code: the program's own, or a copy that is never freed. Files that
    /// bring it again share one copy. `align` is in bytes, at most [`TEXT_ALIGN`].
    pub fn text(&self, bytes: &[u8], align: u32) -> u64 {
        let symbols = &self.image.symbols;
        let own = self.strings.find(bytes, |place| !symbols.begins(place));
        if let Text::At(address) = own
            && address.is_multiple_of(align.max(1).into())
        {
            return address;
        }
        self.texts.with(|texts| match texts.get(bytes) {
            Some(&address) => address,
            None => {
                let mut words = vec![0u128; bytes.len().div_ceil(TEXT_ALIGN as usize)];
                for (word, part) in words.iter_mut().zip(bytes.chunks(TEXT_ALIGN as usize)) {
                    let mut whole = [0; TEXT_ALIGN as usize];
                    whole[..part.len()].copy_from_slice(part);
                    *word = u128::from_le_bytes(whole);
                }
                let address = words.leak().as_ptr() as u64;
                texts.insert(bytes.to_owned(), address);
                address
            }
        })
    }

    /// Records the variables of a module that have no address.
    pub fn note_missing(&self, module: usize, names: &[String]) {
        let names = names.iter().map(|name| (module, name.clone()));
        self.missing.with(|missing| missing.extend(names));
    }

    /// Whether a module has a variable without an address.
    pub fn is_missing(&self, module: usize, name: &str) -> bool {
        let name = (module, name.to_owned());
        self.missing.with(|missing| missing.contains(&name))
    }
}

/// Alignment in bytes of the strings that [`Program::text`] makes.
pub(crate) const TEXT_ALIGN: u32 = 16;

/// Facts about one module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its file.
    pub program: Arc<Program>,
    /// The executable, if it was read.
    pub executable: Option<Arc<Program>>,
    /// Index of its object in the file.
    pub object: Option<usize>,
    /// Its number among those of all files.
    pub number: usize,
    /// Local functions that native code calls by their types, as the compiler recorded.
    pub kept: KeptNames,
}

impl Module {
    fn is_library(&self) -> bool {
        !self.program.image.executable
    }

    /// Whether a name means in the executable's modules the definition at `address`, or nothing.
    fn is_same_there(&self, name: &str, address: u64) -> bool {
        let Some(executable) = &self.executable else {
            return true;
        };
        match executable.image.symbols.global(name) {
            Some(place) => place.address == address,
            None => !executable.is_taken(name),
        }
    }

    /// Code of a function of the file, at most `most` bytes.
    pub(crate) fn code(&self, place: Place, most: u64) -> &[u8] {
        let mut text = self.program.image.text.iter();
        let Some(range) = text.find(|range| range.contains(&place.address)) else {
            return &[];
        };
        let size = place.size.min(most).min(range.end - place.address) as usize;
        // SAFETY: text of the file, which stays loaded and of which nothing but entries is changed.
        unsafe { std::slice::from_raw_parts(place.address as *const u8, size) }
    }

    /// Whether the program has code by a name that all its files see.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        let place = self.place(name, false);
        place.is_some_and(|place| place.kind == PlaceKind::Function)
    }

    /// A name that in the session only the modules of this one's file use.
    fn own_name(&self, name: &str) -> String {
        format!("{name}{OF}file{}", self.program.number)
    }
}

impl Known for Module {
    fn name(&self, name: &str, local: bool) -> String {
        // Names that compilers know are unchanged.
        if !self.is_library() || name.starts_with("llvm.") {
            return session_name(name, local, self.number);
        }
        // Libraries may be built from the same sources.
        if local {
            return format!("{name}{OF}{}", self.number);
        }
        match self.program.bound(name) {
            Bound::Elsewhere(address) if self.is_same_there(name, address) => name.to_owned(),
            Bound::Elsewhere(_) => format!("{name}{OF}others{}", self.program.number),
            Bound::Own(..) | Bound::Nowhere => self.own_name(name),
        }
    }

    fn address(&self, name: &str) -> Option<u64> {
        if !self.is_library() {
            return None;
        }
        match self.program.bound(name) {
            Bound::Own(_, address) | Bound::Elsewhere(address) => Some(address),
            Bound::Nowhere => None,
        }
    }

    fn is_elsewhere(&self, name: &str) -> bool {
        self.is_library() && matches!(self.program.bound(name), Bound::Elsewhere(_))
    }

    fn place(&self, name: &str, local: bool) -> Option<Place> {
        let symbols = &self.program.image.symbols;
        if local {
            return symbols.local(self.object?, name);
        }
        // Some linkers list hidden names with their object's local ones.
        let hidden = || symbols.local(self.object?, name);
        let own = symbols.global(name).or_else(hidden);
        if !self.is_library() {
            return own;
        }
        match self.program.bound(name) {
            Bound::Own(own, _) => Some(own),
            // A thread-local's address is one in its block, which is this library's.
            Bound::Elsewhere(address) => own
                .filter(|own| own.kind != PlaceKind::ThreadLocal)
                .map(|own| Place { address, ..own }),
            Bound::Nowhere => None,
        }
    }

    fn distance(&self, place: Place) -> Option<i64> {
        self.program.image.distance(place)
    }

    fn string(&self, bytes: &[u8]) -> Text {
        // A place with a name is a variable, whose address differs from a string's.
        let symbols = &self.program.image.symbols;
        self.program
            .strings
            .find(bytes, |place| !symbols.begins(place))
    }

    fn mentioned(&self, place: Place, bytes: &[u8]) -> Vec<u64> {
        let code = self.code(place, u64::MAX);
        let in_code = Mentions::in_code(code, place.address);
        let symbols = &self.program.image.symbols;
        let places = self.program.strings.all(bytes).iter().copied();
        let mut places: Vec<u64> = places.filter(|&it| !symbols.begins(it)).collect();
        places.retain(|&it| in_code.contains(it));
        places
    }

    fn mentions(&self, address: u64) -> bool {
        self.program.image.mentions.contains(address)
    }

    fn takes(&self, place: Place, plain: PlainType) -> bool {
        /// Bytes that are examined.
        const MOST: u64 = 512;
        let code = self.code(place, MOST);
        arguments::takes(code, plain)
    }

    fn keeps_type(&self, name: &str) -> bool {
        self.kept.contains(name)
    }

    fn uses_results(&self, place: Place) -> Vec<(u64, PlainResult)> {
        arguments::uses_results(self.code(place, u64::MAX), place.address)
    }

    fn has_object(&self) -> bool {
        self.object.is_some()
    }

    fn may_be_copied(&self, name: &str) -> bool {
        let symbols = &self.program.image.symbols;
        self.object.is_none_or(|file| symbols.is_copied(file, name))
    }

    fn jump(&self, place: Place) -> Option<u64> {
        /// Bytes of a jump with the instructions that may stand in front of it.
        const MOST: u64 = 32;
        let code = self.code(place, MOST);
        let mut decoder = Decoder::with_ip(64, code, place.address, DecoderOptions::NONE);
        let mut instructions =
            std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode()));
        let passed = [Mnemonic::Endbr64, Mnemonic::Nop];
        let first = instructions.find(|it| !passed.contains(&it.mnemonic()))?;
        let is_jump = first.mnemonic() == Mnemonic::Jmp && first.is_jmp_short_or_near();
        is_jump.then(|| first.near_branch_target())
    }

    fn parts(&self, name: &str) -> Vec<Range<u64>> {
        self.program.image.symbols.parts(self.object, name)
    }

    fn has_room(&self, entry: u64) -> bool {
        let is_listed = ROOMS
            .iter()
            .any(|room| self.program.rooms.contains(&entry.wrapping_sub(*room)));
        is_listed && self.program.entries.check(entry).is_ok()
    }

    fn is_there(&self, name: &str) -> bool {
        if self.is_library() {
            let bound = self.program.bound(name);
            return bound != Bound::Nowhere || self.program.is_taken(&self.own_name(name));
        }
        self.program.image.symbols.global(name).is_some()
            || self.program.is_taken(name)
            || loaded::find(name).is_some()
    }

    fn is_taken(&self, name: &str) -> bool {
        self.program.is_taken(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_where_they_are_mentioned() {
        let memory = b"row id\0twice\0twice\0\0end\0".to_vec();
        let at = memory.as_ptr() as u64;
        let range = at..at + memory.len() as u64;
        // The end of the first, both of those that are equal, and an empty one.
        let mentions = Mentions::new([4, 7, 13, 19].map(|place| at + place));
        // SAFETY: the bytes above, which live on.
        let strings = unsafe { Strings::of(&[range], &mentions) };
        let find = |bytes| strings.find(bytes, |_| true);
        assert_eq!(find(b"id\0"), Text::At(at + 4));
        assert_eq!(find(b"row id\0"), Text::Nowhere);
        assert_eq!(find(b"twice\0"), Text::Several);
        assert_eq!(
            strings.find(b"twice\0", |place| place != at + 7),
            Text::At(at + 13)
        );
        assert_eq!(find(b"\0"), Text::At(at + 19));
        assert_eq!(find(b"end\0"), Text::Nowhere);
    }
}
