//! Handlers that make first calls while the interrupted code waits for one, or leave the wait by a
//! jump.

#[path = "support/leaving.rs"]
mod leaving;
mod support;

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leaving::{attempt_here, leave};
use support::{let_through, returns, serve, table, tid, until_waiting, waits, watchdog};
use uruk_stubs::{EntryAddress, call_ptr};
use uruk_testing::Random;

/// One user of the process's handlers at a time.
static HANDLERS: Mutex<()> = Mutex::new(());

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

fn install(handler: Handler, flags: i32) {
    // SAFETY: a handler of the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
    }
}

fn send(tid: i32) {
    // SAFETY: plain system calls.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
}

/// The interrupted code waits for f; the handler calls g and then f, too.
#[test]
fn a_handler_calls_while_the_interrupted_code_waits() {
    static STUBS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    static GOT: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, _: *mut libc::ucontext_t) {
        let [f, g] = [&STUBS[0], &STUBS[1]].map(|stub| stub.load(Ordering::Relaxed));
        // SAFETY: functions without arguments.
        let got = unsafe { [call_ptr(g), call_ptr(f)] };
        GOT.store(got[0] * 100 + got[1], Ordering::Relaxed);
    }
    let _handlers = HANDLERS.lock().unwrap();
    let _watchdog = watchdog();
    install(handler, 0);
    let (heap, table) = table();
    let mut functions = table.allocate_many(2).unwrap();
    let f = functions.next().unwrap();
    let g = functions.next().unwrap();
    STUBS[0].store(table.stub_address(f).0, Ordering::Relaxed);
    STUBS[1].store(table.stub_address(g).0, Ordering::Relaxed);
    static TID: AtomicI32 = AtomicI32::new(0);
    let caller = thread::spawn(|| {
        TID.store(tid(), Ordering::Release);
        // SAFETY: a function without arguments; errno is the thread's.
        unsafe {
            *libc::__errno_location() = 12345;
            let got = call_ptr(STUBS[0].load(Ordering::Relaxed));
            (got, *libc::__errno_location())
        }
    });
    support::eventually("the caller runs", || TID.load(Ordering::Acquire) != 0);
    let tid = TID.load(Ordering::Acquire);
    until_waiting(tid);
    send(tid);
    let (one, two) = (returns(&heap, 1), returns(&heap, 2));
    // Both are requested, f once, in order.
    let mut asked = vec![table.next_request().unwrap()];
    asked.extend(table.wait_request(Some(Duration::from_secs(300))));
    assert_eq!(asked, [f, g]);
    assert!(table.publish(g, EntryAddress(two)));
    // The handler waits for f now.
    thread::sleep(Duration::from_millis(5));
    assert!(table.publish(f, EntryAddress(one)));
    assert_eq!(caller.join().unwrap(), (1, 12345));
    assert_eq!(GOT.load(Ordering::Relaxed), 201);
    assert_eq!(table.next_request(), None);
}

/// A handler leaves the wait; the request stays, and other callers are still served.
#[test]
fn leaving_the_wait() {
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
        leave(context);
    }
    let _handlers = HANDLERS.lock().unwrap();
    let _watchdog = watchdog();
    install(handler, libc::SA_NODEFER);
    let (heap, table) = table();
    let f = table.allocate().unwrap();
    let stub = table.stub_address(f).0;
    static TID: AtomicI32 = AtomicI32::new(0);
    let caller = thread::spawn(move || {
        TID.store(tid(), Ordering::Release);
        let first = attempt_here(stub, false);
        (first, attempt_here(stub, false))
    });
    support::eventually("the caller runs", || TID.load(Ordering::Acquire) != 0);
    let tid = TID.load(Ordering::Acquire);
    until_waiting(tid);
    send(tid);
    // It left, came again, and waits.
    thread::sleep(Duration::from_millis(5));
    until_waiting(tid);
    assert_eq!(table.next_request(), Some(f));
    assert_eq!(table.next_request(), None);
    assert!(table.publish(f, EntryAddress(returns(&heap, 3))));
    assert_eq!(caller.join().unwrap(), (None, Some(3)));
}

