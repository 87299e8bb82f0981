//! Prepares an object file that replaces functions: by the same rules as for bitcode, as far as
//! machine code allows to check them.
//!
//! | the object has | it exists as | it gets |
//! |---|---|---|
//! | a function (`STT_FUNC`) | a function behind a stub | a *member*: its name goes on meaning the stub |
//! | a function | nothing | a stub of its own |
//! | a variable | a variable of the same size | nothing: references go to the old storage |
//! | a variable | nothing | storage of its own |
//! | anything local | any | storage of its own: a local variable begins anew |
//!
//! Machine code does not say: signatures, types of variables beyond their size, and which functions
//! hold parts of each other. So functions of an object that was added are replaced all together,
//! unless the object says how it was compiled ([`Apart`]), or the embedder does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uruk_base::FunctionId;
use uruk_link::{Graph, Init, Kind as LinkKind, Object, Place};
use uruk_session::Dylib;

use crate::code::body::Body;
use crate::code::names::{Definition, NewName};
use crate::code::object_file::Apart;
use crate::code::object_file::ObjectBody;
use crate::code::object_file::ObjectFile;
use crate::code::objects::ObjectCode;
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::load::image::{Image, LinkedImage};
use crate::load::objects::object_files;
use crate::load::placed::Stay;
use crate::replace::state::Replacing;

use super::commit::{Change, What};
use super::hooks::InputHooks;
use super::prepare::{Allowed, Prepared, ReportedNames};
use super::staging::Staging;
use crate::error::replace::ReplaceError;

/// How an object's names are bound.
#[derive(Default)]
struct Bound {
    /// Functions that exist, by name; aliases share an id.
    members: Vec<(FunctionId, Box<str>)>,
    /// Functions that get a stub.
    added: Vec<(FunctionId, Box<str>)>,
    kept: Vec<ExistingVariable>,
    new_data: Vec<String>,
    grouped: HashSet<Box<str>>,
}

/// A variable that exists.
struct ExistingVariable {
    name: Box<str>,
    size: u64,
    constant: bool,
    /// `None` for a thread-local.
    address: Option<u64>,
}

/// A binding under construction.
struct Binder<'a> {
    replacing: &'a Replacing,
    file: &'a str,
    bound: Bound,
    /// Places of the members.
    by_id: HashMap<FunctionId, Option<(u32, u64)>>,
    /// Functions by place: definitions at one place are one function.
    by_place: HashMap<(u32, u64), FunctionId>,
}

impl Binder<'_> {
    /// Binds a place by the present meaning of its name; true if it is a new function.
    fn bind(&mut self, place: &Place<'_>, found: Option<Definition>) -> Result<bool, Error> {
        let name = place.definition.name;
        if place.grouped {
            self.bound.grouped.insert(name.into());
        }
        let function = place.callable && place.definition.kind == LinkKind::Function;
        match (found, place.definition.kind) {
            (_, LinkKind::Ifunc) => {
                return Err(self.fixed(name, "a resolver chooses what it is"));
            }
            (Some(Definition::Function { id }), _) if function => self.bind_member(place, id)?,
            (Some(_), _) if function => {
                return Err(self.fixed(name, "it has no stub that could lead elsewhere"));
            }
            (Some(Definition::Address(at)), LinkKind::Data) => {
                self.bound.kept.push(ExistingVariable::new(place, Some(at)));
            }
            (Some(Definition::Tls { .. }), LinkKind::Tls) => {
                self.bound.kept.push(ExistingVariable::new(place, None));
            }
            (Some(_), LinkKind::Function) => {
                return Err(self.fixed(name, "it is not declared to be a function"));
            }
            (Some(_), _) => return Err(self.fixed(name, "it was something else before")),
            (None, LinkKind::Function) if function => return Ok(true),
            (None, _) => self.bound.new_data.push(name.to_owned()),
        }
        Ok(false)
    }

    fn bind_member(&mut self, place: &Place<'_>, id: FunctionId) -> Result<(), Error> {
        let name = place.definition.name;
        if self.replacing.body(id).is_none() {
            return Err(self.fixed(name, "a resolver chooses what it is"));
        }
        if self.replacing.versions.is_fixed(id) {
            return Err(Error::from(ReplaceError::Labels {
                file: self.file.to_owned(),
                function: name.to_owned(),
            }));
        }
        let before = self.by_id.insert(id, place.at);
        if before.is_some_and(|before| before != place.at) {
            return Err(self.fixed(name, "it shared its address with another function"));
        }
        self.by_place.extend(place.at.map(|at| (at, id)));
        self.bound.members.push((id, name.into()));
        Ok(())
    }

    /// Gives a new function the stub of its place.
    fn add(&mut self, place: &Place<'_>, staging: &Staging) -> Result<(), Error> {
        let known = place.at.and_then(|at| self.by_place.get(&at).copied());
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.replacing.allocate_stub()?;
                staging.add_stub(id);
                self.by_place.extend(place.at.map(|at| (at, id)));
                id
            }
        };
        self.bound.added.push((id, place.definition.name.into()));
        Ok(())
    }

    fn fixed(&self, symbol: &str, why: &'static str) -> Error {
        Error::from(ReplaceError::Fixed {
            file: self.file.to_owned(),
            symbol: symbol.to_owned(),
            why,
        })
    }
}

