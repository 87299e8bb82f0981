//! The gate with real threads: sets that change at one instant, calls that are let through,
//! handlers, forks, and refused gates.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dynasmrt::{DynasmApi, DynasmLabelApi, dynasm};
use support::{code, eventually, let_through, returns, table, tid, until_waiting, waits, watchdog};
use uruk_heap::Heap;
use uruk_stubs::{EntryAddress, FunctionId, Gate, Parked, StubError, StubTable, Target, call_ptr};

const CALLERS: usize = 4;
const FLIPS: usize = 10_000;
/// Longest wait, in all, for threads that must all come to the gate.
const QUIESCENT: Duration = Duration::from_secs(3);
/// Longest wait for an event that only the scheduler brings about.
const PATIENCE: Duration = Duration::from_secs(120);

fn call(table: &StubTable, f: FunctionId) -> u64 {
    // SAFETY: the tests' functions have no arguments.
    unsafe { call_ptr(table.stub_address(f).0) }
}

/// f calls g. A call of f returns both versions' numbers.
struct Pair {
    heap: Heap,
    table: Arc<StubTable>,
    f: FunctionId,
    g: FunctionId,
    codes: Vec<[u64; 2]>,
}

impl Pair {
    /// A pair with this many versions beside the first, which is published. f takes `turns` of a
    /// loop before it calls g.
    fn new(versions: usize, turns: i32) -> Arc<Pair> {
        let (heap, table) = table();
        let [f, g] = [table.allocate().unwrap(), table.allocate().unwrap()];
        let stub = table.stub_address(g).0 as i64;
        let codes = (0..=versions).map(|version| {
            let calls = code(&heap, |ops| {
                dynasm!(ops
                    ; .arch x64
                    ; sub rsp, 8
                    ; mov ecx, DWORD turns
                    ; turn:
                    ; dec ecx
                    ; jg <turn
                    ; mov rax, QWORD stub
                    ; call rax
                    ; shl rax, 32
                    ; or rax, DWORD version as i32
                    ; add rsp, 8
                    ; ret
                );
            });
            [calls, returns(&heap, version as i32)]
        });
        let codes: Vec<_> = codes.collect();
        table.publish(f, EntryAddress(codes[0][0]));
        table.publish(g, EntryAddress(codes[0][1]));
        Arc::new(Pair {
            heap,
            table,
            f,
            g,
            codes,
        })
    }

    fn close(&self) -> Gate {
        self.table.close_gate(&[self.f, self.g]).unwrap()
    }

    fn targets(&self, version: usize) -> [(FunctionId, Target); 2] {
        let [f, g] = self.codes[version];
        [(self.f, Target::Code(f)), (self.g, Target::Code(g))]
    }

    /// Threads that call f until they are told to stop, and pass all results to `see`: the versions
    /// of f and g.
    fn callers<S: Send + 'static>(
        self: &Arc<Self>,
        stop: &Arc<AtomicBool>,
        state: impl Fn() -> S,
        see: impl Fn(&mut S, u64, u64) + Clone + Send + 'static,
    ) -> Vec<JoinHandle<(S, u64)>> {
        let spawn = |_| {
            let (pair, stop) = (Arc::clone(self), Arc::clone(stop));
            let (mut state, see) = (state(), see.clone());
            thread::spawn(move || {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    let got = call(&pair.table, pair.f);
                    see(&mut state, got & 0xffff_ffff, got >> 32);
                    calls += 1;
                }
                (state, calls)
            })
        };
        (0..CALLERS).map(spawn).collect()
    }
}

