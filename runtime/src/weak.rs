//! Weak definitions: what they yield to, and how long that stays.
//!
//! When an image is bound, its weak definitions yield to what a search from its dylib finds:
//!
//! | definition | yields to |
//! |---|---|
//! | hidden, or tentative (`common`) | what its own dylib has |
//! | a weak function | what its own dylib has, and the link order |
//! | weak data, weak thread-locals | these, and the process |
//! | weak data of a whole program | the process only if all definitions are equal (ODR) |
//! | weak data of an object that code reaches without the GOT | the process not: it is too far |
//!
//! A strong definition in a COMDAT group counts as weak: others may have a copy. Functions of
//! the process are no reason to yield: calls could then not be counted, replaced, or inlined.
//! A program comes before its libraries in a native search, but libraries of this process know
//! nothing of it; where all definitions are equal, one that both use is what counts.
//!
//! Data is in use from when it is linked: other data may hold its address, code its value. So
//! a weak variable that was chosen counts as strong from then on, and a strong definition that
//! comes later is a duplicate. A weak function that nobody looked up yet gives way.
//!
//! # How long it stays
//! Who yields is *bound* to the image that has the definition, which may be removed first. Then
//! that image *remains*: its memory, its functions, its handlers of the process's exit, and of its
//! names those that others were bound to, those that were weak, and local ones, which its
//! functions still need to be compiled. Its other names go at once, and can be defined anew.
//! It goes with the last image that is bound to it: handlers first, then the names, then the
//! rest. Bonds lead to images that were added before, so there are no circles.
//!
//! For this each image has two trackers in the session: the one it is removed by, and one that
//! no handle keeps, for the names that may remain.
//!
//! # Invariants
//! - [`State::later`] is empty unless somebody is bound. Who drops the last bond releases it.
//! - Nobody is bound from the moment on that an image is about to go ([`State::leaving`]).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use uruk_codegen::{CodegenError, Kind, Linkage, SymbolId, SymbolInfo};
use uruk_locks::{Mutex, MutexGuard};
use uruk_session::{Dylib, Resource, Tracker, TrackerKey};

use crate::bind::{LOCAL_MARKER, ObjectSymbol};
use crate::core::Core;
use crate::error::Error;
use crate::image::Image;
use crate::life::{Gone, Life};
use crate::names::{Definition, Name};
use crate::sacrificial;
use crate::service;

/// The images that are bound to one.
#[derive(Default)]
pub(crate) struct Bonds {
    state: Mutex<State>,
    /// The tracker of the names that may remain.
    names: OnceLock<TrackerKey>,
}

#[derive(Default)]
struct State {
    /// Numbers of the images, one for each bond.
    by: Vec<u64>,
    /// It is about to go.
    leaving: bool,
    /// What is released with the last bond.
    later: Vec<Box<dyn Resource>>,
}

/// Keeps the definitions of an image for another one, whatever is removed.
pub(crate) struct Bond {
    to: Arc<Life>,
    by: u64,
}

impl Bonds {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an image is bound to this one.
    pub(crate) fn any(&self) -> bool {
        !self.lock().by.is_empty()
    }

    /// Releases something, now or with the last bond. Under a pass.
    pub(crate) fn after(&self, resource: Box<dyn Resource>) {
        let mut state = self.lock();
        if state.by.is_empty() {
            drop(state);
            resource.release();
        } else {
            state.later.push(resource);
        }
    }

    /// Whether all bonds end with images of these numbers. Nobody else is bound then any more.
    pub(crate) fn end_with(&self, numbers: &[u64]) -> bool {
        let mut state = self.lock();
        let ends = state.by.iter().all(|by| numbers.contains(by));
        state.leaving |= ends;
        ends
    }
}

impl Life {
    /// Binds the image of number `by` to this one.
    fn bind(self: &Arc<Self>, by: u64) -> Result<Bond, Gone> {
        let mut state = self.bonds.lock();
        if state.leaving || self.is_closed() {
            return Err(Gone);
        }
        state.by.push(by);
        Ok(Bond {
            to: Arc::clone(self),
            by,
        })
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        let _pass = service::enter();
        let later = {
            let mut state = self.to.bonds.lock();
            let at = state.by.iter().position(|by| *by == self.by);
            at.map(|at| state.by.swap_remove(at));
            match state.by.is_empty() {
                true => std::mem::take(&mut state.later),
                false => Vec::new(),
            }
        };
        later.into_iter().for_each(Resource::release);
    }
}

/// Where the names of an image go that may remain when it is removed.
pub(crate) struct Remaining {
    key: TrackerKey,
    tracker: Tracker,
    /// Names that were looked up before the image got its own. What assembly defines is not
    /// among them: it gives way without a word.
    asked: OnceLock<HashSet<Box<str>>>,
    /// Another image came first with one of the names.
    late: AtomicBool,
}

