//! Searches all memory for stacks that were not registered.
//!
//! A program that switches stacks in its own assembly suspends code where no table lists it. Such a
//! stack is writable memory, so all of that is read, as collectors of garbage do. Any word at a multiple
//! of eight may be an address at which code continues.
//!
//! # What is read
//! | mapping | read |
//! |---|---|
//! | readable, writable, private, or shared without a file | yes |
//! | of that, pages never touched | no: `pagemap` has neither bit 63 (present) nor 62 (swapped) |
//! | `[stack]`, if the first thread was walked | no: the walk read the part in use |
//! | own stacks of other threads that were walked, unless whole stacks are requested | no: the same |
//! | memory of the runtime (see `unsearched`) | no: no code is suspended there |
//! | stacks of exempt threads, buffers of this scan | no |
//! | shared with a file | no: programs do not put stacks there |
//!
//! # What counts
//! Memory is full of addresses of code to which no thread returns: tables of starts and ends of
//! functions are enough to keep all code for ever. A word `w` in `[start, end]` counts if code can
//! continue there after having been left, by its bytes:
//!
//! | bytes | meaning |
//! |---|---|
//! | `e8 rel32` ends at `w` | a call's return address |
//! | `ff /2`, 2 to 7 bytes, ends at `w` | the same, indirect |
//! | `lea r, [rip + d]` in the range, with `w` as its address | assembly that saves where it continues |
//! | four bytes in the range with the value `w` | the same, without position independence |
//! | word of an interrupted context (a [mark](crate::walk) follows) | anywhere: a signal came there |
//!
//! Where a function ends with a call, its end looks like that call's return address. Tables of
//! functions have its start beside it, which no stack has: generated code never has the address
//! of its own entry (see `look`). So a word next to the start of its range does not count. Where
//! another range starts at that end, a word next to that one's end does not count either: return
//! addresses are sixteen bytes apart.
//!
//! # When
//! After all threads. Code that is in a range all through the scan is either on a thread when that is
//! scanned, and found, or suspended then. A suspended word stays in memory, also when a thread continues
//! it (see the crate's page). Stacks that are *copied* between two places during a scan are not covered.
//!
//! # Cost
//! The limit of [`Roots::search_memory`](crate::Roots::search_memory) bounds the bytes read; a process
//! with more is not searched, and the scan proves nothing.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use uruk_files::OwnFile;

use crate::hits::Hits;
use crate::maps::lines;
use crate::report::Wanted;
use crate::resumable::Resumable;
use crate::scratch::Scratch;
use crate::sys;
use crate::walk::FRAME_MARK;

const PAGE: u64 = 4096;

/// Words read at once.
const CHUNK: usize = 16 << 10;

/// Entries of `pagemap` read at once.
const ENTRIES: usize = 4096;

/// Address space that is examined, in multiples of the limit.
const SPACE: u64 = 64;

/// General registers before the mark in a saved context.
const SAVED: u64 = 18 * 8;

/// Result of the search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Bytes read.
    pub bytes: u64,
    /// Indices of the wanted ranges that are kept, sorted.
    pub keeps: Vec<usize>,
    /// Words that point into the ranges and do not count.
    pub passed_over: usize,
    /// Duration of the search.
    pub took: Duration,
}

/// Reasons why the search has no answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// `/proc/self/maps` cannot be read.
    NoMaps(io::Error),
    /// More memory than the limit.
    Large(u64),
    /// More distinct addresses than the largest table holds.
    ManyHits,
}

/// The addresses searched for, and the memory left out.
pub(crate) struct Search<'a> {
    pub(crate) pid: i32,
    pub(crate) wanted: &'a Wanted,
    /// Hull of the wanted ranges.
    pub(crate) range: &'a Range<u64>,
    /// Most bytes to read.
    pub(crate) limit: u64,
    /// Memory that is left out, sorted.
    pub(crate) without: Vec<Range<u64>>,
    /// Whether `[stack]` is left out.
    pub(crate) but_main: bool,
}

struct Found {
    likely: Hits,
    sure: Hits,
    bytes: u64,
}

