//! `uruk cc` and `uruk c++`: clang, with what a program needs to be compiled again while it runs.
//!
//! # Added options, for use without our tools
//! ```text
//! -Xclang -fembed-bitcode=bitcode        the bitcode before optimization, in the section .llvmbc,
//!                                        which is renamed in objects (section.rs)
//! -fpatchable-function-entry=64,62       62 bytes in front of each entry, two at it
//! -falign-functions=16                   which clang does anyway, unless code is to be small
//! -fpass-plugin=.../liburuk_locals.so    records which local functions are called by their types, if the
//!                                        plugin is installed and for this clang (plugin.rs)
//! ```
//! `-funique-internal-linkage-names` is not needed here: local functions and variables are distinguished
//! by the object file whose symbols the linker kept together. And it breaks sources: clang no longer
//! finds a function that an `alias` or `ifunc` attribute names.
//!
//! Of the 62 bytes 14 are used. With the two they fill a cache line, so that each instruction keeps its
//! place within a line: the place of a program's loops affects its speed by more than a tenth. Lua's
//! four scripts and SQLite ran at 0.98 to 1.01 of the program without room; with 16 bytes (`=18,16`) at
//! 0.92 to 1.00 and 0.95, with 14 (`=16,14`) at 0.98 to 1.01 and 0.97, by chance. Code is larger by 64
//! bytes a function, of which two are executed. A function's address is two below a multiple of 16;
//! users that need more zeros in it pass `=18,16` themselves.
//!
//! The driver's own `-fembed-bitcode` compiles in two steps and embeds the optimized result of the first
//! one, whose recompilation gained nothing. Passed to the compiler proper, in one step, it embeds the
//! front end's output. Of the bitcode and of the list of entries only the list is loaded: 8 bytes a
//! function.
//!
//! `--outline-loops` is our own: the plugin gets the variable `URUK_OUTLINE_LOOPS`, since plugins have no options, and
//! makes loops that are entered once functions of their own (`runtime/live/locals/src/outline.cpp`).
//!
//! All other options are passed on, so `-c`, `-S`, `-E`, response files, dependency files and linking
//! are clang's. Nothing is added where it is useless: for other machines, and with `-flto`, where
//! objects are bitcode that the linker optimizes. With `-emit-llvm` the output is bitcode, which is not
//! embedded in itself: that is done when it is compiled.

// Also for the tests of parts, which read this file by its path.
#[path = "cc/plugin.rs"]
mod plugin;
#[path = "cc/section.rs"]
mod section;

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use uruk::EXIT_FAILURE;

/// Options added to clang's command line.
const ADDED: [&str; 4] = [
    EMBED[0],
    EMBED[1],
    "-falign-functions=16",
    "-fpatchable-function-entry=64,62",
];

/// The added options about bitcode.
const EMBED: [&str; 2] = ["-Xclang", "-fembed-bitcode=bitcode"];

/// How often a response file may name another in which our own option is found.
const NESTED: u32 = 8;

/// The option that outlines loops, which clang does not know.
const OUTLINE_LOOPS: &str = "--outline-loops";

/// The variable that tells the plugin of it; `locals.cpp` has the same name.
const OUTLINE_VARIABLE: &str = "URUK_OUTLINE_LOOPS";

/// The language of a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cxx,
}

#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Everything is passed on to clang: the first of $URUK_CC (for C++ $URUK_CXX), clang-22 \
and clang. `uruk cc --print-flags` prints what is added. `--outline-loops` makes loops of functions that are \
entered once, as `main`, functions of their own, which `uruk live` can replace."
)]
pub(super) struct Driver {
    /// Arguments for clang.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

pub(super) fn main(driver: &Driver, language: Language) -> i32 {
    if driver
        .args
        .first()
        .is_some_and(|arg| arg == "--print-flags")
    {
        println!("{}", printed(language));
        return 0;
    }
    let line = Line::of(&driver.args);
    for warning in warnings(&line.words) {
        uruk_files::say!("uruk cc: warning: {warning}");
    }
    let objects = section::objects(&line.words);
    for compiler in compilers(language) {
        let cause = match line.run(&compiler, objects.is_empty()) {
            Ok(status) => return finish(status, &objects),
            Err(cause) => cause,
        };
        if cause.kind() != std::io::ErrorKind::NotFound {
            uruk_files::say!("uruk cc: {}: {cause}", compiler.display());
            return EXIT_FAILURE;
        }
    }
    uruk_files::say!(
        "uruk cc: no clang is installed\n  tip: $URUK_CC and $URUK_CXX name one that is"
    );
    EXIT_FAILURE
}

/// A command line for clang.
struct Line {
    /// The arguments.
    args: Vec<OsString>,
    /// The arguments with response files expanded.
    words: Vec<String>,
    /// Whether loops are to be outlined.
    outlines: bool,
}

impl Line {
    /// The command line without our own options.
    fn of(args: &[OsString]) -> Line {
        let mut outlines = false;
        let args = without_own(args.to_vec(), &mut outlines, NESTED);
        let words = expanded(&args);
        Line {
            args,
            words,
            outlines,
        }
    }