impl Remaining {
    /// Whether an image that was bound at the same time defined a name that is to be ours: it
    /// has to be bound anew.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Removes the names.
    pub(crate) fn remove(&self) {
        // It fails if the dylib was cleared, and they are gone.
        let _ = self.tracker.remove();
    }
}

/// What definitions in an image would yield to.
#[derive(Default)]
pub(crate) struct Surroundings {
    own: HashMap<Box<str>, Definition>,
    linked: HashMap<Box<str>, Definition>,
    all: HashMap<Box<str>, Definition>,
    thread_locals: HashMap<Box<str>, Definition>,
    program: bool,
}

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Own,
    Linked,
    All,
    /// The link order, and thread-locals of the process.
    ThreadLocals,
}

#[cfg(test)]
impl Surroundings {
    /// In which data of these names is.
    pub(crate) fn with(names: &[&str]) -> Surroundings {
        let at = |name: &&str| (Box::from(*name), Definition::Address(64));
        let all: HashMap<_, _> = names.iter().map(at).collect();
        Surroundings {
            own: all.clone(),
            linked: all.clone(),
            all,
            ..Surroundings::default()
        }
    }
}

impl Surroundings {
    /// What a definition of a module yields to.
    pub(crate) fn of_symbol(&self, info: &SymbolInfo) -> Option<Definition> {
        self.find(reach_of_symbol(info, self.program)?, &info.name)
    }

    /// What a definition of an object file yields to.
    pub(crate) fn of_object(&self, symbol: &ObjectSymbol) -> Option<Definition> {
        self.find(reach_of_object(symbol, self.program)?, &symbol.name)
    }

    fn find(&self, reach: Reach, name: &str) -> Option<Definition> {
        let found = match reach {
            Reach::Own => &self.own,
            Reach::Linked => &self.linked,
            Reach::All => &self.all,
            Reach::ThreadLocals => &self.thread_locals,
        };
        found.get(name).copied()
    }
}

/// Whether a definition of an object is for itself alone, although it is global: compilers give
/// each object a word of its own that leads to a personality, and linkers merge them.
pub(crate) fn is_own(definition: &uruk_link::Definition<'_>) -> bool {
    definition.hidden && definition.name.starts_with("DW.ref.")
}

fn reach_of_symbol(info: &SymbolInfo, program: bool) -> Option<Reach> {
    let grouped = info.linkage == Linkage::Strong && info.comdat.is_some();
    match info.linkage {
        Linkage::Common => Some(Reach::Own),
        Linkage::Weak | Linkage::Strong if info.linkage == Linkage::Weak || grouped => {
            Some(match info.kind {
                _ if info.hidden => Reach::Own,
                Kind::Data if !program || info.odr => Reach::All,
                Kind::ThreadLocal if !program || info.odr => Reach::ThreadLocals,
                _ => Reach::Linked,
            })
        }
        _ => None,
    }
}

fn reach_of_object(symbol: &ObjectSymbol, program: bool) -> Option<Reach> {
    match symbol {
        ObjectSymbol { strong: true, .. } => None,
        ObjectSymbol { common: true, .. } | ObjectSymbol { hidden: true, .. } => Some(Reach::Own),
        ObjectSymbol {
            thread_local: true,
            grouped,
            ..
        } if !program || *grouped => Some(Reach::ThreadLocals),
        // C++ has its equal definitions in groups; nothing else tells.
        ObjectSymbol {
            data: true,
            far: true,
            grouped,
            ..
        } if !program || *grouped => Some(Reach::All),
        _ => Some(Reach::Linked),
    }
}

impl Core {
    /// Makes the tracker for names of an image that may remain.
    pub(crate) fn remaining(&self, dylib: &Dylib) -> Result<Arc<Remaining>, Error> {
        let key = dylib.create_kept_tracker()?;
        let defunct = || uruk_session::SessionError::TrackerDefunct {
            dylib: dylib.name().into(),
        };
        let tracker = self.names.session().tracker(key).ok_or_else(defunct)?;
        Ok(Arc::new(Remaining {
            key,
            tracker,
            asked: OnceLock::new(),
            late: AtomicBool::new(false),
        }))
    }

    /// Has what remains of an image go when it is removed, or with the last image that is bound
    /// to it.
    pub(crate) fn keep_remaining(
        self: &Arc<Self>,
        tracker: &Tracker,
        life: &Arc<Life>,
        remaining: &Remaining,
    ) -> Result<(), Error> {
        let (core, key) = (Arc::downgrade(self), remaining.key);
        let of = Arc::clone(life);
        Ok(tracker.attach(Box::new(move || {
            of.bonds.after(Box::new(move || {
                let tracker = core.upgrade().and_then(|c| c.names.session().tracker(key));
                // There is none if the dylib was cleared.
                let _ = tracker.map(|tracker| tracker.remove());
            }));
        }))?)
    }

