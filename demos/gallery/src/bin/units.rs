//! A language without LLVM on top of the library: formulas, compiled with dynasm when they are
//! called first.
//!
//! Each formula is a unit of the session, so it is compiled by its first call, found by others
//! under its stub whatever their order, and replaced while it is used: `f(x) = g(x) * 2` may come
//! before `g`. The first code is made as fast as can be, with every value on the stack. Where
//! samples find a formula hot, the session asks for better code, and gets one with values in
//! registers.
//!
//! Lines are read from standard input: `NAME(x) = FORMULA`, `NAME(NUMBER)`, or `hot NAME(NUMBER)`,
//! which calls until there is better code, and says what a call takes before and after.

use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dynasmrt::{DynasmApi, VecAssembler, dynasm, x64::X64Relocation};
use uruk::{
    Flags, Interface, Jit, ObjectBuilder, Reference, ReoptimizeRequest, Reoptimizer,
    Responsibility, Symbol, Tier, Tracker, Unit,
};

/// The parts of a formula.
#[derive(Clone)]
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

impl Formula {
    /// The same, with operations on numbers alone done.
    fn folded(&self) -> Formula {
        match self {
            Formula::Number(_) | Formula::X => self.clone(),
            Formula::Call(name, argument) => {
                Formula::Call(name.clone(), Box::new(argument.folded()))
            }
            Formula::Operation(sign, left, right) => match (sign, left.folded(), right.folded()) {
                ('+', Formula::Number(a), Formula::Number(b)) => Formula::Number(a.wrapping_add(b)),
                ('-', Formula::Number(a), Formula::Number(b)) => Formula::Number(a.wrapping_sub(b)),
                (_, Formula::Number(a), Formula::Number(b)) => Formula::Number(a.wrapping_mul(b)),
                (_, a, b) => Formula::Operation(*sign, Box::new(a), Box::new(b)),
            },
        }
    }
}

/// Machine code on its way, and where it calls whom.
struct Assembly {
    ops: VecAssembler<X64Relocation>,
    calls: Vec<(u64, String)>,
}

/// Registers for values of better code: rax, rcx, rdx, rsi, rdi, r8 to r11. `x` is in rbx.
const REGISTERS: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// rbx.
const X: u8 = 3;

impl Assembly {
    fn new() -> Assembly {
        Assembly {
            ops: VecAssembler::new(0),
            calls: Vec::new(),
        }
    }

    /// The first code of a formula.
    fn first(formula: &Formula) -> Assembly {
        let mut code = Assembly::new();
        dynasm!(code.ops ; .arch x64 ; push rbp ; mov rbp, rsp ; sub rsp, 16 ; mov [rbp - 8], rdi);
        code.put(formula, 0);
        dynasm!(code.ops ; .arch x64 ; leave ; ret);
        code
    }

    /// Better code of a formula; `None` if it needs more registers than there are.
    fn better(formula: &Formula) -> Option<Assembly> {
        let mut code = Assembly::new();
        dynasm!(code.ops ; .arch x64 ; push rbx ; mov rbx, rdi);
        code.put_into(0, &formula.folded())?;
        dynasm!(code.ops ; .arch x64 ; pop rbx ; ret);
        Some(code)
    }

