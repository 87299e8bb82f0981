//! Runs an image as the program of this process.
//!
//! The order of a native start and end is kept: preinit functions, constructors by priority and
//! file, the entry function, handlers of `atexit` in reverse, then destructors. After them code
//! stays mapped and compilable: threads that are still running, and destructors of libraries, may
//! call into it until the process ends.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use uruk_base::sandbox;
use uruk_files::say;
use uruk_heap::Pool;

use crate::api::jit::Jit;
use crate::calls::failed::{self, FailedCall};
use crate::code::static_names::static_name;
use crate::error::Error;
use crate::exits;
use crate::load::settled::Settled;
use crate::session::Session;
use uruk_base::Mode;

use crate::code::names::Definition;
use crate::fork::gate;
use crate::fork::threads;
use crate::guest::preempt::Exported;
use crate::guest::{dl, preempt, stacks};
use crate::host::tls;
use crate::load::hooks::ImageHooks;
use crate::load::image::Image;
use crate::load::source::InputSource;
use crate::program::outputs::Outputs;
use crate::told::recording;
use crate::told::stats::StatsFormat;
use crate::units::add_helpers;

/// Settings for loading and running a program.
#[derive(Debug, Clone)]
pub struct ProgramOptions {
    /// When functions are compiled.
    pub mode: Mode,
    /// The program's name (`argv[0]`), instead of its first file.
    pub name: Option<OsString>,
    /// The start function.
    pub entry: String,
    /// Format of the statistics that are printed on standard error at the end.
    pub stats: Option<StatsFormat>,
    /// File for a timeline in Chrome's trace format, written at the end.
    pub trace: Option<PathBuf>,
    /// File for a page about the run, written at the end.
    pub report: Option<PathBuf>,
    /// File for the order of first calls: read as the expected order, and rewritten at the end of
    /// the run. Of use where the session [speculates](crate::JitBuilder::speculate).
    pub first_calls: Option<PathBuf>,
    /// File for the results of the [tuner](crate::JitBuilder::tune), written at the end.
    pub tuning: Option<PathBuf>,
    /// File for the inputs of the tiering policy, written at the end as by [`Jit::record_policy`];
    /// they are kept in memory until then.
    pub record: Option<PathBuf>,
    /// Functions whose disassembly is printed on standard error once compiled.
    pub dump_asm: Vec<String>,
    /// Whether names that the program exports preempt those of the process's shared libraries, as
    /// an executable's names do. Their calls of such a name reach the program's function, and
    /// libraries opened later find it. Allocation functions (`malloc`, `operator new`) are
    /// preempted only in an executable that exports gates for them, as the command does.
    pub preempt_libraries: bool,
    /// Names that count as referenced, so that archives provide the members that define them (`-u`
    /// of linkers).
    pub undefined: Vec<String>,
}

impl Default for ProgramOptions {
    fn default() -> ProgramOptions {
        ProgramOptions {
            mode: Mode::Lazy,
            name: None,
            entry: String::from("main"),
            stats: None,
            trace: None,
            report: None,
            first_calls: None,
            tuning: None,
            record: None,
            dump_asm: Vec::new(),
            preempt_libraries: false,
            undefined: Vec::new(),
        }
    }
}

/// A program that is loaded and checked, ready to run.
pub struct Program {
    /// Keeps the workers alive.
    _jit: Jit,
    session: Arc<Session>,
    hooks: ImageHooks,
    exported: Exported,
    options: ProgramOptions,
    outputs: Outputs,
    file: PathBuf,
    entry: u64,
}

/// State of the handler that runs at exit, after the program's own `atexit` handlers.
struct ExitHandlerState {
    session: Arc<Session>,
    image: u64,
    outputs: Outputs,
}

static AT_EXIT: OnceLock<ExitHandlerState> = OnceLock::new();

