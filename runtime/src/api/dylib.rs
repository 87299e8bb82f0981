//! Dylibs: named symbol tables, to which modules are added and in which symbols are looked up.

use std::path::Path;
use std::sync::Arc;

use uruk_base::{FunctionId, Tier};
use uruk_codegen::Bitcode;
use uruk_session::{DylibId, Symbol, Visibility};

use crate::api::func::Func;
use crate::api::jit::Jit;
use crate::api::tracker::Tracker;
use crate::calls::value::Signature;
use crate::code::body::Body;
use crate::code::names::{Definition, NewName};
use crate::code::recycle::Lease;
use crate::error::{Error, Refusal};
use crate::fork::gate;
use crate::load::source::InputSource;
use crate::units::add_needed;
use crate::version::calls;

/// A named symbol table with a link order, like one dynamic library. A cheap handle
/// that keeps its session alive.
///
/// ```
/// let jit = uruk::Jit::new()?;
/// let math = jit.create_dylib("math")?;
/// math.add_ir("m", "define i32 @one() { ret i32 1 }")?;
/// let app = jit.create_dylib("app")?;
/// app.add_to_link_order(&math)?;
/// app.add_ir("a", "declare i32 @one()
///   define i32 @two() { %a = call i32 @one() %b = add i32 %a, %a ret i32 %b }")?;
/// // SAFETY: `two` is the function above.
/// let two = unsafe { app.function::<extern "C" fn() -> i32>("two")? };
/// assert_eq!(two.call(), 2);
/// # Ok::<(), uruk::Error>(())
/// ```
#[derive(Clone)]
pub struct Dylib {
    /// Dropped first: the session's last handle must be the other field, whose drop ends the
    /// session under a pass.
    pub(crate) dylib: uruk_session::Dylib,
    pub(crate) jit: Jit,
}

impl Dylib {
    /// The session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// The dylib's number, which names it in dependences.
    pub fn id(&self) -> DylibId {
        self.dylib.id()
    }

    /// The dylib's name.
    pub fn name(&self) -> &str {
        self.dylib.name()
    }

    /// Appends `other` to this dylib's link order, but before the process ([`Jit::process`]) where
    /// that is last. A dylib that is already in the order is not added again.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// let (library, user) = (jit.create_dylib("library")?, jit.create_dylib("user")?);
    /// library.add_ir("l", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// user.add_to_link_order(&library)?;
    /// user.add_ir("u", "declare i64 @twice(i64)
    ///   define i64 @four_times(i64 %x) {
    ///     %y = call i64 @twice(i64 %x)
    ///     %z = call i64 @twice(i64 %y)
    ///     ret i64 %z
    ///   }")?;
    /// // SAFETY: the function above.
    /// let four = unsafe { user.function::<extern "C" fn(i64) -> i64>("four_times")? };
    /// assert_eq!(four.call(10), 40);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// One of the dylibs was removed, or is of another session.
    pub fn add_to_link_order(&self, other: &Dylib) -> Result<(), Error> {
        let session = self.jit.session();
        let (seen, process) = (Visibility::Exported, session.names.host());
        session.change_names(|| {
            self.dylib
                .add_to_link_order_before(&other.dylib, seen, Some(process))
        })
    }

    /// Adds a module of LLVM bitcode. Its functions get their addresses at once and are compiled
    /// when first called. Weak definitions, of data too, yield to definitions in the dylib, its
    /// link order or the process.
    ///
    /// ```
    /// # use uruk::inkwell::context::Context;
    /// # let context = Context::create();
    /// # let module = context.create_module("m");
    /// # let word = context.i64_type();
    /// # module.add_global(word, None, "word").set_initializer(&word.const_zero());
    /// # let bitcode = module.write_bitcode_to_memory();
    /// # let bitcode = bitcode.as_slice();
    /// let jit = uruk::Jit::new()?;
    /// // For instance of a file that `clang -emit-llvm -c` made.
    /// jit.main().add_bitcode("word.bc", bitcode)?;
    /// assert!(jit.lookup("word").is_ok());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Unreadable bitcode, duplicate definitions, data that does not compile.
    pub fn add_bitcode(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add_source(InputSource::Bitcode(Bitcode::new(name, bytes)))
    }

