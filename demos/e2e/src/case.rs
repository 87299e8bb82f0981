//! Cases: programs with directives at their top.
//!
//! A case is a file of `demos/cases` in C, C++, Rust or LLVM IR. Its first
//! comment lines (`//`, in IR `;`) may hold directives, one a line:
//!
//! | directive | meaning |
//! |---|---|
//! | `args: A B` | the program's arguments, separated by blanks |
//! | `stdin: TEXT` | standard input; `\n` is a newline |
//! | `env: NAME=VALUE` | a variable for the program |
//! | `status: N` | the native program ends with this status (default 0) |
//! | `signal: SIGSEGV` | the native program dies of this signal |
//! | `stderr: same` | standard error is compared too |
//! | `levels: O0 O2+g` | flavors, instead of the language's default ones |
//! | `modes: lazy eager` | modes, instead of the default ones |
//! | `flags: -pthread` | arguments for compiling C and C++ |
//! | `link: -rdynamic` | arguments for linking the native executable |
//! | `extra: second.c` | more sources, in `parts`; several files form one image |
//! | `object: third.c` | the same, but the runtime gets an object file |
//! | `library: a.c b.c` | a shared library from `parts` that needs the next one, and so on |
//! | `opens: a.c b.c` | the same, but the program gets its path as an argument and opens it |
//! | `options: --jobs 1` | more options for `uruk run` |
//! | `vary: --sampling off` | the same runs once more with these options as well |
//! | `log: A .. B` | standard error under test has a line with A and, after it, B |
//! | `no-log: A .. B` | it has no such line |
//! | `repeat: N` | runs under test, each compared (for races) |
//! | `timeout: SECONDS` | instead of 30 |
//! | `hazard: NAME` | it is about what goes wrong in some runs only: the long stress repeats it |
//! | `gate: C` | the gate at which the case must pass |
//! | `known-failure: REASON` | the case must fail; it is an error if it passes |
//! | `known-failure[lazy O2]: REASON` | only in trials with all these words |
//!
//! A comment line that is not of the form `word: ...` is prose.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk_guests::execute::Ending;
use uruk_guests::{Flavor, Language, Library, Program, compile::Source};

use crate::gate::Gate;
use crate::pairs::Pair;
use crate::subject::Mode;
use crate::trial::{LogLine, Plan};
use crate::verdict::signal_number;

/// A program with its directives.
#[derive(Clone, Debug)]
pub struct Case {
    /// How it runs.
    pub plan: Plan,
    /// The file and those that belong to it.
    pub sources: Vec<Source>,
    /// The flavors it is compiled in.
    pub flavors: Vec<Flavor>,
    /// The modes it runs in; empty if the default ones.
    pub modes: Vec<Mode>,
    /// Arguments for compiling.
    pub flags: Vec<String>,
    /// Arguments for linking.
    pub link_flags: Vec<String>,
    /// Shared libraries it uses.
    pub libraries: Vec<Library>,
    /// The gate at which it must pass.
    pub gate: Gate,
    /// Trials that must fail.
    pub known_failures: Vec<KnownFailure>,
    /// The name of a fault that shows in some runs only, if the case is about one.
    pub hazard: Option<String>,
}

/// Trials that must fail for now.
#[derive(Clone, Debug)]
pub struct KnownFailure {
    /// Mode and flavor names, all of which the trial must have.
    pub words: Vec<String>,
    /// Why.
    pub reason: String,
}

/// A fault of a case file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The folder or a file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directive does not exist or its value makes no sense.
    #[error("{}:{line}: {problem}: `{text}`", path.display())]
    Directive {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// A description of the fault.
        problem: &'static str,
        /// The directive.
        text: String,
    },
}

