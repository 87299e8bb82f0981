//! Stack walks through stubs and resolver, and the ends of walks.
//!
//! libgcc is informed by `__register_frame`; the facade uses Uruk's own index.

mod support;

use std::arch::naked_asm;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use iced_x86::{Decoder, DecoderOptions};
use support::{jumps_to, returns, table};
use uruk_stubs::{EntryAddress, FunctionId, StubTable, call_main, call_ptr};

unsafe extern "C" {
    fn __register_frame(begin: *const c_void);
    fn __deregister_frame(begin: *const c_void);
}

type Trace = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(trace: Trace, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
    fn _Unwind_RaiseException(exception: *mut c_void) -> c_int;
}

const URC_END_OF_STACK: c_int = 5;

/// Registers the frames with libgcc for as long as it lives.
struct Registered(u64);

impl Registered {
    fn new(table: &StubTable) -> Registered {
        let begin = table.eh_frame();
        // SAFETY: whole records that end with a zero length.
        unsafe { __register_frame(ptr::with_exposed_provenance(begin as usize)) };
        Registered(begin)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new`; the table still lives.
        unsafe { __deregister_frame(ptr::with_exposed_provenance(self.0 as usize)) };
    }
}

/// Addresses of a walk, in fixed memory, so that handlers may walk.
struct Walk {
    addresses: [u64; 64],
    len: usize,
}

impl Walk {
    const EMPTY: Walk = Walk {
        addresses: [0; 64],
        len: 0,
    };

    fn take(&mut self) {
        extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> c_int {
            // SAFETY: the argument that `take` passes, and libgcc's context.
            let (walk, ip) = unsafe { (&mut *walk.cast::<Walk>(), _Unwind_GetIP(context)) };
            if walk.len < walk.addresses.len() {
                walk.addresses[walk.len] = ip;
                walk.len += 1;
            }
            0
        }
        self.len = 0;
        // SAFETY: `step` matches its argument.
        unsafe { _Unwind_Backtrace(step, ptr::from_mut(self).cast()) };
    }

    fn addresses(&self) -> &[u64] {
        &self.addresses[..self.len]
    }
}

/// Shared with handlers; one test at a time.
struct Shared(UnsafeCell<Walk>);

// SAFETY: used by the test that holds TESTS, and its handlers.
unsafe impl Sync for Shared {}

static WALK: Shared = Shared(UnsafeCell::new(Walk::EMPTY));
static TESTS: Mutex<()> = Mutex::new(());

extern "C" fn answer() -> u64 {
    98
}

/// From the failure handler, which the resolver called, up to the base frame,
/// and no further.
#[test]
fn a_walk_from_within_the_resolver() {
    extern "C" fn handler(_: FunctionId, _: u64) -> u64 {
        // SAFETY: TESTS is held.
        unsafe { (*WALK.0.get()).take() };
        answer as *const () as usize as u64
    }
    let _tests = TESTS.lock().unwrap_or_else(|e| e.into_inner());
    let (_heap, table) = table();
    let _registered = Registered::new(&table);
    table.set_failure_handler(handler, 0);
    let f = table.allocate().unwrap();
    assert!(table.fail(f));
    // SAFETY: the handler returns the address of a function without arguments.
    assert_eq!(unsafe { call_ptr(table.stub_address(f).0) }, 98);
    // SAFETY: the handler is done.
    let walk = unsafe { &*WALK.0.get() }.addresses();
    let (start, code) = table.resolver();
    let resolver = start..start + code.len() as u64;
    let at = walk.iter().position(|ip| resolver.contains(ip));
    let at = at.expect("the resolver is in the walk");
    assert!(at >= 1, "the handler comes first");
    let base = call_ptr as *const () as usize as u64;
    assert!((base..base + 32).contains(&walk[at + 1]), "{walk:#x?}");
    // libgcc calls once more for the end itself.
    assert_eq!(walk[at + 2..], [0], "the walk ends at the base frame");
}

/// Runs with the trap flag set while it calls `entry`.
#[unsafe(naked)]
unsafe extern "C" fn stepping(entry: u64) -> u64 {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "pushfq",
        "or dword ptr [rsp], 0x100",
        "popfq",
        "call rdi",
        "pushfq",
        "and dword ptr [rsp], 0xfffffeff",
        "popfq",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

static STUBS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static RESOLVER: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// Traps in stubs, in common jumps, in the resolver; walks that went wrong.
static TRAPS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Address of the last trap.
static LAST: AtomicU64 = AtomicU64::new(0);

extern "C" fn trapped(_: c_int, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the handler's own context.
    let pc = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as u64;
    let within = |range: &[AtomicU64; 2]| {
        (range[0].load(Ordering::Relaxed)..range[1].load(Ordering::Relaxed)).contains(&pc)
    };
    let place = match (within(&STUBS), within(&RESOLVER)) {
        (true, _) if pc & 0xfff >= 0xff0 => 1,
        (true, _) => 0,
        (_, true) => 2,
        _ => return,
    };
    // A string instruction traps for each word that it stores.
    if LAST.swap(pc, Ordering::Relaxed) != pc {
        TRAPS[place].fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: TESTS is held.
    let walk = unsafe { &mut *WALK.0.get() };
    walk.take();
    let at = walk.addresses().iter().position(|ip| *ip == pc);
    let caller = at.and_then(|at| walk.addresses().get(at + 1));
    let stepping = stepping as *const () as usize as u64;
    if !caller.is_some_and(|ip| (stepping..stepping + 64).contains(ip)) {
        TRAPS[3].fetch_add(1, Ordering::Relaxed);
        WRONG.store(pc, Ordering::Relaxed);
    }
}

/// At every single instruction of stub, common jump and resolver, a handler that interrupts there
/// can walk to the caller.
#[test]
fn a_walk_from_every_instruction() {
    extern "C" fn handler(_: FunctionId, _: u64) -> u64 {
        answer as *const () as usize as u64
    }
    let _tests = TESTS.lock().unwrap_or_else(|e| e.into_inner());
    let (heap, table) = table();
    let _registered = Registered::new(&table);
    table.set_failure_handler(handler, 0);
    // SAFETY: a handler of the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
    }
    let functions = table.allocate_many(300).unwrap();
    let (start, code) = table.resolver();
    RESOLVER[0].store(start, Ordering::Relaxed);
    RESOLVER[1].store(start + code.len() as u64, Ordering::Relaxed);
    let rows = table.unwind_rows();
    STUBS[0].store(rows[1].start, Ordering::Relaxed);
    STUBS[1].store(rows[1].end, Ordering::Relaxed);

    // Not first calls that ask the service: those block signals for a moment,
    // and a trap that is blocked ends the process.
    let bound = functions.get(0).unwrap();
    assert!(table.publish(bound, EntryAddress(returns(&heap, 97))));
    let calls = [
        // A stub that jumps; a trampoline of bound code, as in a race; failed
        // functions, in the first and in the second page.
        (table.stub_address(bound).0, 97),
        (table.stub_address(bound).0 + 6, 97),
        (table.stub_address(functions.get(1).unwrap()).0, 98),
        (table.stub_address(functions.get(299).unwrap()).0, 98),
    ];
    for i in [1, 299] {
        assert!(table.fail(functions.get(i).unwrap()));
    }
    for (stub, expected) in calls {
        // SAFETY: functions without arguments.
        assert_eq!(unsafe { stepping(stub) }, expected);
    }
    let traps = TRAPS.each_ref().map(|count| count.load(Ordering::Relaxed));
    let instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE)
        .iter()
        .count();
    // A jump and twice a jump and a call, the trampoline's call alone.
    assert_eq!(traps[..3], [1 + 1 + 2 + 2, 3, 3 * instructions]);
    let wrong = WRONG.load(Ordering::Relaxed);
    assert_eq!(traps[3], 0, "wrong at {wrong:#x}");
}

/// An uncaught exception ends at the base frame. The C++ runtime would then terminate; here the
/// raising function continues.
#[test]
fn exceptions_end_at_the_base_frame() {
    #[repr(C, align(16))]
    struct Exception {
        class: u64,
        cleanup: u64,
        private: [u64; 2],
    }
    extern "C-unwind" fn raise() -> u64 {
        let mut exception = Exception {
            class: 1,
            cleanup: 0,
            private: [0; 2],
        };
        // SAFETY: a live exception object of a class of our own.
        let code = unsafe { _Unwind_RaiseException((&raw mut exception).cast()) };
        code as u64
    }
    extern "C-unwind" fn main(argc: c_int, argv: *const u8, envp: *const u8) -> c_int {
        assert_eq!((argc, argv.addr(), envp.addr()), (-3, 4, 5));
        raise() as c_int
    }
    let _tests = TESTS.lock().unwrap_or_else(|e| e.into_inner());
    let (heap, table) = table();
    let _registered = Registered::new(&table);
    let f = table.allocate().unwrap();
    assert!(table.prepare(
        f,
        EntryAddress(jumps_to(&heap, raise as *const () as usize as u64))
    ));
    let end = URC_END_OF_STACK as u64;
    // SAFETY: functions of the types that are asked.
    unsafe {
        assert_eq!(call_ptr(table.stub_address(f).0), end);
        assert_eq!(call_ptr(raise as *const () as usize as u64), end);
        let got = call_main(
            main as *const () as usize as u64,
            -3,
            ptr::without_provenance(4),
            ptr::without_provenance(5),
        );
        assert_eq!(got, URC_END_OF_STACK);
    }
}
