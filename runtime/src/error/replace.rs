//! Why functions cannot be replaced. After each of these errors, nothing has changed.

use std::fmt;

/// Why a replacement was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// None of the functions the input defines exists.
    #[error("{file}: nothing to replace: none of its functions exists ({})", list(.functions))]
    Nothing {
        /// The input.
        file: String,
        /// Functions that it defines.
        functions: Vec<String>,
    },
    /// A name is defined, but not as something that can be exchanged.
    #[error("{file}: `{symbol}` cannot be replaced: {why}")]
    Fixed {
        /// The input.
        file: String,
        /// The symbol.
        symbol: String,
        /// Why not.
        why: &'static str,
    },
    /// The input holds something that only a first load can handle.
    #[error("{file}: {construct} cannot come with a replacement")]
    Construct {
        /// The input.
        file: String,
        /// The construct.
        construct: &'static str,
    },
    /// A function has another signature than before.
    #[error(
        "{file}: the signature of `{function}` changed from {old} to {new}; its callers would \
         have to change with it"
    )]
    Signature {
        /// The input.
        file: String,
        /// The function.
        function: String,
        /// The signature that its callers use.
        old: String,
        /// The new signature.
        new: String,
    },
    /// The program's memory may hold addresses of a function's labels. They would lead from calls
    /// of the new code into the old.
    #[error(
        "{file}: `{function}` cannot be replaced: the program may hold addresses of its labels"
    )]
    Labels {
        /// The input.
        file: String,
        /// The function.
        function: String,
    },
    /// A variable that exists, and keeps its contents, has another type.
    #[error(
        "{file}: `{global}` changed from {old} ({old_size} bytes) to {new} ({new_size} bytes); \
         its contents cannot be kept"
    )]
    Global {
        /// The input.
        file: String,
        /// The variable.
        global: String,
        /// Its type.
        old: String,
        /// Bytes it has.
        old_size: u64,
        /// The type it should have.
        new: String,
        /// Bytes it should have.
        new_size: u64,
    },
    /// A constant that exists, and may be known to code that is not replaced, has another
    /// value.
    #[error(
        "{file}: the value of the constant `{constant}` changed; code that is not replaced may hold the old one"
    )]
    Constant {
        /// The input.
        file: String,
        /// The constant.
        constant: String,
    },
    /// Code that is not replaced uses a variable that is to be migrated.
    #[error(
        "{file}: `{global}` cannot be migrated: {} would go on using the old one",
        list(.users)
    )]
    Users {
        /// The input.
        file: String,
        /// The variable.
        global: String,
        /// Functions and variables that mention it.
        users: Vec<String>,
    },
    /// The name of a local variable is that of several variables.
    #[error(
        "{file}: `{name}` could be any of {count} local variables of that name, whose contents \
         are to be kept"
    )]
    Ambiguous {
        /// The input.
        file: String,
        /// The name.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// Functions of the module that is to be replaced in part were optimized together.
    #[error(
        "{old} was optimized across functions ({evidence}), so it can only be replaced as a \
         whole; missing: {}. Compiled with `-O0`, or with `-O2 -Xclang -disable-llvm-passes`, \
         its functions can be replaced one by one",
        list(.missing)
    )]
    Interprocedural {
        /// The module that holds the functions now.
        old: String,
        /// How that is known.
        evidence: String,
        /// Functions of it that the input does not define.
        missing: Vec<String>,
    },
    /// Functions of an object file are to be replaced in part, and may hold parts of each
    /// other.
    #[error(
        "functions of {old} may hold parts of each other, so it can only be replaced as a whole; \
         missing: {}. Objects made with `-fPIC -fsemantic-interposition -frecord-gcc-switches`, \
         or with `-O0 -frecord-gcc-switches`, can be replaced in part, where that is allowed",
        list(.missing)
    )]
    Parts {
        /// The object that holds the functions now.
        old: String,
        /// Functions of it that the input does not define.
        missing: Vec<String>,
    },
    /// Functions of an object file are to be replaced in part, and are called directly, not through
    /// their stubs.
    #[error(
        "{old} calls {} directly, so it can only be replaced as a whole; `-fPIC \
         -fsemantic-interposition` makes it call them by name",
        list(.functions)
    )]
    Bypassed {
        /// The object that holds the functions now.
        old: String,
        /// Functions that are called so.
        functions: Vec<String>,
    },
    /// Threads still ran old code at the end of the longest wait.
    #[error("old code is still running: {}", each(.activations))]
    StillRunning {
        /// The threads, and the functions that they run.
        activations: Vec<Activation>,
    },
    /// The caller withdrew the set before it took effect ([`crate::Replacement::withdraw_when`]);
    /// nothing was changed.
    #[error("the replacement was withdrawn")]
    Withdrawn,
    /// A function of the set was removed while it was replaced; nothing was changed.
    #[error("`{function}` was removed meanwhile")]
    Removed {
        /// The function.
        function: String,
    },
    /// The calling thread is in the middle of a replacement: it was interrupted by the
    /// handler that asks for another, or runs a constructor or a callback of it.
    #[error("a replacement is under way on this thread")]
    Nested,
    /// There is no set to go back to.
    #[error("there is nothing to roll back")]
    NothingToRollBack,
    /// A later set must be rolled back first.
    #[error("the replacement is not the latest: number {latest} came after number {number}")]
    NotLatest {
        /// The requested set.
        number: u64,
        /// The latest; 0 if none is kept.
        latest: u64,
    },
    /// The publication protocol refused a step; for functions that were removed, for example.
    #[error("{function}: {cause}")]
    Protocol {
        /// The function.
        function: String,
        /// The step.
        cause: uruk_tiering::StageError,
    },
    /// Code that inlined or assumed a replaced body cannot be compiled again: it belongs to
    /// functions that were removed meanwhile.
    #[error("{function}: what depends on it cannot be compiled again")]
    Dependents {
        /// One of the functions to be replaced.
        function: String,
    },
}

