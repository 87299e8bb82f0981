//! A small language on top of the library: lines from standard input are compiled with
//! inkwell, added to a session, and run.
//!
//! A definition costs no code until it is called; what is called often moves up the
//! tiers, as `:tier NAME` shows. Defining a name again makes a new function under a
//! symbol of its own: later lines use it, earlier ones keep the one they were compiled
//! with. (Replacing the code of a function that others call already is the library's
//! next step.) `:race VALUE` has inkwell's own engine, MCJIT, run the same module.
//! Whatever is wrong with a line is told, and the next one is read.

mod control;
mod language;
mod race;
mod stack;
mod writer;

use std::io::{BufRead, ErrorKind, IsTerminal, Write, stdin, stdout};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use uruk::Jit;
use uruk::inkwell::context::Context;

use crate::language::Names;

fn main() -> Result<()> {
    stack::with_stack(read_lines)?
}

fn read_lines() -> Result<()> {
    let mut session = Session {
        jit: new_jit()?,
        names: Names::new(),
        definitions: Vec::new(),
        number: 0,
    };
    let typed = stdin().is_terminal();
    let mut out = stdout();
    let mut lines = stdin().lock().lines();
    loop {
        write!(out, "> ")?;
        out.flush()?;
        let Some(line) = lines.next() else {
            return Ok(writeln!(out)?);
        };
        let line = match line {
            Err(error) if error.kind() == ErrorKind::InvalidData => format!("{error}"),
            line => line?,
        };
        if !typed {
            writeln!(out, "{line}")?;
        }
        match session.enter(line.trim()) {
            Ok(answer) if answer.is_empty() => {}
            Ok(answer) => writeln!(out, "{answer}")?,
            Err(error) => writeln!(out, "error: {error:#}")?,
        }
    }
}

/// A session that knows the word all functions look at.
fn new_jit() -> Result<Jit> {
    let jit = Jit::new()?;
    // SAFETY: a word that lives for ever; compiled code loads and stores it as a whole.
    unsafe { jit.define(stack::SYMBOL, stack::LIMIT.as_ptr().cast())? };
    Ok(jit)
}

struct Session {
    jit: Jit,
    names: Names,
    /// Lines that defined something, with their numbers.
    definitions: Vec<(usize, String)>,
    number: usize,
}

impl Session {
    /// Does what a line says: the answer.
    fn enter(&mut self, line: &str) -> Result<String> {
        self.number += 1;
        if let Some(command) = line.strip_prefix(':') {
            let (command, rest) = command.split_once(' ').unwrap_or((command, ""));
            return match command {
                "tier" => self.tier(rest.trim()),
                "race" => race::run(&self.definitions, (self.number, rest)),
                _ => bail!("there are `:tier NAME` and `:race VALUE`, not `:{command}`"),
            };
        }
        if line.is_empty() {
            return Ok(String::new());
        }
        let start = Instant::now();
        let context = Context::create();
        let module = context.create_module(&format!("line {}", self.number));
        let mut names = self.names.clone();
        let symbol = language::compile(&module, &mut names, line, self.number)?;
        self.jit.add_module(&module)?;
        self.names = names;
        if symbol.contains('.') {
            self.definitions.push((self.number, line.to_owned()));
            return Ok(symbol);
        }
        // SAFETY: `compile` wrote a function without parameters, which computes.
        let function = unsafe { self.jit.function::<extern "C" fn() -> f64>(&symbol)? };
        let value = stack::guarded(|| function.call())?;
        let time_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(format!("{value}    ({time_ms:.1} ms)"))
    }

    fn tier(&self, name: &str) -> Result<String> {
        let known = self.names.get(name);
        let (symbol, _) = known.with_context(|| format!("`{name}` is not defined"))?;
        Ok(match self.jit.tier(symbol)? {
            Some(tier) => format!("{symbol} runs at tier {}", tier.number()),
            None => format!("{symbol} is not compiled yet"),
        })
    }
}
