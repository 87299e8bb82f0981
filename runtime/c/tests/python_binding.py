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
    for quiescent_ms in (None, 60_000):
        jit.replace("sale", "define i64 @price(i64 %n) { ret i64 %n }")
        assert jit.rollback_at(quiescent_ms) == ["price"] and twice(7) == 42
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


def raises(kind, part, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except kind as error:
        assert part in str(error), str(error)
        return error
    raise AssertionError(f"it answered {answer!r}")


def callbacks():
    """What a function of Python's raises is raised by the call of IR, and is no number."""
    jit = uruk.Jit()

    def price(x):
        if x == 3:
            raise ValueError("no price")
        return {4: "text", 5: 1 << 40, 6: None}.get(x, x)

    jit.define("price", price, "i32 (i32)")
    jit.define("note", lambda x: jit.function("total")(int(x)), "void (double)")
    jit.define("odd", lambda x: x & 1, "i1 (i8 zeroext)")
    jit.define("none", lambda: 7, "void ()")
    jit.add_ir("m", """
        declare i32 @price(i32)
        declare void @note(double)
        declare i1 @odd(i8 zeroext)
        declare void @none()
        define i32 @total(i32 %x) { %p = call i32 @price(i32 %x) %t = add i32 %p, 1000 ret i32 %t }
        define void @outer(double %x) { call void @note(double %x) ret void }
        define i1 @is_odd(i8 zeroext %x) { %y = call i1 @odd(i8 zeroext %x) ret i1 %y }
        define void @nothing() { call void @none() ret void }
    """)
    total = jit.function("total")
    for tier in (1, 2):
        jit.compile("total", tier)
        assert total(1) == 1001 and total(-1) == 999
        error = raises(ValueError, "no price", total, 3)
        assert error.__traceback__.tb_next is not None
        raises(ValueError, "no price", jit.function("outer"), 3.0)
        raises(TypeError, "as an integer", total, 4)
        raises(OverflowError, "does not fit into i32", total, 5)
        raises(TypeError, "as an integer", total, 6)
        assert total(1) == 1001
    assert jit.function("is_odd")(201) is True
    raises(TypeError, "no value of `void`", jit.function("nothing"))
    jit.add_ir("c", """
        declare i32 @price(i32)
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [
          { i32, ptr, ptr } { i32 1, ptr @begin, ptr null }]
        define internal void @begin() { %p = call i32 @price(i32 3) ret void }
    """)
    raises(ValueError, "no price", jit.initialize)
    wrong = "declare i64 @price(i64) define i64 @w() { %p = call i64 @price(i64 1) ret i64 %p }"
    refused(9, "declared as i64 (i64)", jit.add_ir, "w", wrong)
    raises(TypeError, "<4 x i32>", jit.define, "v", price, "<4 x i32> ()")
    raises(TypeError, "5 cannot be called", jit.define, "v", 5, "i64 (i64)")

    # Recursion through IR without an end is Python's error, with whatever frame is the last.
    jit.define("deeper", lambda x: deep(x + 1), "i64 (i64)")
    jit.add_ir("d", "declare i64 @deeper(i64) "
                    "define i64 @deep(i64 %x) { %y = call i64 @deeper(i64 %x) ret i64 %y }")
    deep = jit.function("deep")
    limit = sys.getrecursionlimit()
    try:
        for more in range(12):
            sys.setrecursionlimit(200 + more)
            raises(RecursionError, "", deep, 0)
    finally:
        sys.setrecursionlimit(limit)
    assert total(1) == 1001


def types():
    """Values are those of the IR's type, or errors."""
    jit = uruk.Jit()
    jit.add_ir("m", """
        define i64 @address(ptr %p) { %v = ptrtoint ptr %p to i64 ret i64 %v }
        define i64 @same(i64 %x) { ret i64 %x }
        define i8 @low(i8 %x) { ret i8 %x }
        define signext i8 @up(i8 signext %x) { %y = add i8 %x, 1 ret i8 %y }
        define zeroext i16 @twice(i16 zeroext %x) { %y = add i16 %x, %x ret i16 %y }
        define i1 @not(i1 %b) { %c = xor i1 %b, 1 ret i1 %c }
        define ptr @back(ptr %p) { ret ptr %p }
        define { i64, i64 } @pair() { ret { i64, i64 } zeroinitializer }
        define float @half(float %x) { %y = fmul float %x, 5.0e-1 ret float %y }
    """)
    refused(9, "is i64 (ptr), not i64 (double)", jit.function, "address", "i64 (double)")
    refused(9, "is i8 signext (i8 signext), not i32 (i8)", jit.function, "up", "i32 (i8)")
    assert jit.function("address", "i64 (ptr)")(None) == 0
    assert jit.function("up", "i8 (i8)")(-100) == -99 and jit.function("up")(127) == -128
    assert jit.type("twice") == "i16 zeroext (i16 zeroext)"
    for ty in (None, "i16 (i16)", "i16 zeroext (i16 zeroext)"):
        unsigned = jit.function("twice", ty)
        assert unsigned(0x7fff) == 0xfffe and unsigned(2) == 4 and unsigned(-1) == 0xfffe
    signed = jit.function("twice", "i16 signext (i16)")
    assert signed(0x7fff) == -2 and signed(-1) == -2
    assert jit.function("not")(False) is True and jit.function("half")(3) == 1.5
    same, low = jit.function("same"), jit.function("low")
    assert same(-1) == -1 and same((1 << 64) - 1) == -1 and low(255) == -1 and low(-128) == -128
    for call, value in ((same, 1 << 64), (same, -(1 << 63) - 1), (low, 256), (low, -129),
                        (jit.function("not"), 2), (jit.function("address"), -1)):
        raises(OverflowError, "", call, value)
    for call, values in ((same, ()), (same, (1, 2)), (jit.function("address"), ("text",))):
        raises(TypeError, "", call, *values)
    assert jit.function("back")(None) is None and jit.function("back")(4096) == 4096
    raises(TypeError, "{ i64, i64 }", jit.function, "pair")
    for call in (jit.add_ir, jit.lookup, jit.create_dylib, jit.memory, jit.dump):
        if call != jit.dump:
            raises(ValueError, "zero character", call, *["a\0b"] * (2 if call == jit.add_ir else 1))
    raises(ValueError, "zero character", jit.add_ir, "m", "define i64 @f() { ret i64 1 }\0 and more")
    raises(ValueError, "zero character", uruk.Jit, cache_folder="a\0b")
    raises(OverflowError, "jobs", uruk.Jit, jobs=-1)
    raises(OverflowError, "tiers", uruk.Jit, tiers=1 << 32)
    raises(TypeError, "nonsense", uruk.Jit, nonsense=1)
    raises(TypeError, "on_event", uruk.Jit, on_event=1)
    raises(OverflowError, "", jit.compile, "same", 1 << 32)
    raises(OverflowError, "", jit.replace, "m", "define i64 @same(i64 %x) { ret i64 1 }", -1)


def counting():
    """Calls with fuel end at the same pass, on each thread, though the library was opened later."""
    import threading

    jit = uruk.Jit(count_fuel=True)
    jit.add_ir("m", """
        define i64 @sum(i64 %n) {
          br label %l
        l:
          %i = phi i64 [ 0, %0 ], [ %j, %l ]
          %s = phi i64 [ 0, %0 ], [ %t, %l ]
          %t = add i64 %s, %i
          %j = add i64 %i, 1
          %more = icmp ult i64 %j, %n
          br i1 %more, label %l, label %e
        e:
          ret i64 %t
        }
        define void @spin() { br label %l l: br label %l }
    """)
    sum, spin = jit.function("sum"), jit.function("spin")
    wrong = []

    def check():
        try:
            for passes in (10, 1000, 100_000):
                total = passes * (passes - 1) // 2
                assert sum(passes) == total and sum.with_fuel(passes)(passes) == total
                assert raises(uruk.Error, "fuel", sum.with_fuel(passes - 1), passes).trap == 12
            assert raises(uruk.Error, "within", spin.within(0.01)).trap == 10
        except BaseException as error:
            wrong.append(error)

    check()
    for _ in range(3):  # One after another gets the memory of the one before.
        threads = [threading.Thread(target=check) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, wrong


def ends():
    """Faults, limits and interrupts are errors."""
    import threading

    jit = uruk.Jit(tiers=1, record=True)
    jit.add_ir("m", """
        define void @spin() { br label %l l: br label %l }
        define i32 @divide(i32 %a, i32 %b) { %q = sdiv i32 %a, %b ret i32 %q }
        define i64 @read(ptr %p) { %v = load i64, ptr %p ret i64 %v }
    """)
    spin = jit.function("spin")
    error = raises(uruk.Error, "within", spin.within(0.01))
    assert error.code == 18 and error.trap == 10 and "spin" in error.names
    assert raises(uruk.Error, "fuel", spin.with_fuel(1000)).trap == 13  # Not counted.
    counting()
    assert raises(uruk.Error, "division", jit.function("divide"), 1, 0).trap == 1
    assert raises(uruk.Error, "memory", jit.function("read"), 0).trap == 5
    thread, done = uruk.Thread(), threading.Event()

    def interrupt():
        while not jit.interrupt(thread):
            done.wait(0.001)

    other = threading.Thread(target=interrupt)
    other.start()
    assert raises(uruk.Error, "interrupted", spin).trap == 9
    other.join()
    assert jit.function("divide")(6, -2) == -3
    assert "spin" in jit.hottest(10) or jit.hottest(10) == []
    assert jit.report_page().startswith("<!") and "sdiv" in jit.ir("divide", 1)
    assert "idiv" in jit.disassemble("divide")


def control_c():
    """Ctrl-C ends a loop of IR, and a function of Python's in it, in the main thread."""
    import os
    import signal
    import threading

    # A shell's background jobs begin with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jit = uruk.Jit()
    begun = threading.Event()
    jit.define("begin", begun.set, "void ()")
    jit.define("wait", lambda: threading.Event().wait(600), "i1 ()")
    jit.add_ir("m", """
        declare void @begin()
        declare i1 @wait()
        define void @spin() { call void @begin() br label %l l: br label %l }
        define i1 @sleep() { call void @begin() %w = call i1 @wait() ret i1 %w }
    """)

    def interrupt():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    for name in ("spin", "sleep") * 3:
        begun.clear()
        other = threading.Thread(target=interrupt)
        other.start()
        raises(KeyboardInterrupt, "", jit.function(name))
        other.join()
    assert signal.set_wakeup_fd(-1) == -1
    # Other signals end nothing.
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    jit.define("kill", lambda: os.kill(os.getpid(), signal.SIGUSR1), "void ()")
    jit.add_ir("k", "declare void @kill() define i32 @k() { call void @kill() ret i32 5 }")
    assert jit.function("k")() == 5 and seen == [1]
    # Nor does a handler of the program's for Ctrl-C, unless it raises where Python runs.
    seen.clear()
    signal.signal(signal.SIGINT, lambda *_: seen.append(2))
    other = threading.Thread(target=interrupt)
    begun.clear()
    other.start()
    error = raises(uruk.Error, "within", jit.function("spin").within(0.3))
    other.join()
    assert error.trap == 10 and seen == [2], (error, seen)

    def stop(*_):
        raise ValueError("stopped")

    signal.signal(signal.SIGINT, stop)
    jit.define("int", lambda: os.kill(os.getpid(), signal.SIGINT), "void ()")
    jit.add_ir("i", "declare void @int() define i32 @i() { call void @int() ret i32 5 }")
    raises(ValueError, "stopped", jit.function("i"))
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
        assert jit.function("dot")(ctypes.byref(array), ctypes.addressof(array), 3) == 14.0


def lines():
    jit = uruk.Jit(lines=True)
    jit.add_ir("m", """
        define i64 @div(i64 %n) !dbg !2 { %q = sdiv i64 9, %n, !dbg !3 ret i64 %q, !dbg !3 }
        !llvm.dbg.cu = !{!0}
        !llvm.module.flags = !{!5}
        !0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: FullDebug)
        !1 = !DIFile(filename: "div.lang", directory: "")
        !2 = distinct !DISubprogram(name: "div", file: !1, line: 3, type: !4, unit: !0,
                                    spFlags: DISPFlagDefinition)
        !3 = !DILocation(line: 7, scope: !2)
        !4 = !DISubroutineType(types: !{})
        !5 = !{i32 2, !"Debug Info Version", i32 3}
    """)
    refused(18, "in div (div.lang:7)", jit.function("div"), 0)


def sandbox():
    """The last: nothing is compiled after it."""
    import os

    jit = uruk.Jit()
    jit.add_ir("m", "define i64 @twice(i64 %n) { %p = add i64 %n, %n ret i64 %p }")
    twice = jit.function("twice")
    uruk.prepare_sandbox()
    own = [open(f"/proc/self/task/{number}/comm").read() for number in os.listdir("/proc/self/task")]
    assert not [name for name in own if name.startswith("uruk")], own
    assert twice(21) == 42


if __name__ == "__main__":
    play()
    callbacks()
    types()
    ends()
    control_c()
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
    lines()
    sandbox()
    print("passed")