    /// Leaves the formula's value in a register. Those before it are in use.
    #[expect(
        clippy::useless_conversion,
        reason = "the assembler takes anything for a register"
    )]
    fn put_into(&mut self, number: usize, formula: &Formula) -> Option<()> {
        let to = *REGISTERS.get(number)?;
        match formula {
            Formula::Number(value) => dynasm!(self.ops ; .arch x64 ; mov Rq(to), QWORD *value),
            Formula::X => dynasm!(self.ops ; .arch x64 ; mov Rq(to), Rq(X)),
            Formula::Operation(sign, left, right) => {
                self.put_into(number, left)?;
                let from = match &**right {
                    Formula::X => X,
                    right => {
                        self.put_into(number + 1, right)?;
                        REGISTERS[number + 1]
                    }
                };
                let ops = &mut self.ops;
                match sign {
                    '+' => dynasm!(ops ; .arch x64 ; add Rq(to), Rq(from)),
                    '-' => dynasm!(ops ; .arch x64 ; sub Rq(to), Rq(from)),
                    _ => dynasm!(ops ; .arch x64 ; imul Rq(to), Rq(from)),
                }
            }
            Formula::Call(name, argument) => {
                self.put_into(number, argument)?;
                let ops = &mut self.ops;
                let used = REGISTERS[..number].iter();
                // Calls are made with the stack at a multiple of 16.
                let filler = used.clone().take(number % 2);
                let saved: Vec<u8> = used.chain(filler).copied().collect();
                for &register in &saved {
                    dynasm!(ops ; .arch x64 ; push Rq(register));
                }
                dynasm!(ops ; .arch x64 ; mov rdi, Rq(to) ; .u8 0xe8);
                self.calls.push((ops.offset().0 as u64, name.clone()));
                dynasm!(ops ; .arch x64 ; .i32 0 ; mov Rq(to), rax);
                for &register in saved.iter().rev() {
                    dynasm!(ops ; .arch x64 ; pop Rq(register));
                }
            }
        }
        Some(())
    }

    /// An object that has it as a function.
    fn into_object(self, name: &str) -> Result<Vec<u8>, uruk::Error> {
        let mut code = ObjectBuilder::new();
        // Nothing refers to a label that is not there.
        code.function(name, &self.ops.finalize().unwrap_or_default());
        for (at, callee) in self.calls {
            code.refer(at, Reference::Call, &callee);
        }
        code.finish()
    }

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
    formula: Arc<Formula>,
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
        // The caller receives the error that names the missing symbol.
        match Assembly::first(&self.formula).into_object(&self.name) {
            Ok(object) => drop(responsibility.link(&self.name, object)),
            Err(error) => responsibility.fail(error),
        }
    }

    fn improver(&self) -> Option<Arc<dyn Reoptimizer>> {
        let (name, formula) = (self.name.clone(), Arc::clone(&self.formula));
        Some(Arc::new(move |better: ReoptimizeRequest| {
            let code = match better.tier() {
                Tier::Optimized => Assembly::better(&formula),
                _ => None,
            };
            match code.map(|code| code.into_object(&name)) {
                // The waiting thread, or the session's reporter, receives the reason of a failure.
                Some(Ok(object)) => drop(better.link(&name, object)),
                Some(Err(error)) => better.fail(error),
                None => better.decline(),
            }
        }))
    }
}

/// Calls a formula until there is better code, for a while; what a call takes.
fn heat(jit: &Jit, name: &str, argument: i64) -> Result<String> {
    const CALLS: u32 = 10_000;
    jit.main().compile(name)?;
    // SAFETY: a formula's function; what it calls was linked with it.
    let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(name)? };
    let calls = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(function.call(argument));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let start = Instant::now();
    let mut before = calls();
    while jit.tier(name)? != Some(Tier::Optimized) {
        if start.elapsed() > Duration::from_secs(60) {
            return Ok(format!("tier 1: {before:.1} ns a call, and nothing better"));
        }
        before = before.min(calls());
    }
    let after = (0..100).map(|_| calls()).fold(f64::INFINITY, f64::min);
    Ok(format!(
        "tier 1: {before:.1} ns a call, tier 2: {after:.1} ns"
    ))
}

/// Does what a line says; the answer.
fn enter(jit: &Jit, known: &mut Vec<(String, Tracker)>, line: &str) -> Result<String> {
    let hot = line.trim().strip_prefix("hot ");
    let mut reader = Reader(hot.unwrap_or(line));
    let name = reader.word(|c| c.is_ascii_alphanumeric()).to_owned();
    ensure!(
        !name.is_empty() && reader.take('('),
        "`NAME(x) = FORMULA`, `NAME(NUMBER)` or `hot NAME(NUMBER)`"
    );
    if !reader.take('x') {
        let argument: i64 = reader.word(|c| c.is_ascii_digit() || c == '-').parse()?;
        if hot.is_some() {
            return heat(jit, &name, argument);
        }
        jit.main().compile(&name)?;
        // SAFETY: a formula's function; what it calls was linked with it.
        let function = unsafe { jit.function::<extern "C" fn(i64) -> i64>(&name)? };
        return Ok(function.call(argument).to_string());
    }
    ensure!(reader.take(')') && reader.take('='), "`NAME(x) = FORMULA`");
    let formula = reader.sum()?;
    ensure!(reader.peek().is_none(), "what is `{}`?", reader.0);
    if let Some(at) = known.iter().position(|(known, _)| *known == name) {
        let (_, old) = known.swap_remove(at);
        // SAFETY: no address of it is kept.
        unsafe { old.remove()? };
    }
    let tracker = jit.main().create_tracker()?;
    let symbol = jit.intern(&name);
    tracker.define(Definition {
        name: name.clone(),
        symbol,
        formula: Arc::new(formula),
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