    /// Defines names of an image: those that may remain apart from the others. Variables among
    /// them are in use from here on.
    pub(crate) fn define_names(
        &self,
        tracker: &Tracker,
        remaining: Option<&Remaining>,
        names: Vec<Name>,
    ) -> Result<(), Error> {
        let Some(remaining) = remaining else {
            return Ok(self.names.define(tracker, names)?);
        };
        let may_remain = |name: &Name| name.weak || name.name.contains(LOCAL_MARKER);
        let (weak, strong): (Vec<Name>, Vec<Name>) = names.into_iter().partition(may_remain);
        self.names.define(tracker, strong)?;
        let known: Vec<(Box<str>, bool)> = weak
            .iter()
            .map(|name| (name.name.clone(), name.function().is_none()))
            .collect();
        self.names.define(&remaining.tracker, weak)?;
        let (dylib, session) = (tracker.dylib(), self.names.session());
        for (name, variable) in known {
            if session.tracker_of(&dylib, session.intern(&name)) != Some(remaining.key) {
                let asked = remaining.asked.get();
                if asked.is_some_and(|asked| !asked.contains(&name)) {
                    continue;
                }
                // Relaxed: read by who waits for this thread.
                remaining.late.store(true, Ordering::Relaxed);
                return Err(Error::DuplicateSymbol {
                    symbol: name.into(),
                    first: dylib.name().to_owned(),
                    second: String::from("what was added at the same time"),
                });
            }
            if variable {
                self.names.find(&dylib, &name);
            }
        }
        Ok(())
    }

    /// Finds what weak definitions in modules and objects that are added to `dylib` yield to.
    pub(crate) fn surroundings<'a>(
        &self,
        dylib: &Dylib,
        symbols: impl Iterator<Item = &'a SymbolInfo>,
        objects: impl Iterator<Item = &'a ObjectSymbol>,
        remaining: Option<&Remaining>,
    ) -> Surroundings {
        let program = self.is_program();
        let mut wanted: [HashSet<&str>; 4] = Default::default();
        let reached = symbols.map(|info| (reach_of_symbol(info, program), &*info.name));
        let of_objects = objects.map(|one| (reach_of_object(one, program), &*one.name));
        for (reach, name) in reached.chain(of_objects) {
            if let Some(reach) = reach {
                wanted[reach as usize].insert(name);
            }
        }
        if let Some(remaining) = remaining {
            let names = wanted.iter().flatten().map(|name| Box::from(*name));
            // An image is bound once.
            let _ = remaining.asked.set(names.collect());
        }
        if program {
            // Nothing of it was there before it.
            wanted[Reach::Own as usize].clear();
            wanted[Reach::Linked as usize].clear();
        }
        let order = dylib.search_order();
        let linked = order.iter().filter(|(d, _)| d != self.names.host());
        let linked: Vec<_> = linked.cloned().collect();
        let [own, of_linked, all, thread_locals] = wanted;
        let mut found = Surroundings {
            own: self.names.find_all(&linked[..1], own),
            linked: self.names.find_all(&linked, of_linked),
            all: self.names.find_all(&order, all),
            thread_locals: self.names.find_all(&linked, thread_locals.clone()),
            program,
        };
        for name in thread_locals {
            let process = || self.process.read().unwrap_or_else(PoisonError::into_inner);
            if !found.thread_locals.contains_key(name)
                && let Some((module, offset)) = process().find_tls(name)
            {
                let definition = Definition::Tls { module, offset };
                found.thread_locals.insert(name.into(), definition);
            }
        }
        found
    }

    /// Binds an image to those whose definitions its own yielded to. Under `tracker` it is until
    /// the image goes.
    pub(crate) fn bind_to(
        &self,
        tracker: &Tracker,
        life: &Arc<Life>,
        yielded: &[(Box<str>, Definition)],
    ) -> Result<(), Error> {
        let mut bonds: Vec<Bond> = Vec::new();
        for (name, definition) in yielded {
            let owner = match *definition {
                Definition::Function { id } => self.life_of(id),
                Definition::Address(at) => self.life_at(at),
                Definition::Tls { module, .. } => self.owners.life_of_thread_locals(module),
            };
            let Some(owner) = owner else { continue };
            for image in [owner.root(), &owner] {
                if bonds.iter().any(|bond| Arc::ptr_eq(&bond.to, image)) {
                    continue;
                }
                let bond = image.bind(life.number()).map_err(|Gone| Error::Leaving {
                    symbol: name.to_string(),
                })?;
                bonds.push(bond);
            }
            let key = owner.root().bonds.names.get();
            let remaining = key.and_then(|&key| self.names.session().tracker(key));
            if let Some(remaining) = remaining {
                let symbol = self.names.session().intern(name);
                // It fails where the dylib was cleared, and then there is no name.
                let _ = remaining.adopt(&[symbol]);
            }
        }
        if bonds.is_empty() {
            return Ok(());
        }
        Ok(tracker.attach(life.guard(move || drop(bonds)))?)
    }
}

