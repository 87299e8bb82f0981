//! Finds functions of two versions of a module that have the same body, and constants with the same
//! value.
//!
//! A body is taken as LLVM writes it, with the module's items that it mentions written in their
//! place:
//!
//! | mentioned | written as |
//! |---|---|
//! | a constant that the module defines | its value; a private one has no name besides |
//! | a type, an attribute group, metadata | its definition |
//! | any other variable, a function | its name, without its unique suffix |
//!
//! So numbers, which shift with changes elsewhere in a source, have no effect. A body differs if a
//! constant that it uses differs. The bodies of its callees are not part of a body: functions with
//! inlined copies of those depend on them in other ways.
//!
//! # Why
//! The comparison is by text and not by instructions, as LLVM already writes all relevant parts as
//! complete text. Text that is not understood here makes two bodies different, which costs an
//! unneeded exchange.

use std::collections::HashMap;
use std::sync::Arc;

use inkwell::llvm_sys::core::{LLVMGlobalGetValueType, LLVMIsThreadLocal};
use inkwell::llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};

use rustc_hash::FxHashMap;

use super::digests;
use super::layouts::{self, Layouts, TypeLayout};
use super::ordinals::is_numbered;
use super::survey;
use super::uses::{self, Uses};
use crate::context::{LlvmContext, OwnedModule};
use crate::error::CodegenError;

/// A hash of a body or a value; equal bodies do the same where their callees do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Body([u8; blake3::OUT_LEN]);

impl Body {
    pub(super) fn of(hash: [u8; blake3::OUT_LEN]) -> Body {
        Body(hash)
    }
}

/// The method of hashing a module's definitions. Hashes of two methods are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Method {
    /// From records of the bitcode where all of them are known, else from LLVM's text.
    #[default]
    Records,
    /// From LLVM's text.
    Text,
}

/// The contents by which two versions of a module are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The method of its hashes.
    pub method: Method,
    /// The bodies of its functions, by name.
    pub functions: HashMap<String, Body>,
    /// The variables that it defines, by name in the module.
    pub variables: HashMap<String, Shape>,
    /// Functions that run before `main`, in no order.
    pub constructors: Vec<String>,
    /// Functions that run at the end.
    pub destructors: Vec<String>,
    /// Layouts of its structures, by name, where debug information has them.
    pub types: HashMap<String, Arc<TypeLayout>>,
    /// The bodies of functions whose names have a [number](super::is_numbered), by name: the hash
    /// excludes their names.
    pub code: HashMap<String, Body>,
    /// Its aliases and ifuncs, by name.
    pub aliases: HashMap<String, Alias>,
    /// Functions and variables that its tables of virtual functions mention, by the table's name.
    pub tables: HashMap<String, Vec<String>>,
}

/// Another name of a definition, or the name of one that is chosen at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Its definition.
    pub value: Body,
    /// The resolver function, if it is an ifunc.
    pub resolver: Option<String>,
}

/// Properties of a variable on which old and new code have to agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Nothing may write to it.
    pub constant: bool,
    /// Other files do not see it.
    pub local: bool,
    /// Each thread has one.
    pub thread_local: bool,
    /// Bytes that its address is a multiple of.
    pub align: u32,
    /// Nothing in its module writes to it, or keeps its address; false if the module's bodies were
    /// not read.
    pub only_read: bool,
    /// The value that it begins with.
    pub value: Body,
    /// Its layout by debug information, and by its type in the IR, unless it is a constant.
    told: Option<Arc<TypeLayout>>,
    plain: Option<Arc<TypeLayout>>,
}

impl Shape {
    /// Whether size, first value and constness are the same.
    pub fn is_same(&self, new: &Shape) -> bool {
        let of = |it: &Shape| (it.size, it.constant, it.value);
        of(self) == of(new)
    }

    /// Like [`TypeLayout::difference`], by the layouts known of both.
    pub fn difference(&self, new: &Shape) -> Option<String> {
        let told = self.told.as_ref().zip(new.told.as_ref());
        let both = told.or_else(|| self.plain.as_ref().zip(new.plain.as_ref()));
        both.and_then(|(old, new)| old.difference(new))
    }
}

