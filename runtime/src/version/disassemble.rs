//! Disassembles a compiled body, with names for the addresses it mentions; also its IR.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, SymbolResolver, SymbolResult};
use uruk_base::{FunctionId, Tier};
use uruk_link::Linked;
use uruk_tiering::Purpose;

use crate::code::body::ModuleFunction;
use crate::error::Error;
use crate::fork::sacrificial::sacrificial;
use crate::version::compiler::Compiler;
use crate::version::request::Request;

/// Names of the addresses a body mentions.
struct AddressNames(HashMap<u64, String>);

impl SymbolResolver for AddressNames {
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

impl Compiler {
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

    /// The IR of which a version of `tier` would be made now, on a thread that LLVM can take down.
    /// Nothing is compiled; the effects of a profile are not in it.
    pub(crate) fn ir_of(self: &Arc<Self>, id: FunctionId, tier: Tier) -> Result<String, Error> {
        let lost = {
            let compiler = Arc::clone(self);
            move |message: &str| compiler.fatal(id, message)
        };
        let compiler = Arc::clone(self);
        sacrificial("uruk-ir", lost, move || {
            let body = compiler.body_of(id)?;
            let request = Request {
                function: id,
                version: compiler.versions.ids.next(),
                tier,
                purpose: Purpose::First,
                ahead: false,
            };
            let how = compiler.plan(&request, compiler.choices.how(tier));
            let mut how = compiler.crossing(&body, &how)?.offer(&how);
            how.transform.clone_from(&compiler.layers.ir);
            how.leaves &= compiler.layers.ir.is_none();
            let listing = Arc::new(OnceLock::new());
            how.listing = Some(Arc::clone(&listing));
            let function = &body.function;
            let mut reader = function.module.readers.reader()?;
            match reader.compile(&body.plan, function.symbol, &how) {
                Ok(_) => Ok(listing.get().cloned().unwrap_or_default()),
                Err(error) => {
                    reader.discard();
                    Err(error.into())
                }
            }
        })
    }

    /// Prints the disassembly of a new body if that was requested.
    pub(crate) fn dump(
        &self,
        function: &ModuleFunction,
        tier: Tier,
        linked: &Linked,
        code: u64,
        body: Range<u64>,
    ) {
        let name = function.name.to_string_lossy();
        if !self.wants_disassembly(&name) {
            return;
        }
        let (from, to) = ((body.start - code) as usize, (body.end - code) as usize);
        let text = disassemble(
            self,
            &linked.code[from..to.min(linked.code.len())],
            body.start,
        );
        uruk_files::Messages.text(&format!("{name} [{tier}]:\n{text}"));
    }
}

/// The instructions in `bytes`, which lie at `address`, one per line.
pub(crate) fn disassemble(compiler: &Compiler, bytes: &[u8], address: u64) -> String {
    let decode = || Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).into_iter();
    let mentioned = decode().flat_map(|i| [i.near_branch_target(), i.ip_rel_memory_address()]);
    let names = mentioned
        .filter_map(|at| Some((at, compiler.describe(at)?)))
        .collect();
    let mut formatter = GasFormatter::with_options(Some(Box::new(AddressNames(names))), None);
    let mut text = String::new();
    let mut line = String::new();
    for instruction in decode() {
        line.clear();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "  {:012x}  {line}", instruction.ip());
    }
    text
}
