//! Random functions with nested loops, as IR text. What they do is defined for all inputs: loops
//! end, indices are within bounds, nothing is divided by zero, and no result is poison.
//!
//! Each function is `i64 @fN(ptr %mem, i64 %x, i64 %depth)`; `%mem` has 32 words. Among what
//! lives across heads are: numbers of odd widths, floats, vectors, structs and pointers; values
//! that swap places; values of loops that are entered beside their heads; scalars, arrays and large arrays, some of whose addresses leave; arrays
//! whose life begins in a loop, with addresses that were made before it; memory of stack
//! pointers that are gone back to. Loops are left in the middle, by switches and early
//! returns; functions call themselves, and catch what is thrown. Bytes of `alloca`s of types that
//! do not fill theirs are written and read; what a landing pad chose is compared later.

use std::fmt::Write;

use uruk_testing::Random;

/// The declarations that all functions of a module share.
pub const PRELUDE: &str = "
declare i64 @touch(ptr, i64)
declare i64 @again(i64)
declare ptr @llvm.stacksave.p0()
declare void @llvm.stackrestore.p0(ptr)
declare void @llvm.lifetime.start.p0(ptr)
declare void @llvm.lifetime.end.p0(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_allocate_exception(i64)
declare void @__cxa_throw(ptr, ptr, ptr)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()
declare i32 @llvm.eh.typeid.for.p0(ptr)
@_ZTIl = external constant ptr
@_ZTIi = external constant ptr
@_ZTId = external constant ptr
define i64 @same(i64 %x) noinline {
  ret i64 %x
}
define i64 @throws(i64 %x) {
  %low = and i64 %x, 3
  %is = icmp eq i64 %low, 1
  br i1 %is, label %throw, label %fine
throw:
  %e = call ptr @__cxa_allocate_exception(i64 8)
  store i64 %x, ptr %e
  call void @__cxa_throw(ptr %e, ptr @_ZTIl, ptr null)
  unreachable
fine:
  %r = mul i64 %x, 3
  ret i64 %r
}
";

/// Types of values that loops carry, beside `i64`.
pub const TYPES: [&str; 9] = [
    "i64",
    "i32",
    "i1",
    "i13",
    "double",
    "float",
    "<4 x i32>",
    "i128",
    "{ i64, i32 }",
];

/// `alloca`s of types whose values do not fill the bytes that they have, and how many those are.
pub const ODD: [(&str, &str, usize); 8] = [
    ("%bit", "i1", 1),
    ("%lanes", "<8 x i1>", 1),
    ("%seven", "i7", 1),
    ("%three", "i24", 4),
    ("%more", "i33", 8),
    ("%long", "x86_fp80", 16),
    ("%padded", "{ i8, i32 }", 8),
    ("%counted", "i1, i32 3", 3),
];

/// The `alloca`s of every function.
const VARIABLES: &str = "  %v0 = alloca i64
  %v1 = alloca i64
  %v2 = alloca i32
  %v3 = alloca double
  %v4 = alloca i16
  %a0 = alloca [8 x i64]
  %a1 = alloca [8 x i64], align 32
  %kept = alloca [8 x i64]
  %known = alloca [8 x i64]
  %large = alloca [100 x i64]
  %vector = alloca <4 x i32>
  %born = alloca [8 x i64]
  %lives = alloca [8 x i64]
  %stack = alloca ptr
  %chosen = alloca i64
  %copied = alloca i64
";

pub struct Generator<'a> {
    pub random: &'a mut Random,
    pub out: String,
    pub next: usize,
    /// Values in scope, with their types.
    pub scope: Vec<(String, &'static str)>,
    pub block: String,
    pub fuel: usize,
    pub name: String,
    /// It may be in the scope of lives.
    pub born: bool,
    /// Choices of landing pads are kept: few loops of such a function are left.
    pub chooses: bool,
}

/// One function.
pub fn function(random: &mut Random, number: usize) -> String {
    let mut generator = Generator {
        chooses: random.one_in(3),
        fuel: 12 + random.below(30),
        random,
        out: String::new(),
        next: 0,
        scope: vec![("%x".into(), "i64"), ("%depth".into(), "i64")],
        block: "entry".into(),
        name: format!("f{number}"),
        born: false,
    };
    generator.whole();
    generator.out
}

impl Generator<'_> {
    pub fn fresh(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "  {text}");
    }

    /// An instruction that makes a value.
    pub fn make(&mut self, ty: &'static str, text: &str) -> String {
        let name = self.fresh("%t");
        self.line(&format!("{name} = {text}"));
        self.scope.push((name.clone(), ty));
        name
    }

    /// The same, of a value that is only a step on the way.
    pub fn step(&mut self, text: &str) -> String {
        let name = self.fresh("%s");
        self.line(&format!("{name} = {text}"));
        name
    }

    pub fn label(&mut self, label: &str) {
        let _ = writeln!(self.out, "{label}:");
        self.block = label.to_owned();
    }

    pub fn any(&mut self, ty: &str) -> Option<String> {
        let of: Vec<&String> = self
            .scope
            .iter()
            .filter(|(_, it)| *it == ty)
            .map(|(name, _)| name)
            .collect();
        let near = of.len().min(6);
        match of.is_empty() {
            true => None,
            // Near ones are met more often, far ones live longer.
            false if self.random.one_in(2) => {
                Some(of[of.len() - 1 - self.random.below(near)].clone())
            }
            false => Some(of[self.random.below(of.len())].clone()),
        }
    }

    pub fn word(&mut self) -> String {
        match self.random.below(6) {
            0 => format!("{}", self.random.below(1000)),
            _ => self.any("i64").unwrap_or_else(|| "5".into()),
        }
    }

    /// A value of any type, made of a word if there is none.
    pub fn value(&mut self, ty: &'static str) -> String {
        if let Some(known) = self.any(ty)
            && !self.random.one_in(4)
        {
            return known;
        }
        let word = self.word();
        self.of_word(ty, &word)
    }

    pub fn of_word(&mut self, ty: &'static str, word: &str) -> String {
        match ty {
            "i64" => word.to_owned(),
            "i32" | "i1" | "i13" => self.make(ty, &format!("trunc i64 {word} to {ty}")),
            "i128" => {
                let wide = self.step(&format!("sext i64 {word} to i128"));
                self.make(ty, &format!("mul i128 {wide}, 18446744073709551629"))
            }
            "double" | "float" => {
                let low = self.step(&format!("and i64 {word}, 65535"));
                self.make(ty, &format!("sitofp i64 {low} to {ty}"))
            }
            "<4 x i32>" => {
                let low = self.step(&format!("trunc i64 {word} to i32"));
                let place = self.random.below(4);
                self.make(
                    ty,
                    &format!("insertelement <4 x i32> <i32 1, i32 2, i32 3, i32 4>, i32 {low}, i64 {place}"),
                )
            }
            _ => self.make(
                ty,
                &format!("insertvalue {{ i64, i32 }} {{ i64 7, i32 9 }}, i64 {word}, 0"),
            ),
        }
    }

    /// A word made of a value.
    pub fn word_of(&mut self, ty: &str, value: &str) -> String {
        match ty {
            "i64" => value.to_owned(),
            "i32" | "i1" | "i13" => self.make("i64", &format!("zext {ty} {value} to i64")),
            "i128" => {
                let high = self.step(&format!("lshr i128 {value}, 61"));
                self.make("i64", &format!("trunc i128 {high} to i64"))
            }
            "double" => self.make("i64", &format!("bitcast double {value} to i64")),
            "float" => {
                let bits = self.step(&format!("bitcast float {value} to i32"));
                self.make("i64", &format!("zext i32 {bits} to i64"))
            }
            "<4 x i32>" => {
                let place = self.random.below(4);
                let part = self.step(&format!("extractelement <4 x i32> {value}, i64 {place}"));
                self.make("i64", &format!("sext i32 {part} to i64"))
            }
            _ => self.make("i64", &format!("extractvalue {{ i64, i32 }} {value}, 0")),
        }
    }

    /// A value of the same type that depends on `value`.
    pub fn change(&mut self, ty: &'static str, value: &str) -> String {
        match ty {
            "i64" | "i32" | "i13" | "i128" | "<4 x i32>" => {
                let other = self.value(ty);
                let op = ["add", "mul", "xor", "sub"][self.random.below(4)];
                self.make(ty, &format!("{op} {ty} {value}, {other}"))
            }
            "i1" => {
                let other = self.value(ty);
                self.make(ty, &format!("xor i1 {value}, {other}"))
            }
            "double" | "float" => {
                let other = self.value(ty);
                self.make(ty, &format!("fadd {ty} {value}, {other}"))
            }
            _ => {
                let part = self.step(&format!("extractvalue {{ i64, i32 }} {value}, 1"));
                let more = self.step(&format!("add i32 {part}, 3"));
                self.make(
                    ty,
                    &format!("insertvalue {{ i64, i32 }} {value}, i32 {more}, 1"),
                )
            }
        }
    }

    /// An address within an array of eight words.
    pub fn place(&mut self, array: &str) -> String {
        let index = match self.random.one_in(2) {
            true => format!("{}", self.random.below(8)),
            false => {
                let word = self.word();
                self.step(&format!("and i64 {word}, 7"))
            }
        };
        self.step(&format!(
            "getelementptr [8 x i64], ptr {array}, i64 0, i64 {index}"
        ))
    }

    pub fn read(&mut self, at: &str) {
        self.make("i64", &format!("load i64, ptr {at}"));
    }

    pub fn write(&mut self, at: &str) {
        let word = self.word();
        self.line(&format!("store i64 {word}, ptr {at}"));
    }

    pub fn access(&mut self, at: &str) {
        match self.random.one_in(2) {
            true => self.read(at),
            false => self.write(at),
        }
    }

    fn whole(&mut self) {
        let name = self.name.clone();
        let _ = writeln!(
            self.out,
            "define i64 @{name}(ptr %mem, i64 %x, i64 %depth) personality ptr @__gxx_personality_v0 {{\nentry:"
        );
        self.out.push_str(VARIABLES);
        for (name, ty, _) in ODD {
            self.line(&format!("{name} = alloca {ty}"));
        }
        for (at, bytes) in [
            ("%v0", 8),
            ("%v1", 8),
            ("%v2", 4),
            ("%v4", 2),
            ("%a0", 64),
            ("%a1", 64),
            ("%kept", 64),
            ("%known", 64),
            ("%large", 800),
            ("%vector", 16),
            ("%chosen", 8),
            ("%copied", 8),
        ]
        .into_iter()
        .chain(ODD.map(|(name, _, bytes)| (name, bytes)))
        {
            self.line(&format!(
                "call void @llvm.memset.p0.i64(ptr {at}, i8 {bytes}, i64 {bytes}, i1 false)"
            ));
        }
        self.line("store double 1.5, ptr %v3");
        self.line("%low = and i64 %x, 7");
        self.line("%far0 = getelementptr [8 x i64], ptr %kept, i64 0, i64 %low");
        self.line("%far1 = getelementptr [100 x i64], ptr %large, i64 0, i64 %low");
        self.line("%third = getelementptr [8 x i64], ptr %a0, i64 0, i64 3");
        self.line("%early = getelementptr [8 x i64], ptr %born, i64 0, i64 %low");
        self.line("%first = call i64 @touch(ptr %known, i64 %x)");
        self.scope.push(("%first".into(), "i64"));
        self.statements(1);
        self.count(0);
        self.statements(0);
        let mut sum = "%x".to_owned();
        // Not of all: what is used at the end lives across everything.
        let mut used = self.scope.clone();
        used.retain(|_| self.random.one_in(4));
        for (value, ty) in used {
            let word = self.word_of(ty, &value);
            let turned = self.step(&format!("mul i64 {sum}, 31"));
            sum = self.step(&format!("xor i64 {turned}, {word}"));
        }
        for (at, _, bytes) in ODD {
            let last = self.step(&format!("getelementptr i8, ptr {at}, i64 {}", bytes - 1));
            let byte = self.step(&format!("load i8, ptr {last}"));
            let word = self.step(&format!("zext i8 {byte} to i64"));
            let turned = self.step(&format!("mul i64 {sum}, 31"));
            sum = self.step(&format!("xor i64 {turned}, {word}"));
        }
        for at in ["%v0", "%v1", "%third", "%far0", "%far1", "%known"] {
            let word = self.step(&format!("load i64, ptr {at}"));
            let turned = self.step(&format!("mul i64 {sum}, 31"));
            sum = self.step(&format!("xor i64 {turned}, {word}"));
        }
        self.line(&format!("ret i64 {sum}"));
        self.out.push_str("}\n");
    }
}
