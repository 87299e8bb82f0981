//! Whether the program goes to stacks that nobody told of, and what is done then.
//!
//! A scan that knows all stacks proves what is dead. A program that switches stacks in its own
//! assembly has some that no table knows, on which nobody may be now. Then all memory is
//! searched (`uruk_roots`), for good.
//!
//! | what makes code suspect | seen |
//! |---|---|
//! | an instruction that loads `rsp` from elsewhere (`switches`), in functions, data, assembly and objects of modules | when it is linked |
//! | the same in a library that was loaded after the session was made | before and after each scan |
//! | a name of a known library for fibers ([`NAMES`]) | when something is linked against it |
//! | `sigaltstack` together with `longjmp` or one of its kin | likewise |
//! | executable memory of no file and not ours: code that the program made itself | before and after each scan |
//! | a thread on a stack nobody told of | by a scan |
//!
//! A program that uses `clone` may make a process that shares its memory and is no thread of
//! it: nobody can ask that one, and reclaim ends when it is made (`guest::processes`).
//!
//! All but the last are seen before code on such a stack can be left there and freed: code that
//! switches was linked, or mapped, before it ran. What comes while a scan is under way is seen
//! behind it, and the scan's answer is dropped. Not seen: libraries that were there before the
//! session, but for their names; what `switches` says it misses.
//!
//! `reclaim.stacks` decides: `auto` as above; `always` searches from the start; `told` trusts
//! whoever registers stacks, and reclaim ends if a thread is found on another.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use object::{Object, ObjectSection, SectionKind};
use tracing::warn;
use uruk_heap::Pool;
use uruk_link::Linked;
use uruk_locks::Mutex;
use uruk_reclaim::{Config, Stacks};
use uruk_roots::{Report, Roots, Wanted};

use crate::core::Core;
use crate::event::Event;
use crate::switches;

/// Functions that go to another stack, or make one for that, of libraries that are in use.
const NAMES: [&str; 16] = [
    "aco_create",
    "aco_resume",
    "co_active",
    "co_create",
    "co_derive",
    "co_switch",
    "coro_create",
    "coro_transfer",
    "jump_fcontext",
    "make_fcontext",
    "mco_create",
    "mco_resume",
    "mco_yield",
    "ontop_fcontext",
    "pth_spawn",
    "st_thread_create",
];

/// Together they make a stack and go to it.
const ALTERNATE: u8 = 1;
const JUMP: u8 = 2;

/// What is known of the program's stacks.
pub(crate) struct StackSearch {
    choice: Stacks,
    limit: u64,
    /// All memory is searched. Relaxed: set before the code that is the reason can run, and
    /// read by a scan that comes later, or whose answer is dropped.
    searching: AtomicBool,
    /// Parts of a pair that were asked for.
    pair: AtomicU8,
    /// A cause that was not told yet.
    cause: Mutex<Option<String>>,
    known: Mutex<Known>,
    /// No scan can prove anything. Relaxed, as `searching`.
    pub(crate) blind: AtomicBool,
}

/// Code of the process that was looked at.
#[derive(Default)]
struct Known {
    mappings: u64,
    files: HashSet<String>,
}

impl StackSearch {
    pub(crate) fn new(config: &Config) -> StackSearch {
        let search = StackSearch {
            choice: config.stacks,
            limit: config.search_limit,
            searching: AtomicBool::new(config.stacks == Stacks::Always),
            pair: AtomicU8::new(0),
            cause: Mutex::new(None),
            known: Mutex::default(),
            blind: AtomicBool::new(false),
        };
        if search.choice == Stacks::Auto {
            // What is there already is the embedder's.
            let mut known = search.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = foreign_code(|_| false) {
                known.mappings = found.mappings;
                known.files.extend(found.files);
            }
        }
        search
    }

    fn wanted(&self) -> bool {
        self.choice == Stacks::Auto && !self.searching.load(Ordering::Relaxed)
    }

    /// Searches from now on, because of `cause`.
    fn begin(&self, cause: impl FnOnce() -> String) {
        if !self.searching.swap(true, Ordering::Relaxed) {
            let mut held = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
            *held = Some(cause());
        }
    }

