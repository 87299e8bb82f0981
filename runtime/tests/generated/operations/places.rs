//! Addresses: of elements, as numbers, of vectors; global tables; calls that keep no register.

use super::generate::{Generator, MEMORY};
use super::types::{I32, I64, PTR, Part, Ty, int, scalar};

/// Global tables: name, definition, the type of an element, how many.
const TABLES: [(&str, &str, Ty, u32); 4] = [
    (
        "@bytes",
        "internal constant [8 x i8] c\"\\00\\01\\7f\\80\\ff\\55\\aa\\10\"",
        int(8),
        8,
    ),
    (
        "@words",
        "internal global [4 x i64] [i64 -1, i64 5, i64 ptrtoint (ptr null to i64), i64 sub (i64 \
         ptrtoint (ptr getelementptr (i8, ptr @bytes, i64 5) to i64), i64 ptrtoint (ptr @bytes to \
         i64))]",
        int(64),
        4,
    ),
    (
        "@floats",
        "internal constant [4 x double] [double 1.5, double 0x7FF0000000000000, double -0.0, \
         double 0x0000000000000001]",
        scalar(Part::F64),
        4,
    ),
    (
        "@wide",
        "internal constant [2 x i128] [i128 -3, i128 36893488147419103237]",
        int(128),
        2,
    ),
];

impl Generator {
    /// An address of an element of a type, as a distance from `%mem`.
    pub fn address(&mut self) {
        let index = int(self.random.one_of(&[1, 7, 8, 16, 24, 32, 33, 64, 64, 128]));
        let value = self.value(index).name;
        let (ty, path) = self.random.one_of(&[
            ("i8", ""),
            ("i24", ""),
            ("<3 x i32>", ""),
            ("x86_fp80", ""),
            ("{ i8, i64, { i16, double } }", ", i32 2, i32 1"),
            ("<{ i8, i33, [5 x i16] }>", ", i32 2, i64 3"),
            ("[7 x [3 x i32]]", ", i64 2, i8 1"),
        ]);
        let text = format!("getelementptr {ty}, ptr %mem, {index} {value}{path}");
        let far = self.step(&text);
        let to = int(self.random.one_of(&[1, 8, 13, 32, 64, 64, 128]));
        let number = self.step(&format!("ptrtoint ptr {far} to {to}"));
        let base = self.step(&format!("ptrtoint ptr %mem to {to}"));
        let far = self.step(&format!("sub {to} {number}, {base}"));
        if to.bits() == 128 {
            // LLVM 22 mistakes the high half of a distance.
            self.make(I64, &format!("trunc i128 {far} to i64"), true);
        } else {
            self.keep(to, &far, true);
        }
    }

    /// Addresses in lanes, as distances from `%mem`.
    pub fn addresses(&mut self) {
        let lanes = 2 + self.random.below(3) as u32;
        let index = Ty {
            part: Part::Int(self.random.one_of(&[8, 32, 64])),
            lanes,
        };
        let (pointers, to) = (index.of(Part::Ptr), index.of(Part::Int(64)));
        let at = self.value(index).name;
        let base = match self.random.one_in(2) || !self.wild {
            true => "ptr %mem".into(),
            false => format!("{pointers} {}", self.value(pointers).name),
        };
        let far = self.step(&format!("getelementptr i32, {base}, {index} {at}"));
        let lane = self.random.below(lanes as usize);
        let one = self.step(&format!("extractelement {pointers} {far}, i64 {lane}"));
        let number = self.step(&format!("ptrtoint ptr {one} to i64"));
        let start = self.step("ptrtoint ptr %mem to i64");
        self.make(I64, &format!("sub i64 {number}, {start}"), true);
        let numbers = self.step(&format!("ptrtoint {pointers} {far} to {to}"));
        let starts = self.spread(I64, &start, to);
        self.make(to, &format!("sub {to} {numbers}, {starts}"), true);
    }

    /// An element of a global table, or an address of one.
    pub fn table(&mut self) {
        let (name, definition, ty, count) = self.random.one_of(&TABLES);
        for (name, definition, ..) in &TABLES[..2] {
            self.declares.insert(format!("{name} = {definition}"));
        }
        self.declares.insert(format!("{name} = {definition}"));
        let place = match self.random.one_in(3) {
            true => {
                let at = self.random.below(count as usize) as u32 * ty.bytes();
                format!("getelementptr (i8, ptr {name}, i64 {at})")
            }
            false => {
                let at = self.index(I32, count);
                self.step(&format!(
                    "getelementptr [{count} x {ty}], ptr {name}, i64 0, i32 {at}"
                ))
            }
        };
        self.make(ty, &format!("load {ty}, ptr {place}"), true);
    }

