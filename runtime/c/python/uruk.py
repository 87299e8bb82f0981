"""Uruk for Python: LLVM IR is compiled when it is first called, and replaced while it runs.

    import uruk

    jit = uruk.Jit()
    jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")
    twice = jit.function("twice")
    twice(21)                              # 42
    jit.replace("m2", "define i64 @twice(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }")

A binding over `uruk.h` by ctypes. Functions get the types of their IR; those of Python's that IR
calls say theirs. IR made by llvmlite goes in as it is. The library is that of the variable
URUK_LIBRARY, of the prefix that this file is in, or what the dynamic loader finds.
"""

import ctypes, os, re
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p

__all__ = ["Dylib", "Error", "Jit", "Replaced", "Tracker", "version"]

#: What a type of IR is for ctypes.
TYPES = {
    "void": None, "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16,
    "i32": ctypes.c_int32, "i64": ctypes.c_int64, "float": ctypes.c_float,
    "double": ctypes.c_double, "ptr": c_void_p,
}


class _Stats(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64 * 3 if name.startswith("tier_") else c_uint64) for name in (
            "functions compiled failed cancelled queued code_bytes tier_versions tier_functions "
            "tier_ns baseline_compiled load_ns data_ns emit_ns link_ns wall_ns samples "
            "samples_lost ahead_compiled ahead_called memory_live memory_retired memory_pinned "
            "memory_held memory_freed evicted native_versions native_functions native_bytes "
            "tuning_trials tuning_won tuning_drifted tuning_lost_ns tuning_ran_ns").split()]


class Error(Exception):
    """What the library says is wrong: a text, `code`, and the `names` it is about."""

    code, names = 0, ()


def _open():
    prefix = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    installed = os.path.join(prefix, "lib", "liburuk.so")
    given = os.environ.get("URUK_LIBRARY", installed)
    return ctypes.CDLL(given if os.path.exists(given) else "liburuk.so")


#: What the header declares: the result (`!` is an error, which is raised; `-` is none) and the
#: arguments: p a pointer, s text, i an int, n a size, u 64 bits.
_DECLARED = """
    i:error_code:p s:error_text:p n:error_name_count:p s:error_name:pn -:error_free:p
    n:names_count:p s:names_at:pn -:names_free:p -:string_free:p s:version_text:
    !:jit_new:pp -:jit_free:p p:jit_main:p !:jit_create_dylib:psp !:jit_stats:ppn
    !:jit_memory:psp p:jit_dump:p !:jit_initialize:p
    -:dylib_free:p p:dylib_name:p !:dylib_add_ir:pss !:dylib_add_bitcode:pssn
    !:dylib_add_object:pssn !:dylib_add_file:ps !:dylib_define_address:psu !:dylib_lookup:psp
    !:dylib_type:psp !:dylib_compile:psi !:dylib_pin:psi !:dylib_tier:psp
    !:dylib_add_to_link_order:pp !:dylib_allow_missing:pi !:dylib_create_tracker:pp
    !:dylib_replace:ppp p:replaced_names:pi !:replaced_rollback:p -:replaced_free:p
    !:tracker_add_ir:pss !:tracker_remove:p -:tracker_free:p
"""
_LETTERS = dict(zip("p!siun-", (c_void_p, c_void_p, c_char_p, c_int, c_uint64, c_size_t, None)))


class _Calls:
    """The functions of the library, by their names without `uruk_`."""

    def __init__(self, library):
        for result, name, arguments in (one.split(":") for one in _DECLARED.split()):
            function = getattr(library, "uruk_" + name)
            function.restype = _LETTERS[result]
            function.argtypes = [_LETTERS[letter] for letter in arguments]
            setattr(self, name, self._raising(function) if result == "!" else function)

    def _raising(self, function):
        def call(*values):
            if error := function(*values):
                count = self.error_name_count(error)
                raised = Error(self.error_text(error).decode())
                raised.names = [self.error_name(error, n).decode() for n in range(count)]
                raised.code = self.error_code(error)
                self.error_free(error)
                raise raised
        return call


_c = _Calls(_open())


class _Replacement(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("data", c_char_p), ("data_size", c_size_t),
        ("input", c_int), ("quiescent", c_int), ("wait_ms", c_uint64),
        ("allow_signatures", c_int), ("allow_parts", c_int), ("run_constructors", c_int),
        ("migration_count", c_int), ("migrations", c_void_p), ("context", c_void_p),
    ]


class _Settings(ctypes.Structure):
    # As far as there is something to set here; the library takes a struct of any length.
    _fields_ = [
        ("size", c_size_t), ("jobs", c_size_t), ("memory_limit", c_size_t),
        ("code_budget", c_uint64), ("static_data", c_size_t), ("tiers", c_int),
    ]


def _made(call, *arguments, kind=c_void_p):
    """What a call writes to where its last argument points."""
    call(*arguments, byref(place := kind()))
    return place.value


def _string(pointer):
    """A string of the library's, which is freed."""
    text = ctypes.cast(pointer, c_char_p).value.decode() if pointer else None
    _c.string_free(pointer)
    return text


def _names(pointer):
    names = [_c.names_at(pointer, n).decode() for n in range(_c.names_count(pointer))]
    _c.names_free(pointer)
    return names


def _prototype(ir_type):
    """The ctypes prototype of `i64 (i64, ptr)`."""
    match = re.fullmatch(r"(\w+) *\(([\w, ]*)\)", ir_type)
    names = [match[1], *re.findall(r"\w+", match[2])] if match else [None]
    if any(name not in TYPES for name in names):
        raise TypeError(f"no types of ctypes for `{ir_type}`: look its address up and cast it")
    return ctypes.CFUNCTYPE(*(TYPES[name] for name in names))


