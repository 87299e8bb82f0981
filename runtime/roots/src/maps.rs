//! Finds the ends of stacks, in a snapshot of the process's mappings.
//!
//! A stack pointer gives the beginning of a stack, not its end. With `sp` in an area `[start, end)` of
//! readable memory the stack ends at
//!
//! | if | end |
//! |---|---|
//! | the thread's control block `tcb` is in the area and `sp < tcb` | `tcb` |
//! | a registered stack `[a, b)` contains `sp`, and is there as far as `b` | `b` |
//! | else | `end` |
//!
//! A thread library puts the control block at the top of the stack it maps, so the first line keeps a
//! scan out of mappings that happen to touch the stack. It comes first because freed registered stacks
//! may not be reported: the stack of a new thread may lie where one was, in part or as a whole. An area
//! is a run of adjacent readable anonymous mappings: a stack may consist of several (advice, locked
//! pages), and running past its end costs time, not safety.
//!
//! The main stack grows when it is touched. Below its mapping, down to a stack pointer that was moved
//! and not used yet, nothing was ever stored: a walk begins at the mapping.
//!
//! A thread's own stack, where it ran before it went to another one, is the area of its
//! control block below the block, and `[stack]` for the first thread.
//!
//! The snapshot may be old. The reader of a stack probes an end taken from the last line: memory that is
//! readable where the snapshot has none requires a new snapshot.
//!
//! # Loads that cannot fault
//! The running owner of a stack may load from `[sp, end)` directly if the area is the
//! main stack (`[stack]`, never unmapped), or if the end is the control block and the
//! mapping right below the area is inaccessible (the guard page): area and block are
//! one allocation then, which lives as long as the thread. Everything else is read by
//! `process_vm_readv`.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::contexts::CONTEXTS;
use crate::entries;

/// The process is a child of `fork`: its first thread may run on any stack. Relaxed: it is
/// set when there is one thread.
pub(crate) static FORKED: AtomicBool = AtomicBool::new(false);

/// Records that this process is the child of a `fork`, whether or not its parent had a scanner.
pub fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
    entries::after_fork_child();
}

/// A run of readable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    range: Range<u64>,
    /// Right above lies a readable mapping of another kind.
    continues: bool,
    /// Right below lies an inaccessible mapping.
    guarded: bool,
    /// Grows downwards, lives as long as the process.
    main_stack: bool,
    anonymous: bool,
    /// Code, or a file's: nothing can be pushed there.
    fixed: bool,
}

/// The end of a stack, and how it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first byte above.
    pub(crate) end: u64,
    /// The owner may load directly.
    pub(crate) direct: bool,
    /// The end is the end of a mapping: memory at `end` must not be readable.
    pub(crate) probe: bool,
    /// The mapping that the stack would have to grow from, if it does not reach down to
    /// the stack pointer.
    pub(crate) grows_from: Option<u64>,
}

/// The mappings at one moment, and the registered stacks.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    areas: Vec<Area>,
    stacks: Vec<Range<u64>>,
}

