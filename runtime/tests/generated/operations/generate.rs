//! Random functions, as IR text, whose results are defined for all inputs.
//!
//! Each function is `void @NAME(ptr %in, ptr %mem, ptr %out)`: it loads values from `%in`, works on
//! them and on [`MEMORY`] bytes at `%mem`, and stores values to slots of [`SLOT`] bytes at `%out`.
//!
//! # How undefined behaviour is avoided
//! Shift amounts are reduced modulo the width; divisors are never 0 or -1; conversions from floats
//! have a range check; indices are masked; each address lies within `%mem` or a variable. Poison
//! is made only where it is overwritten or frozen and multiplied by zero.
//!
//! # What is not compared
//! LLVM leaves the bits of a NaN that arithmetic yields open, and the sign of a zero that `minnum`
//! yields. A value knows whether its bits are [`Value::exact`]; where bits of another one become
//! visible, each NaN is made the same one first.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::types::{I1, I32, I64, PTR, Part, Ty, int, scalar};
use uruk_testing::Random;

/// Bytes from one input or result to the next.
pub const SLOT: usize = 32;
/// Inputs of a function.
pub const INPUTS: usize = 16;
/// Results of a function, at most.
pub const RESULTS: usize = 48;
/// Bytes of memory; pointers of the scope lie in its first half.
pub const MEMORY: usize = 512;

/// A value in scope.
#[derive(Clone)]
pub struct Value {
    pub name: String,
    pub ty: Ty,
    /// Each tier must agree about each bit of it.
    pub exact: bool,
}

/// A generated function and the declarations that it needs.
pub struct Made {
    pub text: String,
    pub declares: BTreeSet<String>,
}

pub struct Generator {
    pub random: Random,
    pub out: String,
    pub declares: BTreeSet<String>,
    pub scope: Vec<Value>,
    pub block: String,
    /// Operations and types that the baseline compiler leaves to LLVM may be used.
    pub wild: bool,
    /// Statements that are left.
    pub fuel: usize,
    /// Variables that all blocks read and write, with the type that they are mostly of.
    pub locals: Vec<(String, Ty)>,
    next: usize,
    /// Variables of the entry block.
    entry: String,
}

/// The function of a seed.
pub fn function(seed: u64) -> Made {
    let mut random = Random::new(seed);
    let wild = random.one_in(5);
    let fuel = match random.below(3) {
        0 => 3 + random.below(4),
        _ if wild => 4 + random.below(6),
        _ if random.one_in(8) => 100 + random.below(60),
        _ => 10 + random.below(25),
    };
    let mut it = Generator {
        random,
        out: String::new(),
        declares: BTreeSet::new(),
        scope: Vec::new(),
        block: "entry".into(),
        wild,
        fuel,
        locals: Vec::new(),
        next: 0,
        entry: String::new(),
    };
    it.body();
    // AVX2 is for intrinsics of the processor.
    let features = match it.declares.iter().any(|it| it.contains("@llvm.x86.")) {
        true => " \"target-features\"=\"+sse4.1,+ssse3,+avx,+avx2\"",
        false => "",
    };
    Made {
        text: format!(
            "define void @f{seed}(ptr align 64 %in, ptr align 64 %mem, ptr align 64 %out){features} {{\n\
             entry:\n{}{}  ret void\n}}\n",
            it.entry, it.out
        ),
        declares: it.declares,
    }
}

impl Generator {
    fn body(&mut self) {
        self.scope.push(Value {
            name: "%mem".into(),
            ty: PTR,
            exact: true,
        });
        for at in 0..3 + self.random.below(INPUTS - 3) {
            self.input(at);
        }
        for _ in 0..self.random.below(5) {
            self.local();
        }
        while self.fuel > 0 {
            self.statement(0);
        }
        self.results();
    }

