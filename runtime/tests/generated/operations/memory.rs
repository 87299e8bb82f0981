//! Memory: loads and stores of all alignments, copies, variables, atomics; hints.

use super::generate::{Generator, MEMORY};
use super::types::{I64, PTR, Part, Ty, int, scalar};

impl Generator {
    /// An address in `%mem` with so many bytes behind it, aligned to that.
    fn place(&mut self, align: u32) -> String {
        if align == 1 && self.random.one_in(2) {
            let base = self.value(PTR).name;
            // Places that overlap.
            let bytes = self.random.one_of(&[0, 0, 1, 4, 8, 60]);
            return self.step(&format!(
                "getelementptr inbounds i8, ptr {base}, i64 {bytes}"
            ));
        }
        let at = self.index(I64, MEMORY as u32 / 2);
        let mask = !u64::from(align - 1) as i64;
        let at = self.step(&format!("and i64 {at}, {mask}"));
        self.step(&format!("getelementptr i8, ptr %mem, i64 {at}"))
    }

    fn alignment(&mut self) -> u32 {
        self.random.one_of(&[1, 1, 2, 4, 8, 16, 32])
    }

    pub fn load(&mut self) {
        let ty = self.ty();
        // Other bytes would not be values of it.
        if matches!(ty.part, Part::Ptr | Part::F80) || !ty.bits().is_multiple_of(8) {
            return self.kept();
        }
        let align = self.alignment();
        let place = self.place(align);
        let volatile = if self.random.one_in(4) {
            "volatile "
        } else {
            ""
        };
        let text = format!("load {volatile}{ty}, ptr {place}, align {align}");
        self.make(ty, &text, true);
    }

    pub fn store(&mut self) {
        let ty = self.stored();
        if matches!(ty.part, Part::Ptr) {
            return self.kept();
        }
        let value = self.value(ty);
        let value = self.exact(&value);
        let align = self.alignment();
        let place = self.place(align);
        let volatile = if self.random.one_in(4) {
            "volatile "
        } else {
            ""
        };
        self.line(&format!(
            "store {volatile}{ty} {value}, ptr {place}, align {align}"
        ));
    }

    /// A value of any type that is stored and loaded again as the same.
    fn kept(&mut self) {
        let ty = self.stored();
        let value = self.value(ty);
        let value_name = self.exact(&value);
        let align = self.alignment();
        // Now and then a frame of several pages.
        let more = self.random.one_of(&[0, 0, 0, 0, 0, 9000]);
        let variable = self.variable(&format!("[{} x i8]", 128 + more + ty.bytes()), align);
        let offset = self.random.below(3) * align as usize + more as usize / 64 * 64;
        let place = self.step(&format!("getelementptr i8, ptr {variable}, i64 {offset}"));
        let volatile = if self.random.one_in(3) {
            "volatile "
        } else {
            ""
        };
        self.line(&format!(
            "store {ty} {value_name}, ptr {place}, align {align}"
        ));
        let text = format!("load {volatile}{ty}, ptr {place}, align {align}");
        self.make(ty, &text, true);
    }

    /// `llvm.memcpy`, `llvm.memmove`, `llvm.memset`.
    pub fn copy(&mut self) {
        let align = self.random.one_of(&[1, 1, 4, 8, 16]);
        let length = match self.random.one_in(2) {
            true => self.random.below(128).to_string(),
            false => self.index(I64, 128),
        };
        let volatile = self.random.one_of(&["false", "false", "true"]);
        let place = self.place(align);
        let arguments = |to: String, from: (String, String)| {
            [
                (format!("ptr align {align}"), to),
                from,
                ("i64".into(), length),
                ("i1".into(), volatile.into()),
            ]
        };
        let text = match self.random.below(3) {
            0 => {
                // From the first half's end to the second half.
                let to = format!("getelementptr i8, ptr %mem, i64 {}", MEMORY * 3 / 4);
                let (from, to) = (
                    self.step("getelementptr i8, ptr %mem, i64 0"),
                    self.step(&to),
                );
                let list = arguments(to, ("ptr".into(), from));
                self.call("void", "llvm.memcpy.p0.p0.i64", &list)
            }
            1 => {
                let from = self.place(1);
                let list = arguments(place, ("ptr".into(), from));
                self.call("void", "llvm.memmove.p0.p0.i64", &list)
            }
            _ => {
                let byte = self.value(int(8)).name;
                let list = arguments(place, ("i8".into(), byte));
                self.call("void", "llvm.memset.p0.i64", &list)
            }
        };
        self.line(&text);
    }

