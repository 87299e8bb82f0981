//! Finds the shared library of LLVM for this build, and generates the entries for it: one per C
//! function, in assembly, and constants about the library.
//!
//! Without a shared library, as on a machine that has only LLVM's static libraries, nothing is
//! generated, and `llvm-sys` links LLVM. The same holds without the feature `late`.
//!
//! If both kinds exist, `own` links a smaller library for Uruk, which is opened instead. It lacks
//! the initializers of other targets: `src/entries.rs` documents the effect of a call to them.

mod own;

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{FileHeader64, STT_FUNC, STT_OBJECT};
use object::read::elf::{Dyn, FileHeader, Sym};
use object::{Endianness, elf};

/// The version of LLVM that the bindings are for.
const MAJOR: &str = "22";

/// The variable with the folder that `llvm-sys` searches first, too.
const PREFIX: &str = "LLVM_SYS_221_PREFIX";

/// Functions of LLVM without a counterpart in its C interface: packages above declare them.
const OTHERS: [&str; 6] = [
    "_ZN4llvm11GlobalValue11materializeEv",
    "_ZN4llvm11LLVMContext14setOptPassGateERNS_11OptPassGateE",
    "_ZN4llvm16isLegalToPromoteERKNS_8CallBaseEPNS_8FunctionEPPKc",
    "_ZN4llvm24CodeGenTargetMachineImpl19addPassesToEmitFileERNS_6legacy15PassManagerBaseERNS_17raw_pwrite_streamEPS4_NS_15CodeGenFileTypeEbPNS_28MachineModuleInfoWrapperPassE",
    "_ZN4llvm25promoteCallWithIfThenElseERNS_8CallBaseEPNS_8FunctionEPNS_6MDNodeE",
    "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_",
];

/// The virtual table of `llvm::raw_svector_ostream`.
const VTABLE: &str = "_ZTVN4llvm19raw_svector_ostreamE";

/// Facts about the library.
struct Library {
    path: PathBuf,
    soname: String,
    functions: Vec<String>,
    /// The libraries that it needs (`DT_NEEDED`).
    needed: Vec<String>,
}

fn main() {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed={PREFIX}");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rustc-check-cfg=cfg(late)");
    let asked = |option: &str| -> Option<String> {
        let mut output = None;
        for config in configs() {
            output = run(&config, &["--version"])
                .filter(|version| version.split('.').next() == Some(MAJOR))
                .and_then(|_| run(&config, &option.split(' ').collect::<Vec<_>>()));
            if output.is_some() {
                break;
            }
        }
        output
    };
    let version = asked("--version").unwrap_or_else(|| format!("{MAJOR}, not found"));
    println!("cargo:rustc-env=LLVM_VERSION={version}");
    if env::var_os("CARGO_FEATURE_LATE").is_none() {
        return;
    }
    let files = asked("--link-shared --libfiles").unwrap_or_default();
    let Some(library) = files
        .split_whitespace()
        .find_map(|file| read(Path::new(file)))
    else {
        return;
    };
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let archives = asked(&format!("--link-static --libfiles {}", own::COMPONENTS));
    let archives: Vec<PathBuf> = archives
        .unwrap_or_default()
        .split_whitespace()
        .map(PathBuf::from)
        .collect();
    let own = match archives.is_empty() {
        true => None,
        false => own::link(&folder, &archives, &library, &version),
    };
    let functions = &library.functions;
    let written = std::fs::write(folder.join("table.s"), table(functions))
        .and_then(|()| std::fs::write(folder.join("names"), names(functions)));
    if let Err(cause) = written {
        println!(
            "cargo:warning=LLVM is linked, as {}: {cause}",
            folder.display()
        );
        return;
    }
    println!("cargo:rerun-if-changed={}", library.path.display());
    println!("cargo:rustc-cfg=late");
    println!("cargo:rustc-env=LLVM_FILE={}", library.path.display());
    println!("cargo:rustc-env=LLVM_SONAME={}", library.soname);
    println!("cargo:rustc-env=LLVM_NEEDED={}", library.needed.join("\t"));
    println!("cargo:rustc-env=LLVM_FUNCTIONS={}", functions.len());
    let own = own.map_or_else(PathBuf::new, |it| it.path);
    println!("cargo:rustc-env=LLVM_OWN={}", own.display());
}

