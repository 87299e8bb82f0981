//! A signature, and how it is drawn: everything follows from the seed.
//!
//! Most signatures are of a kind that the baseline compiler covers, so that both compilers are
//! compared; the others are any, so that a type or convention that it covers by mistake is found.

use super::conventions::{ALL, COMMON, Convention};
use super::types::{Extension, Ty};
use uruk_testing::Random;

/// How a parameter is passed, as its attribute says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    Plain,
    Extended(Extension),
    InReg,
    /// A copy of what is pointed at, with an alignment, or 0 for none.
    ByVal(Ty, u32),
    SRet(Ty),
    Nest,
    SwiftSelf,
    SwiftAsync,
    SwiftError,
}

#[derive(Debug, Clone)]
pub struct Parameter {
    pub ty: Ty,
    pub passing: Passing,
}

/// Where attributes of parameters stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Both,
    ByCall,
    ByDeclaration,
}

/// How the caller calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Direct,
    Indirect,
    Invoke,
}

/// A function between caller and callee, which passes everything on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    No,
    Call,
    TailCall,
    MustTail,
}

#[derive(Debug, Clone)]
pub struct Signature {
    pub seed: u64,
    /// All of it is of kinds that the baseline compiler is to cover.
    pub is_common: bool,
    pub convention: &'static Convention,
    pub result: Option<Ty>,
    pub result_passing: Passing,
    pub parameters: Vec<Parameter>,
    /// Arguments beyond the parameters that `va_arg` reads; then some that are not read.
    pub variable: Option<(Vec<Ty>, Vec<Ty>)>,
    pub said: Said,
    pub form: Form,
    pub forward: Forward,
    /// The caller's frame moves before the call.
    pub moves_stack: bool,
}

struct Draw {
    random: Random,
    is_common: bool,
}

impl Signature {
    pub fn draw(seed: u64) -> Signature {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let is_common = random.below(4) != 0;
        Draw { random, is_common }.signature(seed)
    }

    /// Whether LLVM may have no code for it.
    pub fn may_be_refused(&self) -> bool {
        !self.is_common || self.forward == Forward::MustTail
    }

