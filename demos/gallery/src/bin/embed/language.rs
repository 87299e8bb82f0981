//! A Lisp of a page. Values are floats; what is not zero is true.
//!
//! ```text
//! line  = (def (name name...) value) | value
//! value = number | name | (+ value value), also with - * / < | (name value...)
//!       | (if value value value) | (for name value value name value value)
//! ```
//!
//! `(for i 1 4 x 10 (+ x i))` begins with `x` at 10 and gives it the value of the body
//! for each `i` from 1 to 4; the last `x`, 20, is its own value.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use uruk::inkwell::module::Module;

use crate::language::Tree::{List, Word};
use crate::writer::Writer;

/// Parentheses in each other, at most: bounds the stack that reading a line takes.
const DEPTH: usize = 200;

/// For each name that is defined, its symbol and its number of parameters.
pub type Names = HashMap<String, (String, usize)>;

/// What a line is made of.
pub enum Tree<'a> {
    /// A number or a name.
    Word(&'a str),
    /// What is between parentheses.
    List(Vec<Tree<'a>>),
}

/// Adds the function that a line stands for to a module, and its name to the names if it
/// is a definition. Returns its symbol: the line's number, after a definition's name and
/// a dot.
///
/// # Errors
/// What is wrong with the line; module and names are of no use then.
pub fn compile(module: &Module, names: &mut Names, line: &str, number: usize) -> Result<String> {
    let spaced = line.replace('(', " ( ").replace(')', " ) ");
    let words = &mut spaced.split_whitespace();
    let tree = parse(words, DEPTH)?.context("there is nothing `)` could close")?;
    ensure!(words.next().is_none(), "the line goes on after its end");
    let (head, body) = match &tree {
        List(list) if matches!(list[..], [Word("def"), ..]) => match &list[..] {
            [_, List(head), body] => (head, body),
            _ => bail!("`def` takes a list of names and a value"),
        },
        value => return Writer::write(module, names, number.to_string(), &[], value),
    };
    let head: Option<Vec<&str>> = head.iter().map(word).collect();
    let [name, parameters @ ..] = &head.context("only names can be defined")?[..] else {
        bail!("what is defined has no name")
    };
    let symbol = format!("{name}.{number}");
    names.insert((*name).to_owned(), (symbol.clone(), parameters.len()));
    Writer::write(module, names, symbol, parameters, body)
}

/// The next value; `None` for a closing parenthesis.
fn parse<'a>(words: &mut dyn Iterator<Item = &'a str>, depth: usize) -> Result<Option<Tree<'a>>> {
    let word = words.next().context("a `)` is missing")?;
    match word {
        ")" => return Ok(None),
        "(" => ensure!(depth > 0, "more than {DEPTH} parentheses in each other"),
        _ => return Ok(Some(Word(word))),
    }
    let mut list = Vec::new();
    while let Some(tree) = parse(words, depth - 1)? {
        list.push(tree);
    }
    Ok(Some(List(list)))
}

fn word<'a>(tree: &Tree<'a>) -> Option<&'a str> {
    match tree {
        Word(word) => Some(word),
        List(_) => None,
    }
}