/// Candidates for LLVM's `llvm-config`; only those of the prefix if it is set.
fn configs() -> Vec<PathBuf> {
    let names = [
        format!("llvm-config-{MAJOR}"),
        format!("llvm-config{MAJOR}"),
        format!("llvm{MAJOR}-config"),
        format!("llvm-config-{MAJOR}.1"),
        format!("llvm-config{MAJOR}1"),
        String::from("llvm-config"),
    ];
    let folder = env::var_os(PREFIX).map(|prefix| PathBuf::from(prefix).join("bin"));
    let folder = folder.unwrap_or_default();
    names.map(|name| folder.join(name)).into()
}

/// The output of a program, if it succeeds.
fn run(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Facts about the library in `file`, if it has all required functions.
fn read(file: &Path) -> Option<Library> {
    let bytes = std::fs::read(file).ok()?;
    let data = &*bytes;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let mut functions = Vec::new();
    let mut vtable = false;
    for symbol in symbols.iter() {
        let name = symbol.name(endian, symbols.strings()).ok()?;
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        if symbol.is_undefined(endian) || symbol.is_local() {
            continue;
        }
        vtable |= symbol.st_type() == STT_OBJECT && name == VTABLE;
        if symbol.st_type() == STT_FUNC && (name.starts_with("LLVM") || OTHERS.contains(&name)) {
            functions.push(name.to_owned());
        }
    }
    // One entry per name, also for a name with several versions.
    functions.sort();
    functions.dedup();
    let others = OTHERS
        .iter()
        .all(|other| functions.iter().any(|name| name == other));
    let (entries, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let told = |tag| {
        let of_it = entries.iter().filter(move |it| it.tag(endian) == tag);
        let texts = of_it.filter_map(|it| it.string(endian, strings).ok());
        texts.filter_map(|it| String::from_utf8(it.to_vec()).ok())
    };
    let soname = told(elf::DT_SONAME).next()?;
    let needed = told(elf::DT_NEEDED).collect();
    // The link name may later lead to another version, so the file named by the soname is used.
    let own = file.with_file_name(&soname);
    let path = if own.exists() { own } else { file.to_owned() };
    let plain = |text: &str| !text.contains(['\n', '\0']);
    (others && vtable && plain(&soname) && path.to_str().is_some_and(plain)).then_some(Library {
        path,
        soname,
        functions,
        needed,
    })
}

/// One entry per function and one word per entry, which first leads to the code that opens the
/// library.
fn table(functions: &[String]) -> String {
    let mut text = String::from("\t.section .text.uruk_late,\"ax\",@progbits\n");
    for (index, name) in functions.iter().enumerate() {
        let _ = write!(
            text,
            "\t.p2align 3\n\t.globl {name}\n\t.hidden {name}\n\t.type {name},@function\n\
             {name}:\n\tjmpq *(uruk_late_slots+{offset})(%rip)\n\t.size {name},.-{name}\n",
            offset = index * 8,
        );
    }
    for index in 0..functions.len() {
        let _ = write!(
            text,
            ".Luruk_late_{index}:\n\tpushq ${index}\n\tjmp uruk_late_first\n"
        );
    }
    text.push_str(
        "\t.section .data.uruk_late,\"aw\",@progbits\n\t.p2align 3\n\t.globl uruk_late_slots\n\
         \t.hidden uruk_late_slots\n\t.type uruk_late_slots,@object\nuruk_late_slots:\n",
    );
    for index in 0..functions.len() {
        let _ = writeln!(text, "\t.quad .Luruk_late_{index}");
    }
    text.push_str("\t.size uruk_late_slots,.-uruk_late_slots\n\t.text\n");
    text
}

/// The names in the order of the words, each with its zero byte.
fn names(functions: &[String]) -> String {
    functions.iter().map(|name| format!("{name}\0")).collect()
}