impl Case {
    /// Every case of a folder, sorted by name.
    ///
    /// # Errors
    /// A file cannot be read or has a directive that makes no sense.
    pub fn all(folder: &Path) -> Result<Vec<Self>, CaseError> {
        let failed = |source| CaseError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if Language::of(&path).is_some() {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Reads one case.
    ///
    /// # Errors
    /// The file cannot be read or has a directive that makes no sense.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let text = fs::read_to_string(path).map_err(|source| CaseError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CaseError> {
        let language = Language::of(path).unwrap_or(Language::C);
        let comment = if language == Language::Ir { ";" } else { "//" };
        let mut case = Self::plain(path, language);
        for (index, line) in text.lines().enumerate() {
            let Some(body) = line.strip_prefix(comment) else {
                break;
            };
            let Some((key, value)) = directive(body) else {
                continue;
            };
            case.apply(path, key, value)
                .map_err(|problem| CaseError::Directive {
                    path: path.to_owned(),
                    line: index + 1,
                    problem,
                    text: body.trim().to_owned(),
                })?;
        }
        Ok(case)
    }

    fn plain(path: &Path, language: Language) -> Self {
        let name = path.file_name().unwrap_or_default();
        Self {
            plan: Plan::new(name.to_string_lossy()),
            sources: vec![Source::new(path)],
            flavors: default_flavors(language),
            modes: Vec::new(),
            flags: Vec::new(),
            link_flags: Vec::new(),
            libraries: Vec::new(),
            gate: Gate::FIRST,
            known_failures: Vec::new(),
            hazard: None,
        }
    }

    fn apply(&mut self, path: &Path, key: &str, value: &str) -> Result<(), &'static str> {
        let words = || value.split_whitespace().map(str::to_owned);
        match key {
            "args" => self.plan.args.extend(words()),
            "stdin" => self.plan.stdin = Some(value.replace("\\n", "\n").into_bytes()),
            "env" => {
                let (name, content) = value.split_once('=').ok_or("no `=`")?;
                self.plan.env.push((name.to_owned(), content.to_owned()));
            }
            "status" => {
                let status = value.parse().map_err(|_| "not a status")?;
                self.plan.ending = Some(Ending::Status(status));
            }
            "signal" => {
                let signal = signal_number(value).ok_or("not a signal's name")?;
                self.plan.ending = Some(Ending::Signal(signal));
            }
            "stderr" if value == "same" => self.plan.with_stderr = true,
            "levels" => {
                let flavors = words().map(|word| word.parse()).collect::<Result<_, _>>();
                self.flavors = flavors.map_err(|_| "not a flavor")?;
            }
            "modes" => {
                for word in words() {
                    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == word);
                    self.modes.push(mode.ok_or("not a mode")?);
                }
            }
            "flags" => self.flags.extend(words()),
            "link" => self.link_flags.extend(words()),
            "options" => self.plan.options.extend(words()),
            "vary" => self.plan.variations.push(words().collect()),
            "log" | "no-log" => self.plan.log.push(LogLine {
                present: key == "log",
                ..LogLine::expected(value)
            }),
            "library" | "opens" | "extra" | "object" => self.add_parts(path, key, value),
            "repeat" => self.plan.repeat = value.parse().map_err(|_| "not a number")?,
            "timeout" => {
                let seconds = value.parse().map_err(|_| "not a number of seconds")?;
                self.plan.limit = Duration::from_secs(seconds);
            }
            "hazard" if !value.is_empty() => self.hazard = Some(value.to_owned()),
            "gate" => self.gate = Gate::parse(value).ok_or("not a gate")?,
            _ => return self.apply_known_failure(key, value),
        }
        Ok(())
    }

    /// Adds sources that lie beside the cases, of the program itself or of libraries.
    fn add_parts(&mut self, path: &Path, key: &str, value: &str) {
        let parts = path.parent().unwrap_or(Path::new(".")).join("parts");
        let files = value.split_whitespace().map(|name| parts.join(name));
        match key {
            "library" | "opens" => {
                let library = files.rev().fold(None, |needs, source| {
                    Some(Library {
                        source,
                        needs: needs.into_iter().collect(),
                        opened: key == "opens",
                    })
                });
                self.libraries.extend(library);
            }
            _ => self.sources.extend(files.map(|path| Source {
                path,
                as_object: key == "object",
            })),
        }
    }

    fn apply_known_failure(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let rest = key
            .strip_prefix("known-failure")
            .ok_or("no such directive")?;
        let inner = rest
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let words = match (rest, inner) {
            ("", _) => "",
            (_, Some(inner)) => inner,
            _ => return Err("no such directive"),
        };
        if value.is_empty() {
            return Err("a known failure needs a reason");
        }
        self.known_failures.push(KnownFailure {
            words: words.split_whitespace().map(str::to_owned).collect(),
            reason: value.to_owned(),
        });
        Ok(())
    }

    /// The program to compile.
    pub fn program(&self) -> Program {
        let stem = Path::new(&self.plan.name).file_stem().unwrap_or_default();
        let mut link_flags = self.flags.clone();
        link_flags.extend(self.link_flags.iter().cloned());
        Program {
            name: format!("case-{}", stem.to_string_lossy()),
            sources: self.sources.clone(),
            include: Vec::new(),
            flags: self.flags.clone(),
            link_flags,
            libraries: self.libraries.clone(),
        }
    }

    /// The modes a flavor runs in, unless the case says otherwise: lazily always,
    /// eagerly at the plain levels that differ most, through the tiers where these
    /// have something to do.
    pub fn modes_of(&self, flavor: Flavor) -> Vec<Mode> {
        if !self.modes.is_empty() {
            return self.modes.clone();
        }
        match flavor.to_string().as_str() {
            // Moving once is enough of it: where code is optimized too, if possible.
            "O0" if self.flavors.len() > 2 => {
                let others = [Mode::Tiered, Mode::Leaving, Mode::Baseline];
                [&Mode::LOADING[..], &others].concat()
            }
            "O0" => Mode::ALL.to_vec(),
            "O2" => [&Mode::LOADING[..], &[Mode::Leaving, Mode::Baseline]].concat(),
            "O1-no-passes" => {
                let others = [Mode::Lazy, Mode::Leaving, Mode::Baseline, Mode::Mixed];
                [&others[..], &Mode::CHANGING].concat()
            }
            _ => vec![Mode::Lazy, Mode::Leaving, Mode::Baseline],
        }
    }

    /// All combinations of a flavor and a mode in which the case can run.
    pub fn pairs(&self) -> Vec<Pair> {
        let of = |&flavor| {
            let modes = self.modes_of(flavor);
            modes.into_iter().map(move |mode| (flavor, mode))
        };
        self.flavors.iter().flat_map(of).collect()
    }

    /// Why a trial must fail, if it must.
    pub fn known_failure(&self, flavor: Flavor, mode: Mode) -> Option<&str> {
        let names = [flavor.to_string(), mode.name().to_owned()];
        let applies = |known: &&KnownFailure| known.words.iter().all(|word| names.contains(word));
        let known = self.known_failures.iter().find(applies)?;
        Some(&known.reason)
    }
}

