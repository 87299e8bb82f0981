//! Tests of [`super::Kin`] with real processes.

use super::{Kin, Mark};
use crate::heap::Pool;
use crate::reclaim::Retired;

/// A child that was made by no function of the C library, and lives until it is ended.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Child {
        // SAFETY: the child makes system calls only.
        unsafe {
            let id = libc::syscall(libc::SYS_fork) as libc::pid_t;
            assert!(id >= 0);
            if id == 0 {
                loop {
                    libc::pause();
                }
            }
            Child(id)
        }
    }

    fn end(self) {
        // SAFETY: our own child.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

fn block(start: usize, born: u32) -> Retired {
    Retired {
        pool: Pool::Code,
        space: 0,
        start,
        size: 64,
        held: 64,
        born,
    }
}

fn starts(blocks: Vec<Retired>) -> Vec<usize> {
    let mut starts: Vec<usize> = blocks.iter().map(|block| block.start).collect();
    starts.sort_unstable();
    starts
}

/// All in one test: children of other tests of this process would attach the same mark.
#[test]
fn what_a_child_may_use_waits_for_it_and_nothing_else_does() {
    let mut kin = Kin::new(true);
    let old = kin.born();
    assert!(
        matches!(kin.mark, Mark::Attached { .. }),
        "segments are allowed here"
    );
    assert_eq!(
        starts(kin.free(vec![block(1, old)])),
        [1],
        "nobody else is there"
    );

    // A child without an announced fork.
    let first = Child::new();
    assert!(
        kin.free(vec![block(2, old)]).is_empty(),
        "seen when it matters"
    );
    let later = kin.born();
    assert!(later > old);
    assert_eq!(
        starts(kin.free(vec![block(3, later)])),
        [3],
        "made after it"
    );
    assert!(
        kin.free(vec![block(4, old)]).is_empty(),
        "died later, all the same"
    );

    // An announced fork ends the epoch before the next birth.
    let second = Child::new();
    kin.note_fork();
    let latest = kin.born();
    assert!(latest > later);
    assert!(kin.free(vec![block(5, later)]).is_empty());
    assert_eq!(starts(kin.free(vec![block(6, latest)])), [6]);
    assert_eq!(kin.waiting(), 3 * 64);

    second.end();
    assert_eq!(
        starts(kin.free(Vec::new())),
        [5],
        "the first one never had it"
    );
    first.end();
    assert_eq!(starts(kin.free(Vec::new())), [2, 4]);
    assert_eq!((kin.waiting(), kin.past.len()), (0, 0));

    // Forks without births are one epoch.
    for _ in 0..5 {
        let child = Child::new();
        kin.note_fork();
        child.end();
    }
    assert_eq!(kin.born(), latest);

    without_marks();
    orphans();
    many_epochs();
}

/// A child's child outlives its parent, and inherits the marks by which it is counted.
fn orphans() {
    let mut kin = Kin::new(true);
    let born = kin.born();
    let mut ends = [0; 2];
    // SAFETY: two numbers; the children make system calls only.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let middle = libc::syscall(libc::SYS_fork) as libc::pid_t;
        if middle == 0 {
            if libc::syscall(libc::SYS_fork) == 0 {
                libc::close(ends[1]);
                let mut byte = 0_u8;
                libc::read(ends[0], (&raw mut byte).cast(), 1);
            }
            libc::_exit(0);
        }
        libc::close(ends[0]);
        libc::waitpid(middle, std::ptr::null_mut(), 0);
    }
    assert!(kin.free(vec![block(1, born)]).is_empty());
    // SAFETY: our own descriptor.
    unsafe { libc::close(ends[1]) };
    let mut freed = Vec::new();
    while freed.is_empty() {
        freed = kin.free(Vec::new());
        std::thread::yield_now();
    }
    assert_eq!(starts(freed), [1]);
}

/// Without segments, blocks live at an announced fork stay.
fn without_marks() {
    let mut kin = Kin::new(true);
    kin.mark = Mark::Refused;
    let old = kin.born();
    assert_eq!(starts(kin.free(vec![block(1, old)])), [1]);
    kin.note_fork();
    assert!(kin.free(vec![block(2, old)]).is_empty());
    let young = kin.born();
    assert_eq!(starts(kin.free(vec![block(3, young)])), [3]);
}

/// More living children, each of an epoch of its own, than epochs are kept apart.
fn many_epochs() {
    let mut kin = Kin::new(true);
    let mut children = Vec::new();
    let mut born = kin.born();
    for at in 0..super::MAX_EPOCHS + 3 {
        assert!(kin.free(Vec::new()).is_empty());
        children.push(Child::new());
        assert!(kin.free(vec![block(at, born)]).is_empty());
        born = kin.born();
    }
    assert_eq!(kin.past.len(), super::MAX_EPOCHS);
    let all = children.len();
    children.into_iter().for_each(Child::end);
    let freed = starts(kin.free(Vec::new()));
    assert_eq!(freed, (0..all).collect::<Vec<_>>());
}
