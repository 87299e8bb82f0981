"""The border between Python and `uruk.h`: the library, errors, values, functions of Python's that IR
calls, and Ctrl-C. For the module of the package."""

import ctypes, operator, os, re, select, signal, socket, struct, sys, threading, time
from ctypes import byref, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p

#: Of a type of IR: its kind in a value of the C interface, how its bits are packed, and its width.
TYPES = {
    "void": (0, "q", 0), "i1": (1, "q", 1), "i8": (2, "q", 8), "i16": (3, "q", 16),
    "i32": (4, "q", 32), "i64": (5, "q", 64), "float": (6, "d", 0), "double": (7, "d", 0),
    "ptr": (8, "Q", 0),
}
#: Why a guarded call ended: `URUK_TRAP_INTERRUPTED`.
INTERRUPTED = 9


class Error(Exception):
    """What the library says is wrong: a text, `code` (`URUK_ERROR_...`), the `names` it is about; for
    calls that did not return `trap` (`URUK_TRAP_...`), and the names are a backtrace."""

    __module__ = "uruk"
    code, trap, names = 0, 0, ()


def _open():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("URUK_LIBRARY"), os.path.join(here, "lib", "liburuk.so"),
              os.path.join(here, "..", "..", "..", "lib", "liburuk.so")]
    there = (place for place in places if place and os.path.exists(place))
    return ctypes.CDLL(next(there, "liburuk.so"))


def _text(value):
    """Text for C, which ends at a zero byte."""
    data = os.fsencode(value) if isinstance(value, os.PathLike) else str(value).encode()
    if b"\0" in data:
        raise ValueError(f"a zero character in {str(value)[:40]!r}")
    return data


#: What the header declares: the result (`!` is an error, which is raised; `-` is none) and the
#: arguments: p a pointer, s text, i an int, n a size, u 64 bits.
_DECLARED = """
    i:error_code:p i:error_trap:p s:error_text:p n:error_name_count:p s:error_name:pn -:error_free:p
    p:error_new:s n:names_count:p s:names_at:pn -:names_free:p -:string_free:p s:version_text:
    !:jit_new:pp -:jit_free:p p:jit_main:p !:jit_create_dylib:psp !:jit_stats:ppn !:jit_process:pp
    !:jit_memory:psp p:jit_dump:p !:jit_initialize:p !:jit_deinitialize:p !:jit_rollback:pp
    !:jit_reclaim:piup i:jit_interrupt:pp !:jit_hottest:pnp !:jit_report_page:pp !:jit_trace:ps
    !:jit_tuning:pp !:jit_tuning_text:pp -:jit_work_done:pu !:jit_add_library:ps
    -:dylib_free:p p:dylib_name:p !:dylib_add_ir:pss !:dylib_add_bitcode:pssn
    !:dylib_add_object:pssn !:dylib_add_file:ps !:dylib_define_address:psu !:dylib_lookup:psp
    !:dylib_define_host:psspsp !:dylib_callable:pssp
    !:dylib_type:psp !:dylib_compile:psi !:dylib_pin:psi !:dylib_tier:psp !:dylib_ir:psip
    !:dylib_disassemble:psip !:dylib_add_to_link_order:pp !:dylib_allow_missing:pi
    !:dylib_create_tracker:pp !:dylib_replace:ppp p:replaced_names:pi !:replaced_rollback:p
    !:jit_rollback_at:piup !:prepare_sandbox: -:replaced_free:p p:callable_type:p -:callable_free:p !:callable_call:psnup
    !:callable_call_with_fuel:psnuup p:thread_current: -:thread_free:p
    !:tracker_add_ir:pss !:tracker_add_bitcode:pssn !:tracker_add_object:pssn !:tracker_add_file:ps
    !:tracker_remove:p -:tracker_free:p
"""
_RESULTS = dict(zip("p!siun-", (c_void_p, c_void_p, c_char_p, c_int, c_uint64, c_size_t, None)))
_INTEGERS = c_int, c_uint64, c_size_t
#: `raised` is the exception of a function of Python's that ends the thread's guarded call.
_local = threading.local()


def _own(error):
    """An exception as it was raised: of one in a conversion ctypes keeps the text only."""
    if isinstance(error, ctypes.ArgumentError) and "RecursionError" in str(error):
        return RecursionError("maximum recursion depth exceeded in a call of IR")
    return error


