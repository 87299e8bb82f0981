//! The perf map: a text file of `start size name`, in hexadecimal, one function a line.
//!
//! perf searches for it in one folder by the process's id, and only when it reports. It has no
//! times: if addresses are reused, old samples get the new name.

use std::path::Path;

use crate::{Output, OutputError};

/// The folder that perf searches.
pub const PERF_MAP_FOLDER: &str = "/tmp";

/// The map of this process.
#[derive(Debug)]
pub struct PerfMap {
    output: Output,
}

impl PerfMap {
    /// Creates `perf-PID.map` in a folder, [`PERF_MAP_FOLDER`] for perf to find it.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(folder: &Path) -> Result<PerfMap, OutputError> {
        let name = format!("perf-{}.map", std::process::id());
        Ok(PerfMap {
            output: Output::create(folder, &name)?,
        })
    }

    /// Adds a function. Control characters in names become spaces.
    ///
    /// # Errors
    /// The file cannot be written or is full.
    pub fn add(&mut self, address: u64, size: u64, name: &str) -> Result<(), OutputError> {
        let name = name.replace(|c: char| c.is_control(), " ");
        let line = format!("{address:x} {size:x} {name}\n");
        self.output.write(line.as_bytes())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.output.path
    }

    /// In the child of a fork: continues in a file of the child's own, which begins with the
    /// parent's functions.
    ///
    /// # Errors
    /// The files cannot be read, created or written.
    pub fn after_fork_child(&mut self) -> Result<(), OutputError> {
        let parent = self.output.path.clone();
        let known = uruk_files::read(&parent).map_err(|source| OutputError::Create {
            path: parent.clone(),
            source,
        })?;
        let folder = parent.parent().unwrap_or(Path::new("."));
        *self = PerfMap::create(folder)?;
        self.output.write(&known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_perf_reads() {
        let mut map = PerfMap::create(&std::env::temp_dir()).unwrap();
        map.add(0x1000, 0x20, "plain").unwrap();
        map.add(0xffff_0000_0000, 1, "operator new(unsigned long)")
            .unwrap();
        map.add(0x2000, 3, "two\nlines\0").unwrap();
        let text = std::fs::read_to_string(map.path()).unwrap();
        std::fs::remove_file(map.path()).unwrap();
        let expected = "1000 20 plain\n\
            ffff00000000 1 operator new(unsigned long)\n\
            2000 3 two lines \n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("map-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let victim = folder.join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let name = format!("perf-{}.map", std::process::id());
        std::os::unix::fs::symlink(&victim, folder.join(name)).unwrap();
        let mut map = PerfMap::create(&folder).unwrap();
        map.add(1, 2, "x").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(map.path()).unwrap(), "1 2 x\n");
        std::fs::remove_dir_all(&folder).unwrap();
        let gone = PerfMap::create(&folder);
        assert!(matches!(gone, Err(OutputError::Create { .. })));
    }
}
