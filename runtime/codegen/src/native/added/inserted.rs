//! Instructions that may be added to a function.

use std::collections::HashSet;

use super::{COMPUTING, Piece, STREAMS, Step, WRITERS};
use crate::native::bodies::{Module, plain};

/// An instruction that is added.
pub(super) struct Inserted<'a, 't> {
    pub(super) step: &'a Step<'t>,
    /// Values that other added instructions compute.
    pub(super) own: &'a HashSet<&'t str>,
    /// Values of `own` that are addresses in the frame.
    pub(super) frames: &'a HashSet<&'t str>,
    /// True if its function throws nothing.
    pub(super) nounwind: bool,
    pub(super) old: &'a Module<'t>,
    pub(super) new: &'a Module<'t>,
    /// Functions that the new file defines.
    pub(super) defined: &'a HashSet<String>,
}

impl<'t> Inserted<'_, 't> {
    /// The variables that it uses and that the old file did not have, or the function that it
    /// calls. `None` if it may not be added.
    pub(super) fn uses(&self) -> Option<Vec<&'t str>> {
        let mut locals = self.step.locals();
        if self.step.label || !locals.all(|it| self.own.contains(it)) {
            return None;
        }
        let globals: Vec<&'t str> = self.step.globals().collect();
        match self.step.opcode() {
            "load" | "store" | "atomicrmw" | "cmpxchg" if !self.is_address_known() => None,
            "load" => {
                let read = globals.into_iter().filter(|it| !STREAMS.contains(it));
                self.all_new(read.collect())
            }
            "store" | "atomicrmw" | "cmpxchg" => self.all_new(globals),
            "fence" => Some(Vec::new()),
            "alloca" => globals.is_empty().then(Vec::new),
            "call" if matches!(&*globals, [it] if it.starts_with("@llvm.lifetime.")) => {
                Some(Vec::new())
            }
            "call" => self.is_writer(&globals).then(|| vec![globals[0]]),
            opcode => (globals.is_empty() && COMPUTING.contains(&opcode)).then(Vec::new),
        }
    }

    /// Whether the memory that it reads or writes is a variable's, or of the frame.
    fn is_address_known(&self) -> bool {
        let mut operands = self.step.operands();
        let address = match self.step.opcode() {
            "load" | "store" => operands.last(),
            _ => operands.next(),
        };
        address.is_some_and(|it| it.starts_with('@') || self.frames.contains(it))
    }

    /// The variables, if the old file has none of them.
    fn all_new(&self, names: Vec<&'t str>) -> Option<Vec<&'t str>> {
        let is_new =
            |name: &&str| self.old.variable(name).is_none() && self.new.variable(name).is_some();
        names.iter().all(is_new).then_some(names)
    }

    /// Whether it calls a function that writes its arguments: numbers, and constants.
    fn is_writer(&self, globals: &[&'t str]) -> bool {
        let Some((callee, given)) = globals.split_first() else {
            return false;
        };
        let name = plain(callee);
        let is_direct = self.step.operands().next() == Some(callee);
        let is_known = WRITERS.contains(&name.as_str()) && !self.defined.contains(&name);
        let mut texts = self.step.texts();
        let is_plain = !texts.any(|it| it.contains("[ "));
        let groups = self.step.pieces.iter().filter_map(|it| match it {
            Piece::Named(name, _) => Some(*name),
            _ => None,
        });
        let mut groups = groups.filter(|it| it.starts_with('#'));
        let throws = !self.nounwind && !groups.any(|it| self.new.says(it, "nounwind"));
        let mut given = given.iter();
        is_direct && is_known && is_plain && !throws && given.all(|it| self.new.defines(it))
    }
}

impl<'t> Step<'t> {
    fn locals(&self) -> impl Iterator<Item = &'t str> {
        self.pieces.iter().filter_map(|it| match it {
            Piece::Local(name) => Some(*name),
            _ => None,
        })
    }

    /// Functions and variables.
    fn globals(&self) -> impl Iterator<Item = &'t str> {
        let named = self.pieces.iter().filter_map(|it| match it {
            Piece::Named(name, _) => Some(*name),
            _ => None,
        });
        named.filter(|it| it.starts_with('@'))
    }

    fn texts(&self) -> impl Iterator<Item = &'t str> {
        self.pieces.iter().filter_map(|it| match it {
            Piece::Text(text) => Some(*text),
            _ => None,
        })
    }

    /// Its operands, in order.
    fn operands(&self) -> impl Iterator<Item = &'t str> {
        let names = self.pieces.iter().filter_map(|it| match it {
            Piece::Local(name) => Some(*name),
            Piece::Named(name, _) if name.starts_with('@') => Some(*name),
            _ => None,
        });
        names.skip(usize::from(self.result.is_some()))
    }

    /// The name of the instruction.
    pub(super) fn opcode(&self) -> &'t str {
        let text = self
            .texts()
            .find(|it| it.contains(|c: char| c.is_ascii_lowercase()));
        let words = text.unwrap_or_default().split([' ', '=']);
        let mut words = words.filter(|it| !it.is_empty() && *it != "tail" && *it != "notail");
        words.next().unwrap_or_default()
    }

    /// Whether it uses a variable only as the memory that it reads or writes.
    pub(super) fn only_accesses(&self, variable: &str) -> bool {
        let (mut depth, mut commas) = (0_usize, 0_usize);
        let opcode = self.opcode();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => {
                    for sign in text.bytes() {
                        match sign {
                            b'(' | b'[' | b'{' | b'<' => depth += 1,
                            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
                            b',' if depth == 0 => commas += 1,
                            _ => {}
                        }
                    }
                }
                Piece::Named(name, _) if *name == variable => match opcode {
                    "load" => {}
                    "store" if commas > 0 => {}
                    "atomicrmw" | "cmpxchg" if commas == 0 => {}
                    _ => return false,
                },
                _ => {}
            }
        }
        true
    }
}
