//! The plugin of clang that records which local functions native code calls by their types.
//!
//! Clang ends with an error if it cannot load a plugin, and a plugin for another LLVM may crash it. So the plugin
//! is passed only to a program that needs the same shared library of LLVM as the plugin: both name it, with its
//! version, among the libraries that the dynamic loader brings in. That takes no process, and covers clang under any
//! name. A script in front of clang, or a clang with LLVM inside, gets no plugin.
//!
//! Two builds of one version of LLVM may still differ (assertions). If a compile fails, [`loads`] finds out whether
//! the plugin is the reason, and the compile is repeated without it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uruk_live::program::headers::needed;

/// The plugin's file.
const PLUGIN: &str = "liburuk_locals.so";

/// Beginning of the name of LLVM's library.
const LLVM: &str = "libLLVM";

/// The option that loads the plugin into a compiler; `None` if the plugin is not installed, or is for another
/// compiler.
pub(super) fn option(compiler: &Path) -> Option<OsString> {
    let command = std::env::current_exe().ok()?;
    let folder = command.parent()?;
    let places = ["", "../lib/uruk"].map(|place| folder.join(place).join(PLUGIN));
    let plugin = places.into_iter().find(|file| file.is_file())?;
    let compiler = found(compiler)?;
    is_for(&plugin, &compiler).then(|| {
        let mut option = OsString::from("-fpass-plugin=");
        option.push(plugin);
        option
    })
}

/// Whether a command line of these words may change functions in ways that the plugin does not know, or cannot
/// load it.
pub(super) fn is_alone(words: &[String]) -> bool {
    let others = ["-mllvm", "-fpass-plugin", "-fplugin", "-load"];
    !words
        .iter()
        .any(|word| others.iter().any(|other| word.starts_with(other)))
}

/// Whether a compiler works with the option. If it fails without it, too, it is not the option's fault.
pub(super) fn loads(compiler: &Path, option: &OsString) -> bool {
    let works = |option: Option<&OsString>| {
        let mut command = Command::new(compiler);
        command
            .args(option)
            .args(["-x", "c", "-S", "-o", "-", "/dev/null"]);
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = silent.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    works(Some(option)) || !works(None)
}

/// The file of a program, by its path or its name in `$PATH`.
fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// Whether a plugin is for the LLVM of a compiler.
fn is_for(plugin: &Path, compiler: &Path) -> bool {
    let llvm = |file: &Path| {
        let mut names = needed(file).into_iter();
        names.find(|name| name.starts_with(LLVM))
    };
    let wanted = llvm(plugin);
    wanted.is_some() && wanted == llvm(compiler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_for_one_version_of_llvm() {
        let own = std::env::current_exe().expect("a test has a file");
        // Neither a program without LLVM nor a script is a compiler.
        assert!(!is_for(&own, &own));
        assert!(!is_for(Path::new("/dev/null"), Path::new("/dev/null")));
        assert_eq!(found(Path::new("./clang")), Some("./clang".into()));
        assert!(found(Path::new("sh")).is_some_and(|file| file.is_absolute()));
        assert_eq!(found(Path::new("no-such-compiler")), None);
    }

    #[test]
    fn other_changes_of_the_optimizer_are_not_recorded() {
        let alone = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            is_alone(&words)
        };
        assert!(alone(
            "-O2 -c x.c -fprofile-use=x -Xclang -disable-O0-optnone"
        ));
        for line in [
            "-mllvm -attributor-enable=all x.c",
            "-fpass-plugin=other.so x.c",
            "-Xclang -load -Xclang other.so x.c",
        ] {
            assert!(!alone(line), "{line}");
        }
    }

    #[test]
    fn a_plugin_that_cannot_be_loaded_is_noticed() {
        let Some(clang) = found(Path::new("clang-22")) else {
            return;
        };
        assert!(!loads(&clang, &"-fpass-plugin=/dev/null".into()));
        assert!(loads(&clang, &"-O1".into()));
        // Without a compiler the plugin is not the reason.
        assert!(loads(Path::new("/dev/null"), &"-O1".into()));
    }
}
