//! Meanings of local names, also of modules that were replaced: a persistent search tree.
//!
//! Each replacement inherits the local names of the modules that it replaces, and all of these
//! modules may stay. So the trees share their nodes: a tree with one more name has a logarithmic
//! number of nodes of its own, and so does the union of trees that came from one another.
//!
//! A node has a *priority*, the hash of its name, and no node below it has a greater one (a treap).
//! So the shape of a tree depends on its names only, the depth is logarithmic for any names, and
//! equal parts of two trees that came from one another are the same nodes.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::{Arc, LazyLock};

use uruk_base::allocated::{of_arc, of_block, of_slice};

/// Local names of functions and variables, and the link names that each stands for.
#[derive(Clone, Default)]
pub(crate) struct Locals(Option<Arc<LocalNode>>);

#[derive(Clone)]
struct LocalNode {
    entry: Arc<LocalEntry>,
    /// The names before this one, and those after it.
    sides: [Locals; 2],
}

struct LocalEntry {
    priority: u64,
    name: Box<str>,
    links: Box<[Box<str>]>,
}

/// Nodes and entries that were counted already.
#[derive(Default)]
pub(crate) struct CountedLocals(HashSet<usize>);

impl LocalEntry {
    fn new(name: &str, links: Box<[Box<str>]>) -> LocalEntry {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        LocalEntry {
            priority: HASHER.hash_one(name),
            name: name.into(),
            links,
        }
    }

    /// The order of heights in a tree.
    fn rank(&self) -> (u64, &str) {
        (self.priority, &self.name)
    }

    fn has(&self, links: &[Box<str>]) -> bool {
        links.iter().all(|link| self.links.contains(link))
    }

    /// The meanings of both entries.
    fn with(self: &Arc<Self>, other: &Arc<LocalEntry>) -> Arc<LocalEntry> {
        if self.has(&other.links) {
            return Arc::clone(self);
        }
        if other.has(&self.links) {
            return Arc::clone(other);
        }
        let more = other.links.iter().filter(|link| !self.links.contains(link));
        let links = self.links.iter().chain(more).cloned().collect();
        Arc::new(LocalEntry::new(&self.name, links))
    }

    fn bytes(&self) -> usize {
        let links = self.links.iter().map(|link| of_block(link.len()));
        let of_links = of_slice(&self.links) + links.sum::<usize>();
        of_arc::<LocalEntry>() + of_block(self.name.len()) + of_links
    }
}

impl Locals {
    /// The link names that a name stands for.
    pub(crate) fn get(&self, name: &str) -> &[Box<str>] {
        let mut at = self;
        while let Some(node) = &at.0 {
            match name.cmp(&node.entry.name) {
                Ordering::Equal => return &node.entry.links,
                other => at = &node.sides[usize::from(other.is_gt())],
            }
        }
        &[]
    }

    /// Has a name stand for one link name.
    pub(crate) fn set(&mut self, name: &str, link_name: &str) {
        if !matches!(self.get(name), [only] if **only == *link_name) {
            let links = Box::new([Box::from(link_name)]);
            self.put(Arc::new(LocalEntry::new(name, links)));
        }
    }

    fn put(&mut self, entry: Arc<LocalEntry>) {
        match &mut self.0 {
            Some(node) if node.entry.rank() >= entry.rank() => {
                let node = Arc::make_mut(node);
                match entry.name.cmp(&node.entry.name) {
                    Ordering::Equal => node.entry = entry,
                    other => node.sides[usize::from(other.is_gt())].put(entry),
                }
            }
            _ => {
                let sides = mem::take(self).split(&entry.name);
                *self = Locals(Some(Arc::new(LocalNode { entry, sides })));
            }
        }
    }

    /// The names before `name`, which is not among them, and those after it.
    fn split(self, name: &str) -> [Locals; 2] {
        let Some(mut node) = self.0 else {
            return Default::default();
        };
        let after = *node.entry.name > *name;
        let inner = &mut Arc::make_mut(&mut node).sides[usize::from(!after)];
        let [before, rest] = mem::take(inner).split(name);
        match after {
            true => {
                *inner = rest;
                [before, Locals(Some(node))]
            }
            false => {
                *inner = before;
                [Locals(Some(node)), rest]
            }
        }
    }

