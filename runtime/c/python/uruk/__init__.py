"""Uruk for Python: LLVM IR is compiled when it is first called, and replaced while it runs.

    import uruk

    jit = uruk.Jit()
    jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")
    twice = jit.function("twice")
    twice(21)                              # 42
    twice.within(0.5)(21)                  # An error if it takes longer than half a second.
    jit.replace("m2", "define i64 @twice(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }")

A binding over `uruk.h` by ctypes. Functions have the types of their IR; a type that is said is
compared with that. Calls are guarded: a division by zero, memory that is not there, the end of the
stack, a limit of time or fuel and Ctrl-C in the main thread are exceptions, as are those that
functions of Python's raise, which IR calls (`Dylib.define`). IR made by llvmlite goes in as it is.

The library is that of the variable URUK_LIBRARY, of the wheel or the prefix that this file is in,
or what the dynamic loader finds.
"""

import copy, ctypes, os
from ctypes import byref, c_char_p, c_int, c_uint64, c_void_p

from ._border import (Error, _body, _c, _interrupts, _local, _made, _names, _Replacement, _Settings,
                      _Stats, _string, _text, _Types)

__all__ = ["Dylib", "Error", "Function", "Jit", "Replaced", "Thread", "Tracker", "prepare_sandbox",
           "version"]


def version():
    """The version of the library."""
    return _c.version_text().decode()


def prepare_sandbox():
    """Compiles what has no code and ends the library's threads, before the process gives up system
    calls. Nothing is compiled any more after it."""
    _c.prepare_sandbox()


class _Handle:
    """Something of the library's, which is freed with the last reference."""

    _free = None

    def __init__(self, pointer, keeps=None):
        self._pointer, self._keeps = pointer, keeps

    def __del__(self):
        if self._free is not None and getattr(self, "_pointer", None):
            self._free(self._pointer)


class Thread(_Handle):
    """The thread that makes this, for `Jit.interrupt` in another one."""

    _free = staticmethod(_c.thread_free)

    def __init__(self):
        super().__init__(_c.thread_current())


class _Callable(_Handle):
    _free = staticmethod(_c.callable_free)


class Function:
    """A function of IR, which is called with values of its type. Calls run without the interpreter's
    lock."""

    def __init__(self, dylib, name, ir_type):
        said, ir_type = ir_type, None if ir_type is None else _text(ir_type)
        if ir_type is None and dylib.type(name) is None:
            raise TypeError(f"the type of `{name}` is not known: say it")
        pointer = _made(_c.dylib_callable, dylib._pointer, _text(name), ir_type)
        self._callable, self._dylib = _Callable(pointer, dylib), dylib
        #: Its name, and its type as LLVM writes it.
        self.name, self.type = name, _string(_c.callable_type(pointer))
        self._types, self._limit_ms, self._fuel = _Types(self.type), 0, None
        if said is not None and (result := _Types(said).result).extended:
            self._types.result.unsigned = result.unsigned

    def __call__(self, *values):
        types, answer = self._types, ctypes.create_string_buffer(16)
        if len(values) != len(types.parameters):
            raise TypeError(f"`{self.name}` is {self.type}, and {len(values)} values were given")
        given = self._callable._pointer, types.pack(values), len(values), self._limit_ms
        is_main = _interrupts.begin(self._dylib._session_pointer())
        try:
            if self._fuel is None:
                _c.callable_call(*given, answer)
            else:
                _c.callable_call_with_fuel(*given, self._fuel, answer)
        finally:
            if is_main:
                _interrupts.end()
        if (raised := getattr(_local, "raised", None)) is not None:
            _local.raised = None
            raise raised
        return types.result.value(types.answer.unpack(answer.raw[:types.answer.size])[1])

    def within(self, seconds):
        """The same, whose calls are an `Error` when they take longer."""
        limited = copy.copy(self)
        limited._limit_ms = max(1, int(seconds * 1000))
        return limited

    def with_fuel(self, passes):
        """The same, whose calls are an `Error` when they make more passes of entries and loops; of a
        session with `count_fuel=True`."""
        limited = copy.copy(self)
        limited._fuel = passes
        return limited

    @property
    def address(self):
        """Its address, which stays. Calls through it are not guarded: what would be an exception
        ends the process."""
        return self._dylib.lookup(self.name)


