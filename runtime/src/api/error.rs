//! The errors of the library. Each names the file and the symbols it is about.

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

use crate::calls::trap::Trap;
use crate::load::untrusted::Rejection;
use crate::replace::ReplaceError;

/// What can go wrong in the library; the session stays usable after any of them.
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
    /// Sessions of the process have as many different handlers of faults as there may be
    /// ([`JitBuilder::on_fault`](crate::JitBuilder::on_fault)).
    #[error("{most} handlers of faults are asked already")]
    ManyFaultHandlers {
        /// How many there may be.
        most: usize,
    },
    /// Address space is limited, and what is left is too little to begin with.
    #[error("{}", limits(*.limit, *.used, Some(*.needed)))]
    Room {
        /// Bytes that the process may map (`ulimit -v`, or `-d`).
        limit: usize,
        /// Bytes of it that are taken.
        used: usize,
        /// Bytes that were needed on top of them.
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
    /// The process is the child of a fork, made by a handler while its thread waited for another
    /// one, which the child does not have.
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
    /// Code of a program is to run on the stack, and no stack can be made executable: a policy of
    /// the system, or the C library, refuses.
    #[error("{file}: code on the stack, as trampolines of nested functions are: {why}")]
    ExecutableStacks {
        /// The file with such code, or that asks for it by its section `.note.GNU-stack`.
        file: String,
        /// The C library's message.
        why: String,
    },
    /// A layer of the embedder's did not let something pass.
    #[error("{file}: {layer}: {message}")]
    Layer {
        /// Which.
        layer: &'static str,
        /// What it was given.
        file: String,
        /// What it said.
        message: String,
    },
    /// A static archive cannot be used.
    #[error("{file}: {why}")]
    Archive {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A member of an archive, which something needs, cannot be added.
    #[error("{archive}: {cause}")]
    Member {
        /// The archive.
        archive: String,
        /// Why.
        #[source]
        cause: Box<Error>,
    },
    /// An input of a session for untrusted ones was not let in.
    #[error("{file}: {why}")]
    Untrusted {
        /// The input.
        file: String,
        /// What its reader met.
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
    /// Objects of a program reach thread-locals at fixed places, and there is no room for so many.
    #[error(
        "{cause}: {size} bytes of thread-locals at fixed places are more than there is room for"
    )]
    ThreadLocals {
        /// Bytes of the program's thread-locals.
        size: usize,
        /// Their alignment in bytes.
        align: usize,
        /// Where one is reached.
        #[source]
        cause: Arc<LinkError>,
    },
    /// No memory for a variable that begins as zeros and does not fit what code can reach.
    #[error("no memory for the {size} bytes of `{name}`")]
    Variable {
        /// The variable.
        name: String,
        /// In bytes.
        size: u64,
        /// The system's error.
        #[source]
        cause: Arc<std::io::Error>,
    },
    /// No stub or slot left.
    #[error(transparent)]
    Stub(#[from] Arc<StubError>),
    /// The session refused a definition or could not satisfy a lookup.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Two strong definitions of one name.
    #[error("duplicate symbol `{symbol}`: defined in {first} and in {second}")]
    DuplicateSymbol {
        /// The symbol.
        symbol: String,
        /// File of the first definition.
        first: String,
        /// File of the second one.
        second: String,
    },
    /// A weak definition is to yield to one that is being removed at this moment.
    #[error("`{symbol}` is being removed")]
    Leaving {
        /// The symbol.
        symbol: String,
    },
    /// A tentative definition that is larger than what there is: that is in use and cannot grow.
    #[error("{file}: `{symbol}` has {size} bytes here, and {defined} where it was defined first")]
    CommonSize {
        /// The file.
        file: String,
        /// The symbol.
        symbol: String,
        /// Its size in the file.
        size: u64,
        /// The size of the definition there is.
        defined: u64,
    },
    /// What a tool is told by cannot be opened.
    #[error("{cause}{}", why(&**.cause))]
    Tool {
        /// What, and why.
        cause: Arc<OutputError>,
    },
    /// A version cannot go on: its function changed meanwhile, or has too many under
    /// way.
    #[error("{function}: {cause}")]
    Version {
        /// The function.
        function: &'static str,
        /// What is in the way.
        cause: Refusal,
    },
    /// Symbols that nothing defines.
    #[error("undefined symbols: {}", list(.missing))]
    MissingSymbols {
        /// Each symbol with those who need it.
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
    /// No module word for thread-locals left.
    #[error("more than {limit} modules with thread-local variables")]
    TooManyTlsModules {
        /// How many there can be.
        limit: usize,
    },
    /// Other dylibs search one that was to be removed.
    #[error("dylib {dylib} is searched by {}", .by.join(", "))]
    DylibInUse {
        /// The one to be removed.
        dylib: String,
        /// Those in whose link order it is.
        by: Vec<String>,
    },
    /// The dylib of programs was to be removed.
    #[error("the main dylib stays as long as its session: clear it, or remove trackers")]
    MainDylib,
    /// Code was to be added to the dylib that stands for the process.
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
        /// Why they do not agree, where that is not seen at once.
        why: Option<&'static str>,
    },
    /// A module declares a function of the host with another type than it has there.
    #[error("{file}: `{function}` is declared as {declared}, and the host's is {defined}")]
    HostSignature {
        /// The module.
        file: String,
        /// The function.
        function: String,
        /// The type in the module.
        declared: String,
        /// The type that the host's has.
        defined: String,
    },
    /// A call was to be made with values that the function does not take.
    #[error("`{function}` is {ty}: {why}")]
    Arguments {
        /// The function.
        function: String,
        /// Its type.
        ty: String,
        /// What does not fit.
        why: String,
    },
    /// Passes cannot be counted.
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

/// What is in a version's way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The function is of an object file: it has the code it came with.
    #[error("its code comes from an object file, {file}")]
    FromObject {
        /// The file.
        file: String,
    },
    /// The function's unit has no better code, or never has.
    #[error("its unit has no code for tier {}", .tier.number())]
    Declined {
        /// The tier that was asked for.
        tier: Tier,
    },
    /// Nobody [adopted](crate::Dylib::adopt) native code for the function, and none is compiled.
    #[error("it has no native code")]
    NotNative,
    /// A function is not kept at a tier that nothing is compiled at.
    #[error("nothing is compiled at tier 0")]
    Uncompiled,
    /// The function's unit dropped the question for better code.
    #[error("its unit did not answer")]
    Unanswered,
    /// The object with better code has what only whole images have.
    #[error("its object has {construct}, which a version of one function cannot have")]
    Construct {
        /// What.
        construct: &'static str,
    },
    /// The addresses of its labels may be in the program's memory.
    #[error("the function keeps its first version: addresses of its labels may be stored")]
    FirstStays,
    /// Its compile did not come to an end.
    #[error("its compile {what}")]
    Unfinished {
        /// What became of it.
        what: &'static str,
    },
    /// The function was removed before it was compiled.
    #[error("it was removed")]
    Removed,
    /// The state of its versions does not allow it.
    #[error(transparent)]
    State(#[from] VersionError),
}

impl Refusal {
    /// True if it only came too late.
    pub fn is_late(&self) -> bool {
        matches!(
            self,
            Refusal::FirstStays | Refusal::State(VersionError::Late(_))
        )
    }
}

/// What an error of the system adds to what could not be done.
fn why(cause: &dyn std::error::Error) -> String {
    let source = cause.source();
    source.map_or_else(String::new, |source| format!(": {source}"))
}

impl Error {
    /// If there was no room for the variables of a module: bytes with which there is, to be
    /// given to [`JitBuilder::static_data`](crate::JitBuilder).
    pub fn wants_static_data(&self) -> Option<usize> {
        /// For alignment, and for what is allocated later.
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

    /// True if it is for want of a definition.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Error::MissingSymbols { .. } => true,
            Error::Link(cause) => matches!(&**cause, LinkError::Missing(_)),
            Error::Session(cause) => cause.is_missing(),
            _ => false,
        }
    }

    /// True if what was defined was to go under a tracker that was removed.
    pub(crate) fn is_defunct_tracker(&self) -> bool {
        matches!(self, Error::Session(SessionError::TrackerDefunct { .. }))
    }

    /// True if LLVM was needed where it is refused.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Codegen(cause) if cause.is_refusal())
    }

    /// True if a compile ended because somebody wanted it to.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Error::Codegen(cause) if cause.is_cancelled())
    }
}

/// An undefined symbol and who needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The symbol.
    pub symbol: String,
    /// `file: function` of each user, some of them at least.
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

/// One undefined symbol that a lookup asked for.
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

/// A limit of address space in words, in the unit of `ulimit`.
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
