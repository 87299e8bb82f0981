//! Performs a whole scan.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use crate::asking;
use crate::caller::{caller_registers, scan_caller};
use crate::contexts::{CONTEXTS, elsewhere};
use crate::entries;
use crate::error::RootsError;
use crate::exempt::{Exempt, Exemption};
use crate::handler::{self, INTERRUPTED, REPEATED, REQUESTS};
use crate::hits::Hits;
use crate::look::{Look, Looker};
use crate::maps::note_fork;
use crate::memory::{Search, Stop};
use crate::report::{How, Report, ScanTrouble, StackReport, ThreadReport, Wanted};
use crate::settle::{Asked, Settling};
use crate::shadow;
use crate::sharers;
use crate::stacks::{StackId, StackPlace, Stacks};
use crate::sync::Ordering;
use crate::sys;
use crate::task;
use crate::turn::TURN;
use crate::unsearched;

/// Settings of a scanner.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Most bytes of stack that are scanned of one thread; default 64 MiB.
    pub stack_limit: u64,
    /// Places for registered stacks; default 4,096.
    pub registered_stacks: usize,
    /// Places for exempt threads; default 256.
    pub exempt_threads: usize,
    /// Longest time that a running thread may block the signal, or wait for a child of `vfork`, before
    /// the scan goes on without it; default 20 ms.
    pub patience: Duration,
    /// Running threads measure the processor time of their scan, for two more system calls; default no.
    pub time_work: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            stack_limit: 64 << 20,
            registered_stacks: 4096,
            exempt_threads: 256,
            patience: Duration::from_millis(20),
            time_work: false,
        }
    }
}

/// Finds threads that may still return into one region of code.
#[derive(Debug)]
pub struct Roots {
    region: Range<u64>,
    config: Config,
    stacks: Stacks,
    exempt: Arc<Exempt>,
    /// Bytes of memory that a search may read; 0: no search. Relaxed: the caller that sets it scans
    /// after that.
    search: AtomicU64,
    /// Whether a search reads stacks of threads whole.
    whole: AtomicBool,
}

impl Roots {
    /// A scanner for addresses in `region`; installs the handler of the handshake, which
    /// stays for the life of the process.
    ///
    /// # Errors
    /// An empty region or one of 4 GiB and more, or a kernel that does not let a process read its own memory.
    pub fn new(region: Range<u64>, config: Config) -> Result<Self, RootsError> {
        if region.start >= region.end || region.end - region.start > u32::MAX as u64 - 1 {
            return Err(RootsError::BadRegion {
                start: region.start,
                end: region.end,
            });
        }
        let probe = 0x5eed_u64;
        let mut read = [0];
        let count = sys::read_words(sys::getpid(), &raw const probe as u64, &mut read);
        if count != 1 || read[0] != probe {
            return Err(RootsError::NoReading);
        }
        shadow::install();
        Ok(Self {
            region,
            stacks: Stacks::new(config.registered_stacks),
            exempt: Arc::new(Exempt::new(config.exempt_threads)),
            search: AtomicU64::new(0),
            whole: AtomicBool::new(false),
            config,
        })
    }

    /// The signal of the handshake, unless the program handles all candidates.
    pub fn signal(&self) -> Option<i32> {
        shadow::choose()
    }

    /// Registers memory that threads run on temporarily, as fibers do. It is scanned as a whole, before
    /// and after the threads, until it is unregistered; it must be readable that long. Usable on any
    /// thread, also in a signal handler.
    ///
    /// # Errors
    /// An empty or unaligned range, or no place left.
    pub fn register_stack(&self, range: Range<u64>) -> Result<StackId, RootsError> {
        self.stacks.register(range)
    }

    /// Forgets a registered stack.
    pub fn unregister_stack(&self, id: StackId) {
        self.stacks.unregister(id);
    }

    /// Whether stacks are registered.
    pub fn has_stacks(&self) -> bool {
        !self.stacks.ranges().is_empty()
    }

