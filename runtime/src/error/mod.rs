//! The errors of the library. Each names the file and the symbols it is about.
//!
//! They contain data only, and lie below all rooms: an error of a generator or a unit passes through
//! every layer.

pub(crate) mod input;
pub(crate) mod replace;
pub(crate) mod trap;

use std::sync::Arc;

use uruk_base::Tier;
use uruk_codegen::CodegenError;
use uruk_heap::{HeapError, Pool};
use uruk_link::LinkError;
use uruk_session::SessionError;
use uruk_stubs::StubError;
use uruk_tiering::VersionError;
use uruk_tools::OutputError;
use uruk_unwind::UnwindError;

use input::Rejection;
use replace::ReplaceError;
use trap::Trap;

/// Exit status of the command when a program could not be loaded, compiled or linked; a program's own
/// status is passed on unchanged.
pub const EXIT_FAILURE: i32 = 125;

/// An error of the library; the session stays usable after any of them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input file cannot be read.
    #[error("{file}: {cause}")]
    File {
        /// The file.
        file: String,
        /// The system's error.
        cause: Arc<std::io::Error>,
    },
    /// The sessions of the process have the maximal number of different fault handlers
    /// ([`JitBuilder::on_fault`](crate::JitBuilder::on_fault)).
    #[error("{most} handlers of faults are asked already")]
    ManyFaultHandlers {
        /// The maximum.
        most: usize,
    },
    /// Address space is limited, and the rest is too small for a session.
    #[error("{}", limits(*.limit, *.used, Some(*.needed)))]
    Room {
        /// Bytes that the process may map (`ulimit -v`, or `-d`).
        limit: usize,
        /// Bytes of it that are in use.
        used: usize,
        /// Further bytes that were needed.
        needed: usize,
    },
    /// A thread cannot be started.
    #[error(
        "thread {name} cannot be started{}",
        .room.map_or_else(String::new, |left| format!(": {}", limits(left.limit, left.used, None)))
    )]
    Thread {
        /// The thread.
        name: String,
        /// The limit of address space, if there is one.
        room: Option<uruk_heap::Room>,
        /// The system's error.
        #[source]
        cause: Arc<std::io::Error>,
    },
    /// The process is the child of a fork that a handler made while its thread waited for another
    /// thread, which the child does not have.
    #[error("{work}: the process was copied while a thread waited for the result")]
    Copied {
        /// The thread that did the work.
        work: String,
    },
    /// An input is neither bitcode, IR text nor an ELF object.
    #[error("{file}: not LLVM bitcode, LLVM IR or an ELF object")]
    UnknownFormat {
        /// The file.
        file: String,
    },
    /// Code of a program needs an executable stack, and a policy of the system, or the C library,
    /// refuses to make one.
    #[error("{file}: code on the stack, as trampolines of nested functions are: {why}")]
    ExecutableStacks {
        /// The file with such code, or that requests it by its section `.note.GNU-stack`.
        file: String,
        /// The C library's message.
        why: String,
    },
    /// A layer of the embedder rejected an input.
    #[error("{file}: {layer}: {message}")]
    Layer {
        /// The kind of layer.
        layer: &'static str,
        /// The file it was given.
        file: String,
        /// The layer's message.
        message: String,
    },
    /// A static archive cannot be used.
    #[error("{file}: {why}")]
    Archive {
        /// The file.
        file: String,
        /// The defect.
        why: String,
    },
    /// A member of an archive that is needed cannot be added.
    #[error("{archive}: {cause}")]
    Member {
        /// The archive.
        archive: String,
        /// The cause.
        #[source]
        cause: Box<Error>,
    },
    /// An input of a session for untrusted inputs was rejected.
    #[error("{file}: {why}")]
    Untrusted {
        /// The input.
        file: String,
        /// The reader's reason.
        why: Rejection,
    },
    /// Loading, extracting or compiling failed.
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    /// Linking an object failed.
    #[error(transparent)]
    Link(#[from] Arc<LinkError>),
    /// No memory for code or data.
    #[error(transparent)]
    Heap(#[from] Arc<HeapError>),
    /// Objects of a program reach thread-locals at fixed offsets, and the space for these is too
    /// small.
    #[error(
        "{cause}: {size} bytes of thread-locals at fixed places are more than there is room for"
    )]
    ThreadLocals {
        /// Bytes of the program's thread-locals.
        size: usize,
        /// Their alignment in bytes.
        align: usize,
        /// The reference to one of them.
        #[source]
        cause: Arc<LinkError>,
    },
    /// No memory for a zero-initialized variable that is too large for the range that code can
    /// reach.
    #[error("no memory for the {size} bytes of `{name}`")]
    Variable {
        /// The variable.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// The system's error.
        #[source]
        cause: Arc<std::io::Error>,
    },
    /// No stub or slot is left.
    #[error(transparent)]
    Stub(#[from] Arc<StubError>),
    /// The session refused a definition or could not satisfy a lookup.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// One name has two strong definitions.
    #[error("duplicate symbol `{symbol}`: defined in {first} and in {second}")]
    DuplicateSymbol {
        /// The symbol.
        symbol: String,
        /// File of the first definition.
        first: String,
        /// File of the second one.
        second: String,
    },
    /// A weak definition would yield to one that is being removed at this moment.
    #[error("`{symbol}` is being removed")]
    Leaving {
        /// The symbol.
        symbol: String,
    },
    /// A tentative definition is larger than the existing one, which is in use and cannot grow.
    #[error("{file}: `{symbol}` has {size} bytes here, and {defined} where it was defined first")]
    CommonSize {
        /// The file.
        file: String,
        /// The symbol.
        symbol: String,
        /// Its size in the file.
        size: u64,
        /// The size of the existing definition.
        defined: u64,
    },
    /// The output for a tool cannot be opened.
    #[error("{cause}{}", why(&**.cause))]
    Tool {
        /// The output and the reason.
        cause: Arc<OutputError>,
    },
    /// A version was refused: its function changed meanwhile, or has too many versions in progress.
    #[error("{function}: {cause}")]
    Version {
        /// The function.
        function: &'static str,
        /// The reason.
        cause: Refusal,
    },
    /// Symbols without a definition.
    #[error("undefined symbols: {}", list(.missing))]
    MissingSymbols {
        /// Each symbol with its users.
        missing: Vec<Missing>,
    },
    /// The program has no such entry function.
    #[error("{file}: no entry function `{entry}`")]
    NoEntry {
        /// The first input file.
        file: String,
        /// The name looked for.
        entry: String,
    },
    /// A shared library cannot be opened.
    #[error("library {name}: {message}")]
    Library {
        /// The library.
        name: String,
        /// The dynamic loader's message.
        message: String,
    },
    /// No module word is left for thread-locals.
    #[error("more than {limit} modules with thread-local variables")]
    TooManyTlsModules {
        /// The maximum.
        limit: usize,
    },
    /// Other dylibs search the one that was to be removed.
    #[error("dylib {dylib} is searched by {}", .by.join(", "))]
    DylibInUse {
        /// The one to be removed.
        dylib: String,
        /// Those that have it in their link order.
        by: Vec<String>,
    },
    /// The main dylib cannot be removed.
    #[error("the main dylib stays as long as its session: clear it, or remove trackers")]
    MainDylib,
    /// Code cannot be added to the dylib that stands for the process.
    #[error(
        "code cannot be added to the dylib of the process, whose names are those of its libraries"
    )]
    ProcessDylib,
    /// A function's type is not the one asked for.
    #[error("function `{function}` is {actual}, not {wanted}{}", why.unwrap_or_default())]
    Signature {
        /// The function.
        function: String,
        /// The type it was asked as.
        wanted: String,
        /// The type it has.
        actual: String,
        /// The reason, where the two types do not show it.
        why: Option<&'static str>,
    },
    /// A module declares a function of the host with a type that differs from the host's.
    #[error("{file}: `{function}` is declared as {declared}, and the host's is {defined}")]
    HostSignature {
        /// The module.
        file: String,
        /// The function.
        function: String,
        /// The type in the module.
        declared: String,
        /// The type of the host's function.
        defined: String,
    },
    /// A call had arguments that the function does not take.
    #[error("`{function}` is {ty}: {why}")]
    Arguments {
        /// The function.
        function: String,
        /// Its type.
        ty: String,
        /// The argument that does not fit.
        why: String,
    },
    /// Fuel cannot be counted.
    #[error(
        "passes cannot be counted: this library was opened by a running process, which has used up \
         the words that all threads have (32 keys of pthread_key_create)"
    )]
    FuelUncounted,
    /// A guarded call did not return.
    #[error(transparent)]
    Trap(#[from] Box<Trap>),
    /// The name is defined, but not as a function of this library.
    #[error("`{name}` is not a function compiled here")]
    NotAFunction {
        /// The name.
        name: String,
    },
    /// Functions could not be replaced; nothing has changed.
    #[error(transparent)]
    Replace(#[from] Arc<ReplaceError>),
    /// A stack cannot be registered.
    #[error(transparent)]
    Roots(#[from] Arc<uruk_roots::RootsError>),
    /// Unwind tables could not be registered.
    #[error("unwind tables: {0}")]
    Unwind(#[from] UnwindError),
}

/// Reason for which a version is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The function comes from an object file and has only the code of that file.
    #[error("its code comes from an object file, {file}")]
    FromObject {
        /// The file.
        file: String,
    },
    /// The function's unit has no better code at this tier, or at any.
    #[error("its unit has no code for tier {}", .tier.number())]
    Declined {
        /// The tier that was asked for.
        tier: Tier,
    },
    /// No native code was [adopted](crate::Dylib::adopt) for the function, and none is compiled.
    #[error("it has no native code")]
    NotNative,
    /// A function cannot be pinned to a tier at which no code is compiled.
    #[error("nothing is compiled at tier 0")]
    Uncompiled,
    /// The function's unit dropped the request for better code.
    #[error("its unit did not answer")]
    Unanswered,
    /// The object with better code contains a construct that only whole images may have.
    #[error("its object has {construct}, which a version of one function cannot have")]
    Construct {
        /// The construct.
        construct: &'static str,
    },
    /// The addresses of the function's labels may be in the program's memory.
    #[error("the function keeps its first version: addresses of its labels may be stored")]
    FirstStays,
    /// Its compile did not finish.
    #[error("its compile {what}")]
    Unfinished {
        /// The outcome.
        what: &'static str,
    },
    /// The function was removed before it was compiled.
    #[error("it was removed")]
    Removed,
    /// Its loop cannot be left.
    #[error("its loop cannot be left")]
    NoExit,
    /// The state of its versions does not allow it.
    #[error(transparent)]
    State(#[from] VersionError),
}

impl Refusal {
    /// True if the version was refused only because it came too late.
    pub fn is_late(&self) -> bool {
        matches!(
            self,
            Refusal::FirstStays | Refusal::State(VersionError::Late(_))
        )
    }
}

/// The cause of a system error, as a suffix for messages; empty if there is none.
fn why(cause: &dyn std::error::Error) -> String {
    let source = cause.source();
    source.map_or_else(String::new, |source| format!(": {source}"))
}

impl Error {
    /// If there was no room for the variables of a module: the bytes that would suffice, to be
    /// passed to [`JitBuilder::static_data`](crate::JitBuilder).
    pub fn wants_static_data(&self) -> Option<usize> {
        /// For alignment, and for later allocations.
        const MORE: usize = 16 << 20;
        let Error::Heap(cause) = self else {
            return None;
        };
        match **cause {
            HeapError::OutOfSpace {
                pool: Pool::ReadWrite,
                asked,
                held,
                ..
            } => asked.checked_add(held)?.checked_add(MORE),
            _ => None,
        }
    }

    /// True if code of the small non-PIC model lies above 2 GiB, where its fields of 32 bits
    /// cannot hold addresses: see [`JitBuilder::low_addresses`](crate::JitBuilder).
    pub fn wants_low_addresses(&self) -> bool {
        matches!(self, Error::Link(cause) if cause.wants_low_addresses())
    }

    /// True if the cause is a missing definition.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Error::MissingSymbols { .. } => true,
            Error::Link(cause) => matches!(&**cause, LinkError::Missing(_)),
            Error::Session(cause) => cause.is_missing(),
            _ => false,
        }
    }

    /// True if the definition's tracker had been removed.
    pub(crate) fn is_defunct_tracker(&self) -> bool {
        matches!(self, Error::Session(SessionError::TrackerDefunct { .. }))
    }

    /// True if the cause is LLVM's use in a place that refuses it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Codegen(cause) if cause.is_refusal())
    }

    /// True if a compile ended because it was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Error::Codegen(cause) if cause.is_cancelled())
    }
}

