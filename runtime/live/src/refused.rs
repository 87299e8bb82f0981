//! Reasons for which an exchange is refused, with names.

use std::path::PathBuf;
use std::sync::Arc;

use uruk::{Error, ReplaceError};

/// Nothing was exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// The file cannot be read.
    #[error("{}: {cause}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error.
        cause: std::io::Error,
    },
    /// The file does not have exactly one module of bitcode.
    #[error("{}: neither bitcode nor an object of `uruk cc` with the bitcode of one source", .file.display())]
    NoModule {
        /// The file.
        file: PathBuf,
    },
    /// The program has none of the file's functions.
    #[error("{}: defines no function that the program has, weak ones aside", .file.display())]
    Unknown {
        /// The file.
        file: PathBuf,
    },
    /// Two sources of the program define equally many of the file's functions.
    #[error(
        "{}: defines functions of {} to the same extent\n  tip: a new version whose source has the path of one of them is that one's",
        .file.display(), .sources.join(" and ")
    )]
    Ambiguous {
        /// The file.
        file: PathBuf,
        /// The sources.
        sources: Vec<String>,
    },
    /// All of the file's functions have the same bodies as the program's.
    #[error("{}: all its functions are as the program has them", .file.display())]
    Same {
        /// The file.
        file: PathBuf,
    },
    /// Native code that cannot be redirected may have a copy of a function.
    #[error("`{function}` may be inlined in `{holder}`, which {why}")]
    Held {
        /// The function.
        function: String,
        /// The function that may have a copy.
        holder: String,
        /// The reason why its calls cannot be redirected.
        why: String,
    },
    /// Native code that cannot be redirected was compiled for the old body of its callee.
    #[error("{callers}: one of it, `{holder}`, {why}")]
    Relies {
        /// The functions whose native code does not fit.
        callers: String,
        /// The function whose calls cannot be redirected.
        holder: String,
        /// The reason.
        why: String,
    },
    /// The function itself has native code that cannot be redirected.
    #[error("`{function}` {why}: it stays as it is")]
    Stays {
        /// The function.
        function: String,
        /// The reason why its calls cannot be redirected.
        why: String,
    },
    /// The function has the same native code as another one.
    #[error(
        "`{function}` and `{other}` have the same native code: the linker or the compiler took one for both, and calls of either reach it\n  tip: link without `--icf=all`, compile without `-fmerge-functions`"
    )]
    Merged {
        /// The function.
        function: String,
        /// The other one.
        other: String,
    },
    /// A variable that the optimizer removed, one that does not fit the program's memory, or a new
    /// thread-local.
    #[error("`{user}` uses the variable `{name}`, {why}")]
    Variable {
        /// The function that uses it.
        user: String,
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// A class whose objects have tables of virtual functions that new code cannot use.
    #[error(
        "the class `{class}` has other virtual functions or bases than the program's: its objects keep their tables and layout"
    )]
    Virtual {
        /// Its name, as linkers have it.
        class: String,
    },
    /// A new function that would have to run at the program's end.
    #[error("`{function}` is to run at the end, and would not: the program does not know of it")]
    Destructor {
        /// Its name.
        function: String,
    },
    /// A static variable whose first value is computed in one version only.
    #[error(
        "the first value of `{variable}` is {} computed when it is first used: the program has no mark whether that was done",
        if *now { "now" } else { "no longer" }
    )]
    Computed {
        /// Its name, as linkers have it.
        variable: String,
        /// Whether the new version computes it.
        now: bool,
    },
    /// A name that compilers number by the order of the source, which changed.
    #[error(
        "`{name}` is numbered by its order in the source, and the order changed: addresses and contents that the program keeps are those of the old order\n  tip: put new ones behind the old ones, or give them names"
    )]
    Numbered {
        /// The name.
        name: String,
    },
    /// A name for another function than before.
    #[error("`{name}` stands for something else than in the program, where it was bound at start")]
    Alias {
        /// The alias or ifunc.
        name: String,
    },
    /// An entry of a table that the linker made of a section.
    #[error(
        "`{name}` is new in the section `{section}`: the program's linker made a table of it, without this one"
    )]
    Section {
        /// The variable.
        name: String,
        /// The section.
        section: String,
    },
    /// A function that would have to run before the program's `main`.
    #[error("`{function}` initializes {what}, and would not run any more")]
    Constructor {
        /// Its name.
        function: String,
        /// The variable or file that it initializes.
        what: String,
    },
    /// Native code that the new version does not fit is running.
    #[error(
        "{callers}, and {running}{}",
        if *.lasting { "" } else { "\n  tip: `--quiescent MS` waits longer until no thread is in such code" }
    )]
    Callers {
        /// The functions.
        callers: String,
        /// The threads that are in such code.
        running: String,
        /// Waiting longer is useless.
        lasting: bool,
    },
    /// The remaining exchanges are too old to be rolled back.
    #[error(
        "every exchange that was kept for that is rolled back; those before stay: new bodies of {}\n  tip: an object of the source that the program was built from exchanges them back",
        .functions.join(", ")
    )]
    Older {
        /// The functions that have bodies of these exchanges.
        functions: Vec<String>,
    },
    /// A rollback waited for threads that run code to be removed.
    #[error(
        "{0}\n  tip: `--rollback --immediate` does not wait for them; they may use functions of both versions"
    )]
    InUse(Arc<ReplaceError>),
    /// The session's error.
    #[error(transparent)]
    Session(#[from] Error),
}
