//! A code generation pipeline that is made once and run for every unit.
//!
//! LLVM-C emits an object by building the pipeline of some sixty passes anew each
//! time, which costs more than running it on a small function. The pipeline itself
//! can be run again: every pass prepares itself in `doInitialization`, and the
//! streamer is reset when a module is finished. Keeping it takes one C++ function,
//! `CodeGenTargetMachineImpl::addPassesToEmitFile`, and a stream for it to write to.
//! The stream is LLVM's own `raw_svector_ostream` over an LLVM vector (`cplusplus`).
//!
//! Invariants:
//! - A pipeline only ever sees modules of one context (its passes cache types).
//! - After a reported error it is not used again.

use std::ffi::c_void;
use std::ptr::null_mut;

use inkwell::llvm_sys::core::{LLVMCreatePassManager, LLVMDisposePassManager, LLVMRunPassManager};
use inkwell::llvm_sys::prelude::{LLVMModuleRef, LLVMPassManagerRef};
use inkwell::llvm_sys::target_machine::LLVMTargetMachineRef;

use crate::cplusplus::{OBJECT_FILE, Stream, VECTOR_STREAM, Vector, add_passes_to_emit_file};

/// The passes from IR to an object, and the memory the object is written to.
pub(crate) struct Pipeline {
    passes: LLVMPassManagerRef,
    // Boxed until the drop: the passes keep a pointer to the stream, which keeps one to the vector.
    stream: *mut Stream,
    vector: *mut Vector,
}

impl Pipeline {
    /// Builds the pipeline of `machine`. `None` if the machine emits no objects.
    ///
    /// # Safety
    /// The machine is live, and outlives the pipeline.
    pub(crate) unsafe fn new(machine: LLVMTargetMachineRef) -> Option<Pipeline> {
        let vtable = uruk_late::stream_vtable()?;
        let vector = Box::into_raw(Box::new(Vector {
            begin: null_mut(),
            size: 0,
            capacity: 0,
        }));
        // SAFETY: `vector` is live; the address behind it is only compared.
        unsafe { (*vector).begin = vector.add(1).cast::<u8>() };
        let stream = Box::into_raw(Box::new(Stream {
            // An object points behind offset-to-top and type information.
            vtable: vtable.cast::<[*const c_void; 2]>().wrapping_add(1).cast(),
            kind: VECTOR_STREAM,
            buffer: [null_mut(); 3],
            color: false,
            buffer_mode: 0,
            vector,
        }));
        // SAFETY: plain constructor.
        let passes = unsafe { LLVMCreatePassManager() };
        let pipeline = Pipeline {
            passes,
            stream,
            vector,
        };
        // SAFETY: live machine, passes and stream; the other pointers may be null.
        let refused = unsafe {
            add_passes_to_emit_file(
                machine,
                passes,
                stream,
                null_mut(),
                OBJECT_FILE,
                true,
                null_mut(),
            )
        };
        (!refused).then_some(pipeline)
    }

    /// Emits a module, which the passes change.
    ///
    /// # Safety
    /// The module is live, of the context that the pipeline has served so far, and not used
    /// elsewhere meanwhile.
    pub(crate) unsafe fn emit(&mut self, module: LLVMModuleRef) -> Vec<u8> {
        // SAFETY: by the caller's promise; live vector and passes; `begin` and `size` describe
        // what the passes wrote.
        unsafe {
            (*self.vector).size = 0;
            LLVMRunPassManager(self.passes, module);
            std::slice::from_raw_parts((*self.vector).begin, (*self.vector).size).to_vec()
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: the passes go first, as they point at the stream; the vector's
        // elements were allocated with `malloc` unless they are still behind it.
        unsafe {
            LLVMDisposePassManager(self.passes);
            drop(Box::from_raw(self.stream));
            let first = self.vector.add(1).cast::<u8>();
            if (*self.vector).begin != first {
                free((*self.vector).begin.cast::<c_void>());
            }
            drop(Box::from_raw(self.vector));
        }
    }
}

unsafe extern "C" {
    fn free(memory: *mut c_void);
}
