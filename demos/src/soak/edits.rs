//! Functions of SQLite with a counter, made of the source that a crate carries.

use std::path::{Path, PathBuf};

use anyhow::Context;
use uruk_guests::cache::Key;
use uruk_guests::sources::Sources;

use super::Stage;

/// From all layers: the interface, the parser, the code generator, the virtual machine, trees, pages,
/// memory and texts; some are local, some are inlined in others.
pub const FUNCTIONS: [&str; 24] = [
    "sqlite3_step",
    "sqlite3VdbeExec",
    "sqlite3_prepare_v2",
    "sqlite3RunParser",
    "sqlite3BtreeInsert",
    "balance_nonroot",
    "sqlite3VdbeMemGrow",
    "sqlite3Malloc",
    "sqlite3_exec",
    "sqlite3PagerGet",
    "pager_write",
    "sqlite3WhereBegin",
    "sqlite3Select",
    "sqlite3ExprCodeTarget",
    "resolveExprStep",
    "sqlite3_column_int64",
    "sqlite3VdbeRecordCompareWithSkip",
    "sqlite3_str_vappendf",
    "substrFunc",
    "lengthFunc",
    "moveToRoot",
    "cellSizePtr",
    "sqlite3Insert",
    "sqlite3VdbeSorterWrite",
];

/// Flags for SQLite, in the program and in edits.
pub const FLAGS: [&str; 3] = [
    "-w",
    "-DSQLITE_THREADSAFE=1",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
];

/// The beginning of an edited file, in front of its first line, so that lines keep their numbers.
const DECLARED: &str = "extern volatile long soak_hits; ";
const COUNTED: &str = " soak_hits++;";

/// The folder with SQLite's source.
///
/// # Errors
/// Cargo cannot fetch the crate.
pub fn folder() -> anyhow::Result<PathBuf> {
    let sources = Sources::locate()?;
    Ok(sources.directory("libsqlite3-sys")?.join("sqlite3"))
}

/// SQLite's bitcode with a counter in a function; kept between runs.
///
/// # Errors
/// There is no such function, or it cannot be compiled.
pub fn edited(stage: &Stage<'_>, folder: &Path, function: &str) -> anyhow::Result<PathBuf> {
    let source = folder.join("sqlite3.c");
    let text = std::fs::read(&source)?;
    let text = String::from_utf8_lossy(&text);
    let text = with_counter(&text, function).with_context(|| format!("no function {function}"))?;
    let file = stage.folder.join(format!("edited-{function}.c"));
    std::fs::write(&file, &text)?;
    let mut key = Key::new((FLAGS, text));
    key.add_file(&folder.join("sqlite3.h"))?;
    let mut flags = FLAGS.to_vec();
    flags.extend(["-emit-llvm", "-Xclang", "-disable-llvm-passes", "-c"]);
    let mut failed = None;
    let made = stage.cache.artifact(function, "bc", &key, |to| {
        failed = stage.compile(&flags, &[&file], to).err();
        Ok(())
    });
    match failed {
        Some(cause) => Err(cause),
        None => Ok(made?),
    }
}

/// The source with a counter at the beginning of a function's last definition.
fn with_counter(source: &str, function: &str) -> Option<String> {
    let mut found = None;
    for (at, _) in source.match_indices(function) {
        let begin = source[..at].rfind('\n').map_or(0, |it| it + 1);
        let line = &source[begin..];
        let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '>');
        let declared = line.starts_with(|it: char| it.is_ascii_alphabetic());
        let whole = !source[begin..at].ends_with(is_part);
        let behind = &source[at + function.len()..];
        if declared && whole && behind.starts_with('(') {
            found = body(behind).map(|it| at + function.len() + it).or(found);
        }
    }
    let (before, after) = source.split_at(found?);
    Some([DECLARED, before, COUNTED, after].concat())
}

/// Where the body begins behind a definition's parameters; none of a declaration.
fn body(text: &str) -> Option<usize> {
    let mut rest = text;
    loop {
        let at = rest.find(['/', '{', ';'])?;
        let here = &rest[at..];
        let comment = here.strip_prefix("/*").and_then(|it| it.find("*/"));
        rest = match (comment, here.as_bytes().first()) {
            (Some(end), _) => &here[end + 4..],
            (None, Some(b'{')) => return Some(text.len() - here.len() + 1),
            (None, Some(b';')) => return None,
            _ => &here[1..],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::with_counter;

    #[test]
    fn a_counter_is_in_the_last_definition() {
        let source = "int f(int);\nint ff(int a){ return a; }\n/* f(x) { */\nint f(\n  int a /* one; { */\n){\n  return f(a);\n}\n";
        let edited = with_counter(source, "f");
        let expected = "extern volatile long soak_hits; int f(int);\nint ff(int a){ return a; }\n/* f(x) { */\nint f(\n  int a /* one; { */\n){ soak_hits++;\n  return f(a);\n}\n";
        assert_eq!(edited.as_deref(), Some(expected));
        assert_eq!(with_counter("int f(int);\n", "f"), None);
    }
}
