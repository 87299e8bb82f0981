//! Compiles one function from plain data to machine code: the phases in order.

use crate::analysis::{Analysis, NO_REGISTER, NONE, State};
use crate::asm::Gpr;
use crate::emit::{Buffers, Emitter, Frame};
use crate::places::{Class, NO_HINT, Place, Places, Request};
use crate::{Code, Options, Uncovered, coverage, ir};

/// A compiler that reuses its buffers from function to function.
#[derive(Debug, Default)]
pub struct Compiler {
    options: Options,
    analysis: Analysis,
    places: Places,
    requests: Vec<Request>,
    /// The numbers of values and variables that need a place, in the order of requests.
    asking: Vec<u32>,
    /// The request of each value and variable; later its place.
    request_of: Vec<u32>,
    place_of: Vec<Place>,
    buffers: Buffers,
}

impl Compiler {
    /// Creates a compiler with settings.
    pub fn new(options: Options) -> Compiler {
        Compiler {
            options,
            ..Compiler::default()
        }
    }

    /// The settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Compiles a function.
    ///
    /// # Errors
    /// [`Uncovered`] names the unsupported feature; no code was emitted then.
    pub fn compile(&mut self, function: &ir::Function) -> Result<Code, Uncovered> {
        let frame = self.plan(function)?;
        Ok(self.emitter(function, frame).emit())
    }

    /// Compiles a function, and the OSR exits of its loops: second, code that the function jumps to,
    /// which belongs to this very code of it ([`Code::fingerprint`]). [`Code::blocks`] of the exits are
    /// the heads that have one: those of [`ir::Head::has_exit`] of which the function keeps all
    /// values.
    ///
    /// # Errors
    /// Like [`Compiler::compile`].
    pub fn compile_exits(&mut self, function: &ir::Function) -> Result<(Code, Code), Uncovered> {
        let frame = self.plan(function)?;
        let code = self.emitter(function, frame.clone()).emit();
        Ok((code, self.emitter(function, frame).emit_exits()))
    }

    /// Analyses a function, and chooses the places of its values; returns the layout of its frame.
    fn plan(&mut self, function: &ir::Function) -> Result<Frame, Uncovered> {
        covers(function, &self.options)?;
        self.analysis.of(function);
        let mut frame = Frame::of(function);
        self.ask(function, &frame);
        self.places
            .assign(&self.requests, self.analysis.has.returns_twice);
        for (&who, &place) in self.asking.iter().zip(&self.places.places) {
            self.place_of[who as usize] = place;
        }
        let (saved, below) = (self.places.saved, self.places.frame);
        frame.lay_out(function, &self.analysis, saved, below)?;
        Ok(frame)
    }

    fn emitter<'a>(&'a mut self, function: &'a ir::Function, frame: Frame) -> Emitter<'a> {
        Emitter::new(
            function,
            &self.analysis,
            &self.place_of,
            frame,
            &self.options,
            &mut self.buffers,
        )
    }

    /// Makes requests for all lives that need a place, sorted by their start; values that stay in
    /// `rax` need none.
    fn ask(&mut self, function: &ir::Function, frame: &Frame) {
        let lives = &self.analysis.lives;
        self.asking.clear();
        self.place_of.clear();
        self.place_of.resize(lives.len(), Place::None);
        for (at, life) in lives.iter().enumerate() {
            if life.state != State::Placed {
                continue;
            }
            if self.analysis.is_at_hand(function, at as u32) {
                self.place_of[at] = Place::Gpr(Gpr::RAX);
            } else {
                self.asking.push(at as u32);
            }
        }
        // Values are already in order, except for blocks in another order: the sort merges runs.
        self.asking.sort_by_key(|&at| lives[at as usize].from);
        self.request_of.clear();
        self.request_of.resize(lives.len(), NO_HINT);
        for (at, &who) in self.asking.iter().enumerate() {
            self.request_of[who as usize] = at as u32;
        }
        self.requests.clear();
        for &who in &self.asking {
            let life = &lives[who as usize];
            self.requests.push(Request {
                from: life.from,
                to: life.to,
                weight: life.weight,
                class: class_of(life.ty),
                crosses: self.analysis.crosses_calls(life),
                hint: match life.hint {
                    NONE => NO_HINT,
                    hint => self.request_of[hint as usize],
                },
                register: match life.register {
                    NO_REGISTER => u8::MAX,
                    register => register,
                },
                home: frame.home(who as usize),
            });
        }
    }
}

fn class_of(ty: ir::Type) -> Class {
    match ty {
        ir::Type::Int(_) => Class::Int,
        ir::Type::F32 | ir::Type::F64 | ir::Type::V64 => Class::Scalar,
        ir::Type::V128 => Class::Vector,
        ir::Type::F80 => Class::Memory,
    }
}

/// Compiles a function with a new compiler; for many functions one [`Compiler`] is cheaper.
///
/// # Errors
/// Like [`Compiler::compile`].
pub fn compile(function: &ir::Function, options: &Options) -> Result<Code, Uncovered> {
    Compiler::new(*options).compile(function)
}

/// Checks whether the compiler supports a function, without compiling it.
///
/// # Errors
/// [`Uncovered`] names the first unsupported feature.
pub fn covers(function: &ir::Function, options: &Options) -> Result<(), Uncovered> {
    coverage::covers(function, options)
}
