//! A copy of the workspace's sources that can be changed.
//!
//! Files whose content is the same are left alone, so that cargo builds no more than what
//! changed since the last time; files that are gone are removed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold no sources.
const LEFT_OUT: [&str; 3] = ["target", ".git", "cache"];

/// The copy.
pub struct Tree(PathBuf);

impl Tree {
    /// Makes the copy at `to` like the workspace at `from`.
    pub fn of(from: &Path, to: PathBuf) -> anyhow::Result<Tree> {
        copy(from, &to).with_context(|| format!("cannot copy to {}", to.display()))?;
        Ok(Tree(to))
    }

    /// The text of a file.
    pub fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.0.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Changes a file.
    pub fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    let mut names = HashSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if LEFT_OUT.iter().any(|out| *out == name) {
            continue;
        }
        let (source, copied) = (entry.path(), to.join(&name));
        if source.is_dir() {
            copy(&source, &copied)?;
        } else if source.is_file() {
            let bytes = fs::read(&source)?;
            if fs::read(&copied).ok().as_ref() != Some(&bytes) {
                fs::write(&copied, bytes)?;
            }
        }
        names.insert(name);
    }
    remove_others(to, |name| names.contains(name))
}

fn remove_others(folder: &Path, known: impl Fn(&OsStr) -> bool) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if known(&entry.file_name()) {
            continue;
        }
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
