//! Detects whether the program uses unregistered stacks, and searches memory for them then.
//!
//! A scan that knows all stacks proves which code is dead. A program that switches stacks in its
//! own assembly has stacks that no table lists, and on which no thread may be running. Then all
//! memory is searched (`uruk_roots`), until the session ends.
//!
//! | suspicious code | detected |
//! |---|---|
//! | an instruction that loads `rsp` from elsewhere (`switches`), in data, assembly and objects of modules, and in functions whose IR may lead there (`Compiled::keeps_stack`) | when it is linked |
//! | a name of a known library for fibers ([`FIBERS`]) | when code is linked against it |
//! | `sigaltstack` together with `longjmp` or a variant of it, in modules and libraries taken together | when linked, or as in the next row |
//! | in a file of the process, library or executable: such an instruction, such a name, or one of the C library's functions for contexts | before and after each scan, each file once |
//! | one of these names, requested from `dlsym` by the program | the same |
//! | executable memory without a file and not the runtime's: code that the program made itself | the same |
//! | a thread on an unregistered stack | by a scan |
//! | a process that shares this memory and is no thread | by a scan, which proves nothing while there is one |
//!
//! A program that uses `clone` may make such processes, of which not all are found (see
//! `uruk_roots`), and reclaim ends when it makes one (`host::processes`).
//!
//! # Why no code is freed while an unknown stack may return into it
//! An unregistered stack has such a return address only after a thread went to that stack, by an
//! instruction or by a function of the C library. The switching code was linked by the runtime, or
//! is code of the process: of a file, or made by the program. If it existed when the scan began
//! whose answer frees the code, it was checked then. If it came while that scan was under way, it
//! is found afterwards, and the answer is dropped. Switching code that came and went during the
//! scan cannot switch back. Files that were mapped before the session are checked like others, at
//! the first scan (`foreign` says which are trusted).
//!
//! Not detected: the cases that `switches` misses; a library that requests the C library's
//! functions from `dlsym`; one that writes another stack into a `jmp_buf`; assembly in the file
//! that holds the runtime. An embedder with such code sets `reclaim.stacks = always`.
//!
//! `reclaim.stacks` decides: `auto` as above; `always` searches from the start; `told` trusts that
//! all stacks are registered, and reclaim ends if a thread is found on another. With more memory
//! than `reclaim.search_limit` a scan proves nothing, and no code is freed.
//!
//! # Why
//! Stacks without a running thread are roots if they are registered: `makecontext` of JIT'd code
//! does that, and an embedder by `Jit::register_stack`. Code that loads its stack pointer from
//! elsewhere, or names a function that goes to another stack, is detected when it is linked, and in
//! files of the process before and after each scan (`switches`, `foreign`, `library`). From then on
//! all writable memory is searched before code is freed (`reclaim.stacks`, at most
//! `reclaim.search_limit` bytes). While a process that is no thread shares the memory, no code is
//! freed (`sharers` in `uruk_roots`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use tracing::debug;
use uruk_base::locks::{Mutex, ranks};
use uruk_link::Linked;
use uruk_reclaim::{Config, Stacks};

use crate::stacks::foreign::{Foreign, foreign_code};
use crate::stacks::library::{self, ALTERNATE, FIBERS, JUMP, Signs, goes_elsewhere, part_of_pair};
use crate::stacks::switches;

/// The program requested, by name, a function that goes to another stack without registering it.
/// Relaxed: set before the program has its address, and read by a scan that comes later, or whose
/// answer is dropped.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Notes that the program requests `name` from the loader. Usable in a signal handler.
pub(crate) fn note_asked(name: &CStr) {
    if name.to_str().is_ok_and(goes_elsewhere) {
        ASKED.store(true, Ordering::Relaxed);
    }
}

/// State of the search for the program's stacks.
pub(crate) struct StackSearch {
    choice: Stacks,
    limit: u64,
    /// All memory is searched. Relaxed: set before the code that causes it can run, and read by a
    /// scan that comes later, or whose answer is dropped.
    searching: AtomicBool,
    /// Parts of a pair that were requested.
    pair: AtomicU8,
    /// A cause that was not reported yet.
    cause: Mutex<Option<String>>,
    known: Mutex<CheckedCode, ranks::StackSearchKnown>,
    /// Functions whose instructions were checked. Statistics.
    decoded: AtomicU64,
}

/// Code of the process that was checked.
#[derive(Default)]
struct CheckedCode {
    mappings: u64,
    files: HashSet<String>,
    /// Trusted files, which are not checked; set at the first look.
    trusted: Option<HashSet<String>>,
}

impl StackSearch {
    pub(crate) fn new(config: &Config) -> StackSearch {
        StackSearch {
            choice: config.stacks,
            limit: config.search_limit,
            searching: AtomicBool::new(config.stacks == Stacks::Always),
            pair: AtomicU8::new(0),
            cause: Mutex::new(None),
            known: Mutex::default(),
            decoded: AtomicU64::new(0),
        }
    }

    /// When memory is searched.
    pub(crate) fn choice(&self) -> Stacks {
        self.choice
    }

    /// Whether memory is searched for unregistered stacks: the program switches stacks by itself.
    pub(crate) fn is_searching(&self) -> bool {
        self.searching.load(Ordering::Relaxed)
    }

    /// Bytes of memory that a scan searches at most.
    pub(crate) fn limit(&self) -> u64 {
        match self.is_searching() {
            true => self.limit,
            false => 0,
        }
    }

    /// Takes the reason why memory is searched, unless it was reported.
    pub(crate) fn take_cause(&self) -> Option<String> {
        self.cause.lock().take()
    }

