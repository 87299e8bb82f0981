//! Real forks: parents and children write different code at the same addresses.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use uruk_heap::{BackingChoice, Heap, HeapConfig, HeapError, MIN_RESERVATION, PAGE, Pool, Sealed};

mod support;

use support::{call, fork, function, heap, heaps, peek, wait};

/// A byte pipe by which two processes take turns.
struct Turn([i32; 2]);

impl Turn {
    fn new() -> Turn {
        let mut ends = [0; 2];
        // SAFETY: two integers for the result.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        Turn(ends)
    }

    fn give(&self) {
        // SAFETY: one byte.
        let written = unsafe { libc::write(self.0[1], [0_u8].as_ptr().cast(), 1) };
        assert_eq!(written, 1);
    }

    fn take(&self) {
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        let read = unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) };
        assert_eq!(read, 1);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for end in self.0 {
            // SAFETY: our own descriptor.
            unsafe { libc::close(end) };
        }
    }
}

fn expect(addresses: &[u64], first: u32) -> Result<(), String> {
    for (n, &address) in addresses.iter().enumerate() {
        let got = call(address);
        if got != first + n as u32 {
            return Err(format!(
                "{got} instead of {} at {address:#x}",
                first + n as u32
            ));
        }
    }
    Ok(())
}

fn make(heap: &Heap, first: u32, count: u32) -> Result<Vec<u64>, String> {
    (first..first + count)
        .map(|n| {
            function(heap, n)
                .map(|code| code.address())
                .map_err(|e| e.to_string())
        })
        .collect()
}

#[test]
fn both_sides_write_their_own_code_at_the_same_addresses() {
    for heap in heaps() {
        let inherited = make(&heap, 7, 3).unwrap();
        let mut mine = Vec::new();
        for round in 0..60_u32 {
            let (to_child, to_parent) = (Turn::new(), Turn::new());
            let pid = fork(&heap, || {
                let theirs = make(&heap, 1_000_000, 600)?;
                expect(&theirs, 1_000_000)?;
                to_parent.give();
                to_child.take(); // the parent has written the same addresses
                expect(&theirs, 1_000_000)?;
                expect(&inherited, 7)?;
                let more = make(&heap, 2_000_000, 600)?;
                expect(&more, 2_000_000)?;
                expect(&theirs, 1_000_000)
            });
            to_parent.take();
            let first = round * 1000;
            let new = make(&heap, first, 400).unwrap();
            expect(&new, first).unwrap();
            to_child.give();
            mine.push((first, new));
            wait(pid);
            for (first, addresses) in &mine {
                expect(addresses, *first).unwrap();
            }
            expect(&inherited, 7).unwrap();
        }
    }
}

/// Each process makes functions, forks a child that does the same, makes more, and checks all
/// functions it ever made or inherited.
fn generations(heap: &Heap, depth: u32, known: &[(u32, Vec<u64>)]) -> Result<(), String> {
    let mut known = known.to_vec();
    let tag = (depth + 1) * 100_000;
    known.push((tag, make(heap, tag, 300)?));
    if depth < 5 {
        let pid = fork(heap, || generations(heap, depth + 1, &known));
        known.push((tag + 1000, make(heap, tag + 1000, 900)?));
        wait(pid);
    }
    known.push((tag + 5000, make(heap, tag + 5000, 300)?));
    known
        .iter()
        .try_for_each(|(first, addresses)| expect(addresses, *first))
}

#[test]
fn children_of_children() {
    for heap in heaps() {
        for _ in 0..10 {
            generations(&heap, 0, &[]).unwrap();
        }
    }
}

/// A small heap lasts for any number of forks. Code made between them is packed as without forks.
/// Freed code comes back when the children are gone, except the part that one living child may use.
#[test]
fn memory_is_flat_over_many_forks() {
    const FORKS: u32 = 5000;
    const LIVING: usize = 64;
    let mut config = HeapConfig::default();
    config.reservation = MIN_RESERVATION;
    let heap = Heap::new(config).unwrap();
    let first = function(&heap, 7).unwrap();
    let stays = fork(&heap, || {
        loop {
            // SAFETY: waits to be killed.
            unsafe { libc::pause() };
        }
    });
    let mut living = VecDeque::new();
    let mut most = 0;
    for n in 0..FORKS {
        living.push_back(function(&heap, n).unwrap());
        let child = fork(&heap, || match call(first.address()) {
            7 => Ok(()),
            other => Err(format!("{other} instead of 7")),
        });
        if living.len() > LIVING {
            let old = living.pop_front().into_iter().map(Sealed::retire);
            // SAFETY: no thread calls it.
            unsafe { heap.free(old) };
        }
        // Children overlap.
        if n % 4 != 0 {
            wait(child);
        } else {
            // SAFETY: reaps a child, without waiting for it.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) };
        }
        most = most.max(heap.stats().code.sum().resident);
    }
    assert!(most <= 64 * PAGE, "{most} bytes at most");
    for (n, code) in (FORKS - living.len() as u32..).zip(&living) {
        assert_eq!(call(code.address()), n);
    }
    // SAFETY: our own children.
    unsafe {
        libc::kill(stays, libc::SIGKILL);
        libc::waitpid(stays, std::ptr::null_mut(), 0);
    }
}