/// The flavors of a language. C++ takes long to compile and Rust longer.
fn default_flavors(language: Language) -> Vec<Flavor> {
    let names: &[&str] = match language {
        Language::C => &[
            "O0",
            "O0-no-optnone",
            "O1-no-passes",
            "O2",
            "O0+g+pic",
            "O2+g+pic",
            "O2+nopic",
        ],
        Language::Cxx => &["O0", "O1-no-passes", "O2", "O2+g+pic"],
        Language::Rust => &["O2"],
        Language::Ir => &["O0", "O2"],
    };
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Splits ` key: value`; `None` for prose.
fn directive(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix(' ')?;
    let (key, value) = match line.strip_suffix(':') {
        Some(key) => (key, ""),
        None => line.split_once(": ")?,
    };
    let head = key.split('[').next().unwrap_or_default();
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    (!head.is_empty() && head.chars().all(word)).then_some((key, value.trim()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Case, CaseError};
    use crate::subject::Mode;
    use uruk_guests::execute::Ending;

    fn parse(text: &str) -> Result<Case, CaseError> {
        Case::parse(Path::new("folder/x.c"), text)
    }

    #[test]
    fn directives_are_read_up_to_the_first_line_of_code() {
        let case = parse(
            "// Prose, also with a colon: like this.\n// args: a  b\n// signal: SIGSEGV\n\
             // extra: y.c\n// levels: O0 O2+g\n// known-failure[lazy O0]: not yet\nint x;\n\
             // status: 3\n",
        )
        .expect("good directives");
        assert_eq!(case.plan.args, ["a", "b"]);
        assert_eq!(case.plan.ending, Some(Ending::Signal(11)));
        assert_eq!(case.sources[1].path, Path::new("folder/parts/y.c"));
        assert_eq!(
            case.known_failure(case.flavors[0], Mode::Lazy),
            Some("not yet")
        );
        assert_eq!(case.known_failure(case.flavors[0], Mode::Eager), None);
        assert_eq!(case.known_failure(case.flavors[1], Mode::Lazy), None);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for text in [
            "// statis: 3\n",
            "// x\n// levels: O7\n",
            "// known-failure:\n",
        ] {
            let error = parse(text).expect_err("a mistake").to_string();
            assert!(error.contains("x.c:"), "{error}");
        }
    }

    #[test]
    fn libraries_need_the_next_one() {
        let case = parse("// library: a.c b.c\n// opens: c.c\n").expect("valid");
        let [linked, opened] = &case.libraries[..] else {
            panic!("{:?}", case.libraries);
        };
        assert_eq!(linked.source, Path::new("folder/parts/a.c"));
        assert_eq!(linked.needs[0].source, Path::new("folder/parts/b.c"));
        assert!(!linked.opened && opened.opened && opened.needs.is_empty());
    }
}