impl Program {
    /// Reads and binds `files` to one image, compiles its data, and checks that every
    /// symbol it needs exists.
    ///
    /// # Errors
    /// A fault of the files: see [`Error`].
    pub fn load(jit: &Jit, files: &[PathBuf], options: ProgramOptions) -> Result<Program, Error> {
        let session = Arc::clone(jit.session());
        let outputs = Outputs::of(&options, &session)?;
        session.become_program();
        let undefined = options
            .undefined
            .iter()
            .cloned()
            .map(InputSource::Undefined);
        let files_read = files.iter().map(|file| InputSource::read(file));
        let sources = files_read.chain(undefined.map(Ok));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let archives: Vec<_> = sources.iter().filter_map(InputSource::archive).collect();
        sources
            .iter()
            .try_for_each(|source| session.admit(source))?;
        let _busy = gate::enter();
        session.set_dump_asm(&options.dump_asm);
        // Code generation may need more archive members than the files reference.
        let settled = match archives.is_empty() {
            true => None,
            false => Some(Settled::later()),
        };
        for (archive, settled) in archives.into_iter().zip(settled.iter().cycle()) {
            add_helpers(&jit.main(), archive, settled.clone())?;
        }
        let tracker = session.main.default_tracker()?;
        let (image, started) =
            session.load_and_start(&tracker, None, sources, options.mode, settled)?;
        let started = started.unwrap_or_default();
        let file = files.first().cloned().unwrap_or_default();
        stacks::prepare(&image)?;
        let entry = session.entry(&image, &options.entry);
        let entry = entry.ok_or_else(|| Error::NoEntry {
            file: file.display().to_string(),
            entry: options.entry.clone(),
        })?;
        if let Some(id) = session.stubs.function_at(entry) {
            session.choices.set_entry_point(id);
            session.speculation.leave(id);
        }
        if let Some(file) = &options.first_calls {
            session.expect_from(file);
        }
        for name in &options.dump_asm {
            if !image.is_function(name) {
                say!("uruk: no function `{name}` to disassemble");
            }
        }
        let preempts = options.preempt_libraries;
        session.warn_of_interposers(&image, |name| preempts && preempt::is_seen(name));
        let hooks = ImageHooks::of(&session, &image, &started);
        // Copied variables belong to libraries, even if the program's names do not preempt theirs.
        let exported = Exported::of(&session, preempts.then_some(&image), &started.copied);
        Ok(Program {
            _jit: jit.clone(),
            session,
            hooks,
            exported,
            options,
            outputs,
            file,
            entry,
        })
    }

    /// Runs the program on the calling thread and ends the process with its status.
    ///
    /// # Safety
    /// 1. The files are a program that may do all its actions in this process.
    /// 2. The calling thread is the main thread, and nothing else in the process depends on state
    ///    that the program may change (signals, streams, environment).
    pub unsafe fn run(self, args: &[OsString]) -> ! {
        let name = self.options.name.as_deref();
        let name = name.unwrap_or(self.file.as_os_str());
        let mut argv: Vec<*const c_char> = vec![leak_c_string(name)];
        argv.extend(args.iter().map(|arg| leak_c_string(arg)));
        argv.push(std::ptr::null());
        let argc = (argv.len() - 1) as c_int;
        let argv: &'static [*const c_char] = argv.leak();

        let outputs = self.outputs;
        if outputs.want_events() {
            let args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
            let recorder = recording::recorder(&self.session, &self.file, args.collect());
            self.session.events.record(recorder);
        }
        tls::prepare();
        self.session.stubs.set_failure_handler(end_with_failure, 0);
        dl::install(Box::new(ProgramSymbols {
            session: Arc::clone(&self.session),
            file: CString::new(self.file.as_os_str().as_bytes()).unwrap_or_default(),
        }));
        threads::watch_main_thread();
        be_the_program(argv[0]);
        // SAFETY: duty 1: the addresses are functions of the program, called as a native start
        // calls them; words are the linker's, not read before.
        unsafe {
            self.hooks.resolve_ifuncs(&self.session);
            let at_exit = ExitHandlerState {
                session: Arc::clone(&self.session),
                image: self.hooks.image,
                outputs,
            };
            // Natively they run even if a constructor ends the process.
            let ImageHooks { image, life, .. } = &self.hooks;
            self.session
                .note_destructors(*image, life, &self.hooks.destructors);
            // A process runs one program: `run` never returns.
            let _ = AT_EXIT.set(at_exit);
            let _ = self.session.before_end.set(write_outputs_early);
            on_exit(write_outputs, std::ptr::null_mut());
            exits::atexit(run_at_exit);
            let busy = gate::enter();
            self.exported.begin(&self.session);
            drop(busy);
            let envp = environ.cast::<*const c_char>();
            self.hooks.run_constructors(argc, argv.as_ptr(), envp);
            let status = uruk_stubs::call_main(self.entry, argc, argv.as_ptr(), envp);
            libc::exit(status)
        }
    }
}

impl Session {
    /// The program's start address: a function of a file, or of assembly in one.
    fn entry(self: &Arc<Self>, image: &Image, name: &str) -> Option<u64> {
        if image.is_function(name) {
            return self.address_of(&self.main, name);
        }
        match self.names.find_own(&self.main, name)? {
            Definition::Address(at) if self.heap.pool_range(Pool::Code).contains(&at) => Some(at),
            _ => None,
        }
    }
}