/// A definition that yielded.
struct Yielded<'a> {
    file: &'a str,
    name: &'a str,
    /// False if what is there is something else.
    fits: bool,
    /// Of a tentative one.
    size: Option<u64>,
}

impl Core {
    /// What yields is to be of the kind of what there is, and a tentative definition no larger.
    pub(crate) fn check_yielded(
        self: &Arc<Self>,
        dylib: &Dylib,
        image: &Image,
        object_symbols: &[(usize, Vec<ObjectSymbol>)],
        yielded: &[(Box<str>, Definition)],
    ) -> Result<(), Error> {
        let found = yielded.iter().map(|(name, meaning)| (&**name, *meaning));
        let found: HashMap<&str, Definition> = found.collect();
        for (_, module) in &image.modules {
            let summary = module.readers.summary();
            for (index, info) in summary.symbols.iter().enumerate() {
                let definition = match found.get(&*info.name) {
                    Some(&meaning) if info.linkage.is_definition() && !is_local(info) => meaning,
                    _ => continue,
                };
                let id = SymbolId(index as u32);
                let fits = match (info.kind, definition) {
                    (Kind::ThreadLocal, found) => matches!(found, Definition::Tls { .. }),
                    (Kind::Data, found) => matches!(found, Definition::Address(_)),
                    (Kind::Function | Kind::Ifunc { .. }, Definition::Tls { .. }) => false,
                    _ => true,
                };
                let size = match info.linkage {
                    Linkage::Common => Some(module.readers.reader()?.layout(id).size),
                    _ => None,
                };
                let file = module.readers.bitcode().name();
                let name = &info.name;
                self.check_one(
                    dylib,
                    &Yielded {
                        file,
                        name,
                        fits,
                        size,
                    },
                )?;
            }
        }
        for ((_, symbols), (file, _)) in object_symbols.iter().zip(&image.objects) {
            for symbol in symbols {
                let Some(definition) = found.get(&*symbol.name) else {
                    continue;
                };
                let fits = match definition {
                    Definition::Function { .. } => !symbol.data && !symbol.thread_local,
                    Definition::Address(_) => !symbol.thread_local,
                    Definition::Tls { .. } => symbol.thread_local,
                };
                let size = symbol.common.then_some(symbol.size);
                let name = &symbol.name;
                self.check_one(
                    dylib,
                    &Yielded {
                        file,
                        name,
                        fits,
                        size,
                    },
                )?;
            }
        }
        Ok(())
    }

    fn check_one(self: &Arc<Self>, dylib: &Dylib, yielded: &Yielded<'_>) -> Result<(), Error> {
        let Yielded {
            file, name, fits, ..
        } = *yielded;
        if !fits {
            return Err(Error::DuplicateSymbol {
                symbol: name.to_owned(),
                first: format!("{} (something else)", dylib.name()),
                second: file.to_owned(),
            });
        }
        let Some(size) = yielded.size else {
            return Ok(());
        };
        let defined = match self.objects.variable(dylib, name) {
            Some(variable) => Some(variable.size),
            // None for what the host gave a name to: it answers for the size.
            None => self.size_of(dylib, name)?,
        };
        match defined {
            Some(defined) if defined < size => Err(Error::CommonSize {
                file: file.to_owned(),
                symbol: name.to_owned(),
                size,
                defined,
            }),
            _ => Ok(()),
        }
    }
}

impl Core {
    /// The size of a variable of a module, which LLVM tells.
    fn size_of(self: &Arc<Self>, dylib: &Dylib, name: &str) -> Result<Option<u64>, Error> {
        let (core, dylib, name) = (Arc::clone(self), dylib.clone(), name.to_owned());
        let symbol = name.clone();
        let lost = move |message: &str| {
            Error::Codegen(CodegenError::Fatal {
                module: symbol.clone(),
                unit: String::from("its size"),
                message: message.to_owned(),
            })
        };
        sacrificial::sacrificial("uruk-size", lost, move || {
            let layout = core.layout_of(&dylib, &name)?;
            Ok(layout.map(|layout| layout.size))
        })
    }
}

fn is_local(info: &SymbolInfo) -> bool {
    info.linkage == Linkage::Local
}

impl Remaining {
    /// Tells those who get bound to the image where its names are.
    pub(crate) fn note(&self, life: &Life) {
        // An image has one.
        let _ = life.bonds.names.set(self.key);
    }
}
