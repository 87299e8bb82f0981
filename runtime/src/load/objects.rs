//! Functions of object files: each global one has a stub, like a compiled one, so that it can be
//! replaced.
//!
//! The functions of an object share one piece of memory, which no version owns alone: each version
//! [holds](Holding) it. References between its own global functions go through stubs (`uruk_link`'s
//! `preempt`). Local functions are called directly, and run old code as long as their callers do.
//!
//! | addresses that an object gives away | its memory stays until |
//! |---|---|
//! | names of variables, thread-locals, constructors, addresses of its own | it is removed |
//! | none of these, and it came to replace functions | no version of its functions is kept, and no thread is in it |
//!
//! Both locks here are taken under a pass of the gate, and no other lock is taken inside them.
//!
//! # Why
//! Functions of object files have stubs, and calls by name inside an object go through them, so an
//! object can be replaced as a whole. It can be replaced in parts only if its recorded command line
//! shows that nothing was inlined (`replace::object`).

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, Tier, VersionId};
use uruk_link::{Graph, Kind as LinkKind, Object, Place};
use uruk_session::{Dylib, DylibId, Tracker};
use uruk_tiering::{EntryAddress, Publication, Purpose, VersionError};

use crate::core::{Body, Core, static_name};
use crate::error::Error;
use crate::load::image::Image;
use crate::load::names::{Definition, Name};
use crate::removal::Holding;

/// An object file whose functions have stubs.
pub(crate) struct ObjectFile {
    pub(crate) name: String,
    /// Whether its compiler recorded that its functions contain no parts of each other.
    pub(crate) apart: Apart,
    /// Names of functions that it calls without going through their stubs.
    pub(crate) bypassed: Vec<Box<str>>,
    /// Its functions. Set once.
    pub(crate) functions: OnceLock<Vec<FunctionId>>,
}

/// Facts about the compile of an object (`-frecord-gcc-switches`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// None, or functions may have been inlined.
    Unknown,
    /// `-fPIC -fsemantic-interposition`: compilers inline nothing from global functions, except
    /// from inline ones, which are in groups.
    Ungrouped,
    /// `-O0`.
    All,
}

/// The definition behind a stub: a function of an object.
#[derive(Clone)]
pub(crate) struct ObjectBody {
    pub(crate) file: Arc<ObjectFile>,
    pub(crate) link_name: Arc<str>,
    /// The display name, never freed.
    pub(crate) name: &'static CStr,
    /// Whether it is in a group: see [`Apart::Ungrouped`].
    pub(crate) grouped: bool,
}

/// The code of a function of an object.
#[derive(Clone)]
pub(crate) struct ObjectCode {
    pub(crate) file: Arc<ObjectFile>,
    pub(crate) range: Range<u64>,
    pub(crate) holding: Arc<Holding>,
}

/// A variable that an object defines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) size: u64,
    image: u64,
}

/// An image with objects: its variables, and those of others that it was linked against.
struct User {
    files: String,
    addresses: Vec<u64>,
    variables: Vec<(DylibId, Arc<str>)>,
}

/// Variables by dylib and name.
type Variables = HashMap<(DylibId, Arc<str>), Variable>;

/// Versions that are functions of objects, and those of each function, so that a removal examines
/// no others.
#[derive(Default)]
struct Filed {
    versions: HashMap<VersionId, (FunctionId, ObjectCode)>,
    of: HashMap<FunctionId, Vec<VersionId>>,
}

impl Filed {
    fn take(&mut self, version: VersionId) -> Option<ObjectCode> {
        let (id, code) = self.versions.remove(&version)?;
        if let Some(of) = self.of.get_mut(&id) {
            of.retain(|other| *other != version);
            if of.is_empty() {
                self.of.remove(&id);
            }
        }
        Some(code)
    }
}

/// The session's records of object files.
#[derive(Default)]
pub(crate) struct Objects {
    filed: Mutex<Filed>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    variables: Variables,
    /// Users by number of the image.
    users: HashMap<u64, User>,
}

impl ObjectFile {
    pub(crate) fn new(name: String, apart: Apart, bypassed: Vec<Box<str>>) -> ObjectFile {
        ObjectFile {
            name,
            apart,
            bypassed,
            functions: OnceLock::new(),
        }
    }
}

impl Objects {
    fn filed(&self) -> MutexGuard<'_, Filed> {
        self.filed.lock()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Records a version before it can run.
    pub(crate) fn file(&self, version: VersionId, id: FunctionId, code: ObjectCode) {
        let mut filed = self.filed();
        filed.versions.insert(version, (id, code));
        filed.of.entry(id).or_default().push(version);
    }