class _Calls:
    """The functions of the library, by their names without `uruk_`."""

    def __init__(self, library):
        for result, name, arguments in (one.split(":") for one in _DECLARED.split()):
            function = getattr(library, "uruk_" + name)
            function.restype = _RESULTS[result]
            function.argtypes = [_RESULTS[letter] for letter in arguments]
            integers = [(n, kind) for n, kind in enumerate(function.argtypes) if kind in _INTEGERS]
            setattr(self, name, self._call(function, integers, result == "!"))

    def _call(self, function, integers, answers_errors):
        def call(*values):
            for index, kind in integers:
                if kind(values[index]).value != values[index]:  # ctypes would cut it to its width.
                    raise OverflowError(f"{values[index]} does not fit into {kind.__name__}")
            try:
                answer = function(*values)
            except ctypes.ArgumentError as error:
                raise _own(error) from None
            if answers_errors and answer:
                self._raise(answer)
            return answer
        return call if integers or answers_errors else function

    def _raise(self, error):
        raised = Error(self.error_text(error).decode(errors="replace"))
        names = range(self.error_name_count(error))
        raised.names = [self.error_name(error, n).decode(errors="replace") for n in names]
        raised.code, raised.trap = self.error_code(error), self.error_trap(error)
        self.error_free(error)
        of_host, _local.raised = getattr(_local, "raised", None), None
        if of_host is not None:
            raise of_host
        if raised.trap == INTERRUPTED:
            ctypes.pythonapi.PyErr_CheckSignals()  # Ctrl-C
        raise raised


_c = _Calls(_open())


class _Struct(ctypes.Structure):
    """A struct that begins with its size; numbers that do not fit are errors."""

    def __init__(self, **values):
        super().__init__(size=ctypes.sizeof(type(self)), **values)
        for name, value in values.items():
            if isinstance(value, int) and (getattr(self, name) or 0) != value:
                raise OverflowError(f"{name} cannot be {value}")


class _Replacement(_Struct):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("data", c_char_p), ("data_size", c_size_t),
        ("input", c_int), ("quiescent", c_int), ("wait_ms", c_uint64),
        ("allow_signatures", c_int), ("allow_parts", c_int), ("run_constructors", c_int),
        ("migration_count", c_int), ("migrations", c_void_p), ("context", c_void_p),
        ("osr", c_int),
    ]


class _Settings(_Struct):
    _fields_ = [("size", c_size_t)] + [
        (name, kind) for kind, names in (
            (c_size_t, "jobs memory_limit"), (c_uint64, "code_budget"), (c_size_t, "static_data"),
            (c_int, "tiers baseline_off contract speculate modules_apart low_addresses "
                    "whole_modules sampling time_parts perf_map gdb untrusted"),
            (c_uint64, "untrusted_ms untrusted_memory"), (c_size_t, "replacements_kept"),
            (c_char_p, "jitdump cache_folder"),
            (c_void_p, "context drop_context on_event on_error on_failed_call transform_ir "
                       "transform_object"),
            (c_int, "count_fuel"), (c_size_t, "record tune"), (c_double, "tuning_percent"),
            (c_uint64, "tuning_credit_ms"), (c_char_p, "tuned_before"),
            (c_size_t, "lines"), (c_void_p, "on_fault"),
        ) for name in names.split()]
    of_callbacks = "size", *(name for name, kind in _fields_ if kind is c_void_p)


class _Stats(_Struct):
    _fields_ = [("size", c_size_t)] + [
        (name, c_uint64 * 3 if name.startswith("tier_") else c_uint64) for name in (
            "functions compiled failed cancelled queued code_bytes tier_versions tier_functions "
            "tier_ns baseline_compiled load_ns data_ns emit_ns link_ns wall_ns samples "
            "samples_lost ahead_compiled ahead_called memory_live memory_retired memory_pinned "
            "memory_held memory_freed evicted native_versions native_functions native_bytes "
            "tuning_trials tuning_won tuning_drifted tuning_lost_ns tuning_ran_ns").split()]


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


class _Type:
    """Of one value: how it crosses the border."""

    def __init__(self, text, of_function):
        self.text, _, extended = text.partition(" ")
        if self.text not in TYPES or extended not in ("", "signext", "zeroext"):
            raise TypeError(f"`{text}` in `{of_function}` does not cross to Python: look its address "
                            "up and cast it")
        self.kind, self.code, self.width = TYPES[self.text]
        self.extended, self.unsigned = extended, extended == "zeroext"

    def bits(self, value):
        """The number that a value is packed as."""
        if self.code == "d":
            return float(value)
        if self.kind == 0:
            if value is not None:
                raise TypeError(f"{value!r} is no value of `void`")
            return 0
        if self.kind == 8:
            if isinstance(value, str):
                raise TypeError("a pointer to text: encode it")
            value = value if isinstance(value, int) else ctypes.cast(value, c_void_p).value or 0
            if not 0 <= value < 1 << 64:
                raise OverflowError(f"{value} is no address")
            return value
        value = operator.index(value)
        low, high = -(1 << self.width - 1) if self.width > 1 else 0, 1 << self.width
        if not low <= value < high:
            raise OverflowError(f"{value} does not fit into {self.text}")
        # Signed or not: both are the same bits.
        return value - (1 << 64) if value >= 1 << 63 else value

    def value(self, bits):
        """The value of a packed number."""
        if self.kind == 1:
            return bool(bits)
        if self.kind in (0, 8):
            return bits or None
        return bits & (1 << self.width) - 1 if self.unsigned else bits


