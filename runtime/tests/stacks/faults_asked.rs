//! Embedders are asked of memory faults first, in JIT'd code and in what it calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::{Access, Error, FaultAnswer, FaultHandler, Jit, MemoryFault, TrapKind};

const PAGE: u64 = 4096;

/// Pages of the collector: closed when they are made.
static HEAP: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Tests share the process's handlers.
static TURN: Mutex<()> = Mutex::new(());

const PAGES: u64 = 64;

fn protect(page: u64, kind: i32) -> bool {
    // SAFETY: pages of the heap, which only the tests use.
    unsafe { libc::mprotect(page as *mut libc::c_void, PAGE as usize, kind) == 0 }
}

/// Opens pages of the heap: for reading first, for writing when they are written.
fn barrier(fault: &MemoryFault) -> FaultAnswer {
    ASKED.fetch_add(1, Ordering::Relaxed);
    let heap = HEAP.load(Ordering::Relaxed);
    if !(heap..heap + PAGES * PAGE).contains(&fault.address) {
        return FaultAnswer::NotMine;
    }
    let kind = match fault.access {
        Access::Read => libc::PROT_READ,
        _ => libc::PROT_READ | libc::PROT_WRITE,
    };
    // The faulting code does not see a handler's change of `errno`.
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = 99 };
    match protect(fault.address & !(PAGE - 1), kind) {
        true => FaultAnswer::Again,
        false => FaultAnswer::NotMine,
    }
}

fn closed() -> u64 {
    let heap = HEAP.load(Ordering::Relaxed);
    if heap != 0 {
        (0..PAGES).for_each(|page| assert!(protect(heap + page * PAGE, libc::PROT_NONE)));
        return heap;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let size = (PAGES * PAGE) as usize;
    // SAFETY: new memory.
    let heap = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(heap, libc::MAP_FAILED);
    HEAP.store(heap as u64, Ordering::Relaxed);
    heap as u64
}

const CODE: &str = "
declare i64 @host_load(ptr)
define i64 @load(ptr %p) { %v = load i64, ptr %p ret i64 %v }
define void @store(ptr %p, i64 %v) { store i64 %v, ptr %p ret void }
define i64 @through(ptr %p) { %v = call i64 @host_load(ptr %p) ret i64 %v }
";

extern "C" fn host_load(place: *const i64) -> i64 {
    // SAFETY: the test's own memory, which its handler opens.
    unsafe { place.read_volatile() }
}

fn session(handler: Option<FaultHandler>) -> Jit {
    let mut builder = Jit::builder().jobs(1);
    if let Some(handler) = handler {
        builder = builder.on_fault(handler);
    }
    let jit = builder.build().expect("a session");
    // SAFETY: of the type that the module says.
    unsafe {
        jit.main()
            .define_address("host_load", host_load as *const ())
    }
    .expect("defined");
    jit.add_ir("m", CODE).expect("valid IR");
    jit
}

#[test]
fn pages_of_a_collector_are_opened_wherever_they_are_used() {
    let _turn = TURN.lock();
    let jit = session(Some(barrier));
    let other = session(None);
    let heap = closed();
    for jit in [&jit, &other] {
        // SAFETY: the functions above.
        let (load, store, through) = unsafe {
            (
                jit.function::<extern "C" fn(*const i64) -> i64>("load")
                    .expect("typed"),
                jit.function::<extern "C" fn(*mut i64, i64)>("store")
                    .expect("typed"),
                jit.function::<extern "C" fn(*const i64) -> i64>("through")
                    .expect("typed"),
            )
        };
        closed();
        let (loads, stores, throughs) = (&load, &store, &through);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for page in (thread..PAGES).step_by(4) {
                        let place = (heap + page * PAGE + 64) as *mut i64;
                        // SAFETY: the thread's own.
                        unsafe { *libc::__errno_location() = 7 };
                        // Guarded or not, read first or written first.
                        match page % 3 {
                            0 => stores.call(place, 0),
                            1 => assert_eq!(loads.call_guarded(place).expect("opened"), 0),
                            _ => assert_eq!(throughs.call_guarded(place).expect("opened"), 0),
                        }
                        stores.call_guarded(place, page as i64).expect("opened");
                        // SAFETY: likewise.
                        assert_eq!(unsafe { *libc::__errno_location() }, 7);
                        assert_eq!(throughs.call(place), page as i64);
                    }
                });
            }
        });
        // Faults that are not the handler's are the guard's.
        let trap = load
            .call_guarded(0x70 as *const i64)
            .expect_err("nothing is there");
        let TrapKind::Memory {
            address: 0x70,
            access: Access::Read,
        } = trap.kind
        else {
            panic!("{trap}")
        };
        (0..PAGES).for_each(|page| store.call((heap + page * PAGE + 64) as *mut i64, 0));
    }
}

#[test]
fn a_handler_is_asked_as_long_as_a_session_that_wants_it_lives() {
    let _turn = TURN.lock();
    let heap = closed() as *const i64;
    let (first, second) = (session(Some(barrier)), session(Some(barrier)));
    // SAFETY: the function above.
    let load = |jit: &Jit| unsafe { jit.function::<extern "C" fn(*const i64) -> i64>("load") };
    drop(first);
    assert!(load(&second).expect("typed").call_guarded(heap).is_ok());
    drop(second);
    closed();
    let asked = ASKED.load(Ordering::Relaxed);
    let third = session(None);
    let trap = load(&third)
        .expect("typed")
        .call_guarded(heap)
        .expect_err("closed");
    assert!(matches!(trap.kind, TrapKind::Memory { .. }), "{trap}");
    assert_eq!(ASKED.load(Ordering::Relaxed), asked);
}

/// Functions that differ, also in what they do: equal ones may have one address.
fn numbered<const N: u64>(fault: &MemoryFault) -> FaultAnswer {
    std::hint::black_box(fault.address + N);
    FaultAnswer::NotMine
}

#[test]
fn more_handlers_than_there_are_places_are_refused() {
    let _turn = TURN.lock();
    let handlers: [FaultHandler; 17] = [
        numbered::<0>,
        numbered::<1>,
        numbered::<2>,
        numbered::<3>,
        numbered::<4>,
        numbered::<5>,
        numbered::<6>,
        numbered::<7>,
        numbered::<8>,
        numbered::<9>,
        numbered::<10>,
        numbered::<11>,
        numbered::<12>,
        numbered::<13>,
        numbered::<14>,
        numbered::<15>,
        numbered::<16>,
    ];
    let build = |handler| Jit::builder().jobs(1).on_fault(handler).build();
    let (most, last) = (&handlers[..16], handlers[16]);
    let sessions: Vec<Jit> = most.iter().map(|&it| build(it).expect("a place")).collect();
    let refused = build(last).map(drop);
    assert!(
        matches!(refused, Err(Error::ManyFaultHandlers { most: 16 })),
        "{refused:?}"
    );
    drop(sessions);
    assert!(build(last).is_ok());
}