    /// Code of `files` is about to be made executable at `start`, nothing else among it;
    /// functions begin at `bounds`.
    pub(crate) fn note_code(
        &self,
        files: impl FnOnce() -> String,
        code: &[u8],
        start: u64,
        mut bounds: Vec<u64>,
    ) {
        if !self.wanted() {
            return;
        }
        bounds.sort_unstable();
        if let Some(at) = switches::find(code, start, &bounds) {
            self.begin(|| {
                let files = files();
                format!("{files}, at {at:#x}, loads its stack pointer from elsewhere")
            });
        }
    }

    /// A function is linked, with what it needs, at `start`; `body` is the function itself.
    pub(crate) fn note_function(&self, name: &str, linked: &Linked, start: u64, body: Range<u64>) {
        if !self.wanted() {
            return;
        }
        // The rest of the segment are constants.
        let rows = linked.fdes.iter().map(|row| row.start..row.end);
        for range in rows.chain([body]) {
            let place = |at: u64| at.checked_sub(start).map_or(usize::MAX, |at| at as usize);
            let code = linked.code.get(place(range.start)..place(range.end));
            if let Some(at) = code.and_then(|code| switches::find(code, range.start, &[])) {
                self.begin(|| {
                    format!("{name}, at {at:#x}, loads its stack pointer from elsewhere")
                });
            }
        }
    }

    /// Something is linked against `name`.
    pub(crate) fn note_import(&self, name: &str) {
        let part = match name {
            "sigaltstack" => ALTERNATE,
            "longjmp" | "_longjmp" | "siglongjmp" | "__longjmp_chk" => JUMP,
            _ => 0,
        };
        if part != 0 && self.pair.fetch_or(part, Ordering::Relaxed) | part == ALTERNATE | JUMP {
            if self.wanted() {
                self.begin(|| String::from("it uses sigaltstack and longjmp"));
            }
        } else if NAMES.binary_search(&name).is_ok() && self.wanted() {
            self.begin(|| format!("it uses {name}"));
        }
    }

    /// Looks at code of the process that came since it was last asked. What is at
    /// `ours` is not of interest.
    fn look_at_process(&self, ours: impl Fn(u64) -> bool) {
        if !self.wanted() {
            return;
        }
        let Some(found) = foreign_code(ours) else {
            return self.begin(|| String::from("/proc/self/maps cannot be read"));
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.mappings == found.mappings {
            return;
        }
        if let Some(at) = found.made {
            return self.begin(|| format!("it has code of no file, at {at:#x}"));
        }
        for file in found.files {
            if known.files.insert(file.clone()) && file_switches(&file) {
                return self.begin(|| format!("{file} loads its stack pointer from elsewhere"));
            }
        }
        known.mappings = found.mappings;
    }
}

/// Executable mappings of the process.
struct Foreign {
    /// A hash of them.
    mappings: u64,
    files: Vec<String>,
    /// The first that is of no file.
    made: Option<u64>,
}

fn foreign_code(ours: impl Fn(u64) -> bool) -> Option<Foreign> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut hasher = DefaultHasher::new();
    let mut found = Foreign {
        mappings: 0,
        files: Vec::new(),
        made: None,
    };
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else {
            continue;
        };
        if permissions.as_bytes().get(2) != Some(&b'x') {
            continue;
        }
        let (start, _) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        if ours(start) {
            continue;
        }
        range.hash(&mut hasher);
        let path = words.nth(3);
        path.hash(&mut hasher);
        match path {
            Some("[vdso]" | "[vsyscall]") => {}
            // Of another session, which looks at its own code.
            Some("/memfd:uruk") => {}
            Some(path) if path.starts_with('/') => {
                // The rest of a path with blanks.
                let from = line.find(path).unwrap_or(line.len());
                found.files.push(line[from..].to_owned());
            }
            _ => found.made = found.made.or(Some(start)),
        }
    }
    found.mappings = hasher.finish();
    Some(found)
}

