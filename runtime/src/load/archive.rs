//! Static archives: an index of symbols, and members that define them.
//!
//! Archives among the files of a program give the members that define missing symbols, as in a
//! static link; the order of the files makes no difference. For dylibs an archive is a generator
//! ([`units::archive`](crate::units)).
//!
//! A thin archive names the files of its members, relative to its own folder. They are read on
//! demand. `ar` of binutils adds the members of an archive separately: each is a name with the
//! offset of the member's header in that file, `/NAME:PLACE`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use object::read::archive::ArchiveFile;
use uruk_codegen::Linkage;
use uruk_link::{Graph, Object};

use crate::error::Error;
use crate::load::image::Image;
use crate::load::source::InputSource;

/// An archive whose members are added on demand.
pub(crate) struct Archive {
    pub(crate) name: String,
    bytes: Vec<u8>,
    index: Index,
    members: Vec<ArchiveMember>,
}

/// The ranges of a member's name and of its contents.
struct ArchiveMember {
    name: Range<usize>,
    place: ContentsPlace,
}

/// The place of a member's contents.
enum ContentsPlace {
    Here(Range<usize>),
    /// In the file of that name: the whole file, or the member of that archive with this header.
    File(Option<u64>),
}

/// Bytes of a member's header, after which its contents follow, or its name (BSD).
const HEADER: u64 = 60;

/// The magic number of a thin archive.
pub(super) const THIN: &[u8] = b"!<thin>\n";

/// A member of a thin archive.
struct Thin {
    /// The offset where its contents would begin.
    start: u64,
    /// The offset of its header in the archive that contains it.
    within: Option<u64>,
}

/// The members of a thin archive. Offsets in other archives are blanked, as other readers of
/// headers do not know them.
fn thin_members(bytes: &mut [u8]) -> Vec<Thin> {
    let mut members = Vec::new();
    let mut at = THIN.len();
    while let Some(header) = bytes.get_mut(at..at + HEADER as usize) {
        let (name, size) = (&mut header[..16], 48..58);
        let special = name[0] == b'/' && !name[1].is_ascii_digit();
        let within = name.iter().position(|&byte| byte == b':' && !special);
        let within = within.map(|colon| {
            let place = number(&name[colon + 1..]);
            name[colon..].fill(b' ');
            place
        });
        let data = if special { number(&header[size]) } else { 0 };
        let start = at as u64 + HEADER;
        if !special {
            members.push(Thin { start, within });
        }
        let end = start.saturating_add(data).saturating_add(data & 1);
        at = usize::try_from(end).unwrap_or(bytes.len()).min(bytes.len());
    }
    members
}

/// A decimal number that ends with blanks; 0 if it is invalid.
fn number(digits: &[u8]) -> u64 {
    let digits = str::from_utf8(digits.trim_ascii()).unwrap_or_default();
    digits.parse().unwrap_or_default()
}

/// The error for an invalid archive.
fn bad(file: &str, why: impl ToString) -> Error {
    Error::Archive {
        file: file.to_owned(),
        why: why.to_string(),
    }
}

impl Archive {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no archive with an index.
    pub(crate) fn read(path: &Path) -> Result<Archive, Error> {
        let name = path.display().to_string();
        let bytes = uruk_files::read(path).map_err(|cause| Error::File {
            file: name.clone(),
            cause: Arc::new(cause),
        })?;
        Archive::from_bytes(name, bytes)
    }