/// The contents by which a module is compared. Under a [`guard`](crate::fatal::guard).
///
/// # Errors
/// Bitcode that is damaged, or that LLVM does not read.
pub fn contents(name: &str, bytes: &[u8], method: Method) -> Result<Contents, CodegenError> {
    let context = LlvmContext::new()?;
    let (module, layouts) = super::read_with_layouts(&context, name, bytes)?;
    let compared = compared(bytes, method);
    Ok(contents_of(&module, layouts, compared, Bodies::Read))
}

/// Hashes of a module's definitions from its records; `None` if not all records are known, or
/// `method` is text.
pub(super) fn compared(bytes: &[u8], method: Method) -> Option<Compared> {
    match method {
        Method::Records => digests::compared(bytes),
        Method::Text => None,
    }
}

/// Whether the bodies of a module were read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bodies {
    Read,
    Unread,
}

/// The contents by which a module is compared. Its text is written unless there are hashes of its
/// records.
pub(super) fn contents_of(
    module: &OwnedModule,
    told: Layouts,
    of_records: Option<Compared>,
    bodies: Bodies,
) -> Contents {
    let (method, compared) = match of_records {
        Some(compared) => (Method::Records, compared),
        None => (Method::Text, of_text(&module.text())),
    };
    let Compared {
        functions,
        values,
        constructors,
        destructors,
        code,
        aliases,
        tables,
    } = compared;
    // SAFETY: a live module.
    let layout = unsafe { LLVMGetModuleDataLayout(module.raw()) };
    let defined = module.variables().filter(|it| it.initializer().is_some());
    let variables = defined.filter_map(|variable| {
        let name = variable.name();
        let shape = Shape {
            // SAFETY: the live module's layout; the type is sized, as a variable has it.
            size: unsafe { LLVMABISizeOfType(layout, LLVMGlobalGetValueType(variable.raw())) },
            constant: variable.is_constant(),
            local: survey::is_local(survey::linkage(*variable)),
            // SAFETY: a live variable.
            thread_local: unsafe { LLVMIsThreadLocal(variable.raw()) != 0 },
            align: survey::alignment(variable, layout),
            only_read: bodies == Bodies::Read && uses::uses(variable, layout) == Uses::Read,
            value: *values.get(&name)?,
            told: told.variables.get(&name).cloned(),
            plain: match variable.is_constant() {
                true => None,
                false => layouts::of_type(module, variable).map(Arc::new),
            },
        };
        Some((name, shape))
    });
    Contents {
        method,
        functions,
        variables: variables.collect(),
        constructors,
        destructors,
        types: told.types,
        code,
        aliases,
        tables,
    }
}

/// The part of [`Contents`] that comes from a module's text, or its records.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Compared {
    pub(super) functions: HashMap<String, Body>,
    /// First values of variables, by name.
    pub(super) values: HashMap<String, Body>,
    pub(super) constructors: Vec<String>,
    pub(super) destructors: Vec<String>,
    pub(super) code: HashMap<String, Body>,
    pub(super) aliases: HashMap<String, Alias>,
    pub(super) tables: HashMap<String, Vec<String>>,
}

/// Definitions of a module's text outside of functions, by their mentions.
#[derive(Default)]
pub(super) struct Module<'t> {
    definitions: FxHashMap<&'t str, &'t str>,
    known: FxHashMap<&'t str, Body>,
    /// Definitions being written, the innermost last: metadata mentions itself.
    open: Vec<&'t str>,
    /// Definitions of variables, by how they are mentioned.
    variables: Vec<(&'t str, &'t str)>,
    constructors: Vec<String>,
    destructors: Vec<String>,
}

/// The code of functions in a module's text, by their names without unique suffixes. Attributes of
/// the functions are ignored.
pub(super) fn code_of(text: &str) -> HashMap<String, Body> {
    let (mut module, functions) = Module::read(text);
    module.definitions.retain(|head, _| !head.starts_with('#'));
    let code = functions.into_iter().filter_map(|function| {
        let name = mentions(function).find(|word| word.starts_with('@'))?;
        let (_, code) = function.split_once('\n')?;
        let name = stem(&plain(name)).to_owned();
        Some((name, module.mentioned(code)))
    });
    code.collect()
}

