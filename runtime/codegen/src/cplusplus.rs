//! LLVM's C++ interface where its C interface has no counterpart: six functions by their mangled
//! names, and three classes laid out by hand.
//!
//! All of it holds for one release of LLVM. `docs/llvm-upgrade.md` lists it with the other ties,
//! and `tests/assumptions.rs` compares it with LLVM's headers and library. A mangled name contains
//! the types of all parameters, so a library with the name takes these arguments. Types of results
//! and layouts are not in the name.

use std::ffi::{c_char, c_void};

use inkwell::llvm_sys::error::LLVMErrorRef;
use inkwell::llvm_sys::prelude::{
    LLVMContextRef, LLVMMetadataRef, LLVMPassManagerRef, LLVMValueRef,
};
use inkwell::llvm_sys::target_machine::LLVMTargetMachineRef;

unsafe extern "C" {
    /// `llvm::GlobalValue::materialize()`: reads one body of a lazy module. The member returns
    /// `llvm::Error` by value, which the Itanium ABI passes as a hidden first pointer argument.
    #[link_name = "_ZN4llvm11GlobalValue11materializeEv"]
    pub(crate) fn materialize(out: *mut LLVMErrorRef, value: LLVMValueRef) -> *mut LLVMErrorRef;

    /// `llvm::LLVMContext::setOptPassGate(OptPassGate &)`.
    #[link_name = "_ZN4llvm11LLVMContext14setOptPassGateERNS_11OptPassGateE"]
    pub(crate) fn set_opt_pass_gate(context: LLVMContextRef, gate: *const c_void);

    /// `llvm::isLegalToPromote(const CallBase &, Function *, const char **)`.
    #[link_name = "_ZN4llvm16isLegalToPromoteERKNS_8CallBaseEPNS_8FunctionEPPKc"]
    pub(crate) fn is_legal_to_promote(
        call: LLVMValueRef,
        callee: LLVMValueRef,
        reason: *mut *const c_char,
    ) -> bool;

    /// `llvm::CodeGenTargetMachineImpl::addPassesToEmitFile`; true if the machine
    /// cannot emit that kind of file.
    #[link_name = "_ZN4llvm24CodeGenTargetMachineImpl19addPassesToEmitFileERNS_6legacy15PassManagerBaseERNS_17raw_pwrite_streamEPS4_NS_15CodeGenFileTypeEbPNS_28MachineModuleInfoWrapperPassE"]
    pub(crate) fn add_passes_to_emit_file(
        machine: LLVMTargetMachineRef,
        passes: LLVMPassManagerRef,
        out: *mut Stream,
        dwarf_out: *mut c_void,
        file_type: i32,
        disable_verify: bool,
        module_info: *mut c_void,
    ) -> bool;

    /// `llvm::promoteCallWithIfThenElse(CallBase &, Function *, MDNode *)`; the direct
    /// call.
    #[link_name = "_ZN4llvm25promoteCallWithIfThenElseERNS_8CallBaseEPNS_8FunctionEPNS_6MDNodeE"]
    pub(crate) fn promote_call(
        call: LLVMValueRef,
        callee: LLVMValueRef,
        weights: LLVMMetadataRef,
    ) -> LLVMValueRef;

    /// `llvm::install_bad_alloc_error_handler`. Sizes that damaged bitcode claims end in the handler.
    #[link_name = "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_"]
    pub(crate) fn install_bad_alloc_error_handler(
        handler: extern "C" fn(*mut c_void, *const c_char, bool),
        user_data: *mut c_void,
    );
}

/// `CodeGenFileType::ObjectFile`.
pub(crate) const OBJECT_FILE: i32 = 1;
/// `raw_ostream::OStreamKind::OK_SVecStream`.
pub(crate) const VECTOR_STREAM: u32 = 2;

/// `llvm::raw_svector_ostream`.
#[repr(C)]
pub(crate) struct Stream {
    pub(crate) vtable: *const c_void,
    pub(crate) kind: u32,
    /// Start, end and cursor of the buffer; an unbuffered stream has none.
    pub(crate) buffer: [*mut u8; 3],
    pub(crate) color: bool,
    pub(crate) buffer_mode: u32,
    pub(crate) vector: *mut Vector,
}

/// `llvm::SmallVector<char, 0>`: while empty, `begin` points behind the struct.
#[repr(C)]
pub(crate) struct Vector {
    pub(crate) begin: *mut u8,
    pub(crate) size: usize,
    pub(crate) capacity: usize,
}

/// The virtual table of a class derived from `llvm::OptPassGate`, from its address point on. Behind
/// `shouldRunPass`: two strings, each passed as pointer and length in two registers.
#[repr(C)]
pub(crate) struct GateTable<G> {
    pub(crate) destroy: extern "C" fn(*const G),
    pub(crate) delete: extern "C" fn(*const G),
    pub(crate) should_run:
        unsafe extern "C" fn(*const G, *const u8, usize, *const u8, usize) -> bool,
    pub(crate) is_enabled: unsafe extern "C" fn(*const G) -> bool,
}

const _: () = {
    assert!(size_of::<Stream>() == 56 && size_of::<Vector>() == 24);
    assert!(size_of::<GateTable<()>>() == 32);
};
