//! Bodies from other modules, as a reader keeps them.
//!
//! A [`Parcel`] is parsed into the reader's context once and stays there; units copy its function
//! like one of the `library`.
//!
//! The caller, which knows the definitions that names are bound to, decides which functions are
//! offered (`wanted` lists those that a function calls). A unit takes them in that order until its
//! budget is spent.

use inkwell::llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use rustc_hash::FxHashMap;

use crate::context::{Buffer, LlvmContext, OwnedModule};
use crate::handles::{FunctionRef, c_name};
use crate::parcel::{Offer, Parcel};

/// Instructions of parcels that a reader keeps: some 20 MB.
const MOST_INSTRUCTIONS: usize = 100_000;

/// The parsed parcels of a reader.
#[derive(Default)]
pub(crate) struct Foreign {
    parsed: FxHashMap<u64, Parsed>,
    instructions: usize,
}

struct Parsed {
    /// A function of the module beside it.
    function: LLVMValueRef,
    _module: OwnedModule,
}

impl Foreign {
    /// The function of a parcel, if it was parsed.
    pub(crate) fn function(&self, parcel: &Parcel) -> Option<FunctionRef<'_>> {
        let parsed = self.parsed.get(&parcel.number())?;
        // SAFETY: a function of a module that is kept as long.
        Some(unsafe { FunctionRef::of(parsed.function) })
    }

    /// Parses the parcels among `offers` that are not parsed yet; parcels that cannot be parsed are
    /// not used.
    pub(crate) fn unpack(&mut self, context: &LlvmContext, offers: &[Offer]) {
        if self.instructions > MOST_INSTRUCTIONS {
            *self = Foreign::default();
        }
        for Offer { parcel, .. } in offers {
            if self.parsed.contains_key(&parcel.number()) {
                continue;
            }
            if context.gate().look() {
                return;
            }
            if let Some(parsed) = parse(context, parcel) {
                self.instructions += parcel.instructions() as usize;
                self.parsed.insert(parcel.number(), parsed);
            }
        }
    }
}

fn parse(context: &LlvmContext, parcel: &Parcel) -> Option<Parsed> {
    let name = c_name(parcel.name());
    // SAFETY: the parcel outlives the parse, which reads everything.
    let buffer = unsafe { Buffer::view(parcel.bitcode(), &name) };
    let mut module: LLVMModuleRef = std::ptr::null_mut();
    // SAFETY: live context and buffer; the buffer stays ours.
    let failed = unsafe { LLVMParseBitcodeInContext2(context.raw(), buffer.raw(), &mut module) };
    if failed != 0 || module.is_null() {
        // The errors are about a parcel, not about the unit being compiled.
        let _ = context.take_errors();
        return None;
    }
    // SAFETY: a fresh module, ours.
    let module = unsafe { OwnedModule::new(module) };
    let function = module.function(parcel.name())?.raw();
    Some(Parsed {
        function,
        _module: module,
    })
}