class Replaced(_Handle):
    """What a replacement did."""

    _free = staticmethod(_c.replaced_free)
    functions, added, dependents = (
        property(lambda self, kind=kind: _names(_c.replaced_names(self._pointer, kind)))
        for kind in range(3)
    )

    def rollback(self):
        """Goes back to what ran before; this must be the latest replacement."""
        _c.replaced_rollback(self._pointer)


class _Adds(_Handle):
    """Something that code is added to."""

    def add_ir(self, name, text):
        """Adds IR: text, or a module of llvmlite."""
        self._add_ir(self._pointer, _text(name), _text(text))

    def add_bitcode(self, name, data):
        """Adds bitcode, as `module.as_bitcode()` of llvmlite's binding makes it."""
        self._add_bitcode(self._pointer, _text(name), bytes(data), len(data))

    def add_object(self, name, data):
        """Adds an ELF object."""
        self._add_object(self._pointer, _text(name), bytes(data), len(data))

    def add_file(self, path):
        """Adds a file: bitcode, IR or an object; an archive to a dylib."""
        self._add_file(self._pointer, _text(os.fsdecode(path)))


class Tracker(_Adds):
    """What is added under it is removed with it."""

    _free = staticmethod(_c.tracker_free)
    _add_ir, _add_bitcode, _add_object, _add_file = map(staticmethod, (
        _c.tracker_add_ir, _c.tracker_add_bitcode, _c.tracker_add_object, _c.tracker_add_file))

    def remove(self):
        """Removes it; nobody uses its variables any more."""
        _c.tracker_remove(self._pointer)


class Dylib(_Adds):
    """A table of symbols with a link order."""

    _free = staticmethod(_c.dylib_free)
    _add_ir, _add_bitcode, _add_object, _add_file = map(staticmethod, (
        _c.dylib_add_ir, _c.dylib_add_bitcode, _c.dylib_add_object, _c.dylib_add_file))
    name = property(lambda self: _string(_c.dylib_name(self._pointer)))

    def add_to_link_order(self, other):
        """Has lookups go on to another dylib."""
        _c.dylib_add_to_link_order(self._pointer, other._pointer)

    def allow_missing(self, allowed=True):
        """Whether what is added may need what nobody defines yet."""
        _c.dylib_allow_missing(self._pointer, int(allowed))

    def define(self, name, function, ir_type):
        """Has IR call a function of Python's: `jit.define("say", print, "void (i64)")`. Modules that
        declare it with another type are refused. What it raises ends the call of IR."""
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
        body = _body(function, _Types(ir_type))
        _c.dylib_define_host(self._pointer, _text(name), _text(ir_type),
                             ctypes.cast(body, c_void_p), None, None)
        self._kept().append(body)

    def define_address(self, name, address):
        """Gives a name to what is at an address of the process."""
        _c.dylib_define_address(self._pointer, _text(name), address)

    def lookup(self, name):
        """The address of a symbol."""
        return _made(_c.dylib_lookup, self._pointer, _text(name), kind=c_uint64)

    def type(self, name):
        """The type of a function as LLVM writes it; None of one of an object."""
        return _string(_made(_c.dylib_type, self._pointer, _text(name)))

    def function(self, name, ir_type=None):
        """A function to be called. Its type is the IR's, with which one that is said is compared, or
        what is said of an object's. Results are signed unless the IR, or the type that is said,
        has them unsigned: `i16 zeroext (i16)`."""
        return Function(self, name, ir_type)

    def compile(self, name, tier=0):
        """Compiles a function now, at a tier if one is given."""
        _c.dylib_compile(self._pointer, _text(name), tier)

    def pin(self, name, tier=0):
        """Keeps a function at a tier; 0 leaves it to the policy."""
        _c.dylib_pin(self._pointer, _text(name), tier)

    def tier(self, name):
        """The tier that calls of a function reach now; 0 before the first."""
        return _made(_c.dylib_tier, self._pointer, _text(name), kind=c_int)

    def ir(self, name, tier):
        """The IR that code of a function is made of at a tier."""
        return _string(_made(_c.dylib_ir, self._pointer, _text(name), tier))

    def disassemble(self, name, tier=0):
        """The code of a function; None where there is none."""
        return _string(_made(_c.dylib_disassemble, self._pointer, _text(name), tier))

    def replace(self, name, new, quiescent_ms=None, allow_signatures=False, osr=False):
        """Exchanges functions by those of IR, or of bitcode (bytes), while they run: all of them, or
        none."""
        is_bitcode = isinstance(new, (bytes, bytearray, memoryview))
        data = bytes(new) if is_bitcode else _text(new)
        how = _Replacement(
            name=_text(name), data=data, data_size=len(data), input=int(is_bitcode),
            quiescent=int(quiescent_ms is not None), wait_ms=quiescent_ms or 0,
            allow_signatures=int(allow_signatures), osr=int(osr))
        return Replaced(_made(_c.dylib_replace, self._pointer, byref(how)), self)

    def create_tracker(self):
        """A tracker for what is to be removed together."""
        return Tracker(_made(_c.dylib_create_tracker, self._pointer), self)

    def _kept(self):
        return self._keeps._kept()

    def _session_pointer(self):
        return self._keeps._session_pointer()


