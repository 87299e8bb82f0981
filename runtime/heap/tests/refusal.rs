//! Systems that refuse: little address space, no large files. Each case runs in a child process,
//! because limits are process-wide.

use uruk_heap::{Backing, BackingChoice, Errno, Heap, HeapConfig, HeapError, MAX_RESERVATION};

mod support;

use support::{call, function};

/// Runs `case` in a child; a panic or an abort fails the test.
fn in_child(case: impl FnOnce()) {
    // SAFETY: the child runs only `case` and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

fn limit(resource: libc::__rlimit_resource_t, bytes: usize) {
    let limit = libc::rlimit {
        rlim_cur: bytes as u64,
        rlim_max: bytes as u64,
    };
    // SAFETY: a valid limit for this process.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// Address space in use, in bytes.
fn in_use() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<usize>().unwrap() * uruk_heap::PAGE
}

fn config(backing: BackingChoice) -> HeapConfig {
    let mut config = HeapConfig::default();
    config.backing = backing;
    config
}

#[test]
fn the_reservation_is_halved_until_it_fits() {
    in_child(|| {
        limit(libc::RLIMIT_AS, in_use() + (1 << 30));
        let heap = Heap::new(config(BackingChoice::Auto)).unwrap();
        assert!(heap.size() < MAX_RESERVATION && heap.size() > 256 << 20);
        assert_eq!(heap.backing(), Backing::Dual);
        assert_eq!(call(function(&heap, 4).unwrap().address()), 4);
    });
    in_child(|| {
        limit(libc::RLIMIT_AS, in_use() + (2 << 20));
        let error = Heap::new(config(BackingChoice::Auto)).unwrap_err();
        let expected = HeapError::Reserve {
            asked: MAX_RESERVATION,
            smallest: uruk_heap::MIN_RESERVATION,
            errno: Errno::NOMEM,
        };
        assert_eq!(error, expected);
    });
}

#[test]
fn without_a_memfd_pages_are_flipped() {
    in_child(|| {
        limit(libc::RLIMIT_FSIZE, 1 << 20);
        let heap = Heap::new(config(BackingChoice::Auto)).unwrap();
        assert_eq!(heap.backing(), Backing::Flip);
        assert_eq!(call(function(&heap, 4).unwrap().address()), 4);
        let refused = Heap::new(config(BackingChoice::Dual)).unwrap_err();
        let errno = Errno::FBIG;
        assert_eq!(refused, HeapError::NoExecutable { errno });
    });
}

#[test]
fn a_child_without_memory_of_its_own_is_detached() {
    let heap = support::heap(BackingChoice::Dual);
    let inherited = function(&heap, 9).unwrap();
    heap.before_fork();
    in_child(|| {
        limit(libc::RLIMIT_FSIZE, 1 << 20);
        let errno = Errno::FBIG;
        let detached = HeapError::Detached { errno };
        assert_eq!(heap.after_fork_child(), Err(detached.clone()));
        assert_eq!(call(inherited.address()), 9);
        assert_eq!(function(&heap, 1).unwrap_err(), detached);
        let stubs = heap.stub_region();
        assert_eq!(stubs.commit_stub_pages(0, &[0; 4096], 1), Err(detached));
        assert!(heap.allocate(uruk_heap::Pool::ReadWrite, 9, 1).is_ok());
    });
    heap.after_fork_parent();
    assert_eq!(call(function(&heap, 1).unwrap().address()), 1);
}