impl Replacing {
    /// Reads, binds, checks and links an object, on the calling thread.
    pub(super) fn prepare_object(
        self: &Arc<Self>,
        dylib: &Dylib,
        name: &str,
        bytes: &Arc<[u8]>,
        allowed: &Allowed,
        staging: &Staging,
    ) -> Result<Prepared, Error> {
        if let Some(migration) = allowed.migrations.first() {
            return Err(Error::from(ReplaceError::Fixed {
                file: name.to_owned(),
                symbol: migration.global.clone(),
                why: "it is to be migrated, and the input is an object file, which has no types",
            }));
        }
        let object = Object::parse(name, bytes)?;
        let (file, apart) = object_files(std::slice::from_ref(&object)).remove(0);
        let mut graph = Graph::new(vec![object])?;
        let mut bound = self.bind_object(dylib, name, &graph, staging)?;
        if bound.members.is_empty() {
            let functions = bound.added.iter().map(|(_, name)| name.to_string());
            return Err(Error::from(ReplaceError::Nothing {
                file: name.to_owned(),
                functions: functions.collect(),
            }));
        }
        let ids: Vec<(FunctionId, &str)> = bound.members.iter().map(|(i, n)| (*i, &**n)).collect();
        self.check_whole(&ids, dylib, allowed.parts)?;
        self.check_sizes(dylib, name, &mut bound.kept)?;
        let functions = bound.members.iter().chain(&bound.added);
        let yields: HashSet<&str> = functions
            .map(|(_, name)| &**name)
            .chain(bound.kept.iter().map(|kept| &*kept.name))
            .collect();
        graph.preempt(|definition| yields.contains(definition.name));
        let bypassed: Vec<Box<str>> = graph.bypassed().into_iter().map(Box::from).collect();
        let file = Arc::new(ObjectFile::new(file, apart, bypassed));
        let locals = graph.local_variables().map(str::to_owned).collect();
        self.define_object(&bound, &file, staging)?;
        let members = bound.members.iter().map(|&(id, _)| id);
        let life = staging.begin_life(members, std::iter::empty());
        let image = Image {
            number: self.next_image(),
            life,
            late: true,
            objects: vec![(name.to_owned(), Arc::clone(bytes))],
            ..Image::default()
        };
        let linked =
            self.link_image(staging.session_tracker(), &image, graph, &[], Stay::IfHeld)?;
        if !linked.started.ifuncs.is_empty() {
            return Err(Error::from(ReplaceError::Construct {
                file: name.to_owned(),
                construct: "a new ifunc",
            }));
        }
        check_constants(name, &bound.kept, &linked)?;
        self.changes_of(bound, file, &image, locals, linked)
    }

