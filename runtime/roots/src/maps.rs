//! Where a stack ends: a snapshot of the process's mappings.
//!
//! A stack pointer says where a stack begins, not where it ends. With `sp` in an area
//! `[start, end)` of readable memory the stack ends at
//!
//! | if | end |
//! |---|---|
//! | a registered stack `[a, b)` contains `sp` | `b` |
//! | the thread's control block `tcb` is in the area and `sp < tcb` | `tcb` |
//! | else | `end` |
//!
//! A thread library puts the control block at the top of the stack it maps, so the
//! second line keeps a scan out of mappings that happen to touch the stack. An area is
//! a run of adjacent readable anonymous mappings: a stack may be several (advice, locked
//! pages), and running past its end costs time, not safety.
//!
//! The snapshot may be old. An end taken from the third line is probed by whoever reads
//! there: memory that is readable where the snapshot has none means a new snapshot.
//!
//! # Loads that cannot fault
//! The running owner of a stack may load from `[sp, end)` directly if the area is the
//! main stack (`[stack]`, never unmapped), or if the end is the control block and the
//! mapping right below the area is inaccessible (the guard page): area and block are
//! one allocation then, which lives as long as the thread. Everything else is read by
//! `process_vm_readv`.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

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
}

/// Where a stack ends, and how it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first byte above.
    pub(crate) end: u64,
    /// The owner may load directly.
    pub(crate) direct: bool,
    /// The end is the end of a mapping: memory at `end` must not be readable.
    pub(crate) probe: bool,
}

/// The mappings at one moment, and the registered stacks.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    areas: Vec<Area>,
    stacks: Vec<Range<u64>>,
}

impl Maps {
    /// Reads the mappings. `stacks` must be sorted.
    pub(crate) fn take(stacks: Vec<Range<u64>>) -> io::Result<Self> {
        let mut text = Vec::with_capacity(64 << 10);
        File::open("/proc/self/maps")?.read_to_end(&mut text)?;
        let areas = parse(&text);
        Ok(Self { areas, stacks })
    }

    /// Where the stack that `sp` points into ends; `None` if the snapshot has no
    /// readable memory there. Usable in a signal handler.
    pub(crate) fn extent(&self, sp: u64, tcb: u64) -> Option<Extent> {
        let after = self.stacks.partition_point(|stack| stack.end <= sp);
        if let Some(stack) = self.stacks.get(after).filter(|stack| stack.contains(&sp)) {
            return Some(Extent {
                end: stack.end,
                direct: false,
                probe: false,
            });
        }
        let at = self.areas.partition_point(|area| area.range.end <= sp);
        let area = self.areas.get(at)?;
        // The main stack may have grown since.
        let grown = area.main_stack && area.range.start.wrapping_sub(sp) < 256 << 20;
        if !area.range.contains(&sp) && !grown {
            return None;
        }
        let below_block = sp < tcb && tcb < area.range.end;
        Some(Extent {
            end: if below_block {
                tcb & !7
            } else {
                area.range.end
            },
            direct: area.main_stack || (area.guarded && below_block),
            probe: !below_block && !area.continues,
        })
    }
}

fn parse(text: &[u8]) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    let mut guard_end = 0;
    for line in text.split(|&byte| byte == b'\n') {
        let Some((range, readable, anonymous, main_stack)) = parse_line(line) else {
            continue;
        };
        if !readable {
            guard_end = range.end;
            continue;
        }
        if let Some(last) = areas
            .last_mut()
            .filter(|last| last.range.end == range.start)
        {
            let alike = last.anonymous && anonymous && !last.main_stack && !main_stack;
            if alike {
                last.range.end = range.end;
                continue;
            }
            last.continues = true;
        }
        areas.push(Area {
            continues: false,
            guarded: guard_end == range.start,
            main_stack,
            anonymous,
            range,
        });
    }
    areas
}

/// `start-end perms offset device inode [path]`: range, readable, anonymous, main stack.
fn parse_line(line: &[u8]) -> Option<(Range<u64>, bool, bool, bool)> {
    let mut words = line.split(|&byte| byte == b' ').filter(|w| !w.is_empty());
    let range = std::str::from_utf8(words.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let readable = words.next()?.first() == Some(&b'r');
    let inode = words.nth(2)?;
    let path = words.next();
    let main_stack = path == Some(b"[stack]");
    // `[vvar]` and `[vsyscall]` are readable to their owner only, but no stack.
    Some((start..end, readable, inode == b"0", main_stack))
}

#[cfg(test)]
mod tests {
    use super::{Extent, Maps, parse};

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
            stacks: vec![0x2000_1000..0x2000_2000],
        }
    }

    fn extent(sp: u64, tcb: u64) -> Option<(u64, bool, bool)> {
        let found = maps().extent(sp, tcb);
        found.map(|Extent { end, direct, probe }| (end, direct, probe))
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
    fn registered_stacks_win_and_guards_are_no_stacks() {
        assert_eq!(extent(0x2000_1ff8, 0), Some((0x2000_2000, false, false)));
        assert_eq!(extent(0x1000_0800, 0), None);
        assert_eq!(extent(0x3000_0000, 0), None);
        assert_eq!(extent(0x7fff_ffff_0000, 0), None);
    }

    #[test]
    fn the_main_stack_grows() {
        let end = 0x7ffc_0002_1000;
        assert_eq!(extent(0x7ffc_0000_0008, 0x1000), Some((end, true, true)));
        assert_eq!(extent(0x7ffb_fff0_0000, 0x1000), Some((end, true, true)));
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
