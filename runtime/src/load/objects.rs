//! Gives functions of object files stubs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_base::{FunctionId, Tier, VersionId};
use uruk_link::{Graph, Kind as LinkKind, Object, Place};
use uruk_session::Tracker;
use uruk_tiering::{EntryAddress, Publication, Purpose, VersionError};

use crate::code::body::Body;
use crate::code::names::{Definition, NewName};
use crate::code::object_file::Apart;
use crate::code::object_file::ObjectBody;
use crate::code::object_file::ObjectFile;
use crate::code::objects::ObjectCode;
use crate::code::objects::Stubbed;
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::load::image::Image;
use crate::load::loader::Loader;

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

impl Loader {
    /// Gives the functions of an image's objects stubs and names, and redirects references to the
    /// stubs. The first `ours` objects are not the user's.
    pub(super) fn stub_objects(
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
            names.push(NewName {
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
        let stubbed = by_place.into_values().collect();
        tracker.attach(self.engines().removal_of(&image.life, stubbed))?;
        self.define_names(tracker, image.remaining.as_deref(), names)?;
        graph.preempt(|definition| {
            functions.contains_key(definition.name) || yielding.contains(&definition.name)
        });
        let bypassed: Vec<Box<str>> = graph.bypassed().into_iter().map(Box::from).collect();
        let file = |(name, apart)| Arc::new(ObjectFile::new(name, apart, bypassed.clone()));
        let files: Vec<Arc<ObjectFile>> = files.into_iter().map(file).collect();
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
        let version = self.versions.ids.next();
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
        let versions = self.versions.of(id);
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
    use super::apart;
    use crate::code::object_file::Apart;

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