    /// Loads an input.
    fn input(&mut self, at: usize) {
        let ty = loop {
            let ty = self.ty();
            if !matches!(ty.part, Part::Ptr | Part::F80) {
                break ty;
            }
        };
        let address = self.step(&format!("getelementptr i8, ptr %in, i64 {}", at * SLOT));
        let volatile = if self.random.one_in(3) {
            "volatile "
        } else {
            ""
        };
        // Unused bits of what is not of whole bytes are not defined.
        let held = match ty.part {
            Part::Int(bits) if !ty.is_vector() => int(bits.next_multiple_of(8)),
            Part::Int(bits) if bits % 8 != 0 => ty.of(Part::Int(bits.next_power_of_two().max(8))),
            _ => ty,
        };
        if held.bytes() > SLOT as u32 {
            return;
        }
        let text = format!("load {volatile}{held}, ptr {address}, align 1");
        if held == ty {
            self.make(ty, &text, true);
        } else {
            let held_value = self.step(&text);
            self.make(ty, &format!("trunc {held} {held_value} to {ty}"), true);
        }
    }

    /// Stores values of the scope to `%out`.
    fn results(&mut self) {
        let mut at = 0;
        let all: Vec<Value> = self.scope.drain(..).rev().collect();
        for value in all {
            if at < RESULTS && value.name != "%mem" && !self.random.one_in(4) {
                self.result(&value, at);
                at += 1;
            }
        }
    }

    fn result(&mut self, value: &Value, at: usize) {
        let ty = value.ty;
        let address = self.step(&format!("getelementptr i8, ptr %out, i64 {}", at * SLOT));
        let (ty, name) = match ty.part {
            Part::Ptr => {
                let to = ty.of(Part::Int(64));
                let number = self.step(&format!("ptrtoint {ty} {} to {to}", value.name));
                let base = self.step("ptrtoint ptr %mem to i64");
                let base = self.spread(I64, &base, to);
                (to, self.step(&format!("sub {to} {number}, {base}")))
            }
            Part::Int(bits) if bits % 8 != 0 || !bits.is_power_of_two() => {
                let to = ty.of(Part::Int(bits.next_power_of_two().max(8)));
                (to, self.step(&format!("zext {ty} {} to {to}", value.name)))
            }
            Part::Int(_) => (ty, value.name.clone()),
            _ => (ty, self.exact(value)),
        };
        if ty.bytes() <= SLOT as u32 {
            let align = self.random.one_of(&[1, 2, 4, 8, 16, 32]);
            self.line(&format!("store {ty} {name}, ptr {address}, align {align}"));
        }
    }

    /// A value of which each bit is defined: NaNs are made the same.
    pub fn exact(&mut self, value: &Value) -> String {
        let (ty, name) = (value.ty, &value.name);
        if value.exact || !ty.is_float() {
            return name.clone();
        }
        let (infinity, nan) = match ty.part {
            Part::Half => (0x7c00u128, "0xH7E00"),
            Part::F32 => (0x7f80_0000, "0x7FF8000000000000"),
            Part::F64 => (0x7ff0 << 48, "0x7FF8000000000000"),
            Part::F80 => (0, "0xK7FFFC000000000000000"),
            _ => (0x7fff << 112, "0xL00000000000000007FFF800000000000"),
        };
        let bits = ty.of(Part::I1);
        if ty.part == Part::F80 || self.random.one_in(2) {
            // With a NaN that is a constant, LLVM takes the result for the value itself.
            let is_nan = self.step(&format!("fcmp uno {ty} {name}, {}", ty.zero()));
            let nan = self.opaque(ty, &ty.splat(nan));
            return self.step(&format!("select {bits} {is_nan}, {ty} {nan}, {ty} {name}"));
        }
        let whole = ty.of(Part::Int(ty.bits()));
        let number = self.step(&format!("bitcast {ty} {name} to {whole}"));
        let size = whole.number(whole.greatest());
        let size = self.step(&format!("and {whole} {number}, {size}"));
        let infinity_text = whole.number(infinity);
        let is_nan = self.step(&format!("icmp ugt {whole} {size}, {infinity_text}"));
        let quiet = whole.number(infinity | infinity >> 1);
        let made = self.step(&format!(
            "select {bits} {is_nan}, {whole} {quiet}, {whole} {number}"
        ));
        self.step(&format!("bitcast {whole} {made} to {ty}"))
    }

    // Text.