class Jit(Dylib):
    """A session; what is added to it goes to its main dylib. Its settings are those of `uruk_settings`
    in `uruk.h`, by their names: `Jit(tiers=2, record=True, cache_folder="cache")`."""

    _free = None

    def __init__(self, **settings):
        known = dict(_Settings._fields_)
        for name, value in settings.items():
            if name not in known or name in _Settings.of_callbacks:
                raise TypeError(f"there is no setting `{name}`")
            if known[name] is c_char_p and value is not None:
                settings[name] = _text(value)
        self._callbacks = []
        self._session = _made(_c.jit_new, byref(_Settings(**settings)))
        super().__init__(_c.jit_main(self._session))

    def __del__(self):
        if getattr(self, "_session", None):
            _c.jit_free(self._session)

    def _kept(self):
        return self._callbacks

    def _session_pointer(self):
        return self._session

    def create_dylib(self, name):
        """A new dylib."""
        return Dylib(_made(_c.jit_create_dylib, self._session, _text(name)), self)

    def add_library(self, name):
        """Lets all dylibs use what a shared library exports."""
        _c.jit_add_library(self._session, _text(name))

    def initialize(self):
        """Runs constructors."""
        _c.jit_initialize(self._session)

    def deinitialize(self):
        """Runs destructors of what was initialized."""
        _c.jit_deinitialize(self._session)

    def interrupt(self, thread):
        """Ends the guarded call that a `Thread` is in, by an `Error`; False if it is in none."""
        return bool(_c.jit_interrupt(self._session, thread._pointer))

    def rollback(self):
        """Goes back to what ran before the latest replacement: its functions."""
        return _names(_made(_c.jit_rollback, self._session))

    def rollback_at(self, quiescent_ms=None):
        """The same at once, or when no thread runs what goes, within so many milliseconds."""
        at = int(quiescent_ms is not None), quiescent_ms or 0
        return _names(_made(_c.jit_rollback_at, self._session, *at))

    def reclaim(self, limit_ms=1000, evacuate=False):
        """Frees dead code now; whether all of it was within the limit."""
        done = _made(_c.jit_reclaim, self._session, int(evacuate), limit_ms, kind=c_int)
        return bool(done)

    def stats(self):
        """What the session has done so far, by name; a list by tier."""
        _c.jit_stats(self._session, byref(stats := _Stats()), ctypes.sizeof(_Stats))
        values = ((name, getattr(stats, name)) for name, _ in stats._fields_[1:])
        return {name: value if isinstance(value, int) else list(value) for name, value in values}

    def memory(self, purpose="total"):
        """Bytes used for a purpose."""
        return _made(_c.jit_memory, self._session, _text(purpose), kind=c_uint64)

    def hottest(self, count=10):
        """The functions that ran most."""
        return _names(_made(_c.jit_hottest, self._session, count))

    def report_page(self):
        """The page of the run, of a session with `record=True`: HTML."""
        return _string(_made(_c.jit_report_page, self._session))

    def trace(self, path):
        """Writes the timeline of the run, of a session with `record=True`."""
        _c.jit_trace(self._session, _text(os.fsdecode(path)))

    def tuning(self):
        """What a session with `tune=True` found out; `tuning_text` is for `tuned_before`."""
        return _string(_made(_c.jit_tuning, self._session))

    def tuning_text(self):
        """What another session's setting `tuned_before` takes."""
        return _string(_made(_c.jit_tuning_text, self._session))

    def work_done(self, units=1):
        """Says that so many units of work were done."""
        _c.jit_work_done(self._session, units)

    def dump(self):
        """What the dylibs hold, for people."""
        return _string(_c.jit_dump(self._session))
