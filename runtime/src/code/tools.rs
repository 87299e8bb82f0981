//! Reports compiled code to other tools: to perf by its map or dump, to debuggers by their
//! registration interface. All are off by default, as each costs time per version. A failure of one
//! switches it off and is reported once.
//!
//! Called by the thread that links a version, under a pass of the gate.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;
use uruk_base::Tier;
use uruk_base::locks::{Mutex, MutexGuard, ranks};
use uruk_heap::{PAGE, StubRegion};
use uruk_link::Linked;
use uruk_tools::symfile::{Frames, Symbol};
use uruk_tools::{
    Code, JitDump, Lines, OutputError, PERF_MAP_FOLDER, PerfMap, Places, gdb, symfile,
};

use crate::code::blocks;
use crate::error::Error;

/// The enabled tools; part of [`JitBuilder`](crate::JitBuilder).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSettings {
    /// Write `perf-PID.map` where `perf report` looks for it. Functions have their tier in
    /// brackets behind the name, `fib [tier 2]`, there and in dumps.
    pub perf_map: bool,
    /// Write `jit-PID.dump` into this folder, for `perf record -k 1` and
    /// `perf inject --jit`, with line tables where the bitcode has any.
    pub jitdump: Option<PathBuf>,
    /// Register every version with debuggers that attach (gdb, lldb), with line tables
    /// where the bitcode has any. Code then lies in private memory, whole pages for each
    /// version ([`BackingChoice::Flip`](uruk_heap::BackingChoice::Flip), unless the heap's
    /// settings say otherwise): into a shared mapping debuggers cannot write breakpoints.
    pub gdb: bool,
    /// Keep the source line of each instruction, if the bitcode has it: frames of traps have it
    /// ([`Frame::source`](crate::Frame::source)). Functions with debug information are compiled by
    /// LLVM at tier 1, too, and first calls of them are slower.
    pub lines: bool,
}

#[derive(Default)]
struct Open {
    perf_map: Option<PerfMap>,
    jitdump: Option<JitDump>,
    gdb: bool,
    /// Lines that are kept for traps, by entry address.
    places: Option<HashMap<u64, Arc<Places>>>,
    /// Labels of code that may be copied, by entry address.
    labels: HashMap<u64, String>,
    /// Registrations with debuggers, by entry address.
    registered: HashMap<u64, Vec<gdb::Registration>>,
    /// Numbers of dumped code, by entry address.
    dumped: HashMap<u64, u64>,
    /// Registrations of stubs and the code behind them.
    own: Vec<gdb::Registration>,
    /// Number of pages of stubs in the dump.
    stub_pages: usize,
}

/// Name of stubs, through which calls of functions go.
const STUBS: &str = "uruk stubs";
/// Name of the code that they lead to as long as a function has no code.
const FIRST_CALLS: &str = "uruk first calls";

/// The tools of a session.
#[derive(Default)]
pub(crate) struct Tools {
    any: bool,
    lines: bool,
    variables: bool,
    open: Mutex<Open, ranks::ToolsOpen>,
}

/// A body that was linked.
pub(crate) struct LinkedBody<'a> {
    pub(crate) name: &'a str,
    pub(crate) tier: Tier,
    pub(crate) entry: u64,
    pub(crate) end: u64,
    /// Address of the bytes of the code segment.
    pub(crate) code: u64,
    pub(crate) linked: &'a Linked,
    /// The object it was linked from, and its name there. Code of the baseline compiler, which has
    /// no lines, has no object.
    pub(crate) object: Option<&'a [u8]>,
    pub(crate) symbol: &'a str,
}

impl LinkedBody<'_> {
    fn size(&self) -> u64 {
        self.end - self.entry
    }

    /// The name with the tier, by which profiles distinguish versions.
    fn label(&self) -> String {
        format!("{} [{}]", self.name, self.tier)
    }

    /// The bytes of a range, if it is in the code segment.
    fn bytes(&self, address: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(address.wrapping_sub(self.code)).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.linked.code.get(start..end)
    }
}

impl Open {
    /// Adds a line to the perf map.
    fn map(&mut self, entry: u64, size: u64, name: &str) {
        if let Some(map) = &mut self.perf_map
            && let Err(cause) = map.add(entry, size, name)
        {
            warn!(%cause, "no more entries in the perf map");
            self.perf_map = None;
        }
    }

    /// Writes code of the runtime to the jitdump file.
    fn load(&mut self, code: &Code<'_>) {
        if let Some(dump) = &mut self.jitdump
            && let Err(cause) = dump.load(code, &[])
        {
            warn!(%cause, "no more entries in the jitdump file");
            self.jitdump = None;
        }
    }