    /// A variable for all blocks.
    pub fn local(&mut self) {
        let ty = match self.random.below(4) {
            0 => int(1 + self.random.below(64) as u32),
            1 => scalar(self.random.one_of(&[Part::F32, Part::F64])),
            2 => int(self.random.one_of(&[8, 16, 32, 64, 128])),
            _ => self.stored(),
        };
        if matches!(ty.part, Part::F80 | Part::Ptr) {
            return;
        }
        let align = self.random.one_of(&[1, 4, 8, 16, 32]);
        let name = self.variable(&ty.to_string(), align);
        let value = self.value(ty);
        let value = self.exact(&value);
        self.line(&format!("store {ty} {value}, ptr {name}, align 1"));
        self.locals.push((name, ty));
    }

    /// An access of such a variable.
    pub fn local_access(&mut self) {
        let Some(at) = (!self.locals.is_empty()).then(|| self.random.below(self.locals.len()))
        else {
            return;
        };
        let (name, ty) = self.locals[at].clone();
        let volatile = self.random.one_of(&["", "", "", "volatile "]);
        let bytes = ty.bits() % 8 == 0;
        match self.random.below(8) {
            0..=2 => {
                self.make(
                    ty,
                    &format!("load {volatile}{ty}, ptr {name}, align 1"),
                    true,
                );
            }
            3..=5 => {
                let value = self.value(ty);
                let value = self.exact(&value);
                self.line(&format!(
                    "store {volatile}{ty} {value}, ptr {name}, align 1"
                ));
            }
            6 if bytes => {
                // A byte of it.
                let byte = self.random.below(ty.bytes() as usize);
                let place = self.step(&format!("getelementptr i8, ptr {name}, i64 {byte}"));
                match self.random.one_in(2) {
                    true => {
                        self.make(int(8), &format!("load i8, ptr {place}"), true);
                    }
                    false => {
                        let value = self.value(int(8)).name;
                        self.line(&format!("store i8 {value}, ptr {place}"));
                    }
                }
            }
            7 if bytes && ty.bits() <= 64 && !ty.is_vector() => {
                // As another type of its size.
                let other = match ty.part {
                    Part::Int(32) => scalar(Part::F32),
                    Part::Int(64) => scalar(Part::F64),
                    _ => int(ty.bits()),
                };
                let value = self.value(other);
                let value = self.exact(&value);
                match self.random.one_in(2) {
                    true => self.line(&format!("store {other} {value}, ptr {name}, align 1")),
                    false => {
                        self.make(other, &format!("load {other}, ptr {name}, align 1"), true);
                    }
                }
            }
            _ => {}
        }
    }

    /// A call, over which no vector register is kept.
    pub fn outside(&mut self) {
        let letter = self.index(I32, 128);
        self.declares.insert("declare i32 @toupper(i32)".into());
        self.make(I32, &format!("call i32 @toupper(i32 {letter})"), true);
    }

    /// A pointer by other ways.
    pub fn pointer(&mut self) {
        let base = self.value(PTR).name;
        let text = match self.random.below(5) {
            0 => {
                let number = self.step(&format!("ptrtoint ptr {base} to i64"));
                format!("inttoptr i64 {number} to ptr")
            }
            1 => {
                let masked = [("ptr".into(), base), ("i64".into(), "-8".into())];
                self.call("ptr", "llvm.ptrmask.p0.i64", &masked)
            }
            2 => self.call(
                "ptr",
                "llvm.launder.invariant.group.p0",
                &[("ptr".into(), base)],
            ),
            3 => {
                // A table of distances, whose second is one within memory.
                let table = self.variable("[2 x i32]", 4);
                let second = self.step(&format!("getelementptr i8, ptr {table}, i64 4"));
                let value = self.random.below(8);
                self.line(&format!("store i32 {value}, ptr {second}"));
                let list = [("ptr".into(), table.clone()), ("i64".into(), "4".into())];
                let text = self.call("ptr", "llvm.load.relative.i64", &list);
                let found = self.step(&text);
                let number = self.step(&format!("ptrtoint ptr {found} to i64"));
                let start = self.step(&format!("ptrtoint ptr {table} to i64"));
                let far = self.step(&format!("sub i64 {number}, {start}"));
                format!("getelementptr i8, ptr %mem, i64 {far}")
            }
            _ => {
                let at = self.index(int(16), MEMORY as u32 / 2);
                format!("getelementptr i8, ptr %mem, i16 {at}")
            }
        };
        self.make(PTR, &text, true);
    }
}
