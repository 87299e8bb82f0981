//! A body of IR that is being written: values from slots, and to slots.

use std::fmt::Write;

use super::text::Way;
use super::types::{Extension, SLOT, Ty, container};

/// A body that is being written.
#[derive(Default)]
pub struct Body {
    pub out: String,
    /// Allocas, which come first.
    pub head: String,
    /// The number of the last name.
    pub next: u32,
}

impl Body {
    pub fn fresh(&mut self) -> String {
        self.next += 1;
        format!("%v{}", self.next)
    }

    pub fn line(&mut self, text: String) {
        let _ = writeln!(self.out, "  {text}");
    }

    pub fn value(&mut self, text: String) -> String {
        let name = self.fresh();
        self.line(format!("{name} = {text}"));
        name
    }

    pub fn alloca(&mut self, ty: &str, align: u32) -> String {
        let name = self.fresh();
        let _ = writeln!(self.head, "  {name} = alloca {ty}, align {align}");
        name
    }

    pub fn slot(&mut self, base: &str, slot: usize) -> String {
        let at = slot * SLOT;
        self.value(format!("getelementptr i8, ptr {base}, i64 {at}"))
    }

    /// Loads a scalar or vector from a slot.
    pub fn load(&mut self, ty: &Ty, base: &str, slot: usize) -> String {
        let at = self.slot(base, slot);
        let Ty::Int(bits) = *ty else {
            return self.value(format!("load {ty}, ptr {at}, align 8"));
        };
        let wide = container(bits);
        let value = self.value(format!("load i{wide}, ptr {at}, align 8"));
        match wide == bits {
            true => value,
            false => self.value(format!("trunc i{wide} {value} to {ty}")),
        }
    }

    pub fn store(&mut self, ty: &Ty, value: &str, base: &str, slot: usize, extension: Extension) {
        let at = self.slot(base, slot);
        let (mut value, mut ty) = (value.to_owned(), ty.to_string());
        if let Some(bits) = ty.strip_prefix('i').and_then(|bits| bits.parse().ok()) {
            let wide = container(bits);
            if wide != bits {
                let cast = match extension {
                    Extension::Zero => "zext",
                    Extension::Sign => "sext",
                };
                value = self.value(format!("{cast} {ty} {value} to i{wide}"));
                ty = format!("i{wide}");
            }
        }
        self.line(format!("store {ty} {value}, ptr {at}, align 8"));
    }

    /// A value whose leaves come from slots; the next slot.
    pub fn build(&mut self, ty: &Ty, base: &str, mut slot: usize) -> (String, usize) {
        if !matches!(ty, Ty::Array(..) | Ty::Struct(..)) {
            return (self.load(ty, base, slot), slot + 1);
        }
        let mut whole = "poison".to_owned();
        for leaf in ty.leaves() {
            let value = self.load(&leaf.ty, base, slot);
            let path = indices(&leaf.path, "");
            whole = self.value(format!(
                "insertvalue {ty} {whole}, {} {value}{path}",
                leaf.ty
            ));
            slot += 1;
        }
        (whole, slot)
    }

    /// Stores the leaves of a value.
    pub fn take_apart(&mut self, ty: &Ty, value: &str, base: &str, ways: &[Way]) {
        for (leaf, way) in ty.leaves().iter().zip(ways) {
            let value = match leaf.path.is_empty() {
                true => value.to_owned(),
                false => {
                    let path = indices(&leaf.path, "");
                    self.value(format!("extractvalue {ty} {value}{path}"))
                }
            };
            self.store(&leaf.ty, &value, base, way.to, way.extension);
        }
    }

    /// Has leaves in memory come from slots.
    pub fn fill(&mut self, ty: &Ty, memory: &str, base: &str, mut slot: usize) {
        for leaf in ty.leaves() {
            let value = self.load(&leaf.ty, base, slot);
            let at = self.element(ty, memory, &leaf.path);
            self.line(format!("store {} {value}, ptr {at}, align 1", leaf.ty));
            slot += 1;
        }
    }

    /// Has leaves in memory go to slots.
    pub fn read(&mut self, ty: &Ty, memory: &str, base: &str, ways: &[Way]) {
        for (leaf, way) in ty.leaves().iter().zip(ways) {
            let at = self.element(ty, memory, &leaf.path);
            let value = self.value(format!("load {}, ptr {at}, align 1", leaf.ty));
            self.store(&leaf.ty, &value, base, way.to, way.extension);
        }
    }

    pub fn element(&mut self, ty: &Ty, memory: &str, path: &[u32]) -> String {
        let path = indices(path, "i32 ");
        self.value(format!("getelementptr {ty}, ptr {memory}, i32 0{path}"))
    }

    pub fn finish(self, head: String) -> String {
        format!("{head} {{\n{}{}}}\n", self.head, self.out)
    }
}

/// Indices of an instruction, each behind a comma.
pub fn indices(path: &[u32], before: &str) -> String {
    path.iter().map(|at| format!(", {before}{at}")).collect()
}