    /// Writes a body to the jitdump file, after its lines.
    fn dump(&mut self, body: &LinkedBody<'_>, label: &str) {
        let (name, address, size) = (label, body.entry, body.size());
        let Some(dump) = &mut self.jitdump else {
            return;
        };
        let Some(bytes) = body.bytes(address, size) else {
            return;
        };
        let code = Code {
            name,
            address,
            bytes,
        };
        let lines = body.object.map_or(Ok(Lines::default()), |object| {
            Lines::of_object(object, body.symbol, address, size)
        });
        let lines = lines.unwrap_or_else(|cause| {
            warn!(%cause, name, "the dump has no lines of this function");
            Lines::default()
        });
        match dump.load(&code, &lines.lines()) {
            Ok(index) => {
                self.dumped.insert(address, index);
            }
            Err(cause) => {
                warn!(%cause, "no more entries in the jitdump file");
                self.jitdump = None;
            }
        }
    }

    /// Keeps the lines of a body.
    fn keep(&mut self, body: &LinkedBody<'_>) {
        let (Some(places), Some(object)) = (&mut self.places, body.object) else {
            return;
        };
        match Lines::of_object(object, body.symbol, body.entry, body.size()) {
            Ok(lines) => {
                let kept = lines.places(body.entry);
                if !kept.is_empty() {
                    places.insert(body.entry, Arc::new(kept));
                }
            }
            Err(cause) => warn!(%cause, name = body.name, "traps see no lines of this function"),
        }
    }

    /// Registers the lines, the name and the frames of a body with debuggers.
    fn register(&mut self, body: &LinkedBody<'_>) {
        let (name, address, size) = (body.name, body.entry, body.size());
        let frames = body.linked.eh_frame.and_then(|table| {
            Some(Frames {
                address: table.address,
                bytes: body.bytes(table.address, table.size as u64)?,
            })
        });
        let symbol = Symbol {
            name,
            address,
            size,
        };
        let held = self.registered.entry(address).or_default();
        // Lines first: a breakpoint that waits for the name is then set behind the
        // prologue.
        let of_lines = body.object.map_or(Ok(None), |object| {
            symfile::of_debug_info(object, body.symbol, address)
        });
        match of_lines {
            Ok(file) => held.extend(file.map(gdb::register)),
            Err(cause) => warn!(%cause, name, "debuggers see no lines of this function"),
        }
        match symfile::of_symbols(&[symbol], frames) {
            Ok(file) => held.push(gdb::register(file)),
            Err(cause) => warn!(%cause, name, "debuggers do not see this function"),
        }
    }
}

impl Tools {
    /// Opens the enabled tools.
    pub(crate) fn new(settings: &ToolSettings) -> Result<Tools, Error> {
        if *settings == ToolSettings::default() {
            return Ok(Tools::default());
        }
        let failed = |cause: OutputError| Error::Tool {
            cause: Arc::new(cause),
        };
        let folder = std::path::Path::new(PERF_MAP_FOLDER);
        let perf_map = settings
            .perf_map
            .then(|| PerfMap::create(folder).map_err(failed))
            .transpose()?;
        let jitdump = settings.jitdump.as_ref();
        let jitdump = jitdump
            .map(|folder| JitDump::create(folder).map_err(failed))
            .transpose()?;
        Ok(Tools {
            any: true,
            lines: settings.gdb || settings.jitdump.is_some() || settings.lines,
            variables: settings.gdb,
            open: Mutex::new(Open {
                perf_map,
                jitdump,
                gdb: settings.gdb,
                places: settings.lines.then(HashMap::new),
                labels: HashMap::new(),
                own: Vec::new(),
                stub_pages: 0,
                registered: HashMap::new(),
                dumped: HashMap::new(),
            }),
        })
    }

    /// Reports the place of a session's stubs, before there are any, and the code of first calls.
    pub(super) fn place_stubs(&self, stubs: &StubRegion, (resolver, bytes): (u64, &[u8])) {
        if !self.any {
            return;
        }
        let mut open = self.open();
        let (address, size) = (stubs.stubs_base(), (stubs.pages() * PAGE) as u64);
        open.map(address, size, STUBS);
        open.map(resolver, bytes.len() as u64, FIRST_CALLS);
        open.load(&Code {
            name: FIRST_CALLS,
            address: resolver,
            bytes,
        });
        if open.gdb {
            let symbols = [
                (STUBS, address, size),
                (FIRST_CALLS, resolver, bytes.len() as u64),
            ];
            let symbols = symbols.map(|(name, address, size)| Symbol {
                name,
                address,
                size,
            });
            let files = symbols.map(|symbol| symfile::of_symbols(&[symbol], None));
            for file in files {
                match file {
                    Ok(file) => open.own.push(gdb::register(file)),
                    Err(cause) => warn!(%cause, "debuggers do not see the stubs"),
                }
            }
        }
    }

