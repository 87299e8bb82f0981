"""The binding for Python, as a person at a prompt uses it. Ends with `passed`."""

import gc
import sys

import uruk


def refused(code, part, call, *arguments):
    try:
        call(*arguments)
    except uruk.Error as error:
        assert error.code == code and part in str(error), (error.code, str(error))
        return error
    raise AssertionError("it was not refused")


def play():
    jit = uruk.Jit()
    jit.add_ir("m", """
        define i64 @price(i64 %n) { %p = mul i64 %n, 3 ret i64 %p }
        define i64 @twice(i64 %n) {
          %p = call i64 @price(i64 %n)
          %q = add i64 %p, %p
          ret i64 %q
        }
        define double @half(double %x) { %y = fmul double %x, 5.0e-1 ret double %y }
        define i1 @even(i32 %x) { %b = and i32 %x, 1 %e = icmp eq i32 %b, 0 ret i1 %e }
    """)
    assert jit.tier("twice") == 0
    twice = jit.function("twice")
    assert twice(7) == 42
    assert jit.tier("twice") == 1
    assert jit.function("half")(5.0) == 2.5
    assert jit.function("even")(4) is True and jit.function("even")(5) is False
    jit.compile("price", 2)
    assert jit.tier("price") == 2

    replaced = jit.replace("sale", "define i64 @price(i64 %n) { ret i64 %n }")
    assert replaced.functions == ["price"] and twice(7) == 14
    replaced.rollback()
    assert twice(7) == 42
    changed = "define i32 @price(i32 %n) { ret i32 %n }"
    refused(11, "signature of `price` changed", jit.replace, "bad", changed)

    said = []
    jit.define("say", said.append, "void (i64)")
    jit.add_ir("n", "declare void @say(i64) define void @go() { call void @say(i64 9) ret void }")
    jit.function("go")()
    assert said == [9]

    tracker = jit.create_tracker()
    tracker.add_ir("t", "define i64 @one() { ret i64 1 }")
    assert jit.function("one")() == 1
    tracker.remove()
    assert refused(8, "one", jit.function, "one").names == ["one"]
    refused(5, "expected", jit.add_ir, "bad", "define nonsense")

    other = jit.create_dylib("other")
    other.add_to_link_order(jit)
    other.add_ir("o", "declare i64 @twice(i64) "
                      "define i64 @f() { %v = call i64 @twice(i64 1) ret i64 %v }")
    assert other.name == "other" and other.function("f")() == 6
    stats = jit.stats()
    assert stats["compiled"] >= 5 and stats["tier_versions"][1] >= 1, stats
    assert stats["native_functions"] == 0 and list(stats)[-1] == "tuning_ran_ns", stats
    assert 0 < jit.memory("code") < jit.memory()
    assert "twice: Ready" in jit.dump()
    assert uruk.version().count(".") == 2

    # The function keeps its session.
    del jit, other, replaced, tracker
    gc.collect()
    assert twice(7) == 42


def kernel():
    """The dot product of two arrays, made by llvmlite."""
    from llvmlite import ir

    word, real = ir.IntType(64), ir.DoubleType()
    module = ir.Module("kernel")
    pointer = ir.PointerType() if not hasattr(ir.PointerType(), "pointee") else real.as_pointer()
    function = ir.Function(module, ir.FunctionType(real, [pointer, pointer, word]), "dot")
    entry, loop, end = (function.append_basic_block(name) for name in ("entry", "loop", "end"))
    left, right, count = function.args
    builder = ir.IRBuilder(entry)
    builder.branch(loop)
    builder.position_at_end(loop)
    index, total = builder.phi(word), builder.phi(real)
    values = [builder.load(builder.gep(array, [index], source_etype=real), typ=real)
              for array in (left, right)]
    sum_ = builder.fadd(total, builder.fmul(*values))
    after = builder.add(index, word(1))
    for phi, first, next_ in ((index, word(0), after), (total, real(0), sum_)):
        phi.add_incoming(first, entry)
        phi.add_incoming(next_, loop)
    builder.cbranch(builder.icmp_signed("<", after, count), loop, end)
    builder.position_at_end(end)
    builder.ret(sum_)
    return str(module)


def run_kernel(text):
    import ctypes

    jit = uruk.Jit()
    jit.add_ir("kernel", text)
    array = (ctypes.c_double * 4)(1, 2, 3, 4)
    for tier in (1, 2):
        jit.compile("dot", tier)
        assert jit.function("dot")(array, array, 4) == 30.0


if __name__ == "__main__":
    play()
    if len(sys.argv) > 2 and sys.argv[2] == "write":
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write("; Written by llvmlite: see python_binding.py.\n" + kernel())
    with open(sys.argv[1], encoding="utf-8") as file:
        run_kernel(file.read())
    try:
        text = kernel()
    except ImportError:
        print("llvmlite is not installed: what it wrote before was run")
    else:
        run_kernel(text)
    print("passed")