impl Search<'_> {
    /// Searches all memory.
    pub(crate) fn run(mut self) -> Result<MemoryReport, Stop> {
        let began = Instant::now();
        let text = uruk_files::read("/proc/thread-self/maps").map_err(Stop::NoMaps)?;
        let mut buffer = Scratch::new(CHUNK);
        let own = buffer.as_ptr_range();
        self.without.push(own.start as u64..own.end as u64);
        self.without.sort_by_key(|range| range.start);
        let pages = OwnFile::open("/proc/thread-self/pagemap").ok();
        let mut found = Found {
            likely: Hits::new(self.range, Hits::FIRST),
            sure: Hits::new(self.range, Hits::FIRST),
            bytes: 0,
        };
        let mut space = 0u64;
        for range in searched(&text, &self.without, self.but_main) {
            space = space.saturating_add(range.end - range.start);
            if space > self.limit.saturating_mul(SPACE) {
                return Err(Stop::Large(space));
            }
            touched(pages.as_ref(), &range, |run| {
                self.read(run, &mut buffer, &mut found)
            })?;
        }
        // Page flags from another file would leave out pages.
        if pages.is_some_and(|pages| !pages.is_ours()) {
            return Err(Stop::NoMaps(io::Error::from_raw_os_error(libc::EBADF)));
        }
        let mut report = self.judge(&found);
        report.took = began.elapsed();
        Ok(report)
    }

    fn read(&self, run: Range<u64>, buffer: &mut [u64], found: &mut Found) -> Result<(), Stop> {
        found.bytes = found.bytes.saturating_add(run.end - run.start);
        if found.bytes > self.limit {
            return Err(Stop::Large(found.bytes));
        }
        let (mut at, mut first) = (run.start, 0);
        while at + 8 * (first as u64) < run.end {
            let count = ((run.end - at) / 8).min(buffer.len() as u64) as usize;
            let read = sys::read_words(self.pid, at, &mut buffer[..count]);
            if read <= first {
                // Freed, or protected, since: no stack now.
                (at, first) = ((at & !(PAGE - 1)) + PAGE, 0);
                continue;
            }
            // The last word waits for the one behind it.
            let more = read == count && at + 8 * (read as u64) < run.end;
            let end = if more { read - 1 } else { read };
            while found.note(self, at, &buffer[..read], first..end) {
                found.likely = found.likely.grown().ok_or(Stop::ManyHits)?;
                found.sure = found.sure.grown().ok_or(Stop::ManyHits)?;
            }
            // Both of its neighbours are read with it.
            let back = if more { 2 } else { 0 };
            (at, first) = (at + 8 * (read as u64 - back), usize::from(more));
        }
        Ok(())
    }

    /// Whether `word` is from a table that has `beside` next to it. The end of one range may be the
    /// start of another, at which no call continues.
    fn in_table(&self, word: u64, beside: u64) -> bool {
        let mut ranges = self
            .wanted
            .kept_by(word)
            .map(|at| &self.wanted.ranges()[at]);
        let mut same = ranges.clone();
        same.any(|range| (range.start, range.end) == (word, beside))
            || ranges.all(|range| [word, beside].contains(&range.start))
    }

    /// Selects the found words that count.
    fn judge(&self, found: &Found) -> MemoryReport {
        // Offsets, as in the tables of hits: words left in freed memory must not look like addresses to
        // the next search.
        let mut pairs: Vec<(usize, u64)> = Vec::new();
        let ranges = self.wanted.ranges();
        let mut keeps: Vec<usize> = Vec::new();
        for address in found.sure.iter() {
            keeps.extend(self.wanted.kept_by(address));
        }
        for address in found.likely.iter() {
            let kept = self.wanted.kept_by(address);
            pairs.extend(kept.map(|index| (index, address - ranges[index].start)));
        }
        pairs.sort_unstable();
        let mut passed_over = 0;
        for group in pairs.chunk_by(|a, b| a.0 == b.0) {
            let index = group[0].0;
            let code = self.code(&ranges[index]);
            let resumable = Resumable::of(&code, ranges[index].start);
            for &(_, offset) in group {
                // See `in_table`: no call continues at the entry.
                if offset != 0 && resumable.at(offset) {
                    keeps.push(index);
                } else {
                    passed_over += 1;
                }
            }
        }
        keeps.sort_unstable();
        keeps.dedup();
        MemoryReport {
            bytes: found.bytes,
            keeps,
            passed_over,
            took: Duration::ZERO,
        }
    }

    /// The bytes of a range, as far as they can be read.
    fn code(&self, range: &Range<u64>) -> Vec<u8> {
        let start = range.start & !7;
        let count = (range.end - start).div_ceil(8) as usize;
        let mut words = vec![0u64; count];
        let read = sys::read_words(self.pid, start, &mut words);
        let bytes = words[..read].iter().flat_map(|word| word.to_le_bytes());
        let skip = (range.start - start) as usize;
        let length = (range.end - range.start) as usize;
        bytes.skip(skip).take(length).collect()
    }
}

impl Found {
    /// Notes the addresses in `part` of the words that were read at `at`; true if there was no room.
    fn note(&mut self, search: &Search<'_>, at: u64, words: &[u64], part: Range<usize>) -> bool {
        for (group, chunk) in words[part.clone()].chunks(8).enumerate() {
            let mut any = false;
            for &word in chunk {
                any |= self.likely.wants(word) | (word == FRAME_MARK);
            }
            if any {
                let first = part.start + group * 8;
                (first..first + chunk.len()).for_each(|index| self.word(search, at, words, index));
            }
        }
        self.likely.overflowed() || self.sure.overflowed()
    }

