//! A language without LLVM on top of the library: formulas, compiled with dynasm when they are
//! called first.
//!
//! Each formula is a unit of the session, so it is compiled by its first call, found by others
//! under its stub whatever their order, and replaced while it is used: `f(x) = g(x) * 2` may come
//! before `g`. Lines are read from standard input: `NAME(x) = FORMULA`, or `NAME(NUMBER)`.

use std::io::{BufRead, stdin};

use anyhow::{Context as _, Result, bail, ensure};
use dynasmrt::{DynasmApi, VecAssembler, dynasm, x64::X64Relocation};
use uruk::{Code, Flags, Interface, Jit, Reference, Responsibility, Symbol, Tracker, Unit};

/// What a formula is made of.
enum Formula {
    Number(i64),
    X,
    Call(String, Box<Formula>),
    Operation(char, Box<Formula>, Box<Formula>),
}

/// Reads formulas, from loose operators to tight ones.
struct Reader<'t>(&'t str);

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_start();
        self.0.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.0 = &self.0[wanted.len_utf8()..];
        }
        found
    }

    fn word(&mut self, part: impl Fn(char) -> bool) -> &str {
        self.peek();
        let end = self.0.find(|c| !part(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn sum(&mut self) -> Result<Formula> {
        let mut left = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.take(sign);
            left = Formula::Operation(sign, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Formula> {
        let mut left = self.value()?;
        while self.take('*') {
            left = Formula::Operation('*', Box::new(left), Box::new(self.value()?));
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Formula> {
        if self.take('(') {
            let inner = self.sum()?;
            ensure!(self.take(')'), "a `)` is missing before `{}`", self.0);
            return Ok(inner);
        }
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            let digits = self.word(|c| c.is_ascii_digit());
            return Ok(Formula::Number(digits.parse().context("the number")?));
        }
        let name = self.word(|c| c.is_ascii_alphanumeric()).to_owned();
        match name.as_str() {
            "" => bail!("a value is missing before `{}`", self.0),
            "x" => Ok(Formula::X),
            _ => {
                ensure!(self.take('('), "`{name}` is called with one value");
                let argument = self.sum()?;
                ensure!(self.take(')'), "a `)` is missing before `{}`", self.0);
                Ok(Formula::Call(name, Box::new(argument)))
            }
        }
    }
}

/// Machine code on its way, and where it calls whom.
struct Assembly {
    ops: VecAssembler<X64Relocation>,
    calls: Vec<(u64, String)>,
}

impl Assembly {
    /// Leaves the formula's value in `rax`. `x` is at `[rbp - 8]`; `deep` words are pushed.
    fn put(&mut self, formula: &Formula, deep: u32) {
        let ops = &mut self.ops;
        match formula {
            Formula::Number(number) => dynasm!(ops ; .arch x64 ; mov rax, QWORD *number),
            Formula::X => dynasm!(ops ; .arch x64 ; mov rax, [rbp - 8]),
            Formula::Operation(sign, left, right) => {
                self.put(left, deep);
                dynasm!(self.ops ; .arch x64 ; push rax);
                self.put(right, deep + 1);
                let ops = &mut self.ops;
                dynasm!(ops ; .arch x64 ; mov rcx, rax ; pop rax);
                match sign {
                    '+' => dynasm!(ops ; .arch x64 ; add rax, rcx),
                    '-' => dynasm!(ops ; .arch x64 ; sub rax, rcx),
                    _ => dynasm!(ops ; .arch x64 ; imul rax, rcx),
                }
            }
            Formula::Call(name, argument) => {
                self.put(argument, deep);
                let ops = &mut self.ops;
                // Calls are made with the stack at a multiple of 16.
                let odd = deep % 2 == 1;
                if odd {
                    dynasm!(ops ; .arch x64 ; push rax);
                }
                dynasm!(ops ; .arch x64 ; mov rdi, rax ; .u8 0xe8);
                self.calls.push((ops.offset().0 as u64, name.clone()));
                dynasm!(ops ; .arch x64 ; .i32 0);
                if odd {
                    dynasm!(ops ; .arch x64 ; pop rcx);
                }
            }
        }
    }
}

/// A formula as a unit.
struct Definition {
    name: String,
    symbol: Symbol,
    formula: Formula,
}

impl Unit for Definition {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Interface {
        [(self.symbol, Flags::EXPORTED | Flags::CALLABLE)]
            .into_iter()
            .collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let mut assembly = Assembly {
            ops: VecAssembler::new(0),
            calls: Vec::new(),
        };
        dynasm!(assembly.ops ; .arch x64 ; push rbp ; mov rbp, rsp ; sub rsp, 16 ; mov [rbp - 8], rdi);
        assembly.put(&self.formula, 0);
        dynasm!(assembly.ops ; .arch x64 ; leave ; ret);
        let Assembly { ops, calls } = assembly;
        let mut code = Code::new();
        // Nothing refers to a label that is not there.
        code.function(&self.name, &ops.finalize().unwrap_or_default());
        for (at, callee) in calls {
            code.refer(at, Reference::Call, &callee);
        }
        // Who called is told what is missing.
        match code.finish() {
            Ok(object) => drop(responsibility.link(&self.name, object)),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Does what a line says; the answer.
fn enter(jit: &Jit, known: &mut Vec<(String, Tracker)>, line: &str) -> Result<String> {
    let mut reader = Reader(line);
    let name = reader.word(|c| c.is_ascii_alphanumeric()).to_owned();
    ensure!(
        !name.is_empty() && reader.take('('),
        "`NAME(x) = FORMULA` or `NAME(NUMBER)`"
    );
    if !reader.take('x') {
        let argument: i64 = reader.word(|c| c.is_ascii_digit() || c == '-').parse()?;
        jit.compile(&name)?;
        // SAFETY: a formula's function; what it calls was linked with it.
        let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(&name)? };
        return Ok(function.call(argument).to_string());
    }
    ensure!(reader.take(')') && reader.take('='), "`NAME(x) = FORMULA`");
    let formula = reader.sum()?;
    ensure!(reader.peek().is_none(), "what is `{}`?", reader.0);
    if let Some(at) = known.iter().position(|(known, _)| *known == name) {
        let (_, old) = known.swap_remove(at);
        // SAFETY: nobody keeps an address of it.
        unsafe { old.remove()? };
    }
    let tracker = jit.main().create_tracker()?;
    let symbol = jit.intern(&name);
    tracker.define(Definition {
        name: name.clone(),
        symbol,
        formula,
    })?;
    known.push((name, tracker));
    Ok(String::new())
}

fn main() -> Result<()> {
    let (jit, mut known) = (Jit::new()?, Vec::new());
    for line in stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        println!("> {}", line.trim());
        match enter(&jit, &mut known, &line) {
            Ok(answer) if answer.is_empty() => {}
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("error: {error:#}"),
        }
    }
    Ok(())
}
