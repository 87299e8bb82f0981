//! Shared parts of the tests: a heap with its table, a service, assembled code.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dynasmrt::x64::X64Relocation;
use dynasmrt::{DynasmApi, VecAssembler, dynasm};
use uruk_heap::{Heap, HeapConfig, Pool};
use uruk_stubs::{FunctionId, Gate, StubTable};

pub type Ops = VecAssembler<X64Relocation>;

/// A small heap and its table.
pub fn table() -> (Heap, Arc<StubTable>) {
    let mut config = HeapConfig::default();
    config.reservation = 64 << 20;
    let heap = Heap::new(config).unwrap();
    let table = StubTable::new(&heap).unwrap();
    (heap, table)
}

/// The waits at a gate: threads and functions.
pub fn waits(gate: &Gate) -> Vec<(i32, FunctionId)> {
    let parked = gate.parked().into_iter();
    parked.map(|wait| (wait.tid(), wait.function())).collect()
}

/// Lets each wait of a thread through; false if it has none.
pub fn let_through(gate: &Gate, tid: i32) -> bool {
    let own = gate.parked().into_iter().filter(|wait| wait.tid() == tid);
    own.filter(|&wait| gate.let_through(wait)).count() > 0
}

/// Assembles position-independent code into the heap.
pub fn code(heap: &Heap, assemble: impl FnOnce(&mut Ops)) -> u64 {
    let mut ops = Ops::new(0);
    assemble(&mut ops);
    let bytes = ops.finalize().unwrap();
    let mut draft = heap.allocate(Pool::Code, bytes.len(), 16).unwrap();
    draft.write(0, &bytes).unwrap();
    draft.seal().unwrap().address()
}

/// `mov eax, value; ret`
pub fn returns(heap: &Heap, value: i32) -> u64 {
    code(heap, |ops| {
        dynasm!(ops ; .arch x64 ; mov eax, DWORD value ; ret);
    })
}

/// `jmp target`, for code that lies outside of the heap.
pub fn jumps_to(heap: &Heap, target: u64) -> u64 {
    code(heap, |ops| {
        dynasm!(ops ; .arch x64 ; jmp QWORD [rip] ; .i64 target as i64);
    })
}

/// Blocks all signals on this thread, as service threads must.
pub fn block_signals() {
    // SAFETY: plain calls with a live set.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// A service thread; ends when dropped.
pub struct Service {
    table: Arc<StubTable>,
    pub served: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// Runs `serve` for each request.
pub fn serve(
    table: &Arc<StubTable>,
    serve: impl Fn(&StubTable, FunctionId) + Send + 'static,
) -> Service {
    let served = Arc::new(AtomicUsize::new(0));
    let thread = thread::spawn({
        let (table, served) = (table.clone(), served.clone());
        move || {
            block_signals();
            while let Some(function) = table.wait_request(None) {
                served.fetch_add(1, Ordering::Relaxed);
                serve(&table, function);
            }
        }
    });
    Service {
        table: table.clone(),
        served,
        thread: Some(thread),
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.table.stop_service();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(result.is_ok() || thread::panicking());
        }
        self.table.start_service();
    }
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !test() {
        assert!(Instant::now() < end, "never happened: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until a thread sleeps in the futex system call.
pub fn until_waiting(tid: i32) {
    eventually("a thread waits", || {
        let path = format!("/proc/self/task/{tid}/syscall");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.starts_with(&format!("{} ", libc::SYS_futex))
    });
}

/// The kernel's id of this thread.
pub fn tid() -> i32 {
    // SAFETY: has no arguments.
    unsafe { libc::gettid() }
}

/// Ends the process if a test hangs.
pub fn watchdog() -> Watchdog {
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    thread::spawn(move || {
        for _ in 0..6000 {
            thread::sleep(Duration::from_millis(100));
            if seen.load(Ordering::Relaxed) {
                return;
            }
        }
        eprintln!("a test hangs");
        std::process::abort();
    });
    Watchdog(done)
}

pub struct Watchdog(Arc<AtomicBool>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
