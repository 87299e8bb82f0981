//! The dependence graph decides which symbols are ready; a pure data structure.
//!
//! A node is *open* until its owner emits it with its dependences. It becomes ready when no open
//! node can be reached from it, so the members of a cycle become ready together. A failure also
//! fails all nodes that can reach the failed one.
//!
//! Invariants:
//! - Emitted nodes that are known to lie on one cycle are one *component*
//!   (union-find; the leader carries the component's dependences).
//! - Every emitted component that is not ready *watches* one unready dependence
//!   outside of it. Along the watches the components form a forest whose roots
//!   are the open nodes: that is the proof that nothing pending could be ready.
//!
//! How it works: emitting makes a root search its dependences for one to watch. If the dependence
//! hangs below that very root, the path between them is a cycle, and becomes one component. If none
//! is left to watch, the component is ready; its watchers continue their search. Each dependence is
//! examined once, each merge makes a component fewer, and roots are found by link-cut trees:
//! `O((nodes + dependences) log nodes)` in all, in whatever order nodes are emitted. ORC 22.1.8
//! simplifies whole sets at each emission (a chain of 4,000 symbols: 58.8 s).

use crate::forest::Forest;

/// A node of a [`Graph`]. The id is stale once the node is ready or has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Node<T> {
    generation: u32,
    live: bool,
    emitted: bool,
    /// `None` for nodes that only represent a group.
    item: Option<T>,
    /// Union-find: the node itself if it leads its component.
    leader: u32,
    /// Of leaders: the other nodes of the component.
    members: Vec<u32>,
    /// Of leaders: dependences not examined yet.
    dependences: Vec<NodeId>,
    /// Of leaders: the dependence that keeps the component from being ready.
    watch: Option<NodeId>,
    /// Nodes that named this one as a dependence; some may be dead.
    users: Vec<NodeId>,
    /// How many of `users` failed.
    dead_users: usize,
}

/// See the module text. `T` is the caller's item for a node.
#[derive(Debug)]
pub struct Graph<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    forest: Forest,
}

impl<T> Default for Graph<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            forest: Forest::default(),
        }
    }
}

impl<T: Clone> Graph<T> {
    /// A graph without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many nodes are neither ready nor failed.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Whether everything is ready or failed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new open node for `item`.
    pub fn add(&mut self, item: T) -> NodeId {
        self.insert(Some(item))
    }

    /// A new open node without an item: one node in front of a set of dependences that several
    /// others share.
    pub fn add_group(&mut self) -> NodeId {
        self.insert(None)
    }

