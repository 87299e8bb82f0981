//! A stack machine whose instructions are an enum with operands, run by a `match`:
//! indirect branches, bounds checks, a stack that may grow. It counts primes by a
//! sieve and runs a recursive function. SIZE is how far the sieve goes.

use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const LOCALS: usize = 4;

#[derive(Clone, Copy)]
enum Code {
    Push(i64),
    Load(u8),
    Store(u8),
    Add,
    Sub,
    Mul,
    Less,
    Jump(u32),
    JumpIfNot(u32),
    /// Index on the stack, replaced by the cell.
    Peek,
    /// Value, then index.
    Poke,
    /// One argument, which becomes local 0.
    Call(u32),
    Return,
    Halt,
}

#[derive(Default)]
struct Frame {
    back: usize,
    locals: [i64; LOCALS],
}

#[derive(Debug)]
enum Fault {
    EmptyStack,
    NoFrame,
    OutOfMemory,
}

struct Machine {
    stack: Vec<i64>,
    frames: Vec<Frame>,
    memory: Vec<i64>,
    steps: u64,
}

impl Machine {
    fn new(cells: usize) -> Machine {
        Machine {
            stack: Vec::new(),
            frames: vec![Frame::default()],
            memory: vec![0; cells],
            steps: 0,
        }
    }

    fn pop(&mut self) -> Result<i64, Fault> {
        self.stack.pop().ok_or(Fault::EmptyStack)
    }

    fn replace_two(&mut self, with: impl Fn(i64, i64) -> i64) -> Result<(), Fault> {
        let right = self.pop()?;
        let left = self.stack.last_mut().ok_or(Fault::EmptyStack)?;
        *left = with(*left, right);
        Ok(())
    }

    fn cell(&mut self, index: i64) -> Result<&mut i64, Fault> {
        let place = usize::try_from(index).ok();
        place.and_then(|at| self.memory.get_mut(at)).ok_or(Fault::OutOfMemory)
    }

    fn local(&mut self, number: u8) -> Result<&mut i64, Fault> {
        let frame = self.frames.last_mut().ok_or(Fault::NoFrame)?;
        Ok(&mut frame.locals[usize::from(number) % LOCALS])
    }

    #[inline(never)]
    fn execute(&mut self, program: &[Code]) -> Result<i64, Fault> {
        let mut at = 0;
        while let Some(code) = program.get(at) {
            at += 1;
            self.steps += 1;
            match *code {
                Code::Push(value) => self.stack.push(value),
                Code::Load(number) => {
                    let value = *self.local(number)?;
                    self.stack.push(value);
                }
                Code::Store(number) => *self.local(number)? = self.pop()?,
                Code::Add => self.replace_two(i64::wrapping_add)?,
                Code::Sub => self.replace_two(i64::wrapping_sub)?,
                Code::Mul => self.replace_two(i64::wrapping_mul)?,
                Code::Less => self.replace_two(|a, b| i64::from(a < b))?,
                Code::Jump(to) => at = to as usize,
                Code::JumpIfNot(to) => {
                    if self.pop()? == 0 {
                        at = to as usize;
                    }
                }
                Code::Peek => {
                    let index = self.pop()?;
                    let value = *self.cell(index)?;
                    self.stack.push(value);
                }
                Code::Poke => {
                    let (index, value) = (self.pop()?, self.pop()?);
                    *self.cell(index)? = value;
                }
                Code::Call(to) => {
                    let mut frame = Frame { back: at, ..Frame::default() };
                    frame.locals[0] = self.pop()?;
                    self.frames.push(frame);
                    at = to as usize;
                }
                Code::Return => at = self.frames.pop().ok_or(Fault::NoFrame)?.back,
                Code::Halt => break,
            }
        }
        self.pop()
    }
}

#[derive(Default)]
struct Program(Vec<Code>);

impl Program {
    fn emit(&mut self, codes: &[Code]) -> u32 {
        self.0.extend_from_slice(codes);
        self.0.len() as u32
    }

    /// A jump that `lead_here` completes; its place.
    fn jump_on(&mut self, jump: fn(u32) -> Code) -> (usize, fn(u32) -> Code) {
        self.0.push(jump(0));
        (self.0.len() - 1, jump)
    }

    fn lead_here(&mut self, (from, jump): (usize, fn(u32) -> Code)) {
        self.0[from] = jump(self.0.len() as u32);
    }
}

/// fib(n), n on the stack; where it begins.
fn emit_fib(program: &mut Program) -> u32 {
    use Code::{Add, Call, JumpIfNot, Less, Load, Push, Return, Sub};
    let start = program.emit(&[]);
    program.emit(&[Load(0), Push(2), Less]);
    let large = program.jump_on(JumpIfNot);
    program.emit(&[Load(0), Return]);
    program.lead_here(large);
    for less in 1..=2 {
        program.emit(&[Load(0), Push(less), Sub, Call(start)]);
    }
    program.emit(&[Add, Return]);
    start
}

/// Counts the primes below `limit` into a local, then adds fib(14).
fn emit_main(program: &mut Program, limit: i64, fib: u32) {
    use Code::{Add, Call, Halt, Jump, JumpIfNot, Less, Load, Mul, Peek, Poke, Push, Store};
    const NUMBER: u8 = 0;
    const MULTIPLE: u8 = 1;
    const COUNT: u8 = 2;
    let head = program.emit(&[Push(0), Store(COUNT), Push(2), Store(NUMBER)]);
    program.emit(&[Load(NUMBER), Push(limit), Less]);
    let done = program.jump_on(JumpIfNot);
    program.emit(&[Load(NUMBER), Peek]);
    let prime = program.jump_on(JumpIfNot);
    let composite = program.jump_on(Jump);
    program.lead_here(prime);
    program.emit(&[Load(COUNT), Push(1), Add, Store(COUNT)]);
    let inner = program.emit(&[Load(NUMBER), Load(NUMBER), Mul, Store(MULTIPLE)]);
    program.emit(&[Load(MULTIPLE), Push(limit), Less]);
    let next = program.jump_on(JumpIfNot);
    program.emit(&[Push(1), Load(MULTIPLE), Poke]);
    program.emit(&[Load(MULTIPLE), Load(NUMBER), Add, Store(MULTIPLE), Jump(inner)]);
    program.lead_here(composite);
    program.lead_here(next);
    program.emit(&[Load(NUMBER), Push(1), Add, Store(NUMBER), Jump(head)]);
    program.lead_here(done);
    program.emit(&[Load(COUNT), Push(14), Call(fib), Add, Halt]);
}

fn main() -> ExitCode {
    steady::kernel("interpreter", |size| {
        let mut program = Program::default();
        let start = program.jump_on(Code::Jump);
        let fib = emit_fib(&mut program);
        program.lead_here(start);
        emit_main(&mut program, size as i64, fib);
        let mut machine = Machine::new(size);
        let result = machine.execute(&program.0).expect("a correct program");
        (result as u64) << 32 ^ machine.steps
    })
}