    /// Takes a version out; dropping the value frees its code.
    #[must_use]
    pub(crate) fn take(&self, version: VersionId) -> Option<ObjectCode> {
        self.filed().take(version)
    }

    /// Whether a version is that of an object's function.
    pub(crate) fn has(&self, version: VersionId) -> bool {
        self.filed().versions.contains_key(&version)
    }

    /// Takes all versions of a function out.
    #[must_use]
    pub(crate) fn take_all(&self, id: FunctionId) -> Vec<ObjectCode> {
        let mut filed = self.filed();
        let of_id = filed.of.remove(&id).unwrap_or_default().into_iter();
        of_id.filter_map(|version| filed.take(version)).collect()
    }

    /// The code of functions that `wanted` selects.
    pub(crate) fn code_of(
        &self,
        wanted: impl Fn(FunctionId) -> bool,
    ) -> Vec<(FunctionId, ObjectCode)> {
        let filed = self.filed();
        let found = filed.versions.values().filter(|(id, _)| wanted(*id));
        found.cloned().collect()
    }

    /// A variable that an object defines.
    pub(crate) fn variable(&self, dylib: &Dylib, name: &str) -> Option<Variable> {
        let key = (dylib.id(), Arc::from(name));
        self.known().variables.get(&key).copied()
    }

    /// Notes the variables of an image, and those it was linked against.
    pub(crate) fn add_image<'a>(
        &self,
        image: u64,
        dylib: &Dylib,
        variables: impl Iterator<Item = (&'a str, u64)>,
        files: String,
        addresses: Vec<u64>,
    ) {
        let mut known = self.known();
        let mut own = Vec::new();
        for (name, size) in variables {
            let key: (DylibId, Arc<str>) = (dylib.id(), name.into());
            let variable = Variable { size, image };
            own.push(key.clone());
            known.variables.entry(key).or_insert(variable);
        }
        if !addresses.is_empty() || !own.is_empty() {
            let user = User {
                files,
                addresses,
                variables: own,
            };
            known.users.insert(image, user);
        }
    }

    /// Removes an image.
    pub(crate) fn forget_image(&self, image: u64) {
        let mut known = self.known();
        let user = known.users.remove(&image);
        for key in user.into_iter().flat_map(|user| user.variables) {
            if known
                .variables
                .get(&key)
                .is_some_and(|it| it.image == image)
            {
                known.variables.remove(&key);
            }
        }
    }

    /// Object files that were linked against the definition at `address`.
    pub(crate) fn users(&self, address: u64) -> Vec<String> {
        let known = self.known();
        let users = known.users.values();
        let users = users.filter(|user| user.addresses.contains(&address));
        users.map(|user| user.files.clone()).collect()
    }
}

/// Functions that got a stub, by name, and the files they are in.
pub(crate) type Stubbed = HashMap<Box<str>, (FunctionId, Arc<ObjectFile>)>;

