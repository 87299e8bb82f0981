// A C++ host: its exceptions pass through JIT'd frames, and the executable exports nothing.
#include "check.h"
#include <stdexcept>
#include <string>

extern "C" void fail(int64_t number)
{
    throw std::runtime_error("number " + std::to_string(number));
}

int main()
{
    uruk_jit *jit = nullptr;
    FINE(uruk_jit_new(nullptr, &jit));
    const uruk_dylib *dylib = uruk_jit_main(jit);
    FINE(uruk_dylib_define_function(dylib, "fail", nullptr, reinterpret_cast<uruk_function>(&fail)));
    FINE(uruk_dylib_add_ir(dylib, "m",
                           "declare void @fail(i64)\n"
                           "define void @outer(i64 %n) uwtable {\n"
                           "  call void @fail(i64 %n)\n"
                           "  ret void\n"
                           "}\n"));
    uruk_function function;
    FINE(uruk_dylib_function(dylib, "outer", "void (i64)", &function));
    auto outer = reinterpret_cast<void (*)(int64_t)>(function);
    int caught = 0;
    for (int tier = 1; tier <= 2; ++tier) {
        try {
            outer(tier);
        } catch (const std::runtime_error &error) {
            CHECK(error.what() == "number " + std::to_string(tier));
            ++caught;
        }
        FINE(uruk_dylib_compile(dylib, "outer", 2));
    }
    CHECK(caught == 2);
    // Through a guarded call, too, which leaves nothing of itself.
    uruk_callable *callable;
    FINE(uruk_dylib_callable(dylib, "outer", nullptr, &callable));
    for (int turn = 0; turn < 20; ++turn) {
        uruk_value value = {};
        value.kind = URUK_VALUE_I64;
        value.bits.integer = turn;
        try {
            FINE(uruk_callable_call(callable, &value, 1, turn % 2 ? 3600000 : 0, nullptr));
        } catch (const std::runtime_error &error) {
            CHECK(error.what() == "number " + std::to_string(turn));
            ++caught;
        }
    }
    CHECK(caught == 22);
    uruk_callable_free(callable);
    uruk_jit_free(jit);
    std::puts("passed");
}
