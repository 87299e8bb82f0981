//! Hashes of a module's definitions, equal in two modules where the definitions mean the same.
//!
//! Two versions of a source give two modules in which everything has other numbers. A digest is
//! computed from records of the bitcode, with each number that is an index replaced by a hash of its
//! entry:
//!
//! | an index of | is replaced by |
//! |---|---|
//! | a type, an attribute list, a section, a comdat | its contents |
//! | a constant | its value and type |
//! | a global constant that the module defines | its name, its attributes and its value; a private one has no name |
//! | another global | its name |
//! | a parameter, a result of an instruction | its place in the body |
//! | metadata | its contents, and its place among the metadata that the body mentions |
//!
//! Records and metadata for debuggers are left out, and so are names of local values.
//!
//! Invariants:
//! - Equal digests mean equal definitions: a record of an unknown code is refused, and never hashed as
//!   if all its numbers were plain.
//! - Different digests may belong to equal definitions. A body with an instruction that this package does
//!   not read has a digest that depends on all of the file.
//!
//! | file | does |
//! |---|---|
//! | `tables`, `globals` | the module's tables, entry by entry |
//! | `constants` | constants: which of their numbers are indices |
//! | `metadata` | metadata, of a module or of a body |
//! | `graph` | digests of entries that mention each other, also in circles |
//! | `bodies` | bodies |

use crate::ir::{GlobalKind, Module};
use crate::marks::{Mark, Mentioned};
use crate::module::{Refused, Source};

mod bodies;
mod constants;
mod globals;
mod graph;
mod metadata;
mod tables;

use graph::Node;
use tables::Tables;

/// A hash of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

/// Digests of a function that a module defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionDigests {
    /// The function, by its place in [`Module::globals`](crate::ir::Module::globals).
    pub global: u32,
    /// Its body, with its name, attributes and linkage.
    pub whole: Digest,
    /// Its instructions alone.
    pub code: Digest,
}

/// Digests of a module's definitions.
#[derive(Debug)]
pub struct Digests {
    /// Those of functions, in the order of their bodies.
    pub functions: Vec<FunctionDigests>,
    /// Those of variables with a value, aliases and ifuncs: by their places in
    /// [`Module::globals`](crate::ir::Module::globals).
    pub definitions: Vec<(u32, Digest)>,
    /// Globals and constants of the module.
    nodes: Vec<Node>,
    globals: u32,
}

impl Source {
    /// Computes digests of all definitions. `bytes` are those of the module. `stem` gives the part of a
    /// name that is hashed.
    ///
    /// # Errors
    /// A module with records that this package does not read.
    pub fn digests(&self, bytes: &[u8], stem: impl Fn(&[u8]) -> &[u8]) -> Result<Digests, Refused> {
        let tables = Tables::read(self, bytes, &stem)?;
        let functions = bodies::Bodies::new(self, bytes, &tables).all()?;
        let definitions = tables.definitions(self)?;
        Ok(Digests {
            functions,
            definitions,
            nodes: tables.nodes,
            globals: self.module.globals.len() as u32,
        })
    }
}

impl Digests {
    /// Globals that the first value of a variable, or the definition of an alias, mentions, in their
    /// order; without those that are only mentioned by other globals.
    pub fn mentioned_by(&self, module: &Module, global: u32) -> Vec<u32> {
        let value = match module.globals.get(global as usize) {
            Some(it) if it.kind != GlobalKind::Variable => it.aliasee,
            _ => module
                .details
                .get(global as usize)
                .and_then(|it| it.initializer),
        };
        let mut found = Vec::new();
        let mut left: Vec<u32> = value.map(|it| it.0).into_iter().collect();
        // Constants without globals between them are trees, no larger than the data read.
        let mut steps = self.nodes.len();
        while let Some(value) = left.pop() {
            if value < self.globals {
                found.push(value);
            } else if let Some(node) = self.nodes.get(value as usize) {
                left.extend(node.children.iter().rev());
                steps = steps.saturating_sub(node.children.len());
                if steps == 0 {
                    break;
                }
            }
        }
        found
    }
}

/// Bytes to be hashed. Each number is preceded by its kind, so that no two lists of numbers give the
/// same bytes.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

/// Prefixes of numbers that do not fit one byte, of entries, places and bytes.
const WIDE: u8 = 0xf0;
const ENTRY: u8 = 0xf1;
const PLACE: u8 = 0xf2;
const BYTES: u8 = 0xf3;

impl Writer {
    fn number(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(byte) if byte < WIDE => self.0.push(byte),
            _ => {
                self.0.push(WIDE);
                self.0.extend(number.to_le_bytes());
            }
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        for &number in numbers {
            self.number(number);
        }
    }

    fn entry(&mut self, Digest(bytes): Digest) {
        self.0.push(ENTRY);
        self.0.extend(bytes);
    }

    /// Writes a value of the body, by its place in the body.
    fn place(&mut self, place: u32) {
        self.0.push(PLACE);
        self.0.extend(place.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(BYTES);
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// Writes a record; `mention` writes the marked numbers.
    fn record(
        &mut self,
        code: u64,
        record: &[u64],
        marks: &[Mark],
        mut mention: impl FnMut(&mut Writer, Mentioned),
    ) {
        self.number(code);
        self.number(record.len() as u64);
        let mut marks = marks.iter().peekable();
        for (at, &number) in record.iter().enumerate() {
            match marks.next_if(|mark| mark.at == at) {
                Some(mark) => mention(self, mark.to),
                None => self.number(number),
            }
        }
    }

    fn digest(&self) -> Digest {
        Digest(*blake3::hash(&self.0).as_bytes())
    }
}
