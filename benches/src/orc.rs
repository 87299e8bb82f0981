//! LLVM's ORC through its C interface: the peer of the linker. The session's is `benches/orc`.
//!
//! Symbol pool entries are counted references; where LLVM takes one over, it is
//! given one of its own, and where its documents do not say, one more is kept
//! for ever rather than one too few.

use std::ffi::{CStr, CString};
use std::ptr;

use anyhow::{Result, bail};
use uruk::inkwell::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use uruk::inkwell::llvm_sys::error::{
    LLVMDisposeErrorMessage, LLVMGetErrorMessage, LLVMOpaqueError,
};
use uruk::inkwell::llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddLLVMIRModuleWithRT,
    LLVMOrcLLJITAddObjectFile, LLVMOrcLLJITAddObjectFileWithRT, LLVMOrcLLJITGetExecutionSession,
    LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITLookup, LLVMOrcLLJITRef,
};
use uruk::inkwell::llvm_sys::orc2::{
    LLVMJITEvaluatedSymbol, LLVMJITSymbolFlags, LLVMJITSymbolGenericFlags, LLVMOrcAbsoluteSymbols,
    LLVMOrcCSymbolMapPair, LLVMOrcExecutionSessionIntern, LLVMOrcExecutionSessionRef,
    LLVMOrcJITDylibCreateResourceTracker, LLVMOrcJITDylibDefine, LLVMOrcJITDylibRef,
    LLVMOrcReleaseResourceTracker, LLVMOrcResourceTrackerRef, LLVMOrcResourceTrackerRemove,
    LLVMOrcRetainSymbolStringPoolEntry, LLVMOrcSymbolStringPoolEntryRef,
    LLVMOrcThreadSafeModuleRef,
};
use uruk::inkwell::targets::{InitializationConfig, Target};

/// An `LLJIT` with its default set-up and one dylib.
pub struct Orc {
    jit: LLVMOrcLLJITRef,
    session: LLVMOrcExecutionSessionRef,
    dylib: LLVMOrcJITDylibRef,
}

// SAFETY: an LLJIT's session may be used from any thread; it locks by itself.
unsafe impl Sync for Orc {}

/// A name in the session's pool; valid as long as its [`Orc`].
#[derive(Clone, Copy)]
pub struct Name(LLVMOrcSymbolStringPoolEntryRef);

/// An object or a module with its tracker; valid as long as its [`Orc`].
pub struct Tracked(LLVMOrcResourceTrackerRef);

impl Orc {
    /// A new session.
    ///
    /// # Errors
    /// LLVM's.
    pub fn new() -> Result<Orc> {
        Target::initialize_x86(&InitializationConfig::default());
        let mut jit = ptr::null_mut();
        // SAFETY: a live place for the result; no builder means defaults.
        check(unsafe { LLVMOrcCreateLLJIT(&mut jit, ptr::null_mut()) })?;
        // SAFETY: the instance just made.
        let session = unsafe { LLVMOrcLLJITGetExecutionSession(jit) };
        // SAFETY: the same.
        let dylib = unsafe { LLVMOrcLLJITGetMainJITDylib(jit) };
        Ok(Orc {
            jit,
            session,
            dylib,
        })
    }

    /// Puts a name into the pool.
    ///
    /// # Errors
    /// It holds a zero byte.
    pub fn intern(&self, name: &str) -> Result<Name> {
        let name = CString::new(name)?;
        // SAFETY: a live session and C string.
        Ok(Name(unsafe {
            LLVMOrcExecutionSessionIntern(self.session, name.as_ptr())
        }))
    }

    /// Defines a name as an address.
    ///
    /// # Errors
    /// LLVM's: it is defined already.
    pub fn define_address(&self, name: &str, address: u64) -> Result<()> {
        let mut pair = symbol_at(self.intern(name)?.retained(), address);
        // SAFETY: one live pair, whose reference is taken over; so is the unit.
        check(unsafe { LLVMOrcJITDylibDefine(self.dylib, LLVMOrcAbsoluteSymbols(&mut pair, 1)) })
    }