    /// The kinds that it is an example of.
    pub fn kinds(&self) -> Vec<&'static str> {
        let has = |is: fn(&Passing) -> bool| self.has(&is);
        let all = self.parameters.iter();
        let plain = all.filter(|it| !matches!(it.passing, Passing::ByVal(..) | Passing::SRet(_)));
        let types: Vec<&Ty> = plain.map(|it| &it.ty).chain(&self.result).collect();
        let is_type = |is: fn(&Ty) -> bool| types.iter().any(|ty| is(ty));
        let has_leaf = |is: fn(&Ty) -> bool| {
            types
                .iter()
                .any(|ty| ty.leaves().iter().any(|leaf| is(&leaf.ty)))
        };
        let leaves: usize = types.iter().map(|ty| ty.leaves().len()).sum();
        let is_odd = |ty: &Ty| matches!(ty, Ty::Vector(lanes, _) if !lanes.is_power_of_two());
        let is_whole = |ty: &Ty| matches!(ty, Ty::Vector(lanes, _) if lanes.is_power_of_two());
        let all = [
            (self.convention.name, true),
            (
                "zeroext",
                has(|it| *it == Passing::Extended(Extension::Zero)),
            ),
            (
                "signext",
                has(|it| *it == Passing::Extended(Extension::Sign)),
            ),
            ("byval", has(|it| matches!(it, Passing::ByVal(..)))),
            ("sret", has(|it| matches!(it, Passing::SRet(_)))),
            ("nest", has(|it| *it == Passing::Nest)),
            ("variable arguments", self.variable.is_some()),
            (
                "aggregates",
                is_type(|ty| matches!(ty, Ty::Struct(..) | Ty::Array(..))),
            ),
            ("i1", has_leaf(|ty| *ty == Ty::Int(1))),
            ("i128", has_leaf(|ty| *ty == Ty::Int(128))),
            (
                "odd integers",
                has_leaf(|ty| matches!(ty, Ty::Int(bits) if bits % 8 != 0)),
            ),
            (
                "floating point",
                has_leaf(|ty| matches!(ty, Ty::Float | Ty::Double)),
            ),
            ("x86_fp80", has_leaf(|ty| *ty == Ty::X87)),
            ("vectors", has_leaf(is_whole)),
            ("odd vectors", has_leaf(is_odd)),
            ("no result", self.result.is_none()),
            ("many arguments", leaves > 12),
            ("indirect calls", self.form == Form::Indirect),
            ("invokes", self.form == Form::Invoke),
            ("tail calls", self.forward == Forward::MustTail),
            ("a stack that moves", self.moves_stack),
        ];
        all.iter()
            .filter(|(_, is)| *is)
            .map(|(kind, _)| *kind)
            .collect()
    }

    pub fn has(&self, is: &dyn Fn(&Passing) -> bool) -> bool {
        self.parameters.iter().any(|it| is(&it.passing)) || is(&self.result_passing)
    }
}

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize].clone()
    }

    fn signature(mut self, seed: u64) -> Signature {
        let convention = match self.is_common {
            true => self.one_of(&COMMON),
            false => ALL[self.below(ALL.len() as u64) as usize],
        };
        let is_common = self.is_common;
        // A convention that is covered by mistake is found where all else is covered.
        self.is_common |= self.once_in(2);
        let result = (!self.once_in(8)).then(|| self.result());
        let result_passing = match &result {
            Some(ty) => self.scalar_passing(ty),
            None => Passing::Plain,
        };
        let count = match self.below(8) {
            0 => 0,
            1 => 8 + self.below(16),
            _ => 1 + self.below(7),
        };
        let may_copy = convention.is_like_c;
        let mut parameters: Vec<Parameter> = (0..count).map(|_| self.parameter(may_copy)).collect();
        let has_sret = result.is_none() && self.once_in(2);
        self.add_special(&mut parameters, has_sret);
        let has_copies = |it: &Parameter| matches!(it.passing, Passing::ByVal(..));
        let may_vary = convention.may_vary && !has_sret;
        let variable = (may_vary && self.once_in(8)).then(|| self.variable());
        let forward = match self.below(6) {
            _ if variable.is_some() || parameters.iter().any(has_copies) => Forward::No,
            0 if convention.is_like_c => Forward::MustTail,
            1 => Forward::TailCall,
            2 if self.once_in(3) => Forward::Call,
            _ => Forward::No,
        };
        let is_error = |it: &Parameter| it.passing == Passing::SwiftError;
        let forward = match parameters.iter().any(is_error) {
            true => Forward::No,
            false => forward,
        };
        let types = parameters.iter().map(|it| &it.ty).chain(&result);
        let has_wide = types
            .flat_map(Ty::leaves)
            .any(|leaf| leaf.ty == Ty::Int(128));
        // LLVM 22 crashes on some of them: where an `i128` meets the last registers.
        let convention = match convention.name {
            "preserve_nonecc" if has_wide => ALL[0],
            _ => convention,
        };
        Signature {
            seed,
            is_common,
            convention,
            result,
            result_passing,
            parameters,
            variable,
            said: self.one_of(&[Said::Both, Said::Both, Said::ByCall, Said::ByDeclaration]),
            form: self.one_of(&[Form::Direct, Form::Direct, Form::Indirect, Form::Invoke]),
            forward,
            moves_stack: self.once_in(6),
        }
    }

    /// Parameters of which there is one at most.
    fn add_special(&mut self, parameters: &mut Vec<Parameter>, has_sret: bool) {
        let mut all = Vec::new();
        if self.once_in(10) {
            all.push(Passing::Nest);
        }
        if !self.is_common {
            for passing in [Passing::SwiftSelf, Passing::SwiftAsync, Passing::SwiftError] {
                if self.once_in(8) {
                    all.push(passing);
                }
            }
        }
        for passing in all {
            let at = self.below(parameters.len() as u64 + 1) as usize;
            let ty = Ty::Ptr;
            parameters.insert(at, Parameter { ty, passing });
        }
        if has_sret {
            let passing = Passing::SRet(self.in_memory());
            let at = self.below(2).min(parameters.len() as u64) as usize;
            let ty = Ty::Ptr;
            parameters.insert(at, Parameter { ty, passing });
        }
    }

    fn parameter(&mut self, may_copy: bool) -> Parameter {
        if may_copy && self.once_in(12) {
            let align = match self.is_common {
                true => self.one_of(&[0, 1, 4, 8, 16, 16, 16]),
                false => self.one_of(&[0, 2, 16]),
            };
            let passing = Passing::ByVal(self.in_memory(), align);
            let ty = Ty::Ptr;
            return Parameter { ty, passing };
        }
        let ty = self.ty(2);
        let passing = self.scalar_passing(&ty);
        Parameter { ty, passing }
    }

    /// The passing of what is no pointer to memory.
    fn scalar_passing(&mut self, ty: &Ty) -> Passing {
        if !self.is_common && self.once_in(10) {
            return Passing::InReg;
        }
        match ty {
            Ty::Int(_) if self.once_in(2) => Passing::Extended(match self.once_in(2) {
                true => Extension::Zero,
                false => Extension::Sign,
            }),
            _ => Passing::Plain,
        }
    }

    fn variable(&mut self) -> (Vec<Ty>, Vec<Ty>) {
        let read = [Ty::Int(32), Ty::Int(64), Ty::Double, Ty::Ptr];
        let count = self.below(18);
        let read = (0..count).map(|_| self.one_of(&read)).collect();
        let more = self.below(3);
        (read, (0..more).map(|_| self.ty(1)).collect())
    }

    /// A result: mostly one that registers hold.
    fn result(&mut self) -> Ty {
        match self.below(10) {
            0 | 1 => self.scalar(),
            2 | 3 => self.ty(2),
            // As many as there are registers, about: more are given in memory.
            4 => {
                let count = 1 + self.below(4);
                let vector = Ty::Vector(4, Box::new(Ty::Float));
                let mut fields = vec![vector; count as usize];
                fields.push(self.one_of(&[Ty::Float, Ty::Double, Ty::Int(8)]));
                Ty::Struct(fields, false)
            }
            _ => {
                let count = 1 + self.below(4);
                let fields = (0..count).map(|_| self.scalar());
                Ty::Struct(fields.collect(), false)
            }
        }
    }

    /// A value in memory: no rule of passing is about it.
    fn in_memory(&mut self) -> Ty {
        match self.below(4) {
            0 => Ty::Array(1 + self.below(40) as u32, Box::new(Ty::Int(8))),
            1 => self.scalar(),
            _ => {
                let count = self.below(5);
                let fields = (0..count).map(|_| self.ty(1)).collect();
                Ty::Struct(fields, self.once_in(4))
            }
        }
    }

    fn ty(&mut self, depth: u32) -> Ty {
        match self.below(10) {
            0 | 1 if depth > 0 => {
                let count = self.below(4);
                let fields = (0..count).map(|_| self.ty(depth - 1)).collect();
                Ty::Struct(fields, self.once_in(6))
            }
            2 if depth > 0 => {
                let count = self.below(4) as u32;
                Ty::Array(count, Box::new(self.ty(depth - 1)))
            }
            3 | 4 => self.vector(),
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Ty {
        let uncommon = !self.is_common && self.once_in(3);
        if uncommon {
            let bits = 65 + self.below(200) as u32;
            return self.one_of(&[
                Ty::Half,
                Ty::Half,
                Ty::Quad,
                Ty::Quad,
                Ty::Int(bits),
                Ty::BFloat,
            ]);
        }
        match self.below(12) {
            0 | 1 => Ty::Int(128),
            2 => Ty::X87,
            3 => Ty::Float,
            4 | 5 => Ty::Double,
            6 => Ty::Ptr,
            7 => Ty::Int(1 + self.below(64) as u32),
            _ => Ty::Int(self.one_of(&[1, 8, 16, 32, 32, 64, 64])),
        }
    }

    fn vector(&mut self) -> Ty {
        let odd = !self.is_common && self.once_in(2);
        let lane = match self.is_common {
            true => self.one_of(&[
                Ty::Int(8),
                Ty::Int(8),
                Ty::Int(16),
                Ty::Int(16),
                Ty::Int(32),
                Ty::Int(64),
                Ty::Float,
                Ty::Double,
                Ty::Ptr,
            ]),
            false if odd => Ty::Int(self.one_of(&[1, 1, 7, 24, 128])),
            false => match self.scalar() {
                lane if lane.may_be_lane() => lane,
                _ => Ty::Float,
            },
        };
        let most = match self.is_common {
            true => 128 / lane.bits(),
            false => (512 / lane.bits()).clamp(1, 16),
        };
        let lanes = 1 + self.below(most.into()) as u32;
        Ty::Vector(lanes, Box::new(lane))
    }
}
