//! Shared parts of the tests: a small world to link into, the compiler, the oracle.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod frames;
pub mod moves;
pub mod oracle;
pub mod site;
pub mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use uruk_link::{
    Graph, Hint, LayoutOptions, LinkError, Linked, Object, Placement, Resolved, Segment, TlsPlace,
};

/// Addresses of the tests' images: within 2 GiB of each other and of [`NEAR`].
pub const CODE: u64 = 0x7000_0020_0000;
pub const READ_ONLY: u64 = 0x7000_1000_0000;
pub const READ_WRITE: u64 = 0x7000_2000_0000;
pub const NEAR: u64 = 0x7000_3000_0000;
pub const FAR: u64 = 0x7fff_0000_0000;
pub const MODULE: u64 = 7;
pub const STATIC_OFFSET: i64 = -0x1000;

/// Everything around one link.
#[derive(Clone)]
pub struct World {
    pub options: LayoutOptions,
    pub at: Placement,
    pub externals: BTreeMap<String, Resolved>,
    /// Answer for strong names that are not in `externals`.
    pub otherwise: Option<Resolved>,
    pub hint: Hint,
    pub prune: Option<Vec<&'static str>>,
    pub discard: Vec<&'static str>,
}

impl Default for World {
    fn default() -> World {
        let tls = TlsPlace {
            module: MODULE,
            static_offset: Some(STATIC_OFFSET),
        };
        World {
            options: LayoutOptions {
                map: true,
                ..LayoutOptions::default()
            },
            at: Placement {
                code: CODE,
                read_only: READ_ONLY,
                read_write: READ_WRITE,
                tls: Some(tls),
            },
            externals: BTreeMap::new(),
            otherwise: None,
            hint: Hint::Unknown,
            prune: None,
            discard: Vec::new(),
        }
    }
}

/// A finished link and the data that the oracle needs to check it.
pub struct Image {
    pub linked: Linked,
    pub definitions: BTreeMap<String, u64>,
    pub zero_fill: u64,
    pub world: World,
}

impl World {
    pub fn external(mut self, name: &str, resolved: Resolved) -> World {
        self.externals.insert(name.into(), resolved);
        self
    }

    pub fn resolve(&self, name: &str, weak: bool) -> Option<Resolved> {
        let otherwise = if weak { None } else { self.otherwise };
        self.externals.get(name).copied().or(otherwise)
    }

    /// Links and checks by the oracle.
    pub fn link(&self, files: &[&[u8]]) -> Result<Image, LinkError> {
        let image = self.link_only(files)?;
        oracle::check(&image, files);
        moves::check(self, files);
        Ok(image)
    }

    pub fn link_only(&self, files: &[&[u8]]) -> Result<Image, LinkError> {
        let objects = files.iter().enumerate();
        let objects = objects.map(|(i, bytes)| Object::parse(&format!("{i}.o"), bytes));
        self.link_objects(objects.collect::<Result<_, _>>()?)
    }

    pub fn link_objects(&self, objects: Vec<Object<'_>>) -> Result<Image, LinkError> {
        let mut graph = Graph::new(objects)?;
        for name in &self.discard {
            graph.discard(name);
        }
        if let Some(keep) = &self.prune {
            graph.prune(|name| keep.contains(&name));
        }
        let laid = graph.layout_with(&self.options, |_| self.hint)?;
        let shape = laid.segment(Segment::ReadWrite);
        let placed = laid.place(self.at)?;
        let definitions = placed
            .definitions()
            .map(|(d, at)| (d.name.to_string(), at))
            .collect();
        let linked = placed.fix_up(|name, need| self.resolve(name, need.weak))?;
        let zero_fill = shape.zero_fill as u64;
        Ok(Image {
            linked,
            definitions,
            zero_fill,
            world: self.clone(),
        })
    }

    pub fn error(&self, files: &[&[u8]]) -> LinkError {
        match self.link_only(files) {
            Ok(image) => panic!("linked:\n{}", image.linked.dump()),
            Err(error) => error,
        }
    }
}

impl Image {
    /// The bytes that run at `address`.
    pub fn bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let Placement {
            code,
            read_only,
            read_write,
            ..
        } = self.world.at;
        let segments = [
            (code, &self.linked.code),
            (read_only, &self.linked.read_only),
            (read_write, &self.linked.read_write),
        ];
        segments.into_iter().find_map(|(base, bytes)| {
            let offset = usize::try_from(address.checked_sub(base)?).ok()?;
            bytes.get(offset..)?.get(..size)
        })
    }

    pub fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    pub fn address(&self, name: &str) -> u64 {
        *self
            .definitions
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not defined"))
    }
}

/// Compiles `source` with clang; `None`, and a line that says so, without clang.
pub fn compile(extension: &str, source: &str, flags: &[&str]) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let stem = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique);
    let (input, output) = (stem.with_extension(extension), stem.with_extension("o"));
    std::fs::write(&input, source).expect("the source can be written");
    let language: &[&str] = if extension == "cc" {
        &["-std=c++20"]
    } else {
        &[]
    };
    let run = Command::new("clang-22")
        .args(["-target", "x86_64-linux-gnu", "-c"])
        .args(language)
        .args(flags)
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: clang-22 is not installed");
            return None;
        }
        Err(error) => panic!("clang-22 cannot run: {error}"),
    };
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "clang {flags:?} failed:\n{text}");
    let bytes = std::fs::read(&output).expect("clang wrote an object");
    let _ = std::fs::remove_file(input);
    let _ = std::fs::remove_file(output);
    Some(bytes)
}
