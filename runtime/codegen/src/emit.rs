//! Target machines, passes and emission to ELF objects.
//!
//! A target machine costs 125 to 300 us to make, so each reader keeps one per tier it was asked
//! for. Its settings are fixed when it is made and never go through LLVM's process-wide options.

use std::sync::Once;

use inkwell::llvm_sys::core::LLVMSetTarget;
use inkwell::llvm_sys::target::{
    LLVM_InitializeNativeAsmParser, LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget,
    LLVMDisposeTargetData, LLVMSetModuleDataLayout, LLVMTargetDataRef,
};
use inkwell::llvm_sys::target_machine::{
    LLVMCodeGenOptLevel, LLVMCodeModel, LLVMCreateTargetDataLayout, LLVMCreateTargetMachine,
    LLVMDisposeTargetMachine, LLVMGetTargetFromTriple, LLVMRelocMode, LLVMTargetMachineRef,
};
use inkwell::llvm_sys::transforms::pass_builder::{
    LLVMCreatePassBuilderOptions, LLVMDisposePassBuilderOptions,
    LLVMPassBuilderOptionsSetCallGraphProfile, LLVMPassBuilderOptionsSetSLPVectorization,
    LLVMRunPasses,
};

use uruk_base::Tier;

use crate::context::{OwnedModule, take_error, take_message};
use crate::error::CodegenError;
use crate::gate::Gate;
use crate::handles::c_name;
use crate::pipeline::Pipeline;
use crate::unreached;

const TRIPLE: &std::ffi::CStr = c"x86_64-unknown-linux-gnu";

fn level(tier: Tier) -> LLVMCodeGenOptLevel {
    match tier {
        // The fast instruction selector. Nothing is compiled as native code.
        Tier::Native | Tier::Baseline => LLVMCodeGenOptLevel::LLVMCodeGenLevelNone,
        // The highest level adds block placement that copies longer tails. It moves a store behind
        // an unlikely condition off the likely path. This saves a fifth of some loops' time, at no
        // measurable cost in compile time.
        Tier::Optimized | Tier::Guided => LLVMCodeGenOptLevel::LLVMCodeGenLevelAggressive,
    }
}

/// A target machine and its data layout. Knows no context.
pub(crate) struct Machine {
    raw: LLVMTargetMachineRef,
    layout: LLVMTargetDataRef,
}

// SAFETY: a target machine has no thread affinity and is used by its owner only.
unsafe impl Send for Machine {}

