//! Shared parts of the heap's tests: code that returns a number, and the kernel's view of the
//! address space.

#![allow(dead_code, reason = "each test file uses a part")]

use uruk_heap::{Backing, BackingChoice, Heap, HeapConfig, HeapError, Pool, Sealed};

/// A heap of 1 GiB with a backing.
pub fn heap(backing: BackingChoice) -> Heap {
    let mut config = HeapConfig::default();
    config.reservation = 1 << 30;
    config.backing = backing;
    Heap::new(config).unwrap()
}

/// Both backings.
pub fn heaps() -> [Heap; 2] {
    let heaps = [heap(BackingChoice::Dual), heap(BackingChoice::Flip)];
    assert_eq!(heaps[0].backing(), Backing::Dual);
    assert_eq!(heaps[1].backing(), Backing::Flip);
    heaps
}

/// `mov eax, number; ret`
pub fn returning(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_le_bytes();
    [0xb8, a, b, c, d, 0xc3]
}

/// Allocates and seals a function that returns a number.
pub fn function(heap: &Heap, number: u32) -> Result<Sealed, HeapError> {
    let mut draft = heap.allocate(Pool::Code, 6, 16)?;
    draft.write(0, &returning(number))?;
    draft.seal()
}

/// Calls a function made by [`function`].
pub fn call(address: u64) -> u32 {
    let code = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the bytes there are a function of that type.
    let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(code) };
    function()
}

/// Reads data of the heap.
pub fn peek(address: u64, len: usize) -> Vec<u8> {
    let data = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the tests pass mapped data that no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(data, len) }.to_vec()
}

/// One line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub protection: String,
    pub name: String,
}

/// The kernel's mappings inside a heap's reservation.
pub fn mappings(heap: &Heap) -> Vec<Mapping> {
    let end = heap.base() + heap.size() as u64;
    let inside = |mapping: &Mapping| mapping.start < end && mapping.end > heap.base();
    all_mappings().into_iter().filter(inside).collect()
}

/// All the kernel's mappings of this process.
pub fn all_mappings() -> Vec<Mapping> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            protection: words.next()?.to_string(),
            name: words.nth(3).unwrap_or("").to_string(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Pages of the process that are in memory, in KiB (anonymous and shared).
pub fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Forks with the heap's three calls; runs `child` in the child, which then
/// exits with its result.
pub fn fork(heap: &Heap, child: impl FnOnce() -> Result<(), String>) -> libc::pid_t {
    heap.before_fork();
    // SAFETY: the child runs only `child` and exits without unwinding further.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid > 0 {
        heap.after_fork_parent();
        return pid;
    }
    let result = heap
        .after_fork_child()
        .map_err(|error| error.to_string())
        .and_then(|()| child());
    if let Err(error) = &result {
        eprintln!("child: {error}");
    }
    // SAFETY: ends the child at once.
    unsafe { libc::_exit(if result.is_ok() { 0 } else { 1 }) }
}

/// Waits for a child, which must have succeeded.
pub fn wait(pid: libc::pid_t) {
    let mut status = -1;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}