    fn wanted(&self) -> bool {
        self.choice == Stacks::Auto && !self.searching.load(Ordering::Relaxed)
    }

    /// Searches from now on, because of `cause`.
    pub(crate) fn begin(&self, cause: impl FnOnce() -> String) {
        if !self.searching.swap(true, Ordering::Relaxed) {
            let mut held = self.cause.lock();
            *held = Some(cause());
        }
    }

    /// Checks code of `files` that is about to be made executable at `start`. It has no data among
    /// it; functions begin at `bounds`.
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

    /// Functions whose instructions were checked.
    pub(crate) fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }

    /// Checks a function that is linked at `start`, with its other sections; `body` is the function
    /// itself. Of functions compiled from IR, only those that may lead to another stack by it
    /// ([`Compiled::keeps_stack`](uruk_codegen::Compiled)) come here.
    pub(crate) fn note_function(&self, name: &str, linked: &Linked, start: u64, body: Range<u64>) {
        if !self.wanted() {
            return;
        }
        self.decoded.fetch_add(1, Ordering::Relaxed);
        // The rest of the segment consists of constants.
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

    /// Checks a name that code is linked against.
    pub(crate) fn note_import(&self, name: &str) {
        if FIBERS.binary_search(&name).is_ok() && self.wanted() {
            self.begin(|| format!("it uses {name}"));
        }
        self.note_pair(part_of_pair(name));
    }

    fn note_pair(&self, part: u8) {
        let both = |held: u8| held | part == ALTERNATE | JUMP;
        if part != 0 && both(self.pair.fetch_or(part, Ordering::Relaxed)) && self.wanted() {
            self.begin(|| String::from("it uses sigaltstack and longjmp"));
        }
    }

    /// Checks code of the process that is new since the last look. Mappings that begin at `ours`
    /// are skipped.
    pub(crate) fn look_at_process(&self, ours: impl Fn(u64) -> bool) {
        if !self.wanted() {
            return;
        }
        if ASKED.load(Ordering::Relaxed) {
            return self.begin(|| String::from("it asked for a function that goes to another"));
        }
        let Some(found) = foreign_code(ours) else {
            return self.begin(|| String::from("/proc/self/maps cannot be read"));
        };
        let mut known = self.known.lock();
        if known.mappings == found.mappings {
            return;
        }
        if let Some(at) = found.made {
            return self.begin(|| format!("it has code of no file, at {at:#x}"));
        }
        self.look_at_files(&mut known, &found);
        known.mappings = found.mappings;
    }

    fn look_at_files(&self, known: &mut CheckedCode, found: &Foreign) {
        let (began, before) = (Instant::now(), known.files.len());
        self.look_at_new(known, found);
        let (files, took) = (known.files.len() - before, began.elapsed());
        debug!(files, ?took, "looked at code of the process");
    }

    fn look_at_new(&self, known: &mut CheckedCode, found: &Foreign) {
        let CheckedCode { files, trusted, .. } = known;
        let trusted = trusted.get_or_insert_with(|| found.trusted());
        for file in &found.files {
            if trusted.contains(&file.key) || !files.insert(file.key.clone()) {
                continue;
            }
            let own = file.is_own();
            let Some(Signs { switches, pair }) = library::look(&file.path, !own) else {
                return self.begin(|| format!("{} cannot be read", file.path));
            };
            if let Some(switches) = switches {
                return self.begin(|| format!("{} {switches}", file.path));
            }
            if !own {
                self.note_pair(pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fork::gate;
    use crate::{Jit, LinkPass};

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
    fn names_and_pairs_count() {
        let _pass = gate::enter();
        let pair = search(Stacks::Auto);
        for name in ["longjmp", "printf", "siglongjmp", "main"] {
            pair.note_import(name);
            assert!(!searching(&pair), "{name}");
        }
        pair.note_import("sigaltstack");
        assert!(searching(&pair));
        for name in FIBERS {
            let one = search(Stacks::Auto);
            one.note_import(name);
            assert!(searching(&one), "{name}");
            let told = search(Stacks::Told);
            told.note_import(name);
            assert!(!searching(&told), "{name}");
        }
    }

    #[test]
    fn only_functions_that_may_go_to_another_stack_are_looked_at() {
        const TEXT: &str = r#"
            define i64 @plain(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }
            declare void @use(ptr)
            define void @stays(i64 %n) {
              %saved = call ptr @llvm.stacksave.p0()
              %array = alloca i8, i64 %n
              store volatile i8 1, ptr %array
              call void @llvm.stackrestore.p0(ptr %saved)
              ret void
            }
            define void @goes(ptr %to) {
              call void asm sideeffect "mov $0, %rsp", "r"(ptr %to)
              ret void
            }"#;
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", TEXT).expect("valid");
        let stacks = &jit.session().stacks;
        for (name, decoded, elsewhere) in
            [("plain", 0, false), ("stays", 1, false), ("goes", 2, true)]
        {
            jit.main().compile(name).expect("compiles");
            assert_eq!(
                (stacks.decoded(), searching(stacks)),
                (decoded, elsewhere),
                "{name}"
            );
        }
        // A session with a pass that changes code is not exempt from the check.
        let pass: LinkPass = Arc::new(|_| Ok(()));
        let jit = Jit::builder()
            .jobs(1)
            .link_pass(pass)
            .build()
            .expect("a session");
        jit.add_ir("m", TEXT).expect("valid");
        jit.main().compile("plain").expect("compiles");
        assert_eq!(jit.stats().memory.decoded, 1);
    }

    #[test]
    fn code_that_the_program_makes_itself() {
        let _pass = gate::enter();
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
}
