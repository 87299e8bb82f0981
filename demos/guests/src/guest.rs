//! The guest programs and the ways to run them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::compile::{Built, Program, Progress, Source};
use crate::error::GuestError;
use crate::flavor::Flavor;
use crate::sources::{self, Sources};
use crate::toolchain::Toolchain;

/// A program from the outside world with a small driver of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    /// Lua 5.4: `program SCRIPT ARGS...`.
    Lua,
    /// SQLite's amalgamation: `program trivial | work ROWS`.
    Sqlite,
    /// zstd, round trips at several levels and with worker threads.
    Zstd,
    /// bzip2, round trips.
    Bzip2,
    /// QuickJS with its own command: `program SCRIPT ARGS...`.
    QuickJs,
    /// A Rust program with std: `program MODE`.
    Rust,
}

/// One way to run a guest.
#[derive(Clone, Debug)]
pub struct Run {
    /// Names the run among the guest's runs.
    pub name: &'static str,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The exit status it ends with.
    pub status: i32,
}

impl Guest {
    /// Every guest.
    pub const ALL: [Self; 6] = [
        Self::Lua,
        Self::Sqlite,
        Self::Zstd,
        Self::Bzip2,
        Self::QuickJs,
        Self::Rust,
    ];

    /// The guest's name on command lines and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lua => "lua",
            Self::Sqlite => "sqlite",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::QuickJs => "quickjs",
            Self::Rust => "rust",
        }
    }

    /// The guest with that name.
    ///
    /// # Errors
    /// There is none; the error lists those there are.
    pub fn named(name: &str) -> Result<Self, GuestError> {
        let guest = Self::ALL.into_iter().find(|guest| guest.name() == name);
        guest.ok_or_else(|| GuestError::Unknown {
            kind: "guest",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// Compiles the guest, several sources at a time, at most `jobs`.
    ///
    /// # Errors
    /// The sources cannot be found, or do not compile.
    pub fn build(
        self,
        tools: &Toolchain,
        cache: &Cache,
        flavor: Flavor,
        jobs: usize,
        progress: Progress<'_>,
    ) -> Result<Built, GuestError> {
        self.program()?.build(tools, cache, flavor, jobs, progress)
    }

    /// The guest's sources and flags.
    ///
    /// # Errors
    /// A crate that carries sources cannot be fetched or has changed its shape.
    pub fn program(self) -> Result<Program, GuestError> {
        match self {
            Self::Lua => lua(&Sources::locate()?),
            Self::Sqlite => sqlite(&Sources::locate()?),
            Self::Zstd => zstd(&Sources::locate()?),
            Self::Bzip2 => bzip2(&Sources::locate()?),
            Self::QuickJs => quickjs(&Sources::locate()?),
            Self::Rust => Ok(program("rust", "rust.rs")),
        }
    }

    /// The ways to run the guest, quickest first.
    pub fn runs(self) -> Vec<Run> {
        match self {
            Self::Lua => [
                "hello",
                "fib",
                "nbody",
                "spectral-norm",
                "binary-trees",
                "strings",
                "errors",
            ]
            .map(|name| run(name, &[&script(name, "lua")], 0))
            .to_vec(),
            Self::Sqlite => vec![
                run("trivial", &["trivial"], 0),
                run("work", &["work", "100000"], 0),
            ],
            Self::Zstd => vec![
                run("round-trip", &["round-trip"], 0),
                run("threads", &["threads"], 0),
            ],
            Self::Bzip2 => vec![run("round-trip", &["round-trip"], 0)],
            Self::QuickJs => ["hello", "bench"]
                .map(|name| run(name, &[&script(name, "js")], 0))
                .to_vec(),
            Self::Rust => vec![
                run("hello", &["hello"], 0),
                run("collections", &["collections"], 0),
                run("threads", &["threads"], 0),
                run("unwind", &["unwind"], 0),
                run("backtrace", &["backtrace"], 0),
                run("exit", &["exit", "42"], 42),
                run("panic", &["panic"], 101),
            ],
        }
    }

    /// The run with that name.
    ///
    /// # Errors
    /// There is none; the error lists those there are.
    pub fn run_named(self, name: &str) -> Result<Run, GuestError> {
        let runs = self.runs();
        let found = runs.iter().find(|run| run.name == name).cloned();
        found.ok_or_else(|| GuestError::Unknown {
            kind: "run",
            name: name.to_owned(),
            known: runs
                .iter()
                .map(|run| run.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn lua(sources: &Sources) -> Result<Program, GuestError> {
    let directory = sources::subdirectory(sources.directory("lua-src")?, "lua-5.4")?;
    let mut guest = program("lua", "lua.c");
    guest.include.push(ours("programs/include"));
    // Should a release carry the stand-alone programs too, they stay out.
    guest.add_c(sources::files(&directory, "c", &["lua.c", "luac.c"])?);
    guest.include.push(directory);
    guest.flag(&["-w", "-DLUA_USE_LINUX", "-DLUA_COMPAT_5_3"]);
    Ok(guest)
}

fn sqlite(sources: &Sources) -> Result<Program, GuestError> {
    let directory = sources.directory("libsqlite3-sys")?.join("sqlite3");
    let mut guest = program("sqlite", "sqlite.c");
    guest.include.push(ours("programs/include"));
    guest.add_c(vec![directory.join("sqlite3.c")]);
    guest.include.push(directory);
    guest.flag(&["-w", "-pthread", "-DSQLITE_THREADSAFE=1"]);
    guest.link_flags.push("-pthread".to_owned());
    Ok(guest)
}

fn zstd(sources: &Sources) -> Result<Program, GuestError> {
    let library = sources.directory("zstd-sys")?.join("zstd/lib");
    let mut guest = program("zstd", "zstd.c");
    guest.include.push(ours("programs/include"));
    for part in ["common", "compress", "decompress"] {
        guest.add_c(sources::files(&library.join(part), "c", &[])?);
    }
    guest.include.push(library);
    guest.flag(&[
        "-w",
        "-pthread",
        "-DZSTD_MULTITHREAD",
        "-DZSTD_DISABLE_ASM=1",
    ]);
    guest.link_flags.push("-pthread".to_owned());
    Ok(guest)
}

fn bzip2(sources: &Sources) -> Result<Program, GuestError> {
    let directory = sources::subdirectory(sources.directory("bzip2-sys")?, "bzip2-")?;
    let mut guest = program("bzip2", "bzip2.c");
    let library = [
        "blocksort.c",
        "bzlib.c",
        "compress.c",
        "crctable.c",
        "decompress.c",
        "huffman.c",
        "randtable.c",
    ];
    guest.add_c(library.map(|name| directory.join(name)).to_vec());
    guest.include.push(ours("programs/include"));
    guest.include.push(directory);
    guest.flag(&["-w", "-D_FILE_OFFSET_BITS=64"]);
    Ok(guest)
}

fn quickjs(sources: &Sources) -> Result<Program, GuestError> {
    let directory = sources.directory("rquickjs-sys")?.join("quickjs");
    let mut guest = Program {
        name: "quickjs".to_owned(),
        ..Program::default()
    };
    let files = [
        "qjs.c",
        "quickjs.c",
        "quickjs-libc.c",
        "libregexp.c",
        "libunicode.c",
        "dtoa.c",
        "gen/repl.c",
        "gen/standalone.c",
    ];
    guest.add_c(files.map(|name| directory.join(name)).to_vec());
    guest.include.push(directory);
    guest.flag(&["-w", "-D_GNU_SOURCE", "-DQUICKJS_NG_BUILD"]);
    for flag in ["-lm", "-ldl", "-pthread"] {
        guest.link_flags.push(flag.to_owned());
    }
    Ok(guest)
}

/// QuickJS in a driver of ours that repeats a script.
pub(crate) fn quickjs_steady() -> Result<Program, GuestError> {
    let mut guest = Guest::QuickJs.program()?;
    guest.name = "quickjs-steady".to_owned();
    // Its own command, and what that has besides the language.
    let command = ["qjs.c", "quickjs-libc.c", "repl.c", "standalone.c"];
    let is_command = |source: &Source| command.iter().any(|file| source.path.ends_with(file));
    guest.sources.retain(|source| !is_command(source));
    guest.sources.push(Source::new(ours("programs/quickjs.c")));
    guest.include.push(ours("programs/include"));
    Ok(guest)
}

impl Program {
    fn add_c(&mut self, files: Vec<PathBuf>) {
        self.sources.extend(files.into_iter().map(Source::new));
    }

    fn flag(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(ToString::to_string));
    }
}

/// A program whose time is all the C library's: `program N BYTES`.
pub fn idle() -> Program {
    let mut guest = program("idle", "idle.c");
    guest.include.push(ours("programs/include"));
    guest
}

/// The server of `demos/live`.
pub fn live_server() -> Program {
    Program {
        name: "server".to_owned(),
        sources: vec![Source::new(crate::server::source())],
        flags: vec!["-pthread".to_owned()],
        link_flags: vec!["-pthread".to_owned()],
        ..Program::default()
    }
}

/// A program of one driver of ours, so far.
pub(crate) fn program(name: &str, driver: &str) -> Program {
    Program {
        name: name.to_owned(),
        sources: vec![Source::new(ours("programs").join(driver))],
        ..Program::default()
    }
}

fn run(name: &'static str, args: &[&str], status: i32) -> Run {
    Run {
        name,
        args: args.iter().map(ToString::to_string).collect(),
        status,
    }
}

/// The path of one of our scripts; `language` is its extension.
pub(crate) fn script(name: &str, language: &str) -> String {
    let path = ours("scripts").join(format!("{name}.{language}"));
    path.to_string_lossy().into_owned()
}

/// A directory of this package.
pub(crate) fn ours(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)
}