    /// Runs a compiler with additional options. If nothing is left to do after it, it takes the place of this process.
    fn run(&self, compiler: &Path, is_last: bool) -> std::io::Result<ExitStatus> {
        let plugin = plugin::option(compiler).filter(|_| plugin::is_alone(&self.words));
        let added = added(&self.words, plugin.as_ref());
        let plugin = plugin.filter(|plugin| added.contains(plugin));
        if self.outlines && plugin.is_none() {
            uruk_files::say!("uruk cc: warning: loops are not outlined: no plugin is loaded");
        }
        let mut command = self.command(compiler, &added);
        let Some(plugin) = plugin else {
            return match is_last || added.is_empty() {
                // Returns only if clang cannot be started.
                true => Err(command.exec()),
                false => command.status(),
            };
        };
        let status = command.status()?;
        let has_failed = status.code().is_some_and(|code| code != 0);
        if !has_failed || plugin::loads(compiler, &plugin) {
            return Ok(status);
        }
        uruk_files::say!(
            "uruk cc: warning: the plugin cannot be loaded: local functions stay native"
        );
        self.command(compiler, &self::added(&self.words, None))
            .status()
    }

    fn command(&self, compiler: &Path, added: &[OsString]) -> Command {
        let mut command = Command::new(compiler);
        command.args(added).args(&self.args);
        if self.outlines {
            command.env(OUTLINE_VARIABLE, "1");
        }
        command
    }
}

/// The options that are added for the first compiler that is installed.
fn printed(language: Language) -> String {
    let plugin = compilers(language)
        .into_iter()
        .find_map(|it| plugin::option(&it));
    let plugin = plugin.and_then(|option| option.into_string().ok());
    let all = ADDED.map(str::to_owned).into_iter().chain(plugin);
    all.collect::<Vec<_>>().join(" ")
}

/// Renames sections of the objects once the compiler has ended; returns the exit status.
fn finish(status: ExitStatus, objects: &[PathBuf]) -> i32 {
    if let Some(signal) = status.signal() {
        // The convention of shells.
        return 128 + signal;
    }
    for object in objects.iter().filter(|_| status.success()) {
        if let Err(cause) = section::rename(object) {
            uruk_files::say!("uruk cc: {}: {cause}", object.display());
            return EXIT_FAILURE;
        }
    }
    status.code().unwrap_or(EXIT_FAILURE)
}

fn compilers(language: Language) -> Vec<PathBuf> {
    let (variable, names) = match language {
        Language::C => ("URUK_CC", ["clang-22", "clang"]),
        Language::Cxx => ("URUK_CXX", ["clang++-22", "clang++"]),
    };
    match std::env::var_os(variable) {
        Some(own) if !own.is_empty() => vec![PathBuf::from(own)],
        _ => names.map(PathBuf::from).to_vec(),
    }
}

/// Removes our own option, and sets `outlines` if it was there. Response files that have it are
/// replaced by their words; such files may name others, `nested` times.
fn without_own(args: Vec<OsString>, outlines: &mut bool, nested: u32) -> Vec<OsString> {
    let mut left = Vec::with_capacity(args.len());
    for arg in args {
        if arg == OUTLINE_LOOPS {
            *outlines = true;
            continue;
        }
        let file = arg.to_str().and_then(|arg| arg.strip_prefix('@'));
        let text = file.filter(|_| nested > 0).map(std::fs::read_to_string);
        let Some(Ok(text)) = text else {
            left.push(arg);
            continue;
        };
        let words = split(&text).into_iter().map(OsString::from).collect();
        let mut inside = false;
        let words = without_own(words, &mut inside, nested - 1);
        match inside {
            true => left.extend(words),
            false => left.push(arg),
        }
        *outlines |= inside;
    }
    left
}

/// The words of a command line, with response files expanded. Only for inspection: clang reads the files
/// itself.
fn expanded(args: &[OsString]) -> Vec<String> {
    let mut words = Vec::new();
    for arg in args {
        let arg = arg.to_string_lossy();
        match arg.strip_prefix('@').map(std::fs::read_to_string) {
            Some(Ok(text)) => words.extend(split(&text)),
            _ => words.push(arg.into_owned()),
        }
    }
    words
}

/// The words of a response file, as GNU tools quote them.
fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(rest.next()),
            (_, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, None) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Options to add to a command line of these words; `plugin` is the one that loads the plugin.
fn added(words: &[String], plugin: Option<&OsString>) -> Vec<OsString> {
    let has = |wanted: &dyn Fn(&str) -> bool| words.iter().any(|word| wanted(word));
    let target = words.iter().position(|word| word == "-target");
    let target = target.and_then(|at| words.get(at + 1)).map(String::as_str);
    let foreign = |name: &str| !(name.starts_with("x86_64") && name.contains("linux"));
    let elsewhere = target.is_some_and(foreign)
        || has(&|word| word == "-m32" || word == "-mx32")
        || has(&|word| word.strip_prefix("--target=").is_some_and(foreign));
    if elsewhere || has(&|word| word.starts_with("-flto")) {
        return Vec::new();
    }
    let own_room = has(&|word| word.starts_with("-fpatchable-function-entry"));
    let bare = has(&|word| word == "-emit-llvm");
    let left_out = |flag: &str| {
        (own_room && flag.starts_with("-fpatchable")) || (bare && EMBED.contains(&flag))
    };
    let flags = ADDED.iter().filter(|flag| !left_out(flag));
    let mut added: Vec<OsString> = vec!["--start-no-unused-arguments".into()];
    added.extend(flags.map(OsString::from));
    added.extend(plugin.filter(|_| !bare).cloned());
    added.push("--end-no-unused-arguments".into());
    added
}

/// Warnings about options with which the program cannot be compiled again.
fn warnings(words: &[String]) -> Vec<&'static str> {
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(&word.as_str()));
    let mut warnings = Vec::new();
    if has(&["-s", "-Wl,-s", "-Wl,--strip-all", "-Wl,-S,-s"]) {
        warnings.push("a program without its symbols cannot be compiled again (-s)");
    }
    if words.iter().any(|word| word.starts_with("-flto")) {
        warnings.push("objects of -flto carry no bitcode of their own: nothing is added");
    }
    if has(&["-static"]) {
        warnings.push("nothing can be loaded into a static program (-static)");
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{ADDED, Line, added, split, warnings};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_are_added_where_they_are_of_use() {
        let count = |line| added(&words(line), None).len();
        assert_eq!(count("-c x.c -O2"), ADDED.len() + 2);
        assert_eq!(
            count("x.o -o x -fpatchable-function-entry=5"),
            ADDED.len() + 1
        );
        assert_eq!(count("-S -emit-llvm x.c"), ADDED.len());
        for line in [
            "-m32 -c x.c",
            "-target aarch64-linux-gnu x.c",
            "-flto=thin x.c",
        ] {
            assert_eq!(count(line), 0, "{line}");
        }
        assert_eq!(count("--target=x86_64-pc-linux-gnu x.c"), ADDED.len() + 2);
        let plugin = OsString::from("-fpass-plugin=x.so");
        let loads = |line| added(&words(line), Some(&plugin)).contains(&plugin);
        assert!(loads("-c x.c -O2") && loads("-S x.c"));
        assert!(!loads("-S -emit-llvm x.c") && !loads("-flto x.c") && !loads("-m32 x.c"));
    }

    #[test]
    fn our_own_option_is_not_passed_on() {
        let line = |text: &str| Line::of(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        let outlined = line("--outline-loops -c x.c");
        assert!(outlined.outlines && outlined.words == ["-c", "x.c"] && outlined.args.len() == 2);
        assert!(!line("-c x.c").outlines);
        let file = |name: &str, text: &str| {
            let path = std::env::temp_dir().join(format!("uruk-cc-{}-{name}", std::process::id()));
            std::fs::write(&path, text).expect("written");
            path
        };
        let inner = file("inner", "--outline-loops '-DA=b c'");
        let plain = file("plain", "-c x.c");
        let outer = file(
            "outer",
            &format!("-O2 @{} @{}", inner.display(), plain.display()),
        );
        let nested = line(&format!("@{} -g", outer.display()));
        let args: Vec<_> = nested
            .args
            .iter()
            .map(|arg| arg.to_string_lossy())
            .collect();
        let kept = format!("@{}", plain.display());
        assert!(nested.outlines);
        assert_eq!(args, ["-O2", "-DA=b c", &kept, "-g"]);
        assert_eq!(line(&kept).args, [&*kept]);
        let endless = file("endless", "");
        std::fs::write(&endless, format!("@{}", endless.display())).expect("written");
        assert!(!line(&format!("@{}", endless.display())).outlines);
        for path in [inner, plain, outer, endless] {
            std::fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn quotes_in_response_files_hold_words_together() {
        let text = "-c \"a b.c\"\n-o 'x\"y'z\\ w.o \"\"";
        assert_eq!(split(text), ["-c", "a b.c", "-o", "x\"yz w.o", ""]);
    }

    #[test]
    fn what_takes_the_use_away_is_warned_of() {
        assert_eq!(warnings(&words("-O2 x.c -o x")).len(), 0);
        assert_eq!(warnings(&words("-s -static x.c")).len(), 2);
    }
}