    fn insert(&mut self, item: Option<T>) -> NodeId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node {
                generation: 0,
                live: false,
                emitted: false,
                item: None,
                leader: 0,
                members: Vec::new(),
                dependences: Vec::new(),
                watch: None,
                users: Vec::new(),
                dead_users: 0,
            });
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 pending nodes")
        });
        self.forest.reset(index);
        let node = &mut self.nodes[index as usize];
        node.live = true;
        node.emitted = false;
        node.item = item;
        node.leader = index;
        NodeId {
            index,
            generation: node.generation,
        }
    }

    /// Whether the node is still neither ready nor failed.
    pub fn is_pending(&self, node: NodeId) -> bool {
        self.nodes
            .get(node.index as usize)
            .is_some_and(|n| n.live && n.generation == node.generation)
    }

    /// The leader of the component; shortens the path for the next search.
    fn find(&mut self, mut index: u32) -> u32 {
        loop {
            let above = self.nodes[index as usize].leader;
            if above == index {
                return index;
            }
            let next = self.nodes[above as usize].leader;
            self.nodes[index as usize].leader = next;
            index = next;
        }
    }

    /// Closes an open node: it depends on `dependences` (those no longer pending count as ready).
    /// Items that become ready by that are appended to `ready`. A node that was emitted before or
    /// is no longer pending is left as it is.
    pub fn emit(&mut self, node: NodeId, dependences: &[NodeId], ready: &mut Vec<T>) {
        if !self.is_pending(node) || self.nodes[node.index as usize].emitted {
            return;
        }
        self.nodes[node.index as usize].emitted = true;
        for dependence in dependences {
            if *dependence != node && self.is_pending(*dependence) {
                self.nodes[dependence.index as usize].users.push(node);
                self.nodes[node.index as usize]
                    .dependences
                    .push(*dependence);
            }
        }
        let mut roots = vec![node.index];
        while let Some(root) = roots.pop() {
            self.settle(root, &mut roots, ready);
        }
    }

    /// Finds a dependence to watch for a component without one, or makes it ready.
    fn settle(&mut self, root: u32, roots: &mut Vec<u32>, ready: &mut Vec<T>) {
        while let Some(dependence) = self.nodes[root as usize].dependences.pop() {
            if !self.is_pending(dependence) {
                continue;
            }
            let other = self.find(dependence.index);
            if other == root {
                continue;
            }
            let node = &self.nodes[root as usize];
            // No node hangs below one that is no node's dependence: no cycle.
            let unknown = node.users.is_empty() && node.members.is_empty();
            if unknown || self.forest.root(other) != root {
                self.nodes[root as usize].watch = Some(dependence);
                self.forest.link(root, dependence.index);
                return;
            }
            let mut on_cycle = other;
            while on_cycle != root {
                let watch = self.nodes[on_cycle as usize].watch.take();
                let next = watch.map_or(root, |watch| self.find(watch.index));
                self.absorb(root, on_cycle);
                on_cycle = next;
            }
        }
        self.retire(root, roots, ready);
    }

    /// Makes the component led by `other` part of the one led by `root`.
    fn absorb(&mut self, root: u32, other: u32) {
        let node = &mut self.nodes[other as usize];
        node.leader = root;
        let mut members = std::mem::take(&mut node.members);
        members.push(other);
        let mut dependences = std::mem::take(&mut node.dependences);
        let node = &mut self.nodes[root as usize];
        // The shorter is appended to the longer: each entry moves log(n) times.
        if members.len() > node.members.len() {
            std::mem::swap(&mut members, &mut node.members);
        }
        node.members.append(&mut members);
        if dependences.len() > node.dependences.len() {
            std::mem::swap(&mut dependences, &mut node.dependences);
        }
        node.dependences.append(&mut dependences);
    }

    /// All nodes of a component, which are dead from then on.
    fn kill(&mut self, leader: u32) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.nodes[leader as usize].members);
        all.push(leader);
        for index in &all {
            let node = &mut self.nodes[*index as usize];
            node.live = false;
            node.generation = node.generation.wrapping_add(1);
        }
        all
    }

    /// Frees dead nodes; only dead nodes may still hang below them.
    fn bury(&mut self, dead: &[u32]) {
        for index in dead {
            self.forest.reset(*index);
            let node = &mut self.nodes[*index as usize];
            node.leader = *index;
            node.dead_users = 0;
            node.dependences.clear();
            node.watch = None;
            self.free.push(*index);
        }
    }

    /// Makes a component ready; those that watched it become roots.
    fn retire(&mut self, root: u32, roots: &mut Vec<u32>, ready: &mut Vec<T>) {
        let dead = self.kill(root);
        for index in &dead {
            ready.extend(self.nodes[*index as usize].item.take());
            for user in std::mem::take(&mut self.nodes[*index as usize].users) {
                if !self.is_pending(user) {
                    continue;
                }
                let leader = self.find(user.index);
                let watch = self.nodes[leader as usize].watch;
                if watch.is_some_and(|watch| !self.is_pending(watch)) {
                    self.nodes[leader as usize].watch = None;
                    self.forest.cut(leader);
                    roots.push(leader);
                }
            }
        }
        self.bury(&dead);
    }

    /// Fails nodes and all that depend on them. Returns the items of all that failed, the given
    /// ones first. The cost is proportional to the failed nodes only.
    pub fn fail(&mut self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<T> {
        let mut failed = Vec::new();
        let mut dead: Vec<u32> = Vec::new();
        let mut queue: Vec<NodeId> = nodes.into_iter().collect();
        let mut next = 0;
        while next < queue.len() {
            let node = queue[next];
            next += 1;
            if !self.is_pending(node) {
                continue;
            }
            let leader = self.find(node.index);
            if self.nodes[leader as usize].watch.is_some() {
                self.forest.cut(leader);
            }
            let component = self.kill(leader);
            let leader = &mut self.nodes[leader as usize];
            let mut below = std::mem::take(&mut leader.dependences);
            below.extend(leader.watch.take());
            for dependence in below {
                if self.is_pending(dependence) {
                    self.forget_user(dependence.index);
                }
            }
            for index in component {
                let node = &mut self.nodes[index as usize];
                failed.extend(node.item.take());
                queue.append(&mut node.users);
                dead.push(index);
            }
        }
        self.bury(&dead);
        failed
    }

    /// Notes that one of the node's users failed: drops the dead ones when they are half.
    fn forget_user(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.dead_users += 1;
        if node.dead_users * 2 > node.users.len() {
            let mut users = std::mem::take(&mut node.users);
            node.dead_users = 0;
            users.retain(|user| self.is_pending(*user));
            self.nodes[index as usize].users = users;
        }
    }

    /// Whether an item that is pending named `node` as a dependence.
    pub fn is_needed(&self, node: NodeId) -> bool {
        if !self.is_pending(node) {
            return false;
        }
        let users = &self.nodes[node.index as usize].users;
        users.iter().any(|user| {
            let stands_for_item = || self.nodes[user.index as usize].item.is_some();
            self.is_pending(*user) && (stands_for_item() || self.is_needed(*user))
        })
    }

    /// The items that depend on `node`, itself first; changes nothing.
    pub fn dependents(&self, node: NodeId) -> Vec<T> {
        self.walk(node, |graph, index, queue| {
            queue.extend_from_slice(&graph.nodes[index as usize].users);
        })
        .into_iter()
        .filter_map(|index| self.nodes[index as usize].item.clone())
        .collect()
    }

    /// The items of open nodes that `node` waits for.
    pub fn waits_for(&self, node: NodeId) -> Vec<T> {
        self.walk(node, |graph, index, queue| {
            let node = &graph.nodes[index as usize];
            queue.extend_from_slice(&node.dependences);
            queue.extend(node.watch);
        })
        .into_iter()
        .filter(|index| !self.nodes[*index as usize].emitted)
        .filter_map(|index| self.nodes[index as usize].item.clone())
        .collect()
    }

    /// All nodes reachable by `step`; a component counts as a whole.
    fn walk(&self, start: NodeId, step: impl Fn(&Self, u32, &mut Vec<NodeId>)) -> Vec<u32> {
        let mut seen = std::collections::HashSet::new();
        let mut order = Vec::new();
        let mut queue = vec![start];
        let mut next = 0;
        while next < queue.len() {
            let node = queue[next];
            next += 1;
            if !self.is_pending(node) || seen.contains(&node.index) {
                continue;
            }
            let mut leader = node.index;
            while self.nodes[leader as usize].leader != leader {
                leader = self.nodes[leader as usize].leader;
            }
            let members = self.nodes[leader as usize].members.iter().copied();
            for index in std::iter::once(leader).chain(members) {
                seen.insert(index);
                order.push(index);
                step(self, index, &mut queue);
            }
        }
        order
    }
}