unsafe extern "C" {
    /// Like `atexit`, with the exit status.
    fn on_exit(
        handler: unsafe extern "C-unwind" fn(c_int, *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
    static environ: *const *const c_char;
    static mut program_invocation_name: *mut c_char;
    static mut program_invocation_short_name: *mut c_char;
}

unsafe extern "C-unwind" fn run_at_exit(_: *mut c_void) {
    let Some(at_exit) = AT_EXIT.get() else { return };
    let next = || at_exit.session.next_destructor(|of, _| of == at_exit.image);
    while let Some(address) = next() {
        // SAFETY: destructors of the program that `run` was allowed to run.
        unsafe { uruk_stubs::call_void(address) };
    }
}

/// Runs last of all handlers, because it is registered first.
unsafe extern "C-unwind" fn write_outputs(status: c_int, _: *mut c_void) {
    if let Some(at_exit) = AT_EXIT.get().filter(|_| !sandbox::is_closed()) {
        at_exit.outputs.write(&at_exit.session, status);
    }
}

/// Writes the outputs before the program gives up the necessary system calls: the runtime's state
/// does not change afterwards.
fn write_outputs_early(session: &Session) {
    let of = |at_exit: &&ExitHandlerState| std::ptr::eq(&raw const *at_exit.session, session);
    if let Some(at_exit) = AT_EXIT.get().filter(of) {
        at_exit.outputs.write(session, 0);
    }
}

/// Ends the process when a function of the program cannot be compiled. The worker has reported the
/// cause, unless there is none.
extern "C" fn end_with_failure(id: uruk_stubs::FunctionId, _: u64) -> u64 {
    const TEXT: &[u8] =
        b"uruk: the program called a function without code, after it gave up system calls\n";
    if sandbox::is_closed() {
        // SAFETY: a constant text. Without the signal mask of other messages, which needs calls
        // that may be forbidden.
        unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
    } else if let Some(at_exit) = AT_EXIT.get() {
        let _pass = gate::enter();
        if let Some(cause) = at_exit.session.service.cause() {
            failed::print(&FailedCall {
                id,
                function: at_exit.session.name_of(id),
                cause: Some(&cause),
            });
        }
    }
    // SAFETY: ends the process at once: no handler could run in a defined state.
    unsafe { libc::_exit(crate::error::EXIT_FAILURE) }
}

/// Makes the process look as if the program had been started directly.
fn be_the_program(name: *const c_char) {
    // SAFETY: `name` is a C string that is never freed; the variables are libc's and no other
    // thread of the runtime reads them; the floating-point environment is reset to that of a fresh
    // process, including exception flags the compiler has left.
    unsafe {
        program_invocation_name = name.cast_mut();
        let slash = libc::strrchr(name, i32::from(b'/'));
        let short = if slash.is_null() {
            name.cast_mut()
        } else {
            slash.add(1)
        };
        program_invocation_short_name = short;
        libc::prctl(libc::PR_SET_NAME, short);
        reset_float_environment();
    }
}

/// # Safety
/// Changes the calling thread's floating-point environment.
unsafe fn reset_float_environment() {
    unsafe extern "C" {
        fn fesetenv(environment: *const c_void) -> c_int;
    }
    // `FE_DFL_ENV` is minus one in glibc.
    // SAFETY: a value the function defines.
    unsafe { fesetenv(usize::MAX as *const c_void) };
}

fn leak_c_string(text: &OsStr) -> *const c_char {
    // A name or argument never contains a zero byte: it is a C string or a path.
    CString::new(text.to_owned().into_vec())
        .unwrap_or_default()
        .into_raw()
}

struct ProgramSymbols {
    session: Arc<Session>,
    file: CString,
}

impl dl::Symbols for ProgramSymbols {
    fn ready_address(&self, name: &str) -> Option<u64> {
        let session = &self.session;
        let ready = session.names.ready_address(&session.main, name);
        ready.filter(|_| session.names.exports(&session.main, name))
    }

    fn address(&self, name: &str) -> Option<u64> {
        // The process has names of its own that `dlsym` would find in another order.
        let session = &self.session;
        session
            .names
            .exports(&session.main, name)
            .then(|| session.address_of(&session.main, name))?
    }

    fn function_at(&self, pc: u64) -> Option<(&'static std::ffi::CStr, u64)> {
        if let Some(id) = self.session.stubs.function_around(pc) {
            let body = self.session.body(id)?;
            return Some((body.name(), self.session.given_stub(id)));
        }
        self.session.function_name_at(pc)
    }

    fn variable_at(&self, start: u64) -> Option<&'static std::ffi::CStr> {
        let main = &self.session.main;
        let symbol = main.exported_at(start)?;
        Some(static_name(self.session.names.session().name(symbol)))
    }

    fn functions(&self) -> Vec<(u64, u64, &'static std::ffi::CStr)> {
        self.session.bodies()
    }

    fn code_range(&self) -> std::ops::Range<u64> {
        self.session.heap.pool_range(Pool::Code)
    }

    fn file(&self) -> &std::ffi::CStr {
        &self.file
    }
}
