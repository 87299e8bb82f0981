//! LLJIT's side: what it has of the cycles, through LLVM's C interface.

use std::ffi::CString;
use std::ptr;

use anyhow::{Context as _, Result, bail};
use uruk::inkwell::context::Context;
use uruk::inkwell::llvm_sys::core::{
    LLVMContextCreate, LLVMCreateMemoryBufferWithMemoryRangeCopy, LLVMDisposeMemoryBuffer,
    LLVMDisposeMessage,
};
use uruk::inkwell::llvm_sys::ir_reader::LLVMParseIRInContext2;
use uruk::inkwell::llvm_sys::orc2::{
    LLVMOrcCreateNewThreadSafeContextFromLLVMContext, LLVMOrcCreateNewThreadSafeModule,
    LLVMOrcDisposeThreadSafeContext, LLVMOrcThreadSafeModuleRef,
};

use super::cycles::{self, Cycle};
use crate::orc::{Orc, Tracked};

/// An `LLJIT` in which cycles are repeated.
pub struct LlJit {
    /// The function's module, where a cycle replaces it.
    current: Option<Tracked>,
    /// Objects that live meanwhile.
    _others: Vec<Tracked>,
    /// Goes last: trackers are its.
    orc: Orc,
}

impl LlJit {
    /// Whether there is something to compare a cycle with. The C interface removes no dylib, and LLJIT
    /// has neither lazy functions under one name again nor calls that fail with a value.
    pub fn has(cycle: Cycle) -> bool {
        matches!(cycle, Cycle::Replace | Cycle::Module | Cycle::Object)
    }

    /// With so many objects.
    ///
    /// # Errors
    /// LLVM's.
    pub fn new(others: usize) -> Result<LlJit> {
        let orc = Orc::new()?;
        // It initializes LLVM, which what is parsed here is in.
        drop(Context::create());
        let other = |number: usize| {
            let name = format!("o{number}");
            let added = orc.add_tracked(&cycles::one_function::object(&name, 42))?;
            orc.lookup(&name)?;
            Ok(added)
        };
        let _others = (0..others).map(other).collect::<Result<_>>()?;
        Ok(LlJit {
            orc,
            current: None,
            _others,
        })
    }

    /// Carries out cycle `number`. To replace is to remove and to add: LLJIT has nothing else.
    ///
    /// # Errors
    /// LLVM's.
    pub fn run(&mut self, cycle: Cycle, number: usize) -> Result<()> {
        match cycle {
            Cycle::Replace => {
                if let Some(current) = self.current.take() {
                    current.remove()?;
                }
                let added = self.orc.add_module(parse(&cycles::body("f", number))?)?;
                self.current = Some(added);
                self.call("f", 1 + number as i64)
            }
            Cycle::Object => {
                let name = format!("f{number}");
                let added = self
                    .orc
                    .add_tracked(&cycles::one_function::object(&name, 42))?;
                self.orc.lookup(&name)?;
                added.remove()
            }
            _ => {
                let name = format!("f{number}");
                let added = self.orc.add_module(parse(&cycles::body(&name, 1))?)?;
                self.call(&name, 2)?;
                added.remove()
            }
        }
    }

    fn call(&self, name: &str, wanted: i64) -> Result<()> {
        let address = self.orc.lookup(name)?;
        // SAFETY: the function that `cycles::body` makes, which was compiled just now.
        let function: extern "C" fn(i64) -> i64 = unsafe { std::mem::transmute(address) };
        let found = function(1);
        if found != wanted {
            bail!("{name} gave {found}, not {wanted}");
        }
        Ok(())
    }
}

/// A module of IR text in a context of its own.
fn parse(text: &str) -> Result<LLVMOrcThreadSafeModuleRef> {
    let text = CString::new(text).context("IR without zeros")?;
    let (bytes, len) = (text.as_ptr(), text.as_bytes().len());
    let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: live bytes, which are copied; the parser borrows the buffer, which is used no more then.
    let (context, failed) = unsafe {
        let context = LLVMContextCreate();
        let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes, len, c"m".as_ptr());
        let failed = LLVMParseIRInContext2(context, buffer, &mut module, &mut message);
        LLVMDisposeMemoryBuffer(buffer);
        (context, failed)
    };
    if failed != 0 {
        // SAFETY: a message of LLVM's, used no more.
        unsafe { LLVMDisposeMessage(message) };
        bail!("LLVM does not read the module");
    }
    // SAFETY: the module is of the context; both are taken over, and the module keeps its own reference
    // to the context.
    unsafe {
        let shared = LLVMOrcCreateNewThreadSafeContextFromLLVMContext(context);
        let module = LLVMOrcCreateNewThreadSafeModule(module, shared);
        LLVMOrcDisposeThreadSafeContext(shared);
        Ok(module)
    }
}