def version():
    """The version of the library."""
    return _c.version_text().decode()


class _Handle:
    """Something of the library's, which is freed with the last reference."""

    _free = None

    def __init__(self, pointer, keeps=None):
        self._pointer, self._keeps = pointer, keeps

    def __del__(self):
        if self._free is not None and getattr(self, "_pointer", None):
            self._free(self._pointer)


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


class Tracker(_Handle):
    """What is added under it is removed with it."""

    _free = staticmethod(_c.tracker_free)

    def add_ir(self, name, text):
        """Adds IR, to be removed with the tracker."""
        _c.tracker_add_ir(self._pointer, name.encode(), str(text).encode())

    def remove(self):
        """Removes it; nobody uses its variables any more."""
        _c.tracker_remove(self._pointer)


class Dylib(_Handle):
    """A table of symbols with a link order."""

    _free = staticmethod(_c.dylib_free)
    name = property(lambda self: _string(_c.dylib_name(self._pointer)))

    def add_ir(self, name, text):
        """Adds IR: text, or a module of llvmlite."""
        _c.dylib_add_ir(self._pointer, name.encode(), str(text).encode())

    def add_bitcode(self, name, data):
        """Adds bitcode, as `module.as_bitcode()` of llvmlite's binding makes it."""
        _c.dylib_add_bitcode(self._pointer, name.encode(), data, len(data))

    def add_object(self, name, data):
        """Adds an ELF object."""
        _c.dylib_add_object(self._pointer, name.encode(), data, len(data))

    def add_file(self, path):
        """Adds a file: bitcode, IR, an object or an archive."""
        _c.dylib_add_file(self._pointer, os.fspath(path).encode())

    def add_to_link_order(self, other):
        """Has lookups go on to another dylib."""
        _c.dylib_add_to_link_order(self._pointer, other._pointer)

    def allow_missing(self, allowed=True):
        """Whether what is added may need what nobody defines yet."""
        _c.dylib_allow_missing(self._pointer, int(allowed))

    def define(self, name, function, ir_type):
        """Has IR call a function of Python's: `jit.define("say", print, "void (i64)")`."""
        self._kept().append(made := _prototype(ir_type)(function))
        _c.dylib_define_address(self._pointer, name.encode(), ctypes.cast(made, c_void_p).value)

    def lookup(self, name):
        """The address of a symbol."""
        return _made(_c.dylib_lookup, self._pointer, name.encode(), kind=c_uint64)

    def function(self, name, ir_type=None):
        """A function to be called; its type is the IR's, or what is said of an object's."""
        if ir_type is None:
            ir_type = _string(_made(_c.dylib_type, self._pointer, name.encode()))
            if ir_type is None:
                raise TypeError(f"the type of `{name}` is not known: say it")
        function = _prototype(ir_type)(self.lookup(name))
        function.kept = self
        return function

    def compile(self, name, tier=0):
        """Compiles a function now, at a tier if one is given."""
        _c.dylib_compile(self._pointer, name.encode(), tier)

    def pin(self, name, tier=0):
        """Keeps a function at a tier; 0 leaves it to the policy."""
        _c.dylib_pin(self._pointer, name.encode(), tier)

    def tier(self, name):
        """The tier that calls of a function reach now; 0 before the first."""
        return _made(_c.dylib_tier, self._pointer, name.encode(), kind=c_int)

    def replace(self, name, text, quiescent_ms=None, allow_signatures=False):
        """Exchanges functions by those of IR while they run: all of them, or none."""
        how = _Replacement(
            size=ctypes.sizeof(_Replacement), name=name.encode(), data=str(text).encode(),
            quiescent=int(quiescent_ms is not None), wait_ms=quiescent_ms or 0,
            allow_signatures=int(allow_signatures))
        return Replaced(_made(_c.dylib_replace, self._pointer, byref(how)), self)

    def create_tracker(self):
        """A tracker for what is to be removed together."""
        return Tracker(_made(_c.dylib_create_tracker, self._pointer), self)

    def _kept(self):
        return self._keeps._kept()


class Jit(Dylib):
    """A session; what is added to it goes to its main dylib."""

    _free = None

    def __init__(self, tiers=0, jobs=0, memory_limit=0, code_budget=0):
        settings = _Settings(size=ctypes.sizeof(_Settings), tiers=tiers, jobs=jobs,
                             memory_limit=memory_limit, code_budget=code_budget)
        self._session, self._callbacks = _made(_c.jit_new, byref(settings)), []
        super().__init__(_c.jit_main(self._session))

    def __del__(self):
        if getattr(self, "_session", None):
            _c.jit_free(self._session)

    def _kept(self):
        return self._callbacks

    def create_dylib(self, name):
        """A new dylib."""
        return Dylib(_made(_c.jit_create_dylib, self._session, name.encode()), self)

    def initialize(self):
        """Runs constructors."""
        _c.jit_initialize(self._session)

    def stats(self):
        """What the session has done so far, by name; a list by tier."""
        _c.jit_stats(self._session, byref(stats := _Stats()), ctypes.sizeof(_Stats))
        values = ((name, getattr(stats, name)) for name, _ in stats._fields_[1:])
        return {name: value if isinstance(value, int) else list(value) for name, value in values}

    def memory(self, purpose="total"):
        """Bytes used for a purpose."""
        return _made(_c.jit_memory, self._session, purpose.encode(), kind=c_uint64)

    def dump(self):
        """What the dylibs hold, for people."""
        return _string(_c.jit_dump(self._session))