    /// The address of a name; compiles or links what defines it, if need be.
    ///
    /// # Errors
    /// LLVM's: nothing defines it.
    pub fn lookup(&self, name: &str) -> Result<u64> {
        let name = CString::new(name)?;
        let mut address = 0;
        // SAFETY: a live instance, place and C string.
        check(unsafe { LLVMOrcLLJITLookup(self.jit, &mut address, name.as_ptr()) })?;
        Ok(address)
    }

    /// Adds an object; it is linked when one of its symbols is looked up.
    ///
    /// # Errors
    /// LLVM's.
    pub fn add_object(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: live bytes, which are copied; the buffer is taken over.
        check(unsafe {
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(start, len, c"tiny.o".as_ptr());
            LLVMOrcLLJITAddObjectFile(self.jit, self.dylib, buffer)
        })
    }
}

impl Orc {
    /// Adds an object under a tracker of its own.
    ///
    /// # Errors
    /// LLVM's.
    pub fn add_tracked(&self, bytes: &[u8]) -> Result<Tracked> {
        // SAFETY: a live dylib; the reference is the new handle's.
        let tracked = Tracked(unsafe { LLVMOrcJITDylibCreateResourceTracker(self.dylib) });
        // SAFETY: live bytes, which are copied; the buffer is taken over, the tracker is
        // not.
        check(unsafe {
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(start, len, c"tiny.o".as_ptr());
            LLVMOrcLLJITAddObjectFileWithRT(self.jit, tracked.0, buffer)
        })?;
        Ok(tracked)
    }
}

impl Orc {
    /// Adds a module under a tracker of its own.
    ///
    /// # Errors
    /// LLVM's.
    pub fn add_module(&self, module: LLVMOrcThreadSafeModuleRef) -> Result<Tracked> {
        // SAFETY: a live dylib; the reference is the new handle's.
        let tracked = Tracked(unsafe { LLVMOrcJITDylibCreateResourceTracker(self.dylib) });
        // SAFETY: a live instance; the module is taken over, the tracker is not.
        check(unsafe { LLVMOrcLLJITAddLLVMIRModuleWithRT(self.jit, tracked.0, module) })?;
        Ok(tracked)
    }
}

impl Tracked {
    /// Removes what is under the tracker.
    ///
    /// # Errors
    /// LLVM's.
    pub fn remove(self) -> Result<()> {
        // SAFETY: a tracker of a live session; its code is not called any more.
        check(unsafe { LLVMOrcResourceTrackerRemove(self.0) })
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: the handle's own reference, used no more.
        unsafe { LLVMOrcReleaseResourceTracker(self.0) };
    }
}

impl Drop for Orc {
    fn drop(&mut self) {
        // SAFETY: the instance is used no more. An error at its end has no receiver.
        let _ = check(unsafe { LLVMOrcDisposeLLJIT(self.jit) });
    }
}

impl Name {
    /// The same entry with a reference more, to be given away.
    fn retained(self) -> Name {
        // SAFETY: an entry of a live session.
        unsafe { LLVMOrcRetainSymbolStringPoolEntry(self.0) };
        self
    }
}

fn exported() -> LLVMJITSymbolFlags {
    let exported = LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsExported;
    LLVMJITSymbolFlags {
        GenericFlags: exported as u8,
        TargetFlags: 0,
    }
}

fn symbol_at(name: Name, address: u64) -> LLVMOrcCSymbolMapPair {
    let symbol = LLVMJITEvaluatedSymbol {
        Address: address,
        Flags: exported(),
    };
    LLVMOrcCSymbolMapPair {
        Name: name.0,
        Sym: symbol,
    }
}

/// LLVM's error as one of ours; consumes it.
fn check(error: *mut LLVMOpaqueError) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error that has not been consumed.
    let text = unsafe { LLVMGetErrorMessage(error) };
    // SAFETY: a C string of LLVM's, live until disposed of.
    let message = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: the string above, used no more.
    unsafe { LLVMDisposeErrorMessage(text) };
    bail!("ORC: {message}")
}
