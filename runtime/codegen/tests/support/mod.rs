//! Shared parts of the tests: readers of IR text, objects as text.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use uruk_codegen::plan::plan_alone;
use uruk_codegen::{
    Bitcode, Compile, ModulePlan, NotPlain, Numbered, Plain, Read, Reader, SymbolId,
};

pub fn plan(reader: &Reader) -> ModulePlan {
    plan_alone(reader.summary())
}

pub fn id(reader: &Reader, name: &str) -> SymbolId {
    let index = reader.summary().symbols.iter().position(|s| s.name == name);
    SymbolId(index.unwrap_or_else(|| panic!("no symbol {name}")) as u32)
}

pub fn reader(ir: &str) -> Reader {
    Reader::new(&Bitcode::from_ir_text("test.ll", ir).expect("valid IR")).expect("readable")
}

/// Bitcode of IR text.
pub fn bitcode(text: &str) -> Vec<u8> {
    let context = inkwell::context::Context::create();
    let buffer = inkwell::memory_buffer::MemoryBuffer::create_from_memory_range_copy(
        text.as_bytes(),
        "module",
    );
    let module = context.create_module_from_ir(buffer).expect("valid IR");
    module.write_bitcode_to_memory().as_slice().to_vec()
}

/// The text of bitcode.
pub fn text(bytes: &[u8]) -> String {
    let context = inkwell::context::Context::create();
    let buffer =
        inkwell::memory_buffer::MemoryBuffer::create_from_memory_range_copy(bytes, "module");
    let module = inkwell::module::Module::parse_bitcode_from_buffer(&buffer, &context);
    let module = module.expect("bitcode");
    module.verify().expect("valid IR");
    module.to_string()
}

/// A module whose functions are read for the baseline compiler.
pub struct Bare {
    pub reader: Reader,
    pub plan: ModulePlan,
    numbered: Arc<Numbered>,
    plain: Plain,
}

impl Bare {
    pub fn new(ir: &str) -> Bare {
        let bitcode = Bitcode::from_ir_text("test.ll", ir).expect("valid IR");
        let reader = Reader::new(&bitcode).expect("readable");
        let summary = reader.summary();
        Bare {
            plan: plan_alone(summary),
            numbered: Numbered::read(&bitcode, summary).expect("read without LLVM, too"),
            plain: Plain::default(),
            reader,
        }
    }

    pub fn read(&mut self, name: &str, how: &Compile) -> Result<Read, NotPlain> {
        let id = id(&self.reader, name);
        self.numbered.read_into(id, &mut self.plain)?;
        self.numbered.baseline(&self.plan, id, how, &mut self.plain)
    }

    /// With the values that cross at the heads of loops.
    pub fn read_exits(&mut self, name: &str, how: &Compile) -> Result<Read, NotPlain> {
        let id = id(&self.reader, name);
        self.numbered.read_into(id, &mut self.plain)?;
        let plain = &mut self.plain;
        self.numbered.baseline_exits(&self.plan, id, how, plain)
    }
}

/// The definitions and relocations of an object, one per line, sorted.
pub fn describe(object: &[u8]) -> String {
    let file = object::File::parse(object).expect("an object");
    let mut lines = Vec::new();
    for symbol in file.symbols() {
        if symbol.is_global() && symbol.is_definition() {
            lines.push(format!("defines {}", symbol.name().expect("a name")));
        }
    }
    for section in file.sections() {
        if !section
            .name()
            .is_ok_and(|n| n.starts_with(".text") || n.starts_with(".data"))
        {
            continue;
        }
        for (_, relocation) in section.relocations() {
            if let RelocationTarget::Symbol(index) = relocation.target() {
                let symbol = file.symbol_by_index(index).expect("a symbol");
                let object::RelocationFlags::Elf { r_type } = relocation.flags() else {
                    continue;
                };
                let name = match symbol.name() {
                    Ok(name) if !name.is_empty() => name,
                    _ => "(section)",
                };
                lines.push(format!("{name} by type {r_type}"));
            }
        }
    }
    lines.sort();
    lines.join("\n")
}

/// The code of an object, one instruction a line.
pub fn disassemble(object: &[u8]) -> String {
    let file = object::File::parse(object).expect("an object");
    let mut out = String::new();
    let mut formatter = IntelFormatter::new();
    for section in file.sections() {
        if section.kind() != object::SectionKind::Text {
            continue;
        }
        let bytes = section.data().expect("bytes");
        for instruction in &mut Decoder::new(64, bytes, DecoderOptions::NONE) {
            formatter.format(&instruction, &mut out);
            out.push('\n');
        }
    }
    out
}