    pub fn fresh(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "  {text}");
    }

    pub fn label(&mut self, label: &str) {
        let _ = writeln!(self.out, "{label}:");
        self.block = label.to_owned();
    }

    /// An instruction whose result stays in scope.
    pub fn make(&mut self, ty: Ty, text: &str, exact: bool) -> String {
        let name = self.fresh("%v");
        self.line(&format!("{name} = {text}"));
        self.keep(ty, &name, exact);
        name
    }

    pub fn keep(&mut self, ty: Ty, name: &str, exact: bool) {
        self.scope.push(Value {
            name: name.to_owned(),
            ty,
            exact: exact || !ty.is_float(),
        });
    }

    /// An instruction whose result is used at once.
    pub fn step(&mut self, text: &str) -> String {
        let name = self.fresh("%s");
        self.line(&format!("{name} = {text}"));
        name
    }

    /// A variable of the frame.
    pub fn variable(&mut self, ty: &str, align: u32) -> String {
        let name = self.fresh("%a");
        let _ = writeln!(self.entry, "  {name} = alloca {ty}, align {align}");
        name
    }

    /// A call of an intrinsic.
    pub fn call(&mut self, returns: &str, name: &str, arguments: &[(String, String)]) -> String {
        // Attributes of an argument are not the function's.
        let types = arguments
            .iter()
            .map(|(ty, _)| match ty.starts_with("ptr ") {
                true => "ptr",
                false => &**ty,
            });
        let types: Vec<&str> = types.collect();
        let given: Vec<_> = arguments
            .iter()
            .map(|(ty, it)| format!("{ty} {it}"))
            .collect();
        self.declares
            .insert(format!("declare {returns} @{name}({})", types.join(", ")));
        // A pointer may be one to a variable.
        let may_be_tail = !types_have_pointer(arguments) && self.random.one_in(3);
        let tail = if may_be_tail { "tail " } else { "" };
        format!("{tail}call {returns} @{name}({})", given.join(", "))
    }

    // Types and values.

    /// A width of integers.
    pub fn width(&mut self) -> u32 {
        match self.random.below(10) {
            0 => 1,
            1..=5 => self.random.one_of(&[8, 16, 32, 64]),
            6 => 128,
            7 if self.wild => self.random.one_of(&[65, 80, 96, 100, 127, 129, 160, 200]),
            _ => 2 + self.random.below(63) as u32,
        }
    }

    pub fn float_part(&mut self) -> Part {
        match self.random.below(8) {
            0..=2 => Part::F32,
            3..=5 => Part::F64,
            6 if self.wild => self.random.one_of(&[Part::Half, Part::F128]),
            _ => Part::F80,
        }
    }

    /// A type that the compilers know in memory.
    pub fn stored(&mut self) -> Ty {
        loop {
            let ty = self.ty();
            if self.wild || !ty.is_vector() || ty.bits() != 1 {
                return ty;
            }
        }
    }

    /// Any type.
    pub fn ty(&mut self) -> Ty {
        match self.random.below(10) {
            0..=4 => int(self.width()),
            5 | 6 => scalar(self.float_part()),
            7 => PTR,
            _ => self.vector(),
        }
    }

    pub fn vector(&mut self) -> Ty {
        let part = match self.random.below(8) {
            0 => Part::I1,
            1..=4 => Part::Int(self.random.one_of(&[8, 16, 32, 64])),
            5 => Part::F32,
            6 => Part::F64,
            _ if self.wild => self.random.one_of(&[
                Part::Int(3),
                Part::Int(24),
                Part::Int(33),
                Part::Int(128),
                Part::Half,
                Part::Ptr,
            ]),
            _ => Part::Int(32),
        };
        let lanes = match self.random.below(3) {
            0 => 1 + self.random.below(9) as u32,
            _ => self.random.one_of(&[2, 4, 8, 16]),
        };
        let most = (SLOT as u32 * 8 / part.bits().max(8)).max(1);
        Ty {
            part,
            lanes: lanes.min(most),
        }
    }

    /// A value of the scope, if it has one of that type.
    fn any(&mut self, ty: Ty) -> Option<Value> {
        let of: Vec<&Value> = self.scope.iter().filter(|it| it.ty == ty).collect();
        let count = of.len();
        let near = count.min(4);
        match count {
            0 => None,
            _ if self.random.one_in(2) => Some(of[count - 1 - self.random.below(near)].clone()),
            _ => Some(of[self.random.below(count)].clone()),
        }
    }

    /// An operand of that type: of the scope, a constant, or made of another value.
    pub fn value(&mut self, ty: Ty) -> Value {
        let exact = |name| Value {
            name,
            ty,
            exact: true,
        };
        if self.random.one_in(6) && ty.part != Part::Ptr {
            return exact(ty.constant(&mut self.random));
        }
        if let Some(known) = self.any(ty)
            && !self.random.one_in(5)
        {
            return known;
        }
        if ty.is_vector() {
            return self.vector_of(ty);
        }
        match ty.part {
            Part::Ptr => {
                let at = self.index(I64, MEMORY as u32 / 2);
                exact(self.make(PTR, &format!("getelementptr i8, ptr %mem, i64 {at}"), true))
            }
            Part::Int(bits) => exact(self.integer(bits)),
            _ => {
                let small = self.small(I32);
                let text = format!("sitofp i32 {small} to {ty}");
                exact(self.make(ty, &text, true))
            }
        }
    }

    /// Some integer of the scope as one of another width.
    fn integer(&mut self, bits: u32) -> String {
        let ty = int(bits);
        let of: Vec<&Value> = self
            .scope
            .iter()
            .filter(|it| it.ty.is_int() && !it.ty.is_vector() && it.ty != ty)
            .collect();
        let Some(from) = (!of.is_empty()).then(|| of[self.random.below(of.len())].clone()) else {
            return ty.constant(&mut self.random);
        };
        let cast = match from.ty.bits() > bits {
            true => "trunc",
            false => self.random.one_of(&["zext", "sext"]),
        };
        self.make(
            ty,
            &format!("{cast} {} {} to {ty}", from.ty, from.name),
            true,
        )
    }

    /// A vector with a lane or all lanes of a scalar.
    fn vector_of(&mut self, ty: Ty) -> Value {
        let one = self.value(ty.lane());
        let (base, lane) = match ty.part {
            Part::Ptr => (self.spread(PTR, "%mem", ty), 0),
            _ => {
                let lane = self.random.below(ty.lanes as usize);
                (ty.constant(&mut self.random), lane)
            }
        };
        let (part, name) = (ty.part, &one.name);
        let text = format!("insertelement {ty} {base}, {part} {name}, i32 {lane}");
        let name = match self.random.one_in(3) {
            true => self.spread(ty.lane(), &one.name, ty),
            false => self.step(&text),
        };
        self.keep(ty, &name.clone(), one.exact);
        Value {
            name,
            ty,
            exact: one.exact,
        }
    }

    /// A scalar in all lanes of a vector type; itself if the type is a scalar.
    pub fn spread(&mut self, one: Ty, name: &str, to: Ty) -> String {
        if !to.is_vector() {
            return name.to_owned();
        }
        let first = self.step(&format!("insertelement {to} poison, {one} {name}, i64 0"));
        let lanes = to.lanes;
        self.step(&format!(
            "shufflevector {to} {first}, {to} poison, <{lanes} x i32> zeroinitializer"
        ))
    }

    /// An integer that is at least 0 and less than `limit`, which is a power of two.
    pub fn index(&mut self, ty: Ty, limit: u32) -> String {
        if self.random.one_in(3) {
            return ty.number(self.random.below(limit as usize) as u128);
        }
        let value = self.value(ty).name;
        let mask = ty.number(u128::from(limit) - 1);
        self.step(&format!("and {ty} {value}, {mask}"))
    }

    /// An integer from -64 to 63.
    pub fn small(&mut self, ty: Ty) -> String {
        let value = self.value(ty).name;
        let by = ty.number(u128::from(ty.bits()) - 7);
        let up = self.step(&format!("shl {ty} {value}, {by}"));
        self.step(&format!("ashr {ty} {up}, {by}"))
    }

    /// A value that no pass knows anything about.
    pub fn opaque(&mut self, ty: Ty, name: &str) -> String {
        let variable = self.variable(&ty.to_string(), 32);
        self.line(&format!("store volatile {ty} {name}, ptr {variable}"));
        self.step(&format!("load volatile {ty}, ptr {variable}"))
    }

    pub fn condition(&mut self) -> String {
        self.value(I1).name
    }
}

fn types_have_pointer(arguments: &[(String, String)]) -> bool {
    arguments.iter().any(|(ty, _)| ty.contains("ptr"))
}