    /// Lets scans that begin from now on search all memory for stacks that were not registered, reading
    /// `limit` bytes at most (0: no search). Found addresses keep their ranges. `whole`: also search
    /// unused parts of threads' own stacks. These hold old return addresses, and coroutines that a
    /// program places within a thread's stack.
    pub fn search_memory(&self, limit: u64, whole: bool) {
        self.search.store(limit, Ordering::Relaxed);
        self.whole.store(whole, Ordering::Relaxed);
    }

    /// Leaves the calling thread out of scans while the result lives. The thread must not run code of
    /// the region in that time, nor return into it later.
    pub fn exempt_current_thread(&self) -> Exemption {
        self.exempt.enter()
    }

    /// Resets the scanner in the child after `fork`, before its first scan: requests of the parent and
    /// exemptions are forgotten.
    pub fn after_fork_child(&self) {
        note_fork();
        handler::after_fork_child();
        shadow::after_fork_child();
        asking::after_fork_child();
        for slot in &REQUESTS {
            drop(slot.reset());
        }
        self.exempt.clear();
    }

    /// Finds the wanted ranges that a thread may still execute or return into. Takes at most about
    /// `within`, once other scans of the process have ended; threads not scanned then keep everything.
    ///
    /// A range that is not kept in a complete report stays so under two conditions. Nothing outside of
    /// stacks and registers leads into it any more (no slot, no table). And a barrier
    /// ([`fence_all_threads`](crate::fence_all_threads)) came between taking it out of the slots and
    /// this.
    ///
    /// The calling thread is scanned like the others, from here upwards: an address that
    /// the caller keeps in a local variable keeps its range.
    #[inline(never)]
    pub fn scan(&self, wanted: &Wanted, within: Duration) -> Report {
        // Before the frames here hold an address of a wanted range.
        let caller = caller_registers();
        self.scan_below(&caller, wanted, None, within)
    }

    /// Like [`scan`](Self::scan), for these threads only. The report is never complete: it covers only
    /// these threads.
    #[inline(never)]
    pub fn scan_threads(&self, tids: &[i32], wanted: &Wanted, within: Duration) -> Report {
        let caller = caller_registers();
        self.scan_below(&caller, wanted, Some(tids), within)
    }

    #[inline(never)]
    fn scan_below(
        &self,
        caller: &[u64; 7],
        wanted: &Wanted,
        only: Option<&[i32]>,
        within: Duration,
    ) -> Report {
        let _turn = TURN.take();
        let began = Instant::now();
        let counts = || {
            (
                REPEATED.load(Ordering::Relaxed),
                INTERRUPTED.load(Ordering::Relaxed),
            )
        };
        let (repeated, interrupted) = counts();
        let hull = wanted.hull();
        let region_end = self.region.end.saturating_add(1);
        let range = hull.start.max(self.region.start)..hull.end.min(region_end);
        let mut scan = Scan {
            roots: self,
            caller,
            wanted,
            only,
            deadline: began + within,
            report: Report {
                kept: vec![false; wanted.ranges().len()],
                ..Report::default()
            },
        };
        let before = self.stacks.before();
        if range.start < range.end
            && let Err(trouble) = scan.run(range)
        {
            scan.report.trouble = Some(trouble);
        }
        let mut report = scan.report;
        match self.stacks.place(&before, elsewhere()) {
            StackPlace::Known => {}
            StackPlace::Unknown(sp) => report.unknown_stack = Some(sp),
            StackPlace::Unsure => drop(report.trouble.get_or_insert(ScanTrouble::Unsettled)),
        }
        let answered = report.threads.iter().all(|thread| thread.how.answered());
        report.complete = answered && report.trouble.is_none() && only.is_none();
        if !report.complete {
            report.kept.fill(true);
        }
        let (repeated_now, interrupted_now) = counts();
        report.repeated_calls = repeated_now.wrapping_sub(repeated);
        report.interrupted_calls = interrupted_now.wrapping_sub(interrupted);
        report.took = began.elapsed();
        report
    }
}

/// A scan in progress.
struct Scan<'a> {
    roots: &'a Roots,
    caller: &'a [u64; 7],
    wanted: &'a Wanted,
    /// Scan only these threads.
    only: Option<&'a [i32]>,
    deadline: Instant,
    report: Report,
}

fn no_proc(error: &io::Error) -> ScanTrouble {
    ScanTrouble::NoProc(error.raw_os_error().unwrap_or(0))
}