/// A handler leaves a wait at the gate; the same call parks again, in the same spot, and
/// is let through.
#[test]
fn leaving_the_gate() {
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
        leave(context);
    }
    let _handlers = HANDLERS.lock().unwrap();
    let _watchdog = watchdog();
    install(handler, libc::SA_NODEFER);
    let (heap, table) = table();
    let f = table.allocate().unwrap();
    table.publish(f, EntryAddress(returns(&heap, 3)));
    let stub = table.stub_address(f).0;
    let gate = table.close_gate(&[f]).unwrap();
    static TURN: AtomicI32 = AtomicI32::new(0);
    let (tell, told) = std::sync::mpsc::channel();
    let caller = thread::spawn(move || {
        tell.send(tid()).unwrap();
        let left = attempt_here(stub, false);
        TURN.store(1, Ordering::Release);
        (left, attempt_here(stub, false))
    });
    let tid = told.recv().unwrap();
    let parked = [(tid, f)];
    support::eventually("it is parked", || waits(&gate) == parked);
    until_waiting(tid);
    send(tid);
    support::eventually("it left", || TURN.load(Ordering::Acquire) == 1);
    until_waiting(tid);
    assert_eq!(waits(&gate), parked, "its spot is taken again");
    assert!(let_through(&gate, tid));
    assert_eq!(caller.join().unwrap(), (None, Some(3)));
    assert_eq!(gate.parked(), []);
}

static HARASSED: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
static NESTED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
static NESTED_NEXT: AtomicU64 = AtomicU64::new(0);
static LEAVES: AtomicU64 = AtomicU64::new(0);
static NESTED_WRONG: AtomicU64 = AtomicU64::new(0);

/// Leaves two calls of three, and makes a nested first call in the third.
extern "C" fn harass(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let turn = NESTED_NEXT.fetch_add(1, Ordering::Relaxed);
    if !turn.is_multiple_of(3) {
        if leave(context) {
            LEAVES.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    let stub = NESTED[(turn / 3) as usize % NESTED.len()].load(Ordering::Relaxed);
    // SAFETY: a function without arguments.
    if unsafe { call_ptr(stub) } != 5 {
        NESTED_WRONG.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads make first calls while handlers leave them at random moments or make first calls
/// themselves. No request is lost or made twice.
#[test]
fn leaving_at_any_moment() {
    let _handlers = HANDLERS.lock().unwrap();
    let _watchdog = watchdog();
    install(harass, libc::SA_NODEFER | libc::SA_RESTART);
    let (heap, table) = table();
    let entry = returns(&heap, 5);
    let prepared = returns(&heap, 5);
    for nested in &NESTED {
        let f = table.allocate().unwrap();
        nested.store(table.stub_address(f).0, Ordering::Relaxed);
    }
    let functions = table.allocate_many(3000).unwrap();
    for f in functions.clone().step_by(3) {
        table.prepare(f, EntryAddress(prepared));
    }
    let service = serve(&table, move |table, f| {
        assert!(table.publish(f, EntryAddress(entry)));
    });
    let mut harassers = Vec::new();
    let mut callers = Vec::new();
    for (i, harassed) in HARASSED.iter().enumerate().take(2) {
        harassed.store(true, Ordering::Relaxed);
        let (functions, table) = (functions.clone(), table.clone());
        let (tell, told) = std::sync::mpsc::channel();
        callers.push(thread::spawn(move || {
            tell.send(tid()).unwrap();
            for f in functions {
                let stub = table.stub_address(f).0;
                let mut got = None;
                while got.is_none() {
                    got = attempt_here(stub, false);
                }
                assert_eq!(got, Some(5));
            }
            harassed.store(false, Ordering::Relaxed);
        }));
        let victim = told.recv().unwrap();
        harassers.push(thread::spawn(move || {
            let mut random = Random::new(12345 + i as u64);
            while harassed.load(Ordering::Relaxed) {
                send(victim);
                let until = Instant::now() + Duration::from_nanos(random.below(30_000));
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        }));
    }
    for thread in callers.into_iter().chain(harassers) {
        thread.join().unwrap();
    }
    assert_eq!(NESTED_WRONG.load(Ordering::Relaxed), 0);
    let nested = NESTED
        .iter()
        .map(|stub| table.function_at(stub.load(Ordering::Relaxed)).unwrap());
    let all: Vec<_> = nested.chain(functions.clone()).collect();
    let bound = all
        .iter()
        .filter(|f| table.entry(**f).map(u64::from).is_some())
        .count();
    let by_service = all
        .iter()
        .filter(|f| table.entry(**f).map(u64::from) == Some(entry))
        .count();
    assert!(
        functions
            .clone()
            .all(|f| table.entry(f).map(u64::from).is_some())
    );
    support::eventually("all requests are served", || table.next_request().is_none());
    assert_eq!(service.served.load(Ordering::Relaxed), by_service);
    println!(
        "{bound} bound, {by_service} by the service, {} left",
        LEAVES.load(Ordering::Relaxed)
    );
}