#[test]
fn forks_while_other_threads_allocate() {
    for heap in heaps() {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for t in 1..3_u32 {
                let (heap, stop) = (&heap, &stop);
                scope.spawn(move || {
                    let mut made = Vec::new();
                    while !stop.load(Ordering::Relaxed) && made.len() < 2000 {
                        made.push(
                            function(heap, t << 20 | made.len() as u32)
                                .unwrap()
                                .address(),
                        );
                        assert_eq!(
                            call(made[made.len() - 1]),
                            (t << 20) | (made.len() as u32 - 1)
                        );
                    }
                    expect(&made, t << 20).unwrap();
                });
            }
            for _ in 0..40 {
                let pid = fork(&heap, || {
                    let made = make(&heap, 5_000_000, 300)?;
                    expect(&made, 5_000_000)
                });
                wait(pid);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn inherited_blocks_are_not_reused_and_drafts_do_not_cross() {
    let heap = heap(BackingChoice::Dual);
    let constant = |byte: u8| {
        let mut draft = heap.allocate(Pool::ReadOnly, 64, 16).unwrap();
        draft.write(0, &[byte; 64]).unwrap();
        draft.seal().unwrap()
    };
    let (first, second, free) = (constant(1), constant(2), constant(3));
    let _behind = constant(4);
    let (at_first, at_second, at_free) = (first.address(), second.address(), free.address());
    // SAFETY: no code uses it.
    unsafe { free.release() };
    let mut data = heap.allocate(Pool::ReadWrite, 16, 16).unwrap();
    let mut open = Some(heap.allocate(Pool::Code, 6, 16).unwrap());
    let mut first = Some(first);
    let turn = Turn::new();
    let pid = fork(&heap, || {
        let mut draft = open.take().unwrap();
        if draft.write(0, &[0xc3]) != Err(HeapError::CrossedFork) {
            return Err("a draft was written across a fork".into());
        }
        if draft.seal().err() != Some(HeapError::CrossedFork) {
            return Err("a draft was sealed across a fork".into());
        }
        data.write(0, &[9; 16]).map_err(|error| error.to_string())?;
        // SAFETY: no code uses it.
        unsafe { first.take().unwrap().release() };
        for _ in 0..100 {
            let made = constant(8).address();
            if made <= at_free || made == at_second || made % PAGE as u64 == 0 && made < at_first {
                return Err(format!("{made:#x} was inherited"));
            }
        }
        if peek(at_first, 64) != [1; 64] || heap.stats().read_only.wasted == 0 {
            return Err("inherited constants changed".into());
        }
        turn.take();
        match peek(at_first, 64) == [1; 64] && peek(at_second, 64) == [2; 64] {
            true => Ok(()),
            false => Err("the parent changed inherited constants".into()),
        }
    });
    // SAFETY: no code of this process uses it.
    unsafe { first.take().unwrap().release() };
    for _ in 0..100 {
        assert!(constant(7).address() >= at_free);
    }
    assert_eq!(peek(at_first, 64), [1; 64]);
    turn.give();
    wait(pid);
    assert_eq!(peek(at_second, 64), [2; 64]);
    assert_eq!(peek(data.address(), 16), [0; 16]);
    let mut open = open.take().unwrap();
    open.write(0, &support::returning(77)).unwrap();
    assert_eq!(call(open.seal().unwrap().address()), 77);
}

#[test]
fn handlers_may_be_called_twice_or_alone() {
    for heap in heaps() {
        heap.after_fork_parent();
        heap.after_fork_child().unwrap();
        heap.before_fork();
        heap.before_fork();
        heap.after_fork_parent();
        heap.after_fork_parent();
        assert_eq!(call(function(&heap, 3).unwrap().address()), 3);
    }
}
