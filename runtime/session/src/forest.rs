//! A forest of rooted trees with link, cut and find-root in logarithmic
//! amortized time: link-cut trees (Sleator and Tarjan 1983), without re-rooting.
//!
//! Each tree is kept as paths, each path as a splay tree keyed by depth. `parent`
//! of a splay root is the path's parent in the forest; a node knows that it is
//! such a root because its `parent` does not have it as a child.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct TreeNode {
    parent: u32,
    left: u32,
    right: u32,
}

const LONE: TreeNode = TreeNode {
    parent: NONE,
    left: NONE,
    right: NONE,
};

/// See the module text. Nodes are dense numbers.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    nodes: Vec<TreeNode>,
}

impl Forest {
    /// Makes `node` a tree of its own, whatever its state. Sound for a whole tree at once, or for a
    /// node without relations.
    pub(crate) fn reset(&mut self, node: u32) {
        if node as usize >= self.nodes.len() {
            self.nodes.resize(node as usize + 1, LONE);
        }
        self.nodes[node as usize] = LONE;
    }

    fn at(&self, node: u32) -> TreeNode {
        self.nodes[node as usize]
    }

    fn edit(&mut self, node: u32) -> &mut TreeNode {
        &mut self.nodes[node as usize]
    }

    fn is_splay_root(&self, node: u32) -> bool {
        let parent = self.at(node).parent;
        parent == NONE || (self.at(parent).left != node && self.at(parent).right != node)
    }

    fn rotate(&mut self, x: u32) {
        let p = self.at(x).parent;
        let g = self.at(p).parent;
        let p_was_root = self.is_splay_root(p);
        let moved = if self.at(p).left == x {
            let moved = self.at(x).right;
            self.edit(p).left = moved;
            self.edit(x).right = p;
            moved
        } else {
            let moved = self.at(x).left;
            self.edit(p).right = moved;
            self.edit(x).left = p;
            moved
        };
        if moved != NONE {
            self.edit(moved).parent = p;
        }
        self.edit(p).parent = x;
        self.edit(x).parent = g;
        if !p_was_root {
            if self.at(g).left == p {
                self.edit(g).left = x;
            } else {
                self.edit(g).right = x;
            }
        }
    }

    fn splay(&mut self, x: u32) {
        while !self.is_splay_root(x) {
            let p = self.at(x).parent;
            if !self.is_splay_root(p) {
                let g = self.at(p).parent;
                let same_side = (self.at(p).left == x) == (self.at(g).left == p);
                self.rotate(if same_side { p } else { x });
            }
            self.rotate(x);
        }
    }

    /// Makes the path from the root to `x` one splay tree with `x` on top.
    fn access(&mut self, x: u32) {
        self.splay(x);
        self.edit(x).right = NONE;
        while self.at(x).parent != NONE {
            let above = self.at(x).parent;
            self.splay(above);
            self.edit(above).right = x;
            self.splay(x);
        }
    }

    /// The root of the tree that `node` is in.
    pub(crate) fn root(&mut self, node: u32) -> u32 {
        self.access(node);
        let mut root = node;
        while self.at(root).left != NONE {
            root = self.at(root).left;
        }
        self.splay(root);
        root
    }

    /// Hangs the tree whose root is `root` under `parent` of another tree.
    pub(crate) fn link(&mut self, root: u32, parent: u32) {
        self.access(root);
        debug_assert!(self.at(root).left == NONE, "only a root is linked");
        self.access(parent);
        self.edit(root).parent = parent;
    }

    /// Makes the subtree of `node` a tree of its own.
    pub(crate) fn cut(&mut self, node: u32) {
        self.access(node);
        let above = self.at(node).left;
        if above != NONE {
            self.edit(above).parent = NONE;
            self.edit(node).left = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Forest;
    use uruk_testing::Random;

    /// The oracle: plain parent pointers.
    #[test]
    fn agrees_with_parent_pointers() {
        let mut numbers = Random::new(1);
        let mut random = |below: usize| numbers.below(below);
        const NODES: usize = 60;
        let mut forest = Forest::default();
        let mut parents = vec![None; NODES];
        (0..NODES).for_each(|n| forest.reset(n as u32));
        let root = |parents: &[Option<usize>], mut n: usize| {
            while let Some(p) = parents[n] {
                n = p;
            }
            n
        };
        for _ in 0..20_000 {
            let (a, b) = (random(NODES), random(NODES));
            assert_eq!(forest.root(a as u32), root(&parents, a) as u32);
            if parents[a].is_some() {
                if random(3) == 0 {
                    forest.cut(a as u32);
                    parents[a] = None;
                }
            } else if root(&parents, b) != a {
                forest.link(a as u32, b as u32);
                parents[a] = Some(b);
            }
        }
    }
}