    /// Adds a module of LLVM IR text.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.main().add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// let wrong = jit.main().add_ir("n", "define i64 @half(i64 %x) {\n  ret i64 %y }").unwrap_err();
    /// assert!(wrong.to_string().contains("use of undefined value '%y'"));
    /// // SAFETY: the function above; what failed left nothing behind.
    /// let twice = unsafe { jit.function::<extern "C" fn(i64) -> i64>("twice")? };
    /// assert_eq!(twice.call(21), 42);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// A syntax error with line and column; otherwise as [`Dylib::add_bitcode`].
    pub fn add_ir(&self, name: &str, text: &str) -> Result<(), Error> {
        self.add_source(InputSource::text(name, text))
    }

    /// Adds a module built with inkwell; it is copied.
    ///
    /// ```
    /// use uruk::inkwell::context::Context;
    ///
    /// let context = Context::create();
    /// let module = context.create_module("empty");
    /// module.add_global(context.i64_type(), None, "word").set_initializer(&context.i64_type().const_zero());
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.main().add_module(&module)?;
    /// drop(module);
    /// assert_ne!(jit.lookup("word")?, 0);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dylib::add_bitcode`].
    pub fn add_module(&self, module: &inkwell::module::Module<'_>) -> Result<(), Error> {
        let name = module.get_name().to_string_lossy().into_owned();
        self.add_bitcode(&name, module.write_bitcode_to_memory().as_slice())
    }

    /// Adds a relocatable ELF object; it is linked at once. Its global functions get stubs,
    /// through which its own code calls them, too: they can be replaced.
    ///
    /// ```
    /// # let mut code = uruk::ObjectBuilder::new();
    /// # code.function("seven", &[0xb8, 7, 0, 0, 0, 0xc3]);
    /// # let object = code.finish()?;
    /// let jit = uruk::Jit::new()?;
    /// // For instance of a file that `cc -fPIC -c` made.
    /// jit.main().add_object("seven.o", object)?;
    /// // SAFETY: it takes nothing and returns an `int`.
    /// let seven = unsafe { jit.function::<extern "C" fn() -> i32>("seven")? };
    /// assert_eq!(seven.call(), 7);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not an object for this machine, duplicate definitions, missing symbols.
    pub fn add_object(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        self.add_source(InputSource::Object {
            file: name.to_owned(),
            bytes: bytes.into(),
        })
    }

    /// Adds a file, whose format is detected by its content: bitcode, IR text, an object, or an
    /// archive whose members are added as they are needed ([`Dylib::add_archive`]).
    ///
    /// # Errors
    /// As the other `add` functions, and files that cannot be read.
    pub fn add_file(&self, path: &Path) -> Result<(), Error> {
        self.add_source(InputSource::read(path)?)
    }

    /// Defines a name for an address of the host.
    ///
    /// ```
    /// static ANSWER: i64 = 42;
    ///
    /// let jit = uruk::Jit::new()?;
    /// // SAFETY: a static that is never written to.
    /// unsafe { jit.main().define_address("answer", (&raw const ANSWER).cast())? };
    /// jit.add_ir("m", "@answer = external global i64
    ///   define i64 @ask() { %x = load i64, ptr @answer ret i64 %x }")?;
    /// // SAFETY: the function above.
    /// let ask = unsafe { jit.function::<extern "C" fn() -> i64>("ask")? };
    /// assert_eq!(ask.call(), 42);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. The memory at `address` fits the type by which JIT'd code uses `name`.
    /// 2. It stays valid as long as the session is used.
    ///
    /// # Errors
    /// The name is defined already.
    pub unsafe fn define_address(&self, name: &str, address: *const ()) -> Result<(), Error> {
        let session = self.jit.session();
        self.in_default_tracker(|tracker| {
            let name = NewName::strong(name, Definition::Address(address as u64));
            session.change_names(|| session.names.define(tracker, vec![name]))
        })
    }