    /// A variable whose size is known when the code runs.
    pub fn dynamic(&mut self) {
        let count = self.index(I64, 16);
        let count = self.step(&format!("add i64 {count}, 1"));
        let ty = int(self.random.one_of(&[8, 16, 32, 64, 128]));
        let align = self.random.one_of(&[1, 16, 32, 64]);
        let save = self.call("ptr", "llvm.stacksave.p0", &[]);
        let saved = self.step(&save);
        let room = self.step(&format!("alloca {ty}, i64 {count}, align {align}"));
        let last = self.step(&format!("sub i64 {count}, 1"));
        let place = self.step(&format!("getelementptr {ty}, ptr {room}, i64 {last}"));
        let value = self.value(ty).name;
        self.line(&format!("store {ty} {value}, ptr {place}, align 1"));
        let number = self.step(&format!("ptrtoint ptr {room} to i64"));
        let rest = self.step(&format!("and i64 {number}, {}", align - 1));
        self.keep(I64, &rest, true);
        self.make(ty, &format!("load {ty}, ptr {place}, align 1"), true);
        let text = self.call("void", "llvm.stackrestore.p0", &[("ptr".into(), saved)]);
        self.line(&text);
    }

    /// A variable of the thread.
    pub fn thread_local(&mut self) {
        let address = [("ptr".into(), "@local".into())];
        let text = self.call("ptr", "llvm.threadlocal.address.p0", &address);
        self.declares
            .insert("@local = internal thread_local global i64 5, align 8".into());
        let place = self.step(&text);
        let ty = int(self.random.one_of(&[8, 16, 32, 64]));
        let value = self.value(ty).name;
        self.line(&format!("store {ty} {value}, ptr {place}"));
        self.make(ty, &format!("load {ty}, ptr {place}"), true);
    }

    /// Operations without an effect, or with a result that is a hint.
    pub fn effectless(&mut self) {
        let pointer = self.value(PTR).name;
        let of = |ty: &str, value: &str| (ty.to_owned(), value.to_owned());
        let zero = of("i32", "0");
        let text = match self.random.below(8) {
            0 => {
                let list = [of("ptr", &pointer), zero, of("i32", "3"), of("i32", "1")];
                self.call("void", "llvm.prefetch.p0", &list)
            }
            1 => self.call("void", "llvm.x86.sse2.pause", &[]),
            2 => self.call("void", "llvm.sideeffect", &[]),
            3 => self.call("i64", "llvm.readcyclecounter", &[]),
            4 => self.call("ptr", "llvm.frameaddress.p0", &[zero]),
            5 => self.call("ptr", "llvm.returnaddress", &[zero]),
            6 => {
                let bit = self.condition();
                let list = [of("i1", &bit), of("i1", "true"), of("double", "0.75")];
                let text = self.call("i1", "llvm.expect.with.probability.i1", &list);
                self.make(int(1), &text, true);
                return;
            }
            _ => {
                let value = self.value(scalar(Part::F64));
                let list = [of("double", &value.name)];
                let text = self.call("double", "llvm.arithmetic.fence.f64", &list);
                self.make(value.ty, &text, value.exact);
                return;
            }
        };
        self.line(&text);
    }

