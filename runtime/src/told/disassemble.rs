//! Disassembly of a compiled body, with names for the addresses it mentions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, SymbolResolver, SymbolResult};
use uruk_link::Linked;

use crate::core::{Core, Function};

/// Names of the addresses a body mentions.
struct Names(HashMap<u64, String>);

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        _instruction: &iced_x86::Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let name = self.0.get(&address)?;
        Some(SymbolResult::with_str(address, name))
    }
}

impl Core {
    /// The name of a stub, slot or body.
    fn describe(&self, address: u64) -> Option<String> {
        let name = |id| {
            self.function(id)
                .map(|f| f.name.to_string_lossy().into_owned())
        };
        if let Some(id) = self.stubs.function_at(address) {
            return name(id);
        }
        if let Some(id) = self
            .stubs
            .function_at(address.wrapping_sub(self.slot_distance()))
        {
            return Some(format!("slot of {}", name(id)?));
        }
        let (name, start) = self.function_name_at(address)?;
        (start == address).then(|| name.to_string_lossy().into_owned())
    }

    /// Prints the disassembly of a fresh body if it was asked for.
    pub(crate) fn dump(&self, function: &Function, linked: &Linked, code: u64, body: Range<u64>) {
        let name = function.name.to_string_lossy();
        let wanted = self
            .dump_asm
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !wanted.iter().any(|w| *w == name) {
            return;
        }
        let (from, to) = ((body.start - code) as usize, (body.end - code) as usize);
        let text = disassemble(
            self,
            &linked.code[from..to.min(linked.code.len())],
            body.start,
        );
        eprint!("{name}:\n{text}");
    }
}

/// The instructions in `bytes`, which lie at `address`, one per line.
pub(crate) fn disassemble(core: &Core, bytes: &[u8], address: u64) -> String {
    let decode = || Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).into_iter();
    let mentioned = decode().flat_map(|i| [i.near_branch_target(), i.ip_rel_memory_address()]);
    let names = mentioned
        .filter_map(|at| Some((at, core.describe(at)?)))
        .collect();
    let mut formatter = GasFormatter::with_options(Some(Box::new(Names(names))), None);
    let mut text = String::new();
    let mut line = String::new();
    for instruction in decode() {
        line.clear();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "  {:012x}  {line}", instruction.ip());
    }
    text
}