    /// The address of a symbol. A function's address is that of its stub, which recompilation does
    /// not change.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// let before = jit.main().lookup("twice")?;
    /// jit.compile_at("twice", uruk::Tier::Optimized)?;
    /// assert_eq!(jit.main().lookup("twice")?, before);
    /// assert!(jit.main().lookup("thrice").is_err());
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`]; [`Error::Session`] with the error of a unit or generator.
    pub fn lookup(&self, name: &str) -> Result<u64, Error> {
        let session = self.jit.session();
        match session.names.ready_symbol_of(&self.dylib, name) {
            Some(address) => Ok(address),
            None => self.lookup_slowly(self.jit.intern(name)),
        }
    }

    /// Looks up a symbol that is not ready, or has no address of its own. Holds a pass only while
    /// it needs one: the unit that makes the symbol runs without.
    fn lookup_slowly(&self, symbol: Symbol) -> Result<u64, Error> {
        let session = self.jit.session();
        let mut found = self.dylib.find(symbol)?;
        // The address is given out for the first time: look it up again, as it may have been
        // removed meanwhile.
        if found.is_some_and(|address| session.names.give(address)) {
            found = self.dylib.find(symbol)?;
        }
        let found = found.and_then(|address| session.address_now(address));
        found.ok_or_else(|| crate::error::missing(self.jit.name_of(symbol)))
    }

    /// Like [`Dylib::lookup`], for an interned name ([`Jit::intern`]).
    ///
    /// # Errors
    /// As [`Dylib::lookup`].
    pub fn lookup_symbol(&self, symbol: Symbol) -> Result<u64, Error> {
        let session = self.jit.session();
        match session.names.ready_symbol(&self.dylib, symbol) {
            Some(address) => Ok(address),
            None => self.lookup_slowly(symbol),
        }
    }

    /// Calls [`Dylib::lookup_symbol`] for each symbol, in order.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "@a = global i32 1  @b = global i32 2")?;
    /// let names = [jit.intern("a"), jit.intern("b")];
    /// let addresses = jit.main().lookup_symbols(&names)?;
    /// assert_eq!(addresses[1], jit.lookup("b")?);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Dylib::lookup_symbol`], for the first that is missing; [`Jit::lookup_all`] names
    /// all.
    pub fn lookup_symbols(&self, symbols: &[Symbol]) -> Result<Vec<u64>, Error> {
        let each = symbols.iter().map(|symbol| self.lookup_symbol(*symbol));
        each.collect()
    }

    /// A typed function. Its type is compared with the IR's once, here; functions of units and of
    /// object files have no known type.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// // SAFETY: the function above, which may be called with any number.
    /// let twice = unsafe { jit.main().function::<extern "C" fn(i64) -> i64>("twice")? };
    /// assert_eq!(twice.call(21), 42);
    /// // SAFETY: it is not called.
    /// let wrong = unsafe { jit.main().function::<extern "C" fn(f64) -> f64>("twice") };
    /// assert_eq!(wrong.unwrap_err().to_string(), "function `twice` is i64 (i64), not double (double)");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. The function, and all it calls, is code the caller is willing to run.
    /// 2. It has the type of `F`, if it is not IR's.
    /// 3. It is called with values it may be called with (live pointers and so on):
    ///    [`Func::call`] is a plain call.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`], [`Error::Signature`].
    pub unsafe fn function<F: Signature>(&self, name: &str) -> Result<Func<F>, Error> {
        let session = self.jit.session();
        let (id, lease) = self.leased(name)?;
        let wanted = F::function_type();
        // Without a known type, this function and later calls rely on the caller's promise.
        if let Some(actual) = session.function_type(id)? {
            if !wanted.agrees(&actual) {
                return Err(Error::Signature {
                    function: name.to_owned(),
                    why: wanted.undefined_bits(&actual),
                    wanted: wanted.to_string(),
                    actual: actual.to_string(),
                });
            }
            let _busy = gate::enter();
            session.removed.note_acquired(id, &actual);
        }
        Ok(Func::new(self.jit.clone(), (id, lease)))
    }

    /// The type of a function as LLVM writes it: `i64 (i64, ptr)`. Small integers carry their
    /// extension attributes, where the IR has them: `i16 zeroext (i8 signext)`. `None` for
    /// functions of units and of object files, whose types are unknown.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// assert_eq!(jit.main().type_of("twice")?.as_deref(), Some("i64 (i64)"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn type_of(&self, name: &str) -> Result<Option<String>, Error> {
        let actual = self.jit.session().function_type(self.id_of(name)?)?;
        Ok(actual.map(|actual| actual.to_string()))
    }

    /// Compiles a function now, without calling it, unless it has code.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// assert_eq!(jit.tier("twice")?, None);
    /// jit.main().compile("twice")?;
    /// assert_eq!(jit.tier("twice")?, Some(uruk::Tier::Baseline));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of its compile; the function stays as it was.
    pub fn compile(&self, name: &str) -> Result<(), Error> {
        calls::compile_now(self.jit.session(), self.id_of(name)?, None)
    }

    /// Compiles a function at a tier now and publishes the version, in place of the current one. A
    /// unit's function is materialized before, and its unit asked for better code, on this thread
    /// ([`Reoptimizer`](crate::Reoptimizer)). The policy may change the tier later; see
    /// [`Dylib::pin`]. A caller that compiles faster than code can be reclaimed is delayed by 2 ms
    /// each time, after the publication. [`Tier::Native`] returns to native code, if the function
    /// has any.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.main().compile_at("twice", uruk::Tier::Optimized)?;
    /// assert_eq!(jit.main().tier("twice")?, Some(uruk::Tier::Optimized));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of its compile; the previous version stays published.
    pub fn compile_at(&self, name: &str, tier: Tier) -> Result<(), Error> {
        let (session, id) = (self.jit.session(), self.id_of(name)?);
        match tier {
            Tier::Native => session.go_native(id)?,
            tier => calls::compile_now(session, id, Some(tier))?,
        }
        session.pay_for_reclaim();
        Ok(())
    }

    /// Pins a function to a tier, or with `None` returns it to the policy. A function that runs at
    /// another tier is compiled in the background. Has an effect only under
    /// [`Tiers::Auto`](crate::Tiers::Auto).
    ///
    /// ```
    /// use uruk::Tier;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// // It stays there, however often it is called.
    /// jit.main().pin("twice", Some(Tier::Baseline))?;
    /// jit.main().compile("twice")?;
    /// assert_eq!(jit.tier("twice")?, Some(Tier::Baseline));
    /// jit.main().pin("twice", None)?;
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`]; [`Error::Version`] for [`Tier::Native`], if the
    /// function does not run native code.
    pub fn pin(&self, name: &str, tier: Option<Tier>) -> Result<(), Error> {
        let id = self.id_of(name)?;
        if tier == Some(Tier::Native) && self.tier(name)? != tier {
            let _busy = gate::enter();
            let function = self.jit.session().name_of(id);
            let cause = Refusal::Uncompiled;
            return Err(Error::Version { function, cause });
        }
        let _busy = gate::enter();
        self.jit.session().tiers.pin(id, tier);
        Ok(())
    }

    /// Evicts the code of a function; its next call compiles it again, at the tier of first code.
    /// Running calls finish in the old code. Returns false if the code stays: the function has
    /// none, it cannot be recompiled ([`JitBuilder::code_budget`](crate::JitBuilder::code_budget)
    /// says which), or it is being compiled or replaced.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// jit.main().compile("twice")?;
    /// assert!(jit.main().evict("twice")?);
    /// // SAFETY: the function above; its call compiles it again.
    /// let twice = unsafe { jit.function::<extern "C" fn(i64) -> i64>("twice")? };
    /// assert_eq!(twice.call(21), 42);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn evict(&self, name: &str) -> Result<bool, Error> {
        let id = self.id_of(name)?;
        let _busy = gate::enter();
        Ok(self.jit.session().evict_one(id))
    }

    /// The tier of the version that calls of a function reach; `None` before the first, and
    /// for functions of object files. The code that units make for first calls is tier 1's.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn tier(&self, name: &str) -> Result<Option<Tier>, Error> {
        let id = self.id_of(name)?;
        let _busy = gate::enter();
        let session = self.jit.session();
        if let Some(Body::Object(_)) = session.body(id) {
            return Ok(None);
        }
        let versions = session.versions.seen(id);
        Ok(versions.snapshot().published.map(|version| version.tier))
    }

    /// A function for a handle, with a lease that keeps its stub.
    pub(crate) fn leased(&self, name: &str) -> Result<(FunctionId, Arc<Lease>), Error> {
        let _busy = gate::enter();
        let id = self.id_of(name)?;
        Ok((id, self.jit.session().removed.waiting.lease(id)))
    }

    pub(crate) fn id_of(&self, name: &str) -> Result<FunctionId, Error> {
        let _busy = gate::enter();
        match self.jit.session().names.try_find(&self.dylib, name)? {
            Some(Definition::Function { id }) => Ok(id),
            Some(_) => Err(Error::NotAFunction {
                name: name.to_owned(),
            }),
            None => Err(crate::error::missing(name)),
        }
    }

    pub(crate) fn add_source(&self, source: InputSource) -> Result<(), Error> {
        if let InputSource::Archive(archive) = source {
            return add_needed(self, archive);
        }
        self.jit.session().show_list();
        self.jit.session().admit(&source)?;
        self.in_default_tracker(|tracker| {
            let tracker = Tracker::of(&self.jit, tracker.clone());
            tracker.add_admitted(source.clone())
        })
    }
}