class _Types:
    """Of a function, by LLVM's text for it: `i64 (i64, ptr)`."""

    def __init__(self, text):
        match = re.fullmatch(r"([^()]+?) *\((.*)\)", text.strip())
        inside = match[2] if match else ""
        if not match or re.search(r"[(){}<>\[\]]", inside):
            raise TypeError(f"no type of values that cross to Python: `{text}`")
        self.result = _Type(match[1].strip(), text)
        self.parameters = [_Type(one.strip(), text) for one in inside.split(",") if one.strip()]
        self.packed = struct.Struct("<" + "".join("i4x" + one.code for one in self.parameters))
        self.answer = struct.Struct("<i4x" + self.result.code)

    def pack(self, values):
        words = []
        for ty, value in zip(self.parameters, values):
            words += ty.kind, ty.bits(value)
        return self.packed.pack(*words)

    def unpack(self, pointer):
        words = self.packed.unpack(ctypes.string_at(pointer, self.packed.size) if pointer else b"")
        return [ty.value(word) for ty, word in zip(self.parameters, words[1::2])]


#: A function of Python's, as the library calls it: context, values, their count, the result.
_BODY = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)


def _body(function, types):
    def body(_, values, _count, result):
        try:
            answer = types.result.bits(function(*types.unpack(values)))
            ctypes.memmove(result, types.answer.pack(types.result.kind, answer), 16)
            return None
        except BaseException as error:  # It ends the guarded call, and is raised by that.
            _local.raised = error = _own(error)
            try:
                text = f"{type(error).__name__}: {error}".replace("\0", "?")
                return _c.error_new(text.encode(errors="replace"))
            except BaseException:  # No room on the stack: the call raises it when it is over.
                return None
    body.is_of_host = True
    return _BODY(body)


def _unraisable(what):
    """In place of `sys.unraisablehook` during calls of the main thread: Ctrl-C may raise its exception
    in a `body` before its `try`, where ctypes would drop it."""
    if getattr(what.object, "is_of_host", False):
        if getattr(_local, "raised", None) is None:
            _local.raised = what.exc_value
    else:
        _interrupts.hook(what)


class _Interrupts:
    """Ctrl-C ends the guarded call that the main thread is in: Python's own handler only notes it.
    Another handler of the program's may mean to go on: it runs when the call is over, or in a function
    of Python's, where what it raises ends the call.

    The interpreter writes a byte for each signal to a socket; a thread reads it, and interrupts. A byte
    belongs to the call that it comes in: what is left at the end of that is read there."""

    def __init__(self):
        self.main, self.sockets, self.calls, self.others = None, None, [], -1
        self.hook, self.lock = sys.__unraisablehook__, threading.RLock()

    def begin(self, session):
        """Before a guarded call; whether this is the main thread."""
        if threading.get_ident() != threading.main_thread().ident:
            return False
        try:
            if self.sockets is None:
                self._start()
            if not self.calls:
                own = self.sockets[1].fileno()
                others = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
                self.others = -1 if others == own else others
                if sys.unraisablehook is not _unraisable:
                    self.hook, sys.unraisablehook = sys.unraisablehook, _unraisable
        except (ValueError, OSError):  # Not the main interpreter, or no descriptors.
            return False
        self.calls.append([session])
        return True

    def end(self):
        with self.lock:
            call = self.calls.pop()
            if self.calls or self.sockets is None:
                return
            self._read()
        signal.set_wakeup_fd(self.others)
        if sys.unraisablehook is _unraisable:
            sys.unraisablehook = self.hook
        del call

    def _start(self):
        self.main, self.sockets = _c.thread_current(), socket.socketpair()
        for one in self.sockets:
            one.setblocking(False)
        threading.Thread(target=self._watch, args=self.sockets[:1], daemon=True).start()

    def _read(self):
        try:
            data = self.sockets[0].recv(256)
        except BlockingIOError:
            return b""
        if self.others >= 0:
            os.write(self.others, data)
        return data

    def _watch(self, from_signals):
        while True:
            select.select([from_signals], [], [])
            with self.lock:
                came = signal.SIGINT in self._read()
                ends = came and signal.getsignal(signal.SIGINT) is signal.default_int_handler
                call = self.calls[0] if ends and self.calls else None
            # It may be about to begin, or to end.
            while call is not None:
                with self.lock:
                    if not any(one is call for one in self.calls) or _c.jit_interrupt(call[0], self.main):
                        call = None
                if call is not None:
                    time.sleep(0.001)

    def after_fork(self):
        self.lock = threading.RLock()
        if self.calls:
            signal.set_wakeup_fd(self.others)
        self.main, self.sockets = None, None


_interrupts = _Interrupts()
os.register_at_fork(after_in_child=_interrupts.after_fork)