impl Scan<'_> {
    fn run(&mut self, range: Range<u64>) -> Result<(), ScanTrouble> {
        let roots = self.roots;
        let limit = roots.config.stack_limit;
        let mut looker =
            Looker::new(range, limit, &roots.stacks).map_err(|error| no_proc(&error))?;
        looker.timed = roots.config.time_work;
        // A stack that is not in use may lie anywhere, in a frame of another one, too.
        let switches = !CONTEXTS.all().is_empty()
            || !roots.stacks.ranges().is_empty()
            || roots.search.load(Ordering::Relaxed) != 0;
        if let Some(rows) = self.wanted.rows().filter(|_| !switches) {
            looker.by_frames(rows);
        }
        let exempt: HashSet<i32> = roots.exempt.all().into_iter().collect();
        if let Some(tids) = self.only {
            self.threads(&mut looker, tids, &exempt);
            return Ok(());
        }
        self.registered(&mut looker)?;
        self.contexts(&mut looker)?;
        let mut seen = HashSet::new();
        let mut last = Vec::new();
        loop {
            let (tids, whole) = task::list().map_err(|error| no_proc(&error))?;
            self.report.listings += 1;
            let new: Vec<i32> = tids
                .iter()
                .copied()
                .filter(|tid| !seen.contains(tid))
                .collect();
            if new.is_empty() && (whole || tids == last) {
                break;
            }
            if self.report.listings > 1 && Instant::now() >= self.deadline {
                return Err(ScanTrouble::Unsettled);
            }
            if !new.is_empty() && self.report.listings > 1 {
                // As recent as the list of threads: it includes their stacks.
                looker.refresh().map_err(|error| no_proc(&error))?;
            }
            seen.extend(new.iter().copied());
            self.threads(&mut looker, &new, &exempt);
            last = tids;
        }
        self.registered(&mut looker)?;
        if !CONTEXTS.all().is_empty() {
            // It includes stacks made since.
            looker.refresh().map_err(|error| no_proc(&error))?;
            self.contexts(&mut looker)?;
        }
        match roots.search.load(Ordering::Relaxed) {
            0 => {}
            limit => self.memory(&mut looker, &exempt, limit)?,
        }
        match sharers::find() {
            None => Ok(()),
            Some(pid) => Err(ScanTrouble::SharedMemory { pid }),
        }
    }

    /// Searches all memory that a stack may lie in.
    fn memory(
        &mut self,
        looker: &mut Looker<'_>,
        exempt: &HashSet<i32>,
        limit: u64,
    ) -> Result<(), ScanTrouble> {
        let threads = &self.report.threads;
        let first = threads.iter().find(|thread| thread.tid == looker.pid);
        // Threads that were not walked do not count: a fiber's stack may be among their variables.
        let walked = |how: How| match how {
            How::Running { .. } | How::Blocked { .. } | How::Caller { .. } => true,
            How::Exempt | How::Outside | How::Gone | How::Unanswered { .. } => false,
        };
        let but_main = first.is_some_and(|first| walked(first.how));
        let stacks = exempt.iter().filter(|&&tid| tid != looker.pid);
        let stacks = stacks.filter_map(|&tid| {
            let [own, _] = looker.maps.own(sys::robust_list(tid), false);
            own.map(|(range, _)| range)
        });
        let mut without: Vec<Range<u64>> = stacks.chain(unsearched::all()).collect();
        if !self.roots.whole.load(Ordering::Relaxed) {
            let read = threads.iter().filter(|thread| walked(thread.how));
            let read = read.filter(|thread| thread.tid != looker.pid);
            let blocks = read.map(|thread| sys::robust_list(thread.tid));
            without.extend(blocks.filter_map(|tcb| looker.maps.dedicated(tcb)));
        }
        without.push(looker.buffer());
        let search = Search {
            pid: looker.pid,
            wanted: self.wanted,
            range: looker.range(),
            limit,
            without,
            but_main,
        };
        let found = search.run().map_err(|stop| match stop {
            Stop::NoMaps(error) => no_proc(&error),
            Stop::Large(bytes) => ScanTrouble::LargeMemory { bytes },
            Stop::ManyHits => ScanTrouble::ManyHits,
        })?;
        for &index in &found.keeps {
            self.report.kept[index] = true;
        }
        self.report.memory = Some(found);
        Ok(())
    }

    /// Scans the stacks of `makecontext`, as far as they exist.
    fn contexts(&mut self, looker: &mut Looker<'_>) -> Result<(), ScanTrouble> {
        if CONTEXTS.full() {
            return Err(ScanTrouble::ManyContexts);
        }
        for range in CONTEXTS.all() {
            for part in looker.maps.clone().readable(&range) {
                let scanned = looker.scan_memory(&part);
                if !scanned.map_err(|_| ScanTrouble::ManyHits)? {
                    // A page of it went meanwhile, or its protection changed.
                    return Err(ScanTrouble::UnreadableStack {
                        start: part.start,
                        end: part.end,
                    });
                }
                let keeps = self.keeps(&looker.hits);
                if !keeps.is_empty() {
                    self.report.stacks.push(StackReport { range: part, keeps });
                }
            }
        }
        Ok(())
    }

    fn threads(&mut self, looker: &mut Looker<'_>, tids: &[i32], exempt: &HashSet<i32>) {
        let own = sys::gettid();
        let mut asked = Vec::new();
        for &tid in tids {
            if exempt.contains(&tid) {
                self.note(tid, How::Exempt, None);
                continue;
            }
            if entries::is_outside(tid) {
                self.note(tid, How::Outside, None);
                continue;
            }
            if tid == own {
                let how = scan_caller(looker, self.caller);
                self.note(tid, how, Some(&looker.hits));
                continue;
            }
            match looker.look(tid) {
                Look::Scanned { tries, bytes } => {
                    let scanned = bytes;
                    self.note(tid, How::Blocked { tries, scanned }, Some(&looker.hits));
                }
                Look::Gone => self.note(tid, How::Gone, None),
                Look::Failed(why) => self.note(tid, How::Unanswered { why }, None),
                look => asked.push(Asked::new(tid, look)),
            }
        }
        asking::forget_the_dead();
        let mut settling = Settling {
            patience: self.roots.config.patience,
            deadline: self.deadline,
            busy: [false; REQUESTS.len()],
            looker,
        };
        settling.run(asked, |tid, how, hits| self.note(tid, how, hits));
    }

    fn registered(&mut self, looker: &mut Looker<'_>) -> Result<(), ScanTrouble> {
        for range in self.roots.stacks.ranges() {
            match looker.scan_memory(&range) {
                Ok(true) => {}
                // It may have been unregistered and unmapped meanwhile.
                Ok(false) if !self.roots.stacks.ranges().contains(&range) => continue,
                Ok(false) => {
                    return Err(ScanTrouble::UnreadableStack {
                        start: range.start,
                        end: range.end,
                    });
                }
                Err(_) => return Err(ScanTrouble::ManyHits),
            }
            let keeps = self.keeps(&looker.hits);
            if !keeps.is_empty() {
                self.report.stacks.push(StackReport { range, keeps });
            }
        }
        Ok(())
    }

    /// The ranges that the hits keep; enters them in the total as well.
    fn keeps(&mut self, hits: &Hits) -> Vec<usize> {
        let mut keeps: Vec<usize> = hits
            .iter()
            .flat_map(|address| self.wanted.kept_by(address))
            .collect();
        keeps.sort_unstable();
        keeps.dedup();
        for &index in &keeps {
            self.report.kept[index] = true;
        }
        keeps
    }

    fn note(&mut self, tid: i32, how: How, hits: Option<&Hits>) {
        if let How::Running {
            delivered_in,
            answered_in,
            ..
        } = how
        {
            let report = &mut self.report;
            report.longest_handshake = report.longest_handshake.max(answered_in);
            report.longest_delivery = report.longest_delivery.max(delivered_in);
        }
        let keeps = match hits {
            Some(hits) if how.answered() => self.keeps(hits),
            _ => Vec::new(),
        };
        let name = if keeps.is_empty() && how.answered() {
            String::new()
        } else {
            task::name(tid)
        };
        self.report.threads.push(ThreadReport {
            tid,
            name,
            how,
            keeps,
        });
    }
}