impl Maps {
    /// Reads the mappings. `stacks` must be sorted.
    pub(crate) fn take(mut stacks: Vec<Range<u64>>) -> io::Result<Self> {
        let text = uruk_files::read("/proc/thread-self/maps")?;
        let areas = parse(&text);
        let contexts = CONTEXTS.all();
        // Overlapping stacks are memory that was reused: none of them is certain.
        for (at, context) in contexts.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| contexts.get(at));
            let after = contexts.get(at.saturating_add(1));
            let mut others = before.into_iter().chain(after).chain(&stacks);
            if others.all(|other| other.end <= context.start || context.end <= other.start) {
                stacks.push(context.clone());
            }
        }
        stacks.sort_by_key(|stack| stack.start);
        Ok(Self { areas, stacks })
    }

    /// The readable parts of `range`.
    pub(crate) fn readable(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let at = self
            .areas
            .partition_point(|area| area.range.end <= range.start);
        let areas = self.areas.get(at..).unwrap_or_default().iter();
        let (start, end) = (range.start, range.end);
        areas
            .take_while(move |area| area.range.start < end)
            .map(move |area| area.range.start.max(start)..area.range.end.min(end))
    }

    /// Whether a stack pointer may point there: not to code, and not to a file's memory that cannot be
    /// written. Usable in a signal handler.
    pub(crate) fn may_be_stack(&self, sp: u64) -> bool {
        let at = self.areas.partition_point(|area| area.range.end <= sp);
        let area = self.areas.get(at);
        area.is_none_or(|area| !area.fixed || !area.range.contains(&sp))
    }

    /// The end of the stack that `sp` points into; `None` if the snapshot has no readable memory there.
    /// Usable in a signal handler.
    pub(crate) fn extent(&self, sp: u64, tcb: u64) -> Option<Extent> {
        let at = self.areas.partition_point(|area| area.range.end <= sp);
        let area = self.areas.get(at)?;
        // The main stack may have grown since.
        let grown = area.main_stack && area.range.start.wrapping_sub(sp) < 256 << 20;
        if !area.range.contains(&sp) && !grown {
            return None;
        }
        let below_block = sp < tcb && tcb < area.range.end;
        let after = self.stacks.partition_point(|stack| stack.end <= sp);
        let registered = self.stacks.get(after).filter(|stack| stack.contains(&sp));
        if let Some(stack) = registered
            && !below_block
            && self.reaches(at, stack.end)
        {
            return Some(Extent {
                end: stack.end,
                direct: false,
                probe: false,
                grows_from: None,
            });
        }
        // Loads from where it has not grown to would fault at its limit, and an area with a registered
        // stack is not one allocation.
        let sure = area.main_stack || (area.guarded && below_block && registered.is_none());
        Some(Extent {
            end: if below_block {
                tcb & !7
            } else {
                area.range.end
            },
            direct: sure && area.range.contains(&sp),
            probe: !below_block && !area.continues,
            grows_from: (!area.range.contains(&sp)).then_some(area.range.start),
        })
    }

    /// Whether all memory from the area at an index up to `end` is readable.
    fn reaches(&self, at: usize, end: u64) -> bool {
        let areas = self.areas.get(at..).unwrap_or_default();
        let pairs = areas.iter().zip(areas.iter().skip(1));
        let mut ends = pairs.map(|(area, next)| (area.range.end, next.range.start));
        let gap = ends.find(|(above, next)| above != next);
        let last = areas.last().map_or(0, |area| area.range.end);
        end <= gap.map_or(last, |(above, _)| above)
    }

    /// The own stack of a thread by its control block, and `[stack]` for the `first` thread; each with
    /// whether it may have grown.
    pub(crate) fn own(&self, tcb: u64, first: bool) -> [Option<(Range<u64>, bool)>; 2] {
        let at = self.areas.partition_point(|area| area.range.end <= tcb);
        let area = self
            .areas
            .get(at)
            .filter(|area| tcb != 0 && area.range.contains(&tcb));
        // The first thread's block is not at its stack, unless it was not the first one when it forked.
        let area = area.filter(|_| !first || FORKED.load(Ordering::Relaxed));
        let below = area.map(|area| (area.range.start..tcb & !7, false));
        let main = self.areas.iter().rev().find(|area| area.main_stack);
        let main = main.filter(|_| first);
        [
            below.filter(|(range, _)| !range.is_empty()),
            main.map(|area| (area.range.clone(), true)),
        ]
    }
}

impl Maps {
    /// The own stack of a thread by its control block, if it is one allocation with the block: an
    /// inaccessible mapping lies right below. Nothing else is in it.
    pub(crate) fn dedicated(&self, tcb: u64) -> Option<Range<u64>> {
        let at = self.areas.partition_point(|area| area.range.end <= tcb);
        let area = self.areas.get(at)?;
        let holds = area.guarded && !area.main_stack && area.range.contains(&tcb);
        let own = area.range.start..tcb & !7;
        (holds && tcb != 0 && !own.is_empty()).then_some(own)
    }
}

fn parse(text: &[u8]) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    let mut guard_end = 0;
    for line in lines(text) {
        let range = line.range;
        if line.permissions.first() != Some(&b'r') {
            guard_end = range.end;
            continue;
        }
        // `[vvar]` and `[vsyscall]` are readable to their owner only, but no stack.
        let main_stack = line.path == Some(b"[stack]");
        let can = |what: u8| line.permissions.contains(&what);
        let fixed = !can(b'w') && (can(b'x') || !line.anonymous);
        if let Some(last) = areas
            .last_mut()
            .filter(|last| last.range.end == range.start)
        {
            let alike = last.anonymous && line.anonymous && !last.main_stack && !main_stack;
            if alike && last.fixed == fixed {
                last.range.end = range.end;
                continue;
            }
            last.continues = true;
        }
        areas.push(Area {
            continues: false,
            guarded: guard_end == range.start,
            main_stack,
            anonymous: line.anonymous,
            fixed,
            range,
        });
    }
    areas
}

/// One mapping: `start-end perms offset device inode [path]`.
pub(crate) struct MapLine<'a> {
    pub(crate) range: Range<u64>,
    /// `r`, `w`, `x` and `p` or `s`; `-` for what is not there.
    pub(crate) permissions: &'a [u8],
    pub(crate) anonymous: bool,
    /// It is the beginning of its file.
    pub(crate) is_first: bool,
    /// The first word of it.
    pub(crate) path: Option<&'a [u8]>,
}

