//! Compiles the program ahead of time by clang, from the same files.
//!
//! Bitcode made with `clang -O0` forbids optimization function by function (`optnone`, which requires
//! `noinline`). Uruk's tiers 2 and 3 ignore that, so it is removed for `-O1` and above here, too; else
//! all of those would run the code of `-O0`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use uruk::inkwell::attributes::{Attribute, AttributeLoc};
use uruk::inkwell::context::Context;
use uruk::inkwell::memory_buffer::MemoryBuffer;
use uruk_report::Nanos;

use super::child::nanos;
use super::scratch::Scratch;

const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

/// Libraries `uruk run` offers every program. Those of C++ and of wide atomics are not installed
/// everywhere, so the first choice that links is taken.
const LIBRARIES: [&[&str]; 3] = [&[], &["-lstdc++"], &["-lstdc++", "-latomic"]];

/// Bytes of clang's messages that are examined.
const ERRORS: u64 = 1 << 16;

/// The result of building.
pub(super) struct Native {
    /// Notes for the reader of the table.
    pub notes: Vec<String>,
    /// One for each level, or one with the reason why there is none.
    pub builds: Vec<Build>,
}

/// The program at one level.
pub(super) struct Build {
    /// `clang -O2`.
    pub name: String,
    /// The executable, or the reason why there is none.
    pub program: Result<PathBuf, String>,
    /// Time for compiling and linking.
    pub time: Option<Nanos>,
}

/// A file of the program, as input of clang.
struct Input {
    file: PathBuf,
    /// The file without attributes that forbid optimization.
    unbound: PathBuf,
    is_ir: bool,
}

/// Builds the program at each level.
pub(super) fn build(files: &[PathBuf], scratch: &Scratch, progress: &dyn Fn(&str)) -> Native {
    let none = |reason: String| Native {
        notes: Vec::new(),
        builds: vec![Build {
            name: "clang".to_owned(),
            program: Err(reason),
            time: None,
        }],
    };
    let Some((clang, version)) = find_clang() else {
        return none(format!("neither {} nor clang is there", own_clang()));
    };
    progress("reading the files for clang");
    let inputs: Result<Vec<Input>, String> = files
        .iter()
        .enumerate()
        .map(|(at, file)| Input::read(file, &scratch.file(&format!("unbound-{at}.bc"))))
        .collect();
    let inputs = match inputs {
        Ok(inputs) => inputs,
        Err(reason) => return none(reason),
    };
    if !inputs.iter().any(|input| input.is_ir) {
        return none("no file is bitcode or IR".to_owned());
    }
    let mut notes = vec![format!("ahead of time: {version}")];
    if inputs.iter().any(|input| input.unbound != input.file) {
        notes.push("optnone was taken off for -O1 and above".to_owned());
    }
    let builds = LEVELS.iter().map(|level| {
        progress(&format!("clang {level}"));
        let (program, time) = match compile(&clang, level, &inputs, scratch) {
            Ok((program, time)) => (Ok(program), Some(time)),
            Err(reason) => (Err(reason), None),
        };
        Build {
            name: format!("clang {level}"),
            program,
            time,
        }
    });
    let builds = builds.collect();
    progress("");
    Native { notes, builds }
}

impl Input {
    /// Reads a file; `unbound` is written if it has to differ from it.
    fn read(file: &Path, unbound: &Path) -> Result<Input, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let mut magic = Vec::new();
        let opened = File::open(file).map_err(|error| told(&error))?;
        opened
            .take(4)
            .read_to_end(&mut magic)
            .map_err(|error| told(&error))?;
        let is_ir = magic != *b"\x7fELF";
        let mut input = Input {
            file: file.to_owned(),
            unbound: file.to_owned(),
            is_ir,
        };
        if !is_ir {
            return Ok(input);
        }
        let context = Context::create();
        let buffer = MemoryBuffer::create_from_file(file).map_err(|error| told(&error))?;
        // LLVM 22 leaks the buffer behind inkwell: once per file, in a command that ends soon.
        let module = context
            .create_module_from_ir(buffer)
            .map_err(|error| told(&error))?;
        let [optnone, noinline] = ["optnone", "noinline"].map(Attribute::get_named_enum_kind_id);
        let place = AttributeLoc::Function;
        for function in module.get_functions() {
            if function.get_enum_attribute(place, optnone).is_some() {
                function.remove_enum_attribute(place, optnone);
                function.remove_enum_attribute(place, noinline);
                input.unbound = unbound.to_owned();
            }
        }
        if input.unbound == unbound && !module.write_bitcode_to_path(unbound) {
            return Err(format!("{} cannot be written", unbound.display()));
        }
        Ok(input)
    }
}

/// The clang of the LLVM in use under its usual name, or any clang; and its version line.
fn find_clang() -> Option<(String, String)> {
    [own_clang(), "clang".to_owned()]
        .into_iter()
        .find_map(|name| {
            let said = Command::new(&name)
                .arg("--version")
                .stdin(Stdio::null())
                .output()
                .ok()?;
            let text = String::from_utf8_lossy(&said.stdout);
            let version = text.lines().next()?.trim().to_owned();
            said.status.success().then_some((name, version))
        })
}

fn own_clang() -> String {
    let version = uruk::llvm_version();
    format!("clang-{}", version.split('.').next().unwrap_or_default())
}

/// Compiles and links at a level; returns the executable, and the time it took.
fn compile(
    clang: &str,
    level: &str,
    inputs: &[Input],
    scratch: &Scratch,
) -> Result<(PathBuf, Nanos), String> {
    let start = Instant::now();
    let mut objects = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        if !input.is_ir {
            objects.push(input.file.clone());
            continue;
        }
        let object = scratch.file(&format!("native{level}-{at}.o"));
        let source = if level == "-O0" {
            &input.file
        } else {
            &input.unbound
        };
        let mut command = Command::new(clang);
        command
            .args([level, "-c", "-x", "ir"])
            .arg(source)
            .arg("-o")
            .arg(&object);
        finish(&mut command, scratch)?;
        objects.push(object);
    }
    let compiling = start.elapsed();
    let program = scratch.file(&format!("native{level}"));
    let mut failure = String::new();
    for libraries in LIBRARIES {
        let start = Instant::now();
        let mut command = Command::new(clang);
        // Programs may look up their own symbols, as under `uruk run`.
        command.args(["-rdynamic", "-pthread"]).args(&objects);
        command.args(libraries).arg("-lm").arg("-o").arg(&program);
        match finish(&mut command, scratch) {
            Ok(()) => return Ok((program, nanos(compiling + start.elapsed()))),
            Err(reason) => failure = reason,
        }
    }
    Err(failure)
}

/// Runs a command that must succeed; otherwise returns the first error it reported.
fn finish(command: &mut Command, scratch: &Scratch) -> Result<(), String> {
    let said = scratch.file("clang.errors");
    let ended = File::create(&said).and_then(|errors| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        scratch.run(command)
    });
    match ended {
        Ok((status, _)) if status.success() => Ok(()),
        Ok(_) => Err(first_error(&said).unwrap_or_else(|error| error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

fn first_error(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(file)?.take(ERRORS).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let telling = |line: &&str| line.contains("error") || line.contains("undefined");
    let line = text.lines().find(telling).or(text.lines().last());
    Ok(line.unwrap_or("it failed without a word").trim().to_owned())
}