/// Immediate replacement, with calls in progress: a new f never gets an older g, and no thread sees
/// an older f or g than it saw before. (An f that was running may get a newer g.)
#[test]
fn immediate_replacement_splits_call_starts() {
    let _watchdog = watchdog();
    let pair = Pair::new(FLIPS, 1);
    let stop = Arc::new(AtomicBool::new(false));
    let callers = pair.callers(
        &stop,
        || (0, 0),
        |last: &mut (u64, u64), f, g| {
            assert!(f <= g, "new f {f} with old g {g}");
            assert!(last.0 <= f, "f went back: {} {f}", last.0);
            assert!(last.1 <= g, "g went back: {} {g}", last.1);
            *last = (f, g);
        },
    );
    for flip in 1..=FLIPS {
        let gate = pair.close();
        gate.open(&pair.targets(flip)).unwrap();
        // Some calls between the flips, and sometimes many.
        if flip % 64 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let calls: u64 = callers.into_iter().map(|c| c.join().unwrap().1).sum();
    println!("{calls} calls during {FLIPS} replacements");
    assert_eq!(call(&pair.table, pair.f) >> 32, FLIPS as u64);
}

/// Opens the gate only when no thread is in f: threads that are in f get the old g. No mixture at
/// all.
#[test]
fn quiescent_replacement_never_mixes() {
    let _watchdog = watchdog();
    let pair = Pair::new(FLIPS, 2000);
    let stop = Arc::new(AtomicBool::new(false));
    let callers = pair.callers(
        &stop,
        || (),
        |(), f, g| {
            assert_eq!(f, g, "f and g of different versions");
            // The other threads then come to the gate soon.
            thread::yield_now();
        },
    );
    let (mut let_through, mut flips) = (0, 0);
    let started = Instant::now();
    // Each flip takes as long as the scheduler needs to run all callers.
    let more = |flips: usize, let_through: usize| {
        let enough = flips >= FLIPS || started.elapsed() >= QUIESCENT;
        // On a busy machine this lasts until a caller loses its processor in f, and gets it again.
        let few = let_through == 0 || flips <= 20;
        !enough || (few && started.elapsed() < PATIENCE)
    };
    while more(flips, let_through) {
        flips += 1;
        let gate = pair.close();
        loop {
            let parked = gate.parked();
            let (outside, inside): (Vec<Parked>, Vec<Parked>) =
                parked.into_iter().partition(|p| p.function() == pair.f);
            for parked in inside {
                let_through += usize::from(gate.let_through(parked));
            }
            if outside.len() == CALLERS {
                break;
            }
            thread::yield_now();
        }
        gate.open(&pair.targets(flips % (FLIPS + 1))).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let calls: u64 = callers.into_iter().map(|c| c.join().unwrap().1).sum();
    println!("{calls} calls, {let_through} of them let through, {flips} replacements");
    assert!(flips > 20, "{flips}");
    assert!(let_through > 0, "nobody was ever between f and g");
}

/// Parks a caller of `f` at the gate; returns its thread and its result.
fn park(table: &Arc<StubTable>, gate: &Gate, f: FunctionId) -> (i32, JoinHandle<u64>) {
    let (tell, told) = std::sync::mpsc::channel();
    let table = Arc::clone(table);
    let caller = thread::spawn(move || {
        tell.send(tid()).unwrap();
        call(&table, f)
    });
    let tid = told.recv().unwrap();
    eventually("parked", || waits(gate).contains(&(tid, f)));
    until_waiting(tid);
    (tid, caller)
}

#[test]
fn answers_behind_the_gate_change_what_is_kept() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let functions = table.allocate_many(6).unwrap();
    let [f, g, h, i, j, k] = [0, 1, 2, 3, 4, 5].map(|n| functions.get(n).unwrap());
    let [one, two, three] = [1, 2, 3].map(|n| returns(&heap, n));
    for f in [f, g, h] {
        assert!(table.publish(f, EntryAddress(one)));
    }
    assert!(table.prepare(i, EntryAddress(one)));
    let gate = table.close_gate(&[k, j, i, h, g, f]).unwrap();
    assert_eq!(gate.members(), [f, g, h, i, j, k]);
    assert_eq!(table.entry(f).map(u64::from), Some(one));
    // Published, taken back, replaced by the opening, prepared, failed, requested.
    assert!(table.publish(f, EntryAddress(two)));
    assert_eq!(table.entry(f).map(u64::from), Some(two));
    assert!(table.unpublish(g));
    assert_eq!(table.entry(g).map(u64::from), None);
    assert!(table.fail(j));
    let callers = [f, g, h, i].map(|f| park(&table, &gate, f).1);
    assert_eq!(table.next_request(), None, "nobody asks while it is closed");
    let opened = [(h, Target::Code(three)), (k, Target::Unbound)];
    gate.open(&opened).unwrap();
    let [cf, cg, ch, ci] = callers;
    assert_eq!(cf.join().unwrap(), 2);
    assert_eq!(table.wait_request(Some(Duration::from_secs(300))), Some(g));
    assert!(table.publish(g, EntryAddress(two)));
    assert_eq!(cg.join().unwrap(), 2);
    assert_eq!(ch.join().unwrap(), 3);
    assert_eq!(ci.join().unwrap(), 1);
    assert!(table.prepare(j, EntryAddress(one)), "a failure stays one");
    assert_eq!(table.entry(k).map(u64::from), None);
    // Unbound: the next call of a function that had code makes a request.
    let gate = table.close_gate(&[f]).unwrap();
    gate.open(&[(f, Target::Unbound)]).unwrap();
    assert_eq!(table.entry(f).map(u64::from), None);
}

#[test]
fn what_is_refused_changes_nothing() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let functions = table.allocate_many(3).unwrap();
    let [f, g, gone] = [0, 1, 2].map(|n| functions.get(n).unwrap());
    let entry = returns(&heap, 7);
    assert!(table.publish(f, EntryAddress(entry)));
    assert!(table.release(gone));
    let refused = |set: &[FunctionId]| table.close_gate(set).unwrap_err();
    assert_eq!(refused(&[f, g, f]), StubError::Twice(f));
    assert_eq!(refused(&[f, gone]), StubError::Released(gone));
    assert_eq!(call(&table, f), 7);
    let gate = table.close_gate(&[f]).unwrap();
    assert_eq!(refused(&[g]), StubError::GateClosed);
    assert!(!let_through(&gate, tid()), "not parked");
    let opened = gate.open(&[(f, Target::Unbound), (g, Target::Keep)]);
    assert_eq!(opened, Err(StubError::NotGated(g)));
    assert_eq!(call(&table, f), 7, "open to the old set");
    let gate = table.close_gate(&[f]).unwrap();
    let twice = [(f, Target::Unbound), (f, Target::Keep)];
    assert_eq!(gate.open(&twice), Err(StubError::Twice(f)));
    drop(table.close_gate(&[f]).unwrap());
    assert_eq!(
        (call(&table, f), table.entry(f).map(u64::from)),
        (7, Some(entry))
    );
    drop(table.close_gate(&[]).unwrap());
}