    /// Reports pages of stubs that are new since the last time.
    pub(crate) fn add_stubs(&self, stubs: &StubRegion, page: &[u8; PAGE]) {
        if !self.any {
            return;
        }
        let mut open = self.open();
        if open.jitdump.is_none() {
            return;
        }
        for index in open.stub_pages..stubs.committed() {
            open.load(&Code {
                name: STUBS,
                address: stubs.stubs_base() + (index * PAGE) as u64,
                bytes: page,
            });
            open.stub_pages = index + 1;
        }
    }

    /// True if a tool uses line tables.
    pub(crate) fn want_lines(&self) -> bool {
        self.lines
    }

    /// File and line of the instruction at `pc`, of the body that begins at `entry`; `None` where
    /// none are kept.
    pub(super) fn source_of(&self, entry: u64, pc: u64) -> Option<(String, u32)> {
        if !self.any {
            return None;
        }
        let kept = self.open().places.as_ref()?.get(&entry).cloned()?;
        let offset = u32::try_from(pc.checked_sub(entry)?).ok()?;
        let (file, line) = kept.at(offset)?;
        Some((file.to_owned(), line))
    }

    /// True if a tool shows arguments and locals.
    pub(crate) fn want_variables(&self) -> bool {
        self.variables
    }

    /// Reports a body, before it can run.
    pub(crate) fn add(&self, body: &LinkedBody<'_>) {
        if !self.any {
            return;
        }
        let mut open = self.open();
        let label = body.label();
        open.map(body.entry, body.size(), &label);
        open.dump(body, &label);
        open.keep(body);
        if open.gdb {
            open.register(body);
        }
        if open.perf_map.is_some() {
            open.labels.insert(body.entry, label);
        }
    }

    /// Whether a debugger may change code: its changes would be copied with the code.
    pub(crate) fn pins_code(&self) -> bool {
        self.any && self.open().gdb
    }

    /// Whether any tool is enabled.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Reports that code was copied, before the copy can run.
    pub(crate) fn moved(&self, from: blocks::View<'_>, to: blocks::View<'_>) {
        if !self.any {
            return;
        }
        let mut open = self.open();
        let (from, entry, size) = (from.entry(), to.entry(), to.body_end() - to.entry());
        let own = to.shape.name.to_str().unwrap_or("?");
        let label = open.labels.get(&from).cloned();
        let label = label.unwrap_or_else(|| own.to_owned());
        open.map(entry, size, &label);
        if open.perf_map.is_some() {
            open.labels.insert(entry, label);
        }
        if let Some(places) = &mut open.places
            && let Some(kept) = places.get(&from).cloned()
        {
            places.insert(entry, kept);
        }
        let index = open.dumped.get(&from).copied();
        if let (Some(dump), Some(index)) = (&mut open.jitdump, index) {
            match dump.moved(index, from, entry, size) {
                Ok(()) => {
                    open.dumped.insert(entry, index);
                }
                Err(cause) => {
                    warn!(%cause, "no more entries in the jitdump file");
                    open.jitdump = None;
                }
            }
        }
    }

    /// Reports that code is about to be freed.
    pub(crate) fn remove(&self, code: blocks::View<'_>) {
        if !self.any {
            return;
        }
        let mut open = self.open();
        open.dumped.remove(&code.entry());
        open.labels.remove(&code.entry());
        if let Some(places) = &mut open.places {
            places.remove(&code.entry());
        }
        open.registered.remove(&code.entry());
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }

    /// In the child of a fork: files are by process, and copies begin where it does.
    ///
    /// # Errors
    /// There is no perf map in the child.
    pub(crate) fn after_fork_child(&self) -> Result<(), OutputError> {
        if !self.any {
            return Ok(());
        }
        let mut open = self.open();
        let map = open.perf_map.as_mut();
        let followed = map.map_or(Ok(()), |map| map.after_fork_child());
        if followed.is_err() {
            open.perf_map = None;
        }
        // A tool that follows a child finds the parent's dump by its time. Its own versions from
        // here on would need all inherited ones reported again.
        open.jitdump = None;
        followed
    }
}