/// The facts about the object files of an image.
pub(crate) fn object_files(files: &[Object<'_>]) -> Vec<(String, Apart)> {
    let of = |file: &Object<'_>| (file.name().to_owned(), apart(file.command_line()));
    files.iter().map(of).collect()
}

/// Evaluates the recorded command line. Of contradicting options the last counts.
fn apart(command_line: &[u8]) -> Apart {
    let text = String::from_utf8_lossy(command_line);
    let (mut level, mut pic, mut interposed) = ("", false, false);
    for word in text.split(|c: char| c == '\0' || c.is_whitespace()) {
        match word {
            "-fPIC" | "-fpic" => pic = true,
            "-fPIE" | "-fpie" | "-fno-pic" | "-fno-PIC" => pic = false,
            "-fsemantic-interposition" => interposed = true,
            "-fno-semantic-interposition" | "-Ofast" => interposed = false,
            _ if word.starts_with("-O") => level = word,
            _ => {}
        }
    }
    match (level, pic && interposed) {
        ("-O0", _) => Apart::All,
        (_, true) => Apart::Ungrouped,
        _ => Apart::Unknown,
    }
}

/// True for a function that gets a stub.
pub(crate) fn is_function(place: &Place<'_>) -> bool {
    place.callable && place.definition.kind == LinkKind::Function && place.at.is_some()
}

impl Core {
    /// Gives the functions of an image's objects stubs and names, and redirects references to the
    /// stubs. The first `ours` objects are not the user's.
    pub(crate) fn stub_objects(
        self: &Arc<Self>,
        tracker: &Tracker,
        image: &Image,
        graph: &mut Graph<'_>,
        ours: usize,
        files: Vec<(String, Apart)>,
    ) -> Result<Stubbed, Error> {
        let dylib = &tracker.dylib();
        let mut by_place: HashMap<(u32, u64), FunctionId> = HashMap::new();
        let mut functions: HashMap<Box<str>, (FunctionId, usize, bool)> = HashMap::new();
        let mut yielding = HashSet::new();
        let mut names = Vec::new();
        for place in graph.places() {
            let file = (place.object as usize).checked_sub(ours);
            let (Some(file), Some(at), true) = (file, place.at, is_function(&place)) else {
                continue;
            };
            let name = place.definition.name;
            let weak = place.definition.binding != uruk_link::Binding::Strong;
            if weak && self.names.find_own(dylib, name).is_some() {
                // Another definition was first.
                yielding.insert(name);
                continue;
            }
            let id = match by_place.get(&at) {
                Some(&id) => id,
                None => self.allocate_stub()?,
            };
            by_place.insert(at, id);
            names.push(Name {
                name: name.into(),
                definition: Definition::Function { id },
                weak,
                hidden: place.definition.hidden,
            });
            functions.insert(Box::from(name), (id, file, place.grouped));
        }
        if functions.is_empty() && yielding.is_empty() {
            return Ok(HashMap::new());
        }
        tracker.attach(self.removal_of(&image.life, by_place.into_values().collect()))?;
        self.define_names(tracker, image.remaining.as_deref(), names)?;
        graph.preempt(|definition| {
            functions.contains_key(definition.name) || yielding.contains(&definition.name)
        });
        let bypassed: Vec<Box<str>> = graph.bypassed().into_iter().map(Box::from).collect();
        let files = files.into_iter();
        let files: Vec<Arc<ObjectFile>> = files
            .map(|(name, apart)| Arc::new(ObjectFile::new(name, apart, bypassed.clone())))
            .collect();
        let mut of_file: Vec<HashSet<FunctionId>> = vec![HashSet::new(); files.len()];
        let mut stubbed = HashMap::with_capacity(functions.len());
        for (name, (id, file, grouped)) in functions {
            let body = ObjectBody {
                file: Arc::clone(&files[file]),
                link_name: Arc::from(&*name),
                name: static_name(&name),
                grouped,
            };
            if of_file[file].insert(id) {
                self.set_body(id, Body::Object(body));
            }
            stubbed.insert(name, (id, Arc::clone(&files[file])));
        }
        for (file, functions) in files.iter().zip(of_file) {
            let _ = file.functions.set(functions.into_iter().collect());
        }
        Ok(stubbed)
    }

    /// Publishes the code of an object's function for the first time.
    pub(crate) fn publish_object(&self, id: FunctionId, code: ObjectCode) -> Result<(), Error> {
        let version = self.tiers.versions.ids.next();
        let entry = code.range.start;
        self.objects.file(version, id, code);
        self.publish_first(id, version, entry).map(drop)
    }

    /// Publishes an address for the first time, for code that is not compiled here.
    pub(crate) fn publish_first(
        &self,
        id: FunctionId,
        version: VersionId,
        entry: u64,
    ) -> Result<Publication, Error> {
        let versions = self.tiers.versions.of(id);
        let refused = |cause: VersionError| Error::Version {
            function: self.name_of(id),
            cause: cause.into(),
        };
        let ticket = versions
            .request(version, Tier::Baseline, Purpose::First)
            .map_err(refused)?;
        versions.start(ticket).map_err(refused)?;
        versions
            .ready(ticket, EntryAddress(entry))
            .map_err(refused)?;
        versions
            .publish(ticket, |entry| self.stubs.publish(id, entry))
            .map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::{Apart, apart};

    #[test]
    fn recorded_options_tell_whether_functions_are_apart() {
        let cases: [(&[u8], Apart); 7] = [
            (b"", Apart::Unknown),
            (b"\0/usr/bin/clang -c -O2 -fPIC x.c\0", Apart::Unknown),
            (b"-O2\0-fPIC\0-fsemantic-interposition\0", Apart::Ungrouped),
            (
                b"-O2\0-fPIC\0-fsemantic-interposition\0-fno-pic\0",
                Apart::Unknown,
            ),
            (b"-fPIE\0-fsemantic-interposition\0", Apart::Unknown),
            (b"\0clang -O2 -O0 -c x.c\0", Apart::All),
            (b"-O0\0-O1\0", Apart::Unknown),
        ];
        for (line, wanted) in cases {
            assert_eq!(apart(line), wanted, "{}", String::from_utf8_lossy(line));
        }
    }
}
