/* Modules of LLVM's C interface: by pointer, of the same library, and as bitcode, of any. */
#include "check.h"
#include <uruk-llvm.h>

static LLVMModuleRef module_of(LLVMContextRef context, const char *name, unsigned long long value)
{
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext(name, context);
    LLVMTypeRef word = LLVMInt64TypeInContext(context);
    LLVMValueRef function =
        LLVMAddFunction(module, name, LLVMFunctionType(word, NULL, 0, 0));
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder,
                             LLVMAppendBasicBlockInContext(context, function, "entry"));
    LLVMBuildRet(builder, LLVMConstInt(word, value, 0));
    LLVMDisposeBuilder(builder);
    return module;
}

/* Every function returns 1000. */
static uruk_error *change(void *context, LLVMModuleRef module, const char *function, int tier)
{
    char body[128];
    LLVMValueRef value;
    LLVMBasicBlockRef block;
    LLVMValueRef end;

    ++*(int *)context;
    CHECK(tier >= 1 && tier <= 3);
    CHECK(strlen(function) < 64);
    sprintf(body, "uruk.body.%s", function);
    value = LLVMGetNamedFunction(module, body);
    CHECK(value != NULL);
    block = LLVMGetLastBasicBlock(value);
    end = LLVMGetBasicBlockTerminator(block);
    LLVMSetOperand(end, 0, LLVMConstInt(LLVMTypeOf(LLVMGetOperand(end, 0)), 1000, 0));
    return NULL;
}

int main(void)
{
    LLVMContextRef context = LLVMContextCreate();
    uruk_settings settings;
    uruk_jit *jit;
    const uruk_dylib *dylib;
    uruk_tracker *tracker;
    uruk_function function;
    LLVMModuleRef module;
    int changed = 0;

    FINE(uruk_jit_new(NULL, &jit));
    dylib = uruk_jit_main(jit);
    module = module_of(context, "by_pointer", 1);
    FINE(uruk_dylib_add_module(dylib, module));
    LLVMDisposeModule(module);
    module = module_of(context, "by_bitcode", 2);
    FINE(uruk_llvm_add_module(dylib, module));
    LLVMDisposeModule(module);
    module = module_of(context, "tracked", 3);
    FINE(uruk_dylib_create_tracker(dylib, &tracker));
    FINE(uruk_tracker_add_module(tracker, module));
    LLVMDisposeModule(module);
    FAILS(uruk_dylib_add_module(dylib, NULL), URUK_ERROR_ARGUMENT, "module");
    FINE(uruk_dylib_function(dylib, "by_pointer", "i64 ()", &function));
    CHECK(((int64_t (*)(void))function)() == 1);
    FINE(uruk_dylib_function(dylib, "by_bitcode", "i64 ()", &function));
    CHECK(((int64_t (*)(void))function)() == 2);
    FINE(uruk_dylib_function(dylib, "tracked", "i64 ()", &function));
    CHECK(((int64_t (*)(void))function)() == 3);
    uruk_tracker_free(tracker);
    uruk_jit_free(jit);

    uruk_settings_init(&settings, sizeof settings);
    settings.context = &changed;
    settings.transform_ir = change;
    FINE(uruk_jit_new(&settings, &jit));
    FINE(uruk_dylib_add_ir(uruk_jit_main(jit), "m", "define i64 @f() { ret i64 4 }"));
    FINE(uruk_dylib_function(uruk_jit_main(jit), "f", "i64 ()", &function));
    CHECK(((int64_t (*)(void))function)() == 1000);
    CHECK(changed == 1);
    uruk_jit_free(jit);
    LLVMContextDispose(context);
    puts("passed");
    return 0;
}