fn each(activations: &[Activation]) -> String {
    let each = activations.iter().map(Activation::to_string);
    each.collect::<Vec<_>>().join("; ")
}

/// Names in a message; more would not make it clearer.
const SHOWN: usize = 8;

fn list(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

/// A thread that runs, or may return into, code that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activation {
    /// The kernel's id of the thread; 0 for a registered stack that no thread runs on.
    pub tid: i32,
    /// Its name.
    pub thread: String,
    /// The functions; none if the thread did not answer, so that they are not known.
    pub functions: Vec<String>,
    /// Why a thread did not answer.
    pub why: Option<String>,
    /// The thread did not answer, and will not do so later: waiting for it is useless.
    pub lasting: bool,
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Activation {
            tid,
            thread,
            functions,
            why,
            lasting: _,
        } = self;
        match (functions.is_empty(), why) {
            (true, Some(why)) => write!(f, "thread {tid} ({thread}) does not answer: {why}"),
            (true, None) => write!(f, "thread {tid} ({thread}) does not answer"),
            (false, _) => write!(f, "thread {tid} ({thread}) is in {}", functions.join(", ")),
        }
    }
}

impl Activation {
    /// Whether the thread did not answer, so that its functions are not known.
    pub(crate) fn is_silent(&self) -> bool {
        self.functions.is_empty() && self.tid != 0
    }

    /// An activation of unknown code, for this reason.
    pub(crate) fn unknown(why: &str) -> Activation {
        Activation {
            tid: 0,
            thread: why.to_owned(),
            functions: Vec::new(),
            why: None,
            lasting: false,
        }
    }
}

/// Merges the activations, so that each thread occurs once. Native and compiled code are searched
/// for in two scans, and a thread may be found in both.
pub(crate) fn merged(found: Vec<Activation>) -> Vec<Activation> {
    let mut all: Vec<Activation> = Vec::new();
    for one in found {
        let same = |it: &&mut Activation| it.tid == one.tid && it.thread == one.thread;
        let Some(first) = all.iter_mut().find(same) else {
            all.push(one);
            continue;
        };
        for function in one.functions {
            if !first.functions.contains(&function) {
                first.functions.push(function);
            }
        }
        first.why = first.why.take().or(one.why);
        first.lasting |= one.lasting;
    }
    all
}

#[cfg(test)]
fn in_functions(tid: i32, functions: &[&str]) -> Activation {
    Activation {
        functions: functions.iter().map(|&it| it.to_owned()).collect(),
        tid,
        ..Activation::unknown("p")
    }
}

#[test]
fn a_thread_in_native_and_compiled_code_is_listed_once() {
    let found = merged(vec![
        in_functions(7, &["go", "a"]),
        in_functions(8, &["go"]),
        in_functions(7, &["go", "b"]),
    ]);
    let lines: Vec<String> = found.iter().map(Activation::to_string).collect();
    assert_eq!(
        lines,
        ["thread 7 (p) is in go, a, b", "thread 8 (p) is in go"]
    );
    let silent = Activation {
        why: Some("it blocks the signal".into()),
        ..in_functions(9, &[])
    };
    assert_eq!(merged(vec![silent.clone(), silent.clone()]), [silent]);
}