/// Reads the text of a module.
pub(super) fn of_text(text: &str) -> Compared {
    let (mut module, functions) = Module::read(text);
    let variables = std::mem::take(&mut module.variables);
    let mut constructors = std::mem::take(&mut module.constructors);
    let mut destructors = std::mem::take(&mut module.destructors);
    let mut bodies = HashMap::new();
    let mut code = HashMap::new();
    for function in functions {
        let Some(name) = mentions(function).find(|word| word.starts_with('@')) else {
            continue;
        };
        let name = plain(name);
        if is_numbered(stem(&name))
            && let Some((_, text)) = function.split_once('\n')
        {
            code.insert(name.clone(), module.mentioned(text));
        }
        bodies.insert(name, module.mentioned(function));
    }
    // The third part of an entry, its associated global, may be a variable.
    for names in [&mut constructors, &mut destructors] {
        names.retain(|name| bodies.contains_key(name));
    }
    let named = |value| mentions(value).filter(|it| it.starts_with('@')).map(plain);
    let tables = variables
        .iter()
        .filter(|(name, _)| name.starts_with("@_ZTV"));
    let tables = tables.map(|(name, value)| (plain(name), named(value).collect()));
    let tables = tables.collect();
    let aliases = variables.iter().filter_map(|(name, value)| {
        let resolver = match kind(value)? {
            "alias" => None,
            "ifunc" => named(value).next(),
            _ => return None,
        };
        let value = module.value(name, value);
        Some((plain(name), Alias { value, resolver }))
    });
    let aliases = aliases.collect();
    let variables = variables.into_iter();
    Compared {
        code,
        aliases,
        tables,
        values: variables
            .map(|(name, value)| (plain(name), module.value(name, value)))
            .collect(),
        functions: bodies,
        constructors,
        destructors,
    }
}

/// The keyword of a definition.
fn kind(definition: &str) -> Option<&str> {
    let mut words = definition.split(' ');
    words.find(|word| matches!(*word, "constant" | "global" | "alias" | "ifunc"))
}

/// Whether a definition is one of a constant with a value.
fn is_constant(definition: &str) -> bool {
    let is_declared = definition.starts_with("external ");
    kind(definition) == Some("constant") && !is_declared
}

/// The name that is mentioned as `@name` or `@"name"`.
pub(super) fn plain(mention: &str) -> String {
    mention[1..].trim_matches('"').to_owned()
}

/// Begins the suffixes that make names unique.
pub(super) const MARK: &[u8] = b".__uniq.";

/// A name without its unique suffix, which depends on its source's file.
pub(super) fn stem(mention: &str) -> &str {
    let mut places = mention.as_bytes().windows(MARK.len());
    let mark = places.position(|place| place == MARK);
    mark.map_or(mention, |at| &mention[..at])
}

/// The end of a mention, which begins at `text` with a sign: a name, or none.
fn end_of_mention(text: &str) -> usize {
    if let Some(quoted) = text[1..].strip_prefix('"') {
        return quoted.find('"').map_or(text.len(), |at| at + 3);
    }
    let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'$' | b'.' | b'_' | b'-');
    let mut rest = text.bytes().skip(1);
    rest.position(|c| !is_part(c))
        .map_or(text.len(), |at| at + 1)
}

/// The mentions in a text.
pub(super) fn mentions(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|(word, is_mention)| is_mention.then_some(word))
}

/// A text's mentions, and the pieces between them.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.bytes().next()?;
        let (end, is_mention) = match first {
            b'@' | b'%' | b'#' | b'!' => (end_of_mention(rest), true),
            // A string, in which signs mean nothing.
            b'"' => (rest[1..].find('"').map_or(rest.len(), |at| at + 2), false),
            _ => {
                let is_sign = |c| matches!(c, b'@' | b'%' | b'#' | b'!' | b'"');
                (rest.bytes().position(is_sign).unwrap_or(rest.len()), false)
            }
        };
        let piece = &rest[..end];
        rest = &rest[end..];
        Some((piece, is_mention))
    })
}