    /// Binds an object's names; new functions get stubs.
    fn bind_object(
        &self,
        dylib: &Dylib,
        file: &str,
        graph: &Graph<'_>,
        staging: &Staging,
    ) -> Result<Bound, Error> {
        let mut binder = Binder {
            replacing: self,
            file,
            bound: Bound::default(),
            by_id: HashMap::new(),
            by_place: HashMap::new(),
        };
        let mut fresh: Vec<Place<'_>> = Vec::new();
        for place in graph.places() {
            let mut found = self.names.find_own(dylib, place.definition.name);
            while let Some(Definition::Function { id }) = found
                && self.body(id).is_none()
                && let Some(anew) = self.found_anew(dylib, place.definition.name, id)
            {
                found = anew;
            }
            if binder.bind(&place, found)? {
                fresh.push(place);
            }
        }
        // After all members: a new name may be an alias of a member.
        for place in fresh {
            binder.add(&place, staging)?;
        }
        Ok(binder.bound)
    }

    /// Checks that variables have their old sizes, since they keep their contents.
    fn check_sizes(
        &self,
        dylib: &Dylib,
        file: &str,
        kept: &mut [ExistingVariable],
    ) -> Result<(), Error> {
        for kept in kept {
            let of_object = self.objects.variable(dylib, &kept.name);
            let (old, old_size) = match of_object {
                Some(variable) => (String::from("data of an object file"), variable.size),
                None => match self.layout_of(dylib, &kept.name)? {
                    Some(layout) => (layout.ty, layout.size),
                    None => {
                        // The name stands for an address of the host.
                        kept.address = None;
                        continue;
                    }
                },
            };
            if old_size != kept.size {
                return Err(Error::from(ReplaceError::Global {
                    file: file.to_owned(),
                    global: kept.name.to_string(),
                    old,
                    old_size,
                    new: String::from("data of an object file"),
                    new_size: kept.size,
                }));
            }
        }
        Ok(())
    }

    /// Defines the names of new functions.
    fn define_object(
        &self,
        bound: &Bound,
        file: &Arc<ObjectFile>,
        staging: &Staging,
    ) -> Result<(), Error> {
        let names = bound.added.iter().map(|&(id, ref name)| {
            let body = object_body(file, name, bound);
            if self.body(id).is_none() {
                self.set_body(id, Body::Object(body));
            }
            NewName::strong(name.clone(), Definition::Function { id })
        });
        Ok(self
            .names
            .define(staging.session_tracker(), names.collect())?)
    }

    /// The functions of a linked object: members are to be exchanged, new ones are published.
    fn changes_of(
        &self,
        bound: Bound,
        file: Arc<ObjectFile>,
        image: &Image,
        locals: Vec<String>,
        mut linked: LinkedImage,
    ) -> Result<Prepared, Error> {
        let holding = Arc::clone(&linked.holding);
        let mut bodies = std::mem::take(&mut linked.bodies);
        let mut code_of = |name: &str| {
            bodies.remove(name).map(|range| ObjectCode {
                file: Arc::clone(&file),
                range,
                holding: Arc::clone(&holding),
            })
        };
        let mut changes: Vec<Change> = Vec::new();
        let mut functions = Vec::new();
        for (id, name) in &bound.members {
            functions.push(name.to_string());
            let code = code_of(name);
            if changes.iter().any(|change| change.id == *id) {
                continue;
            }
            let code = code.ok_or_else(|| Error::NotAFunction {
                name: name.to_string(),
            })?;
            changes.push(Change {
                id: *id,
                body: Body::Object(object_body(&file, name, &bound)),
                next: What::Object(code),
            });
        }
        let mut ids: Vec<FunctionId> = changes.iter().map(|change| change.id).collect();
        for (id, name) in &bound.added {
            if let Some(code) = code_of(name)
                && self.stubs.entry(*id).is_none()
            {
                self.publish_object(*id, code)?;
            }
            if !ids.contains(id) {
                ids.push(*id);
            }
        }
        let _ = file.functions.set(ids);
        Ok(Prepared {
            changes,
            names: ReportedNames {
                functions,
                added: bound.added.iter().map(|(_, n)| n.to_string()).collect(),
                globals_added: bound.new_data,
                globals_kept: bound.kept.iter().map(|k| k.name.to_string()).collect(),
                locals_new: locals,
            },
            hooks: hooks_of(image, &linked),
            moves: Vec::new(),
        })
    }