    /// Like [`Archive::read`], from bytes.
    pub(crate) fn from_bytes(name: String, mut bytes: Vec<u8>) -> Result<Archive, Error> {
        let thin = match bytes.starts_with(THIN) {
            true => thin_members(&mut bytes),
            false => Vec::new(),
        };
        let (index, members) = {
            let file = ArchiveFile::parse(&*bytes).map_err(|cause| bad(&name, cause))?;
            let mut places: Vec<(u64, usize)> = Vec::new();
            let mut members: Vec<ArchiveMember> = Vec::new();
            for member in file.members() {
                let member = member.map_err(|cause| bad(&name, cause))?;
                let (start, place) = match thin.get(members.len()) {
                    Some(thin) => (thin.start, ContentsPlace::File(thin.within)),
                    None => {
                        let (start, size) = member.file_range();
                        let end = start.checked_add(size);
                        let end = end.filter(|end| *end <= bytes.len() as u64);
                        let behind = || bad(&name, "a member ends behind the archive");
                        let end = end.ok_or_else(behind)?;
                        (start, ContentsPlace::Here(start as usize..end as usize))
                    }
                };
                // The range's start is that of the bytes; the index refers to the header before it.
                places.push((start, members.len()));
                members.push(ArchiveMember {
                    name: place_in(&bytes, member.name()),
                    place,
                });
            }
            // Nearly always sorted already.
            places.sort_unstable();
            let at_start = |start: u64| {
                let found = places.binary_search_by_key(&start, |(start, _)| *start);
                Some(places[found.ok()?].1)
            };
            let mut index = Index::default();
            if let Some(symbols) = file.symbols().map_err(|cause| bad(&name, cause))? {
                index.reserve(members.len());
                for symbol in symbols {
                    let symbol = symbol.map_err(|cause| bad(&name, cause))?;
                    let mut at = at_start(symbol.offset().0.saturating_add(HEADER));
                    if at.is_none() {
                        let member = file.member(symbol.offset());
                        let (start, _) = member.map_err(|cause| bad(&name, cause))?.file_range();
                        at = at_start(start);
                    }
                    if let Some(at) = at {
                        let symbol = place_in(&bytes, symbol.name());
                        index.add(&bytes, symbol, at);
                    }
                }
            } else if !members.is_empty() {
                return Err(bad(&name, "no index of symbols: run `ranlib`"));
            }
            (index, members)
        };
        Ok(Archive {
            name,
            bytes,
            index,
            members,
        })
    }