/// The mappings in the text of `/proc/self/maps`.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = MapLine<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<MapLine<'_>> {
    let mut words = line.split(|&byte| byte == b' ').filter(|w| !w.is_empty());
    let range = std::str::from_utf8(words.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let permissions = words.next()?;
    let offset = words.next()?;
    let inode = words.nth(1)?;
    Some(MapLine {
        range: start..end,
        permissions,
        anonymous: inode == b"0",
        is_first: offset.iter().all(|&digit| digit == b'0'),
        path: words.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Maps, parse};

    const TEXT: &str = "\
00400000-00500000 r-xp 00000000 fe:00 17 /usr/bin/thing
10000000-10001000 ---p 00000000 00:00 0
10001000-10101000 rw-p 00000000 00:00 0
10101000-10102000 rw-p 00000000 00:00 0 [anon: more]
10102000-10103000 r--p 00000000 fe:00 17 /usr/lib/a name with blanks
20000000-20100000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0          [stack]
";

    fn maps() -> Maps {
        Maps {
            areas: parse(TEXT.as_bytes()),
            stacks: vec![0x2000_1000..0x2000_2000, 0x2000_8000..0x2000_9000],
        }
    }

    fn extent(sp: u64, tcb: u64) -> Option<(u64, bool, bool)> {
        let found = maps().extent(sp, tcb);
        found.map(|found| (found.end, found.direct, found.probe))
    }

    #[test]
    fn a_stack_ends_at_its_control_block_or_with_its_area() {
        let block = 0x1010_0900;
        assert_eq!(extent(0x1000_2000, block), Some((block, true, false)));
        assert_eq!(extent(0x1000_2000, 0), Some((0x1010_2000, false, false)));
        assert_eq!(extent(0x2000_0000, 0), Some((0x2010_0000, false, true)));
        assert_eq!(extent(0x2000_0000, block), Some((0x2010_0000, false, true)));
        // A block without a guard below: not certain.
        let (end, direct, _) = extent(0x2000_3000, 0x2008_0000).expect("an extent");
        assert_eq!((end, direct), (0x2008_0000, false));
    }

    #[test]
    fn code_and_files_are_no_stacks() {
        let maps = maps();
        // Code, and a file that is read only; a stack, a guard, the main stack, and nothing.
        assert!(!maps.may_be_stack(0x40_0000) && !maps.may_be_stack(0x1010_2000));
        let stacks = [0x1000_1000, 0x1000_0000, 0x7ffc_0000_0000, 0x3000_0000];
        assert!(stacks.iter().all(|&sp| maps.may_be_stack(sp)));
    }

    #[test]
    fn registered_stacks_win_and_guards_are_no_stacks() {
        assert_eq!(extent(0x2000_1ff8, 0), Some((0x2000_2000, false, false)));
        assert_eq!(extent(0x1000_0800, 0), None);
        assert_eq!(extent(0x3000_0000, 0), None);
        assert_eq!(extent(0x7fff_ffff_0000, 0), None);
    }

    #[test]
    fn what_was_registered_may_be_a_threads_stack_now() {
        let mut maps = maps();
        // Over the whole of a thread's stack with its block, beyond its top, and across a guard.
        maps.stacks = vec![0x1000_4000..0x1080_0000, 0x200f_0000..0x2018_0000];
        let extent = |sp, tcb| {
            let found = maps.extent(sp, tcb);
            found.map(|found| (found.end, found.direct, found.probe))
        };
        let block = 0x1010_0900;
        assert_eq!(extent(0x1000_5000, block), Some((block, false, false)));
        assert_eq!(
            extent(0x1010_0a00, block),
            Some((0x1010_2000, false, false))
        );
        assert_eq!(extent(0x200f_f000, 0), Some((0x2010_0000, false, true)));
    }

    #[test]
    fn the_main_stack_grows() {
        let end = 0x7ffc_0002_1000;
        assert_eq!(extent(0x7ffc_0000_0008, 0x1000), Some((end, true, true)));
        // Not there yet: a load could fault.
        assert_eq!(extent(0x7ffb_fff0_0000, 0x1000), Some((end, false, true)));
        assert_eq!(extent(0x7ff0_0000_0000, 0), None);
    }

    #[test]
    fn our_own_stack_is_in_the_snapshot() {
        let here = 0u64;
        let maps = Maps::take(Vec::new()).expect("the mappings");
        let found = maps.extent(&raw const here as u64, 0).expect("our stack");
        assert!(found.end > &raw const here as u64);
    }
}