impl Machine {
    pub(crate) fn new(tier: Tier) -> Result<Machine, CodegenError> {
        initialize();
        let mut target = std::ptr::null_mut();
        let mut message = std::ptr::null_mut();
        // SAFETY: valid C string and out pointers.
        if unsafe { LLVMGetTargetFromTriple(TRIPLE.as_ptr(), &mut target, &mut message) } != 0 {
            // SAFETY: on failure the message is ours.
            let message = unsafe { take_message(message) };
            return Err(CodegenError::NoTarget { message });
        }
        // SAFETY: a live target and C strings. The CPU is the ABI's baseline in every
        // tier: what a program may assume about vectors is part of its ABI. Functions
        // that may use more say so by their attributes (see `optimize`).
        let machine = unsafe {
            LLVMCreateTargetMachine(
                target,
                TRIPLE.as_ptr(),
                c"x86-64".as_ptr(),
                c"".as_ptr(),
                level(tier),
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelSmall,
            )
        };
        if machine.is_null() {
            return Err(CodegenError::NoTarget {
                message: String::from("no target machine"),
            });
        }
        // SAFETY: a live machine.
        let layout = unsafe { LLVMCreateTargetDataLayout(machine) };
        Ok(Machine {
            raw: machine,
            layout,
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: created in `new`, disposed once; pipelines made of it are gone.
        unsafe {
            LLVMDisposeTargetData(self.layout);
            LLVMDisposeTargetMachine(self.raw);
        }
    }
}

/// A target machine and its pipeline. For modules of one context.
pub(crate) struct Emitter {
    // Dropped before the machine it was made of.
    pipeline: Pipeline,
    machine: Machine,
}

// SAFETY: as a machine; the pipeline moves with it.
unsafe impl Send for Emitter {}

impl Emitter {
    pub(crate) fn new(machine: Machine) -> Result<Emitter, CodegenError> {
        // SAFETY: a live machine, which the emitter drops after the pipeline.
        let Some(pipeline) = (unsafe { Pipeline::new(machine.raw) }) else {
            return Err(CodegenError::NoTarget {
                message: String::from("it emits no objects"),
            });
        };
        Ok(Emitter { pipeline, machine })
    }

    /// The machine, for another context.
    pub(crate) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Gives a fresh module the machine's triple and layout.
    pub(crate) fn prepare(&self, module: &OwnedModule) {
        // SAFETY: a live module; both are copied.
        unsafe {
            LLVMSetTarget(module.raw(), TRIPLE.as_ptr());
            LLVMSetModuleDataLayout(module.raw(), self.machine.layout);
        }
    }

    /// Runs a textual pipeline.
    pub(crate) fn run_passes(
        &self,
        module: &mut OwnedModule,
        pipeline: &str,
    ) -> Result<(), String> {
        let pipeline = c_name(pipeline);
        // SAFETY: live module and machine; options are created and disposed here.
        let error = unsafe {
            let options = LLVMCreatePassBuilderOptions();
            // On in clang, off here.
            LLVMPassBuilderOptionsSetSLPVectorization(options, 1);
            // A section for static linkers, made of entry counts; the streamer that is
            // kept does not forget the entries of the module before.
            LLVMPassBuilderOptionsSetCallGraphProfile(options, 0);
            let error = LLVMRunPasses(module.raw(), pipeline.as_ptr(), self.machine.raw, options);
            LLVMDisposePassBuilderOptions(options);
            error
        };
        // SAFETY: ours since the call.
        unsafe { take_error(error) }.map_or(Ok(()), Err)
    }

    /// Makes the pipeline anew; false if it cannot be had.
    ///
    /// After a module with assembly: `MCContext::reset` keeps the table of local labels
    /// (`1:`), whose symbols it frees.
    pub(crate) fn renew(&mut self) -> bool {
        // SAFETY: as in `new`.
        let Some(fresh) = (unsafe { Pipeline::new(self.machine.raw) }) else {
            return false;
        };
        self.pipeline = fresh;
        true
    }

    /// Emits a module to a relocatable object. `gate` is that of the module's context; once
    /// it is cancelled the object is of no use.
    pub(crate) fn emit(&mut self, gate: &Gate, module: &mut OwnedModule) -> Vec<u8> {
        unreached::trap(module);
        // SAFETY: a live module of the gate's context, which is ours alone, as the pipeline wants.
        unsafe { gate.emitting(module.raw(), || self.pipeline.emit(module.raw())) }
    }
}

/// LLVM's name of the CPU this process runs on; empty if LLVM is not there.
pub fn host_cpu() -> String {
    if uruk_late::open().is_err() {
        return String::new();
    }
    inkwell::targets::TargetMachine::get_host_cpu_name().to_string()
}

/// The version of the LLVM library in use, as `major.minor.patch`; that at build time while it is
/// not there.
pub fn llvm_version() -> String {
    if !uruk_late::is_open() {
        return uruk_late::BUILT_FOR.to_owned();
    }
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid out pointers.
    unsafe { inkwell::llvm_sys::core::LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

fn initialize() {
    static ONCE: Once = Once::new();
    // SAFETY: idempotent registration of the native target.
    ONCE.call_once(|| unsafe {
        LLVM_InitializeNativeTarget();
        LLVM_InitializeNativeAsmPrinter();
        LLVM_InitializeNativeAsmParser();
    });
}