/// Whether a library has code that goes to other stacks; true if nobody can say.
fn file_switches(path: &str) -> bool {
    let Ok(bytes) = std::fs::read(path) else {
        return true;
    };
    let Ok(file) = object::File::parse(&*bytes) else {
        return true;
    };
    let mut bounds: Vec<u64> = file
        .dynamic_symbols()
        .chain(file.symbols())
        .map(|symbol| object::ObjectSymbol::address(&symbol))
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut text = file.sections().filter(|s| s.kind() == SectionKind::Text);
    text.any(|section| {
        let Ok(code) = section.data() else {
            return true;
        };
        let range = section.address()..section.address() + section.size();
        let from = bounds.partition_point(|&bound| bound < range.start);
        let to = bounds.partition_point(|&bound| bound < range.end);
        switches::find(code, range.start, &bounds[from..to]).is_some()
    })
}

impl Core {
    /// Scans for who may return into `wanted`, and in all memory if the program has stacks
    /// that nobody told of. `None`: it got such stacks meanwhile; the scan proves nothing.
    pub(crate) fn scan_stacks(
        &self,
        roots: &Roots,
        wanted: &Wanted,
        within: Duration,
    ) -> Option<Report> {
        let search = &self.reclaim.stacks;
        let ours = |at: u64| {
            let data = [Pool::ReadOnly, Pool::ReadWrite].map(|pool| self.heap.pool_range(pool));
            self.heap.contains(at) && !data.iter().any(|data| data.contains(&at))
        };
        search.look_at_process(ours);
        let searching = search.searching.load(Ordering::Relaxed);
        roots.search_memory(if searching { search.limit } else { 0 });
        let report = roots.scan(wanted, within);
        search.look_at_process(ours);
        if search.blind.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(sp) = report.unknown_stack {
            match search.choice {
                Stacks::Told => {
                    if !search.blind.swap(true, Ordering::Relaxed) {
                        warn!(
                            "a thread runs on a stack at {sp:#x} that nobody told of (see \
                             `Jit::register_stack`): no code is freed from now on"
                        );
                    }
                    return None;
                }
                _ => search.begin(|| format!("a thread is on one at {sp:#x}")),
            }
        }
        self.tell_of_search();
        (search.searching.load(Ordering::Relaxed) == searching).then_some(report)
    }

    /// Says why memory is searched, once.
    fn tell_of_search(&self) {
        let search = &self.reclaim.stacks;
        let cause = search
            .cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(cause) = cause {
            tracing::info!(
                "the program has stacks that nobody told of ({cause}): \
                 all memory is searched before code is freed"
            );
            let at = self.events.now();
            self.events.tell(|| Event::StacksSearched { cause, at });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service;

    fn search(stacks: Stacks) -> StackSearch {
        StackSearch::new(&Config {
            stacks,
            ..Config::default()
        })
    }

    fn searching(search: &StackSearch) -> bool {
        search.searching.load(Ordering::Relaxed)
    }

    #[test]
    fn names_are_sorted_and_pairs_count_together() {
        let _pass = service::enter();
        assert!(NAMES.is_sorted());
        let pair = search(Stacks::Auto);
        for name in ["longjmp", "printf", "siglongjmp", "main"] {
            pair.note_import(name);
            assert!(!searching(&pair), "{name}");
        }
        pair.note_import("sigaltstack");
        assert!(searching(&pair));
        for name in NAMES {
            let one = search(Stacks::Auto);
            one.note_import(name);
            assert!(searching(&one), "{name}");
            let told = search(Stacks::Told);
            told.note_import(name);
            assert!(!searching(&told), "{name}");
        }
    }

    #[test]
    fn code_that_the_program_makes_itself() {
        let _pass = service::enter();
        let search = search(Stacks::Auto);
        // Other tests of the process make code as well, which is the reason for `ours`.
        let before = foreign_code(|_| false).expect("proc");
        // SAFETY: a new mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let after = foreign_code(|_| false).expect("proc");
        assert!(after.made.is_some() && before.mappings != after.mappings);
        search.look_at_process(|_| false);
        assert!(searching(&search));
        // SAFETY: the mapping above.
        unsafe { libc::munmap(page, 4096) };
    }

    #[test]
    fn libraries_are_told_apart() {
        let _pass = service::enter();
        let path = |name: &str| {
            let found = foreign_code(|_| false).expect("proc");
            found.files.into_iter().find(|path| path.contains(name))
        };
        // `swapcontext` and `longjmp` are in it.
        assert!(file_switches(&path("libc.so").expect("mapped")));
        assert!(!file_switches(&path("libm.so").expect("mapped")));
        assert!(file_switches("no such file"));
    }
}