    /// The names of both, each with all that it stands for in either.
    pub(crate) fn union(self, other: Locals) -> Locals {
        let (own, others) = match (&self.0, &other.0) {
            (Some(own), Some(others)) => (Arc::clone(own), Arc::clone(others)),
            (None, _) => return other,
            (_, None) => return self,
        };
        if Arc::ptr_eq(&own, &others) {
            return self;
        }
        let join = |[a, b]: [Locals; 2], [c, d]: [Locals; 2]| [a.union(c), b.union(d)];
        match own.entry.rank().cmp(&others.entry.rank()) {
            Ordering::Equal => {
                let sides = join(own.sides.clone(), others.sides.clone());
                made_of(own.entry.with(&others.entry), sides, &[own, others])
            }
            Ordering::Greater => {
                let sides = join(own.sides.clone(), other.split(&own.entry.name));
                made_of(Arc::clone(&own.entry), sides, &[own])
            }
            Ordering::Less => {
                let sides = join(self.split(&others.entry.name), others.sides.clone());
                made_of(Arc::clone(&others.entry), sides, &[others])
            }
        }
    }

    fn is(&self, other: &Locals) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }

    /// Bytes that the allocator took for nodes that are not among `counted`, to which they are
    /// added.
    pub(crate) fn bytes(&self, counted: &mut CountedLocals) -> usize {
        let Some(node) = &self.0 else { return 0 };
        if !counted.0.insert(Arc::as_ptr(node).addr()) {
            return 0;
        }
        let entry = match counted.0.insert(Arc::as_ptr(&node.entry).addr()) {
            true => node.entry.bytes(),
            false => 0,
        };
        let sides = node.sides.iter().map(|side| side.bytes(counted));
        of_arc::<LocalNode>() + entry + sides.sum::<usize>()
    }
}

/// A tree of an entry and its sides: one of the nodes that are known, if it is the same.
fn made_of(entry: Arc<LocalEntry>, sides: [Locals; 2], known: &[Arc<LocalNode>]) -> Locals {
    let mut known = known.iter().filter(|node| {
        let [before, after] = &node.sides;
        node.entry.links == entry.links && before.is(&sides[0]) && after.is(&sides[1])
    });
    let node = known.next().map(Arc::clone);
    Locals(Some(
        node.unwrap_or_else(|| Arc::new(LocalNode { entry, sides })),
    ))
}

#[cfg(test)]
mod tests {
    use super::{CountedLocals, Locals};
    use std::collections::BTreeMap;
    use uruk_testing::Random;

    type Model = BTreeMap<String, Vec<String>>;

    fn check(locals: &Locals, model: &Model) {
        for number in 0..40 {
            let name = format!("n{number}");
            let mut found: Vec<&str> = locals.get(&name).iter().map(|link| &**link).collect();
            let known = model.get(&name).into_iter().flatten();
            let mut known: Vec<&str> = known.map(String::as_str).collect();
            found.sort_unstable();
            known.sort_unstable();
            assert_eq!(found, known, "{name}");
        }
    }

    #[test]
    fn it_is_a_map_with_unions() {
        let mut random = Random::new(1);
        let mut all: Vec<(Locals, Model)> = vec![Default::default()];
        for _ in 0..2_000 {
            let mut any = || all[random.below(all.len())].clone();
            let ((mut locals, mut model), other) = (any(), any());
            if random.below(3) == 0 {
                locals = locals.union(other.0);
                for (name, links) in other.1 {
                    let known = model.entry(name).or_default();
                    let more: Vec<String> =
                        links.into_iter().filter(|l| !known.contains(l)).collect();
                    known.extend(more);
                }
            } else {
                let name = format!("n{}", random.below(40));
                let link = format!("l{}", random.below(4));
                locals.set(&name, &link);
                model.insert(name, vec![link]);
            }
            check(&locals, &model);
            all.push((locals, model));
            if all.len() > 20 {
                all.swap_remove(random.below(20));
            }
        }
    }

    /// Each of many trees has a few nodes of its own.
    #[test]
    fn memory_is_shared() {
        let bytes_of = |count: usize, is_union: bool| {
            let mut base = Locals::default();
            (0..100).for_each(|number| base.set(&format!("base{number}"), "link"));
            let mut all = vec![base.clone()];
            for number in 0..count {
                let mut next = all[number].clone();
                if is_union {
                    next = base.clone().union(next);
                }
                next.set(&format!("helper{number}"), &format!("helper{number}.1"));
                next.set("base1", "link");
                all.push(next);
            }
            let mut counted = CountedLocals::default();
            all.iter()
                .map(|tree| tree.bytes(&mut counted))
                .sum::<usize>()
        };
        for is_union in [false, true] {
            let (few, many) = (bytes_of(500, is_union), bytes_of(4_000, is_union));
            assert!(many / 4_000 < 3 * few / 500, "{few} {many}");
            assert!(many / 4_000 < 2_000, "{many}");
        }
    }
}