/// An undefined symbol and its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The symbol.
    pub symbol: String,
    /// Users, as `file: function`; the list may be incomplete.
    pub needed_by: Vec<String>,
}

fn list(missing: &[Missing]) -> String {
    let each = missing.iter().map(|m| {
        if m.needed_by.is_empty() {
            format!("`{}`", m.symbol)
        } else {
            format!("`{}` (needed by {})", m.symbol, m.needed_by.join(", "))
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Error for one undefined symbol of a lookup.
pub(crate) fn missing(symbol: &str) -> Error {
    let symbol = symbol.to_owned();
    Error::MissingSymbols {
        missing: vec![Missing {
            symbol,
            needed_by: Vec::new(),
        }],
    }
}

macro_rules! shared {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Error {
            fn from(error: $from) -> Error {
                Error::$variant(Arc::new(error))
            }
        }
    )*};
}

shared!(LinkError => Link, HeapError => Heap, StubError => Stub, ReplaceError => Replace);

/// Formats a limit of address space, in the unit of `ulimit`.
pub(crate) fn limits(limit: usize, used: usize, needed: Option<usize>) -> String {
    let kb = |bytes: usize| bytes.div_ceil(1024);
    let text = format!(
        "the process may map {} kB (see `ulimit -v` and `-d`), {} of which are taken",
        kb(limit),
        kb(used)
    );
    match needed {
        None => text,
        Some(needed) => format!("{text}; at least {} are needed", kb(used + needed)),
    }
}
