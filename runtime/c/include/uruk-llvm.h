/* Modules of the host's own LLVM, whichever it is: they cross as bitcode, which LLVM reads of all
 * versions before its own. Only this header needs LLVM's; link the LLVM that it is of.
 *
 * Why functions of the header, not of the library: so it is the host's LLVM that writes the
 * bitcode. A pointer to one LLVM's module is of no use to another LLVM. */
#ifndef URUK_LLVM_H
#define URUK_LLVM_H

#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>

#include "uruk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C89 has no `inline`: a file that does not call it is none to be warned of. */
#if defined(__GNUC__)
#define URUK_LLVM_FUNCTION static __attribute__((unused))
#else
#define URUK_LLVM_FUNCTION static
#endif

/* Adds a module, which is copied and stays the caller's. */
URUK_MUST_USE URUK_LLVM_FUNCTION uruk_error *uruk_llvm_add_module(const uruk_dylib *dylib,
                                                                  LLVMModuleRef module)
{
    size_t length = 0;
    const char *name = LLVMGetModuleIdentifier(module, &length);
    LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(module);
    uruk_error *error = uruk_dylib_add_bitcode(dylib, name, LLVMGetBufferStart(bitcode),
                                               LLVMGetBufferSize(bitcode));
    LLVMDisposeMemoryBuffer(bitcode);
    return error;
}

#ifdef __cplusplus
}
#endif

#endif
