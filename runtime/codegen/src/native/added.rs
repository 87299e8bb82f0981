//! Finds functions whose new bodies are the old ones with harmless instructions added: a counter, a
//! line for a log.
//!
//! A native caller may rely on all that the optimizer inferred from a body: its result, its
//! arguments, its effects on memory, in general and for the arguments of one call. All that is
//! unchanged if
//!
//! - the old instructions are all there, in the same blocks and order, and compute from each other;
//! - added instructions are in the middle of blocks and compute from constants and from each other;
//! - they write only to variables that the program's file did not have, and to which no pointer
//!   leads, and call only functions of the C library that write their arguments;
//!
//! with one exception: a call may have been left out, or two merged into one, as it had no effect.
//! Native code shows whether it had one.
//!
//! | added | may |
//! |---|---|
//! | `alloca`, with its operands | be |
//! | `load` | be of a new variable, of an added `alloca`, `stdin`, `stdout`, `stderr` |
//! | `store`, `atomicrmw`, `cmpxchg` | be to a new variable, or an added `alloca`; a variable that other files see is reported ([`Additions::shared`]) |
//! | arithmetic that does not trap, comparisons, conversions, `fence` | be |
//! | a call of [`WRITERS`] | have numbers, strings, and added values as arguments |
//!
//! # Why
//! Other changes are judged by optimizing the file in two ways (`callers`). For sqlite that takes
//! ten seconds each, and these additions are the most frequent exchange in running programs. The
//! comparison is by text, as in [`bodies`](super::bodies): text that is not understood is a
//! difference.

mod inserted;

use std::collections::{HashMap, HashSet};

use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;

use self::inserted::Inserted;
use super::bodies::{Body, Module, mentions, pieces, plain, stem};
use crate::context::{LlvmContext, OwnedModule};
use crate::error::CodegenError;
use crate::reader;

/// Additions to functions, and the facts about native code that they rely on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Additions {
    /// Variables that are used and that other files see: no pointer may lead to them.
    pub shared: Vec<String>,
    /// Functions of the C library that are called: the program has none of these names.
    pub writers: Vec<String>,
    /// Functions of the native file that its source declares free of effects, by their names
    /// without unique suffixes.
    pub pure: HashSet<String>,
}

/// Functions of the C library that write their arguments and to no memory of the program's.
const WRITERS: [&str; 13] = [
    "printf", "fprintf", "dprintf", "puts", "fputs", "putchar", "putc", "fputc", "fwrite",
    "fflush", "write", "perror", "syslog",
];

/// Variables of the C library that nothing writes to.
const STREAMS: [&str; 3] = ["@stdin", "@stdout", "@stderr"];

/// Instructions that compute, and neither trap nor touch memory.
const COMPUTING: [&str; 14] = [
    "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "zext", "sext", "trunc",
    "icmp", "select",
];

/// The additions to the functions of a file that differ from the native ones; `None` if anything
/// else differs. Under a [`guard`](crate::fatal::guard).
///
/// `changed` are the functions, by their names without unique suffixes.
///
/// # Errors
/// Bitcode that LLVM does not read.
pub fn only_added(
    name: &str,
    native: &[u8],
    new: &[u8],
    changed: &HashSet<String>,
) -> Result<Option<Additions>, CodegenError> {
    let context = LlvmContext::new()?;
    let (native, new) = (
        in_part(&context, name, native, changed)?,
        in_part(&context, name, new, changed)?,
    );
    let (native, new) = (native.text(), new.text());
    let old = File::of(&native, changed);
    let new = File::of(&new, changed);
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(None);
    };
    // A function missing in the new text is a difference.
    let all_found = changed.iter().all(|name| new.functions.contains_key(name));
    Ok(all_found.then(|| compare(old, new)).flatten())
}

/// A module with the bodies of some of its functions.
fn in_part(
    context: &LlvmContext,
    name: &str,
    bytes: &[u8],
    wanted: &HashSet<String>,
) -> Result<OwnedModule, CodegenError> {
    let module = super::read_lazily(context, name, bytes)?;
    // SAFETY: a live module; bodies that are read later lose it then.
    unsafe { LLVMStripModuleDebugInfo(module.raw()) };
    let functions = module.functions().filter(|it| !it.is_declaration());
    for function in functions.filter(|it| wanted.contains(stem(&it.name()))) {
        reader::read_body(function).map_err(|message| super::unreadable(name, message))?;
    }
    match context.take_errors() {
        Some(message) => Err(super::unreadable(name, message)),
        None => Ok(module),
    }
}