    /// An atomic access. LLVM has its size be a power of two.
    pub fn atomic(&mut self) {
        let mut all = vec![
            int(8),
            int(16),
            int(32),
            int(64),
            scalar(Part::F32),
            scalar(Part::F64),
        ];
        if self.wild {
            all.extend([int(128), int(256), scalar(Part::Half), scalar(Part::F128)]);
        }
        let ty = self.random.one_of(&all);
        // With less, the access is LLVM's.
        let align = match self.wild {
            true => self.alignment(),
            false => self.random.one_of(&[8, 16, 32]),
        };
        let place = self.place(align);
        let scope = self
            .random
            .one_of(&["", "", "syncscope(\"singlethread\") "]);
        let volatile = self.random.one_of(&["", "", "volatile "]);
        let order = self.random.one_of(&["monotonic", "seq_cst"]);
        match self.random.below(5) {
            0 => {
                let text = format!(
                    "load atomic {volatile}{ty}, ptr {place} {scope}{order}, align {align}"
                );
                self.make(ty, &text, true);
            }
            1 => {
                let value = self.value(ty);
                let value = self.exact(&value);
                self.line(&format!(
                    "store atomic {volatile}{ty} {value}, ptr {place} {scope}{order}, align {align}"
                ));
            }
            2 if ty.is_int() => self.compare_exchange(ty, &place, align, order),
            3 => {
                let order = self
                    .random
                    .one_of(&["acquire", "release", "acq_rel", "seq_cst"]);
                self.line(&format!("fence {scope}{order}"));
            }
            _ => {
                let op = self.operation(ty);
                let value = self.value(ty);
                let value = self.exact(&value);
                // The memory that it leaves is compared.
                let text = format!(
                    "atomicrmw {volatile}{op} ptr {place}, {ty} {value} {scope}{order}, align {align}"
                );
                self.make(ty, &text, true);
            }
        }
    }

    fn operation(&mut self, ty: Ty) -> &'static str {
        if !ty.is_int() {
            return "xchg";
        }
        let rare = ["uinc_wrap", "udec_wrap", "usub_cond", "usub_sat"];
        match self.wild && self.random.one_in(3) {
            true => self.random.one_of(&rare),
            false => self.random.one_of(&[
                "xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin",
            ]),
        }
    }

    fn compare_exchange(&mut self, ty: Ty, place: &str, align: u32, order: &str) {
        let value = self.value(ty).name;
        let expected = match self.random.one_in(2) {
            // The present value: it succeeds.
            true => self.step(&format!("load {ty}, ptr {place}, align {align}")),
            false => self.value(ty).name,
        };
        let pair = self.step(&format!(
            "cmpxchg ptr {place}, {ty} {expected}, {ty} {value} {order} monotonic, align {align}"
        ));
        let both = format!("{{ {ty}, i1 }}");
        self.make(ty, &format!("extractvalue {both} {pair}, 0"), true);
        self.make(int(1), &format!("extractvalue {both} {pair}, 1"), true);
    }

    /// `fadd` and `fsub` in memory, of small whole numbers.
    pub fn atomic_float(&mut self) {
        let ty = scalar(self.random.one_of(&[Part::F32, Part::F64]));
        let variable = self.variable(&ty.to_string(), 8);
        let small = self.small(int(32));
        let small = self.step(&format!("sitofp i32 {small} to {ty}"));
        let first = self.value(ty).name;
        self.line(&format!("store {ty} {first}, ptr {variable}"));
        let op = match self.wild {
            true => self
                .random
                .one_of(&["fadd", "fsub", "fmax", "fmin", "fmaximum", "fminimum"]),
            false => self.random.one_of(&["fadd", "fsub"]),
        };
        let text = format!("atomicrmw {op} ptr {variable}, {ty} {small} seq_cst, align 8");
        self.make(ty, &text, false);
        let now = self.step(&format!("load {ty}, ptr {variable}"));
        self.make(ty, &format!("fadd {ty} {now}, 0.0"), false);
    }
}