impl<'t> Module<'t> {
    /// Definitions of a text, and its functions.
    pub(super) fn read(text: &'t str) -> (Module<'t>, Vec<&'t str>) {
        let mut module = Module::default();
        let mut functions = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let line_end = rest.find('\n').map_or(rest.len(), |at| at + 1);
            let line = &rest[..line_end];
            if line.starts_with("define ") && line.trim_end().ends_with("{}") {
                // A body that was not read.
                functions.push(line.trim_end());
                rest = &rest[line_end..];
                continue;
            }
            if line.starts_with("define ") {
                let end = rest.find("\n}").map_or(rest.len(), |at| at + 2);
                functions.push(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            rest = &rest[line_end..];
            // The last line of a module has no end.
            let line = line.trim_end_matches('\n');
            let (head, value) = line.split_once(" = ").unwrap_or(("", ""));
            let head = head.strip_prefix("attributes ").unwrap_or(head);
            let named = mentions(value).filter(|it| it.starts_with('@')).map(plain);
            match head {
                "@llvm.global_ctors" => module.constructors.extend(named),
                "@llvm.global_dtors" => module.destructors.extend(named),
                _ => {}
            }
            let is_kept = match head.bytes().next() {
                Some(b'@') => {
                    module.variables.push((head, value));
                    is_constant(value)
                }
                Some(b'%' | b'#' | b'!') => true,
                _ => false,
            };
            if is_kept {
                module.definitions.insert(head, value);
            }
        }
        (module, functions)
    }

    /// The hash of a text, with the definitions of all its mentions.
    pub(super) fn mentioned(&mut self, text: &'t str) -> Body {
        let mut written = Vec::with_capacity(2 * text.len());
        self.write(text, &mut written);
        Body(*blake3::hash(&written).as_bytes())
    }

    /// Whether the module defines it as a constant, a type, attributes or metadata.
    pub(super) fn defines(&self, mention: &str) -> bool {
        self.definitions.contains_key(mention)
    }

    /// Whether attributes that a line mentions have a word with this prefix.
    pub(super) fn says(&self, line: &str, word: &str) -> bool {
        let groups = mentions(line).filter(|it| it.starts_with('#'));
        let groups = groups.filter_map(|it| self.definitions.get(it));
        let mut words = groups.flat_map(|it| it.split_whitespace());
        words.any(|it| it.starts_with(word))
    }

    /// The definition or declaration of a variable, by its name without unique suffix.
    pub(super) fn variable(&self, mention: &str) -> Option<&'t str> {
        let mut all = self.variables.iter();
        let found = all.find(|(head, _)| stem(head) == stem(mention));
        found.map(|(_, value)| *value)
    }

    /// Whether the first value of a variable mentions a name.
    pub(super) fn is_mentioned_by_data(&self, name: &str) -> bool {
        let mut values = self.variables.iter().map(|(_, value)| *value);
        values.any(|value| mentions(value).any(|it| it == name))
    }

    fn write(&mut self, text: &'t str, to: &mut Vec<u8>) {
        for (piece, is_mention) in pieces(text) {
            let Some(&definition) = self.definitions.get(piece).filter(|_| is_mention) else {
                to.extend(stem(piece).as_bytes());
                continue;
            };
            let is_private = definition.starts_with("private ");
            if piece.starts_with('@') && !is_private {
                to.extend(stem(piece).as_bytes());
            }
            if let Some(depth) = self.open.iter().rev().position(|open| *open == piece) {
                to.extend(format!("^{depth}").as_bytes());
                continue;
            }
            let Body(value) = match self.known.get(piece) {
                Some(known) => *known,
                None => self.value(piece, definition),
            };
            to.extend(value);
        }
    }

    fn value(&mut self, mention: &'t str, definition: &'t str) -> Body {
        /// Beyond this depth a definition counts as its name: constants of a source are not nested
        /// so deep.
        const DEEPEST: usize = 200;
        let value = if self.open.len() < DEEPEST {
            self.open.push(mention);
            let value = self.mentioned(definition);
            self.open.pop();
            value
        } else {
            Body(*blake3::hash(mention.as_bytes()).as_bytes())
        };
        self.known.insert(mention, value);
        value
    }
}

#[cfg(test)]
mod tests;