/// A handler that interrupts a parked thread and calls a member parks too; letting the thread
/// through lets both continue, into old code.
#[test]
fn a_handler_parks_on_top() {
    static STUBS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    static GOT: AtomicU64 = AtomicU64::new(0);
    static NESTED: AtomicI32 = AtomicI32::new(0);
    extern "C" fn handler(_: i32) {
        NESTED.store(1, Ordering::Release);
        for stub in &STUBS {
            // SAFETY: functions without arguments.
            let got = unsafe { call_ptr(stub.load(Ordering::Relaxed)) };
            GOT.fetch_add(got, Ordering::Relaxed);
            NESTED.fetch_add(1, Ordering::Release);
        }
    }
    let _watchdog = watchdog();
    let (heap, table) = table();
    let [f, g] = [table.allocate().unwrap(), table.allocate().unwrap()];
    STUBS[0].store(table.stub_address(g).0, Ordering::Relaxed);
    STUBS[1].store(table.stub_address(f).0, Ordering::Relaxed);
    table.publish(f, EntryAddress(returns(&heap, 1)));
    table.publish(g, EntryAddress(returns(&heap, 20)));
    // SAFETY: a handler of the plain type; SA_RESTART, so that the interrupted wait continues by
    // itself.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    let gate = table.close_gate(&[f, g]).unwrap();
    let (tid, caller) = park(&table, &gate, f);
    // SAFETY: plain system calls.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR2) };
    let at = |function| (tid, function);
    eventually("both are parked", || gate.parked().len() == 2);
    assert!(waits(&gate).contains(&at(f)) && waits(&gate).contains(&at(g)));
    assert!(let_through(&gate, tid));
    // The handler's second call takes over the spot of the frame below, and is let
    // through for itself.
    eventually("the handler calls f", || {
        NESTED.load(Ordering::Acquire) == 2 && waits(&gate) == [at(f)]
    });
    assert!(let_through(&gate, tid));
    eventually("the handler is done", || {
        NESTED.load(Ordering::Acquire) == 3
    });
    assert_eq!(GOT.load(Ordering::Relaxed), 21);
    eventually("the frame below is let through", || {
        let_through(&gate, tid) || caller.is_finished()
    });
    assert_eq!(caller.join().unwrap(), 1);
    assert_eq!(gate.parked(), []);
    gate.open(&[]).unwrap();
}