    /// Checks that objects are replaced as a whole, unless it is known that their functions hold no
    /// parts of each other.
    pub(super) fn check_objects(
        &self,
        members: &[(FunctionId, &str)],
        allow_parts: bool,
    ) -> Result<(), Error> {
        let ids: HashSet<FunctionId> = members.iter().map(|&(id, _)| id).collect();
        let mut seen: Vec<Arc<ObjectFile>> = Vec::new();
        for &(id, _) in members {
            let Some(Body::Object(ObjectBody { file, .. })) = self.body(id) else {
                continue;
            };
            if seen.iter().any(|known| Arc::ptr_eq(known, &file)) {
                continue;
            }
            let still_its = |id: FunctionId| match self.body(id) {
                Some(Body::Object(body)) => Arc::ptr_eq(&body.file, &file),
                _ => false,
            };
            let all = file.functions.get().map_or(&[][..], Vec::as_slice);
            let missing = all.iter().copied();
            let missing: Vec<FunctionId> = missing
                .filter(|&id| !ids.contains(&id) && still_its(id))
                .collect();
            if !missing.is_empty() {
                let mut of_file = members.iter().filter(|&&(id, _)| still_its(id));
                let apart = of_file.all(|&(id, _)| match (file.apart, self.body(id)) {
                    (Apart::All, _) => true,
                    (Apart::Ungrouped, Some(Body::Object(body))) => !body.grouped,
                    _ => false,
                });
                let bypassed: Vec<String> = members
                    .iter()
                    .map(|&(_, name)| name)
                    .filter(|&name| file.bypassed.iter().any(|known| **known == *name))
                    .map(str::to_owned)
                    .collect();
                if !bypassed.is_empty() {
                    return Err(Error::from(ReplaceError::Bypassed {
                        old: file.name.clone(),
                        functions: bypassed,
                    }));
                }
                if !apart && !allow_parts {
                    let missing = missing.into_iter().map(|id| self.name_of(id).to_owned());
                    return Err(Error::from(ReplaceError::Parts {
                        old: file.name.clone(),
                        missing: missing.collect(),
                    }));
                }
            }
            seen.push(file);
        }
        Ok(())
    }
}

/// Constructors and destructors of an object, by the names of the functions at their addresses.
fn hooks_of(image: &Image, linked: &LinkedImage) -> InputHooks {
    let name_at = |init: &Init| {
        let name = linked.functions.get(&init.address);
        (
            init.priority,
            init.address,
            name.map_or("?", String::as_str).to_owned(),
        )
    };
    let started = &linked.started;
    InputHooks {
        image: image.number,
        life: Arc::clone(&image.life),
        constructors: started.init.iter().map(name_at).collect(),
        destructors: started.fini.iter().rev().map(name_at).collect(),
        again: Vec::new(),
    }
}

fn object_body(file: &Arc<ObjectFile>, name: &str, bound: &Bound) -> ObjectBody {
    ObjectBody {
        file: Arc::clone(file),
        link_name: name.into(),
        name: static_name(name),
        grouped: bound.grouped.contains(name),
    }
}

impl ExistingVariable {
    fn new(place: &Place<'_>, address: Option<u64>) -> ExistingVariable {
        ExistingVariable {
            name: place.definition.name.into(),
            size: place.definition.size,
            constant: place.constant,
            address,
        }
    }
}

/// Checks that constants keep their values, which code that is not replaced may hold. Their sizes
/// are known to be equal.
fn check_constants(
    file: &str,
    kept: &[ExistingVariable],
    linked: &LinkedImage,
) -> Result<(), Error> {
    for kept in kept.iter().filter(|kept| kept.constant) {
        let new = linked.yielded.iter().find(|(name, _)| *name == kept.name);
        let (Some(address), Some((_, new))) = (kept.address, new) else {
            continue;
        };
        // SAFETY: data of the dylib that has this size and is there while the dylib is; it
        // is constant.
        let old = unsafe { std::slice::from_raw_parts(address as *const u8, new.len()) };
        if old != &new[..] {
            return Err(Error::from(ReplaceError::Constant {
                file: file.to_owned(),
                constant: kept.name.to_string(),
            }));
        }
    }
    Ok(())
}