    fn word(&mut self, search: &Search<'_>, at: u64, words: &[u64], index: usize) {
        let word = words[index];
        if word == FRAME_MARK {
            let mut saved = [0; (SAVED / 8) as usize];
            let end = at + index as u64 * 8;
            let read = sys::read_words(search.pid, end.wrapping_sub(SAVED), &mut saved);
            saved[..read].iter().for_each(|&word| self.sure.note(word));
        }
        if !self.likely.wants(word) {
            return;
        }
        let before = index.checked_sub(1).map(|before| words[before]);
        let beside = [before, words.get(index + 1).copied()];
        if !beside
            .into_iter()
            .flatten()
            .any(|beside| search.in_table(word, beside))
        {
            self.likely.note(word);
        }
    }
}

/// The mappings a stack may lie in, less `without`.
fn searched(text: &[u8], without: &[Range<u64>], but_main: bool) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    for line in lines(text) {
        let writable = line.permissions.starts_with(b"rw");
        let private = line.permissions.get(3) == Some(&b'p');
        let nameless = line.path.is_none_or(|path| path.starts_with(b"/dev/zero"));
        let main = line.path == Some(b"[stack]");
        if !writable || !(private || nameless) || (main && but_main) {
            continue;
        }
        let mut rest = line.range;
        for hole in without {
            if hole.end <= rest.start || rest.end <= hole.start {
                continue;
            }
            if rest.start < hole.start {
                all.push(rest.start..hole.start & !7);
            }
            rest.start = rest.end.min((hole.end + 7) & !7);
        }
        if !rest.is_empty() {
            all.push(rest);
        }
    }
    all
}

/// Calls `run` for the parts of `range` that were ever touched.
fn touched(
    pages: Option<&OwnFile>,
    range: &Range<u64>,
    mut run: impl FnMut(Range<u64>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut at = range.start;
    let mut open: Option<u64> = None;
    let mut bytes = [0u8; ENTRIES * 8];
    while at < range.end {
        let first = at / PAGE;
        let count = ((range.end.div_ceil(PAGE) - first) as usize).min(ENTRIES);
        let asked = &mut bytes[..count * 8];
        let known = pages.is_some_and(|pages| pages.read_exact_at(asked, first * 8).is_ok());
        for index in 0..count {
            // Bit 63 and 62 of a little-endian word.
            let there = !known || asked[index * 8 + 7] & 0xc0 != 0;
            let page = ((first + index as u64) * PAGE).max(range.start);
            match open {
                None if there => open = Some(page),
                Some(start) if !there => {
                    run(start..page)?;
                    open = None;
                }
                _ => {}
            }
        }
        at = (first + count as u64) * PAGE;
    }
    match open {
        Some(start) => run(start..range.end),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{searched, touched};

    const TEXT: &str = "\
00400000-00500000 r-xp 00000000 fe:00 17 /usr/bin/thing
00500000-00501000 rw-p 00000000 fe:00 17 /usr/bin/thing
10000000-10001000 ---p 00000000 00:00 0
10001000-10009000 rw-p 00000000 00:00 0
20000000-20001000 rw-s 00000000 00:01 5 /memfd:code (deleted)
20001000-20002000 rw-s 00000000 00:01 6 /dev/zero (deleted)
30000000-30001000 rw-p 00000000 00:00 0 [heap]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0          [stack]
";

    #[test]
    fn writable_memory_without_a_shared_file() {
        let without = [0x1000_2004..0x1000_3000, 0x1000_8000..0x1000_9000];
        let found = searched(TEXT.as_bytes(), &without, true);
        let expected = [
            0x50_0000..0x50_1000,
            0x1000_1000..0x1000_2000,
            0x1000_3000..0x1000_8000,
            0x2000_1000..0x2000_2000,
            0x3000_0000..0x3000_1000,
        ];
        assert_eq!(found, expected);
        assert_eq!(searched(TEXT.as_bytes(), &without, false).len(), 6);
    }

    #[test]
    fn untouched_pages_are_left_out() {
        let size = 64 << 20;
        let memory = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                size,
                memory,
                rustix::mm::MapFlags::PRIVATE,
            )
        };
        let at = at.expect("memory");
        // SAFETY: within the mapping.
        unsafe { at.byte_add(40 << 20).cast::<u64>().write(1) };
        let pages = uruk_files::OwnFile::open("/proc/thread-self/pagemap").expect("proc");
        let mut runs = Vec::new();
        let start = at as u64;
        touched(Some(&pages), &(start..start + size as u64), |run| {
            runs.push(run);
            Ok(())
        })
        .expect("no limit");
        let page = start + (40 << 20);
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        assert!(runs.iter().any(|run| run.contains(&page)), "{runs:x?}");
        // A huge page at most.
        assert!(bytes <= 4 << 20, "{bytes}");
        // SAFETY: the mapping above.
        unsafe { rustix::mm::munmap(at, size) }.expect("mapped");
    }
}
