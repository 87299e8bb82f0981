//! Exchanges made so far: the current bodies of functions, and the way back.
//!
//! Exchanges that can be rolled back are kept one by one, as many as the session keeps ([`KEPT`]).
//! Earlier ones are merged: a program that is exchanged for months keeps one body of each function.

use std::collections::{HashMap, HashSet, VecDeque};

use uruk::Level;
use uruk::live::rebound::{Body, Contents, Shape};

use crate::choose::stem;
use crate::function::Led;

/// Exchanges that the session can roll back.
const KEPT: usize = 8;

/// An exchange that was made.
pub(crate) struct Exchanged {
    /// The module's number.
    pub(crate) module: usize,
    /// The level that was requested.
    pub(crate) level: Level,
    /// The bodies that it brought.
    pub(crate) bodies: HashMap<String, Body>,
    /// The file's variables.
    pub(crate) variables: HashMap<String, Shape>,
    /// The file's functions whose names compilers number.
    pub(crate) code: HashMap<String, Body>,
    /// Variables that its bodies do not only read.
    pub(crate) written: HashSet<String>,
    pub(crate) led: Led,
    /// Native callers that do not fit its bodies.
    pub(crate) outdated: Led,
    /// Functions whose code had copies of old bodies.
    pub(crate) dependents: Vec<String>,
}

/// Exchanges that were not rolled back.
#[derive(Default)]
pub(crate) struct Exchanges {
    /// Those that can be rolled back, the latest last.
    kept: VecDeque<Exchanged>,
    /// By module: the merged results of earlier exchanges.
    settled: HashMap<usize, Settled>,
    /// Functions that earlier exchanges keep redirected.
    led: Option<Led>,
    /// Native callers that earlier exchanges keep outdated.
    outdated: Option<Led>,
}

#[derive(Default)]
struct Settled {
    bodies: HashMap<String, Body>,
    variables: HashMap<String, Shape>,
    code: HashMap<String, Body>,
    written: HashSet<String>,
}

impl Exchanges {
    /// Adds the latest.
    pub(crate) fn push(&mut self, exchange: Exchanged) {
        self.kept.push_back(exchange);
        if self.kept.len() > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.settle(oldest);
        }
    }

    /// Removes the latest.
    pub(crate) fn pop(&mut self) -> Option<Exchanged> {
        self.kept.pop_back()
    }

    /// Applies all exchanges of a module to its contents. Variables stay those that it had first, as
    /// their memory stays.
    pub(crate) fn apply(&self, module: usize, contents: &mut Contents) {
        let settled = self.settled.get(&module);
        let settled = settled.map(|it| (&it.bodies, &it.variables, &it.code, &it.written));
        let kept = self.kept.iter().filter(|it| it.module == module);
        let kept = kept.map(|it| (&it.bodies, &it.variables, &it.code, &it.written));
        for (bodies, variables, code, written) in settled.into_iter().chain(kept) {
            add(&mut contents.functions, bodies);
            add_new(&mut contents.variables, variables);
            add(&mut contents.code, code);
            for name in written {
                if let Some(shape) = contents.variables.get_mut(name) {
                    shape.only_read = false;
                }
            }
        }
    }

    /// Variables of all files that have been exchanged which other files find.
    pub(crate) fn brought(&self) -> HashMap<String, Shape> {
        let settled = self.settled.values().map(|it| &it.variables);
        let all = settled.chain(self.kept.iter().map(|it| &it.variables));
        let mut brought = HashMap::new();
        for (name, shape) in all.flatten().filter(|(_, shape)| !shape.local) {
            // The memory is that of the first.
            let place = brought.entry(name.clone());
            place.or_insert_with(|| shape.clone());
        }
        brought
    }

    /// Functions that have bodies of exchanges that cannot be rolled back.
    pub(crate) fn settled(&self) -> Vec<String> {
        let bodies = self.settled.values().flat_map(|it| it.bodies.keys());
        let mut names: Vec<String> = bodies.cloned().collect();
        names.sort();
        names
    }

    fn settle(&mut self, oldest: Exchanged) {
        let settled = self.settled.entry(oldest.module).or_default();
        add(&mut settled.bodies, &oldest.bodies);
        add_new(&mut settled.variables, &oldest.variables);
        add(&mut settled.code, &oldest.code);
        settled.written.extend(oldest.written);
        keep(&mut self.led, oldest.led);
        keep(&mut self.outdated, oldest.outdated);
    }
}

fn keep(all: &mut Option<Led>, more: Led) {
    *all = Some(match all.take() {
        Some(before) => before.and(more.functions()),
        None => more,
    });
}

fn add(to: &mut HashMap<String, Body>, from: &HashMap<String, Body>) {
    to.extend(from.iter().map(|(name, body)| (name.clone(), *body)));
}

fn add_new(to: &mut HashMap<String, Shape>, from: &HashMap<String, Shape>) {
    for (name, shape) in from {
        to.entry(name.clone()).or_insert_with(|| shape.clone());
    }
}

/// Contents under the names without the suffixes that make them unique.
pub(crate) fn by_stem(contents: Contents) -> Contents {
    fn stems<T>(named: HashMap<String, T>) -> HashMap<String, T> {
        let named = named.into_iter();
        named
            .map(|(name, it)| (stem(&name).to_owned(), it))
            .collect()
    }
    let [constructors, destructors] = [contents.constructors, contents.destructors]
        .map(|names| names.iter().map(|name| stem(name).to_owned()).collect());
    Contents {
        method: contents.method,
        types: contents.types,
        code: stems(contents.code),
        aliases: stems(contents.aliases),
        tables: stems(contents.tables),
        functions: stems(contents.functions),
        variables: stems(contents.variables),
        constructors,
        destructors,
    }
}
