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

use crate::code::holding::Holding;
use crate::code::object_file::ObjectFile;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use uruk_base::locks::{Mutex, MutexGuard};
use uruk_base::{FunctionId, VersionId};
use uruk_session::{Dylib, DylibId};

/// The code of a function of an object.
#[derive(Clone)]
pub(crate) struct ObjectCode {
    pub(crate) file: Arc<ObjectFile>,
    pub(crate) range: Range<u64>,
    pub(crate) holding: Arc<Holding>,
}

/// A variable that an object defines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectVariable {
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
type ObjectVariables = HashMap<(DylibId, Arc<str>), ObjectVariable>;

/// Versions that are functions of objects, and those of each function, so that a removal examines
/// no others.
#[derive(Default)]
struct ObjectVersions {
    versions: HashMap<VersionId, (FunctionId, ObjectCode)>,
    of: HashMap<FunctionId, Vec<VersionId>>,
}

impl ObjectVersions {
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
    filed: Mutex<ObjectVersions>,
    known: Mutex<LinkedVariables>,
}

#[derive(Default)]
struct LinkedVariables {
    variables: ObjectVariables,
    /// Users by number of the image.
    users: HashMap<u64, User>,
}

impl Objects {
    fn filed(&self) -> MutexGuard<'_, ObjectVersions> {
        self.filed.lock()
    }

    fn known(&self) -> MutexGuard<'_, LinkedVariables> {
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
    pub(crate) fn variable(&self, dylib: &Dylib, name: &str) -> Option<ObjectVariable> {
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
            let variable = ObjectVariable { size, image };
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