    /// The member that defines a symbol.
    pub(crate) fn member_of(&self, symbol: &str) -> Option<usize> {
        self.index.find(&self.bytes, symbol.as_bytes())
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// A member's name, with the archive's, and its bytes.
    ///
    /// # Errors
    /// The archive is thin, and the file cannot be read.
    pub(crate) fn member(&self, member: usize) -> Result<(String, Cow<'_, [u8]>), Error> {
        let ArchiveMember { name, place } = &self.members[member];
        let own = &self.bytes[name.clone()];
        let name = format!("{}({})", self.name, String::from_utf8_lossy(own));
        let within = match place {
            ContentsPlace::Here(place) => {
                return Ok((name, Cow::Borrowed(&self.bytes[place.clone()])));
            }
            ContentsPlace::File(within) => *within,
        };
        let folder = Path::new(&self.name).parent().unwrap_or(Path::new(""));
        let read = uruk_files::read(folder.join(OsStr::from_bytes(own)));
        let mut bytes = read.map_err(|cause| Error::File {
            file: name.clone(),
            cause: Arc::new(cause),
        })?;
        if let Some(header) = within {
            let place = within_archive(&bytes, header);
            let place = place.ok_or_else(|| bad(&name, "it has changed since it was put in"))?;
            bytes.truncate(place.end);
            bytes.drain(..place.start);
        }
        Ok((name, Cow::Owned(bytes)))
    }

    /// A member as an input.
    ///
    /// # Errors
    /// It is not an input.
    pub(crate) fn source(&self, member: usize) -> Result<InputSource, Error> {
        let read = self.member(member);
        let source =
            read.and_then(|(name, bytes)| InputSource::from_bytes(&name, bytes.into_owned()));
        source.map_err(|cause| Error::Member {
            archive: self.name.clone(),
            cause: Box::new(cause),
        })
    }
}

/// The range of a member's contents in an archive, by the offset of its header.
fn within_archive(bytes: &[u8], header: u64) -> Option<Range<usize>> {
    let at = usize::try_from(header).ok()?;
    let start = at.checked_add(HEADER as usize)?;
    let header = bytes
        .get(at..start)
        .filter(|header| header.ends_with(b"`\n"))?;
    let end = start.checked_add(usize::try_from(number(&header[48..58])).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

/// The range of `part` within `bytes`; an empty part may lie elsewhere.
fn place_in(bytes: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
    match start.checked_add(part.len()) {
        Some(end) if end <= bytes.len() => start..end,
        _ => 0..0,
    }
}

/// Index of the members that define symbols. A large archive has tens of thousands of names, few of
/// which are looked up: they stay in the file's bytes, and are found by open addressing.
#[derive(Default)]
struct Index {
    hasher: RandomState,
    /// The number of a symbol plus one, 0 if free; at least twice as many as symbols.
    cells: Vec<u32>,
    /// Name and member.
    symbols: Vec<(Range<usize>, usize)>,
}

impl Index {
    /// Reserves capacity.
    fn reserve(&mut self, symbols: usize) {
        self.symbols.reserve(symbols);
        self.cells = vec![0; (symbols * 2).next_power_of_two()];
    }

    /// The symbol of a name, or the cell for it.
    fn probe(&self, bytes: &[u8], name: &[u8]) -> Result<usize, usize> {
        let mask = self.cells.len() - 1;
        let mut at = self.hasher.hash_one(name) as usize & mask;
        loop {
            match self.cells[at] {
                0 => return Err(at),
                number => {
                    let symbol = number as usize - 1;
                    if &bytes[self.symbols[symbol].0.clone()] == name {
                        return Ok(symbol);
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a symbol. If several members define it, the first is used, as in a linker.
    fn add(&mut self, bytes: &[u8], name: Range<usize>, member: usize) {
        if (self.symbols.len() + 1) * 2 > self.cells.len() {
            let cells = (self.cells.len() * 2).max(2);
            self.cells = vec![0; cells];
            for (number, (name, _)) in (1..).zip(&self.symbols) {
                if let Err(cell) = self.probe(bytes, &bytes[name.clone()]) {
                    self.cells[cell] = number;
                }
            }
        }
        if let Err(cell) = self.probe(bytes, &bytes[name.clone()]) {
            self.symbols.push((name, member));
            self.cells[cell] = self.symbols.len() as u32;
        }
    }

    /// The member that defines a name.
    fn find(&self, bytes: &[u8], name: &[u8]) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let symbol = self.probe(bytes, name).ok()?;
        Some(self.symbols[symbol].1)
    }
}

/// The archives of one program, and the members already taken.
///
/// Each file is read once: its definitions and references are kept between calls of
/// [`Archives::next`].
#[derive(Default)]
pub(super) struct Archives {
    archives: Vec<Arc<Archive>>,
    pulled: HashSet<(usize, usize)>,
    /// Number of modules and objects of the image that were read.
    read: (usize, usize),
    defined: HashSet<String>,
    /// Names that are referenced, or count as referenced.
    seen: HashSet<String>,
    /// Those of them to be looked up, in the order in which they are referenced.
    wanted: Vec<String>,
    /// Those that no archive defines.
    absent: Vec<String>,
}

impl Archives {
    pub(crate) fn add(&mut self, archive: Arc<Archive>) {
        self.archives.push(archive);
        self.wanted.append(&mut self.absent);
    }

    /// Makes a name count as referenced, as `-u` of linkers does.
    pub(super) fn mention(&mut self, name: String) {
        self.want(&name);
    }

    /// The members that define missing symbols of the files of `image`; empty once no more are
    /// found.
    ///
    /// # Errors
    /// A member or an object file cannot be read.
    pub(crate) fn next(&mut self, image: &Image) -> Result<Vec<InputSource>, Error> {
        let mut sources = Vec::new();
        if self.archives.is_empty() {
            return Ok(sources);
        }
        self.read(image)?;
        for name in std::mem::take(&mut self.wanted) {
            if self.defined.contains(&name) {
                continue;
            }
            let mut archives = self.archives.iter().enumerate();
            let found = archives.find_map(|(at, archive)| Some((at, archive.member_of(&name)?)));
            match found {
                Some((archive, member)) => {
                    if self.pulled.insert((archive, member)) {
                        sources.push(self.archives[archive].source(member)?);
                    }
                }
                None => self.absent.push(name),
            }
        }
        Ok(sources)
    }

    fn want(&mut self, name: &str) {
        if !self.seen.contains(name) {
            self.seen.insert(name.to_owned());
            self.wanted.push(name.to_owned());
        }
    }

    /// Reads the definitions and references of new files.
    fn read(&mut self, image: &Image) -> Result<(), Error> {
        for (_, module) in image.modules.iter().skip(self.read.0) {
            for info in &module.readers.summary().symbols {
                match info.linkage {
                    Linkage::Strong | Linkage::Weak | Linkage::Common => {
                        self.defined.insert(info.name.clone());
                    }
                    Linkage::Declared => self.want(&info.name),
                    _ => {}
                }
            }
            for name in &module.readers.summary().implied {
                self.want(name);
            }
        }
        for (name, bytes) in image.objects.iter().skip(self.read.1) {
            let graph = Graph::new(vec![Object::parse(name, bytes)?])?;
            let places = graph.places();
            self.defined
                .extend(places.map(|place| place.definition.name.to_owned()));
            let strong = graph.undefined().filter(|undefined| !undefined.weak);
            strong.for_each(|undefined| self.want(undefined.name));
        }
        self.read = (image.modules.len(), image.objects.len());
        Ok(())
    }
}