/// A module's text.
struct File<'t> {
    module: Module<'t>,
    /// Functions that are compared, by their names.
    functions: HashMap<String, Function<'t>>,
    /// All functions that it defines.
    defined: HashSet<String>,
    pure: HashSet<String>,
}

/// A function's text.
struct Function<'t> {
    head: Vec<Piece<'t>>,
    /// The front end declares that it does not throw.
    nounwind: bool,
    steps: Vec<Step<'t>>,
}

/// A label, or an instruction.
struct Step<'t> {
    label: bool,
    result: Option<&'t str>,
    pieces: Vec<Piece<'t>>,
}

/// A part of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece<'t> {
    Text(&'t str),
    /// An argument, a result or a block.
    Local(&'t str),
    /// A name of the module, and the hash of its definition.
    Named(&'t str, Body),
}

impl<'t> File<'t> {
    /// `None`, if a wanted function is not understood.
    fn of(text: &'t str, wanted: &HashSet<String>) -> Option<File<'t>> {
        let (mut module, functions) = Module::read(text);
        let (mut pure, mut defined) = (HashSet::new(), HashSet::new());
        let mut found = HashMap::new();
        for function in functions {
            let Some(name) = mentions(function).find(|word| word.starts_with('@')) else {
                continue;
            };
            let name = stem(&plain(name)).to_owned();
            if module.says(first_line(function), "memory(") {
                pure.insert(name.clone());
            }
            if wanted.contains(&name) {
                let function = Function::of(function, &mut module)?;
                found.insert(name.clone(), function);
            }
            // Two functions of one name cannot be distinguished.
            if !defined.insert(name) {
                return None;
            }
        }
        Some(File {
            module,
            functions: found,
            defined,
            pure,
        })
    }
}

fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default()
}

/// The name that a line of a block's label gives it.
fn label(line: &str) -> Option<&str> {
    let is_indented = line.starts_with([' ', '}', ';', ']', '"']);
    let end = line
        .find(':')
        .filter(|_| !is_indented && !line.is_empty())?;
    Some(&line[..end])
}

impl<'t> Function<'t> {
    /// `None`, if a name in it has two meanings.
    fn of(text: &'t str, module: &mut Module<'t>) -> Option<Function<'t>> {
        let head = first_line(text);
        let mut lines = Vec::new();
        // Begin and end of the step's line in the text.
        let mut at = head.len() + 1;
        for line in text.get(at..)?.split('\n') {
            let end = at + line.len();
            let begins = line.starts_with("  ") && !line[2..].starts_with([' ', ']']);
            match label(line) {
                Some(name) => lines.push((true, at..at + name.len())),
                None if begins => lines.push((false, at..end)),
                None if line.starts_with(' ') => lines.last_mut()?.1.end = end,
                None if line.starts_with('"') => return None,
                None => {}
            }
            at = end + 1;
        }
        let mut locals: HashSet<&str> = mentions(head)
            .filter(|it| it.starts_with('%') && !module.defines(it))
            .collect();
        for (is_label, range) in &lines {
            let line = &text[range.clone()];
            let name = match is_label {
                true => line,
                false => match result(line) {
                    Some(name) => name.get(1..)?,
                    None => continue,
                },
            };
            locals.insert(name);
        }
        let locals: HashSet<&str> = locals.iter().map(|it| it.trim_start_matches('%')).collect();
        if locals.iter().any(|it| module.defines(&format!("%{it}"))) {
            return None;
        }
        let steps = lines.into_iter().map(|(label, range)| {
            let line = &text[range];
            match label {
                true => Step {
                    label,
                    result: None,
                    pieces: vec![Piece::Local(line)],
                },
                false => Step {
                    label,
                    result: result(line).map(|it| &it[1..]),
                    pieces: split(line, &locals, module),
                },
            }
        });
        let steps = steps.collect();
        Some(Function {
            nounwind: module.says(head, "nounwind"),
            head: split(head, &locals, module),
            steps,
        })
    }
}

/// The name of an instruction's result.
fn result(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let name = mentions(line).next().filter(|it| line.starts_with(it))?;
    line[name.len()..].starts_with(" = ").then_some(name)
}

fn split<'t>(line: &'t str, locals: &HashSet<&str>, module: &mut Module<'t>) -> Vec<Piece<'t>> {
    let pieces = pieces(line).map(|(text, is_mention)| {
        let local = text.strip_prefix('%').filter(|it| locals.contains(it));
        match (local, is_mention) {
            (Some(local), true) => Piece::Local(local),
            (None, true) => Piece::Named(text, module.mentioned(text)),
            (_, false) => Piece::Text(text),
        }
    });
    pieces.collect()
}

/// The additions of a file, if nothing else differs.
fn compare(old: File<'_>, new: File<'_>) -> Option<Additions> {
    let mut additions = Additions::default();
    let mut added: HashSet<&str> = HashSet::new();
    for (name, function) in &new.functions {
        // Added instructions call no new function.
        if !old.defined.contains(name) {
            continue;
        }
        let before = old.functions.get(name)?;
        let inserted = inserted(before, function)?;
        let own: HashSet<&str> = inserted.iter().filter_map(|it| it.result).collect();
        let frames = inserted.iter().filter(|it| it.opcode() == "alloca");
        let frames: HashSet<&str> = frames.filter_map(|it| it.result).collect();
        for step in inserted {
            let it = Inserted {
                step,
                own: &own,
                frames: &frames,
                nounwind: function.nounwind,
                old: &old.module,
                new: &new.module,
                defined: &new.defined,
            };
            let names = it.uses()?;
            match step.opcode() {
                "call" => additions.writers.extend(names.into_iter().map(plain)),
                _ => added.extend(names),
            }
        }
    }
    // Unchanged functions mention no variable that the old file did not have.
    for name in added {
        let steps = new.functions.values().flat_map(|it| &it.steps);
        let escapes = steps.into_iter().any(|step| !step.only_accesses(name));
        if escapes || new.module.is_mentioned_by_data(name) {
            return None;
        }
        let definition = new.module.variable(name).unwrap_or_default();
        if !definition.starts_with("internal ") && !definition.starts_with("private ") {
            additions.shared.push(plain(name));
        }
    }
    for names in [&mut additions.shared, &mut additions.writers] {
        names.sort();
        names.dedup();
    }
    additions.pure = old.pure;
    Some(additions)
}

/// Steps of `new` that `old` does not have, if all others are the same.
fn inserted<'n, 't>(old: &Function<'_>, new: &'n Function<'t>) -> Option<Vec<&'n Step<'t>>> {
    let mut names = Names::default();
    if !names.are_same(&old.head, &new.head) {
        return None;
    }
    let mut inserted = Vec::new();
    let mut left = old.steps.as_slice();
    for step in &new.steps {
        match left.split_first() {
            Some((first, rest))
                if first.label == step.label && names.are_same(&first.pieces, &step.pieces) =>
            {
                left = rest;
            }
            _ => inserted.push(step),
        }
    }
    let mut results = inserted.iter().filter_map(|it| it.result);
    let is_used = results.any(|it| names.back.contains_key(it));
    (left.is_empty() && !is_used).then_some(inserted)
}

/// Maps local names of the new body to those of the old.
#[derive(Default)]
struct Names<'o, 'n> {
    forth: HashMap<&'o str, &'n str>,
    back: HashMap<&'n str, &'o str>,
}

impl<'o, 'n> Names<'o, 'n> {
    /// Whether two lines are equal under the known renaming, which new pairs of names extend.
    fn are_same(&mut self, old: &[Piece<'o>], new: &[Piece<'n>]) -> bool {
        if old.len() != new.len() {
            return false;
        }
        let mut met: Vec<(&'o str, &'n str)> = Vec::new();
        for (old, new) in old.iter().zip(new) {
            let is_same = match (*old, *new) {
                (Piece::Text(old), Piece::Text(new)) => old == new,
                (Piece::Named(_, old), Piece::Named(_, new)) => old == new,
                (Piece::Local(old), Piece::Local(new)) => {
                    let known = self.forth.get(old).copied();
                    let mut recent = met.iter().filter(|(it, other)| *it == old || *other == new);
                    match (known, self.back.get(new), recent.next()) {
                        (Some(known), ..) => known == new,
                        (None, Some(_), _) => false,
                        (None, None, Some(&met)) => met == (old, new),
                        (None, None, None) => {
                            met.push((old, new));
                            true
                        }
                    }
                }
                _ => false,
            };
            if !is_same {
                return false;
            }
        }
        self.forth.extend(met.iter().copied());
        self.back.extend(met.iter().map(|&(old, new)| (new, old)));
        true
    }
}

#[cfg(test)]
mod tests;