/// More threads than the table of spots has places: all wait, and all continue.
#[test]
fn more_threads_than_places() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let f = table.allocate().unwrap();
    table.publish(f, EntryAddress(returns(&heap, 1)));
    let gate = table.close_gate(&[f]).unwrap();
    let callers: Vec<_> = (0..300)
        .map(|_| {
            let table = Arc::clone(&table);
            let small = thread::Builder::new().stack_size(64 << 10);
            small.spawn(move || call(&table, f)).unwrap()
        })
        .collect();
    eventually("the table is full", || gate.parked().len() == 256);
    eventually("all wait", || gate.overflow() >= 44);
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    let new = returns(&heap, 2);
    gate.open(&[(f, Target::Code(new))]).unwrap();
    for caller in callers {
        assert_eq!(caller.join().unwrap(), 2);
    }
}

/// A child of a fork finds the gate open to the old set.
#[test]
fn fork_behind_a_closed_gate() {
    let _watchdog = watchdog();
    let pair = Pair::new(3, 1);
    let (heap, table) = (&pair.heap, &pair.table);
    let fresh = table.allocate().unwrap();
    let set = [pair.f, pair.g, fresh];
    let gate = table.close_gate(&set).unwrap();
    let (_, caller) = park(table, &gate, pair.g);
    heap.before_fork();
    // SAFETY: the child uses only functions allowed in a forked child, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(300) };
        heap.after_fork_child().unwrap();
        table.after_fork_child();
        let old = call(table, pair.f) == 0 && table.entry(fresh).map(u64::from).is_none();
        // The inherited gate has no effect on the child's own.
        let own = table.close_gate(&set).unwrap();
        let nobody = own.parked().is_empty();
        let opened = gate.open(&pair.targets(1)).is_ok();
        let still = table.close_gate(&[fresh]).is_err();
        let new = own.open(&pair.targets(2)).is_ok() && call(table, pair.f) == 2 << 32 | 2;
        let status = i32::from(!(old && nobody && opened && still && new));
        // SAFETY: ends the child without running code of the parent's.
        unsafe { libc::_exit(status) };
    }
    heap.after_fork_parent();
    let mut status = 0;
    // SAFETY: a live word.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(!caller.is_finished());
    gate.open(&pair.targets(3)).unwrap();
    assert_eq!(caller.join().unwrap(), 3);
    assert_eq!(call(table, pair.f), 3 << 32 | 3);
}

/// A thousand functions at once; prints the time.
#[test]
fn a_thousand_functions() {
    let _watchdog = watchdog();
    let (heap, table) = table();
    let functions: Vec<FunctionId> = table.allocate_many(1000).unwrap().collect();
    let codes = [1, 2].map(|n| returns(&heap, n));
    for &f in &functions {
        table.publish(f, EntryAddress(codes[0]));
    }
    let new: Vec<_> = functions
        .iter()
        .map(|&f| (f, Target::Code(codes[1])))
        .collect();
    let started = Instant::now();
    let gate = table.close_gate(&functions).unwrap();
    let closed = started.elapsed();
    gate.open(&new).unwrap();
    println!("close {closed:?}, both {:?}", started.elapsed());
    for f in functions {
        assert_eq!(
            (call(&table, f), table.entry(f).map(u64::from)),
            (2, Some(codes[1]))
        );
    }
}
