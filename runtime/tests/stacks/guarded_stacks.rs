//! Guarded calls of hosts that leave them by a jump, run them on fibers, fork within them, or make
//! them at the end of a thread.

#[path = "guarded/adjacent.rs"]
mod adjacent;
#[path = "guarded/processes.rs"]
mod processes;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uruk::{Func, GuestThread, Jit, TrapKind};
use uruk_stubs::{Landing, call_landed, land};

type F = extern "C" fn(i64) -> i64;

const CODE: &str = "
declare i64 @pause(i64)
declare void @jump(i64)
declare i64 @do_fork()
define i64 @div(i64 %n) { %q = sdiv i64 100, %n ret i64 %q }
define i64 @paused(i64 %n) { %p = call i64 @pause(i64 %n) %q = sdiv i64 100, %p ret i64 %q }
define i64 @paused_spin(i64 %n) { %p = call i64 @pause(i64 %n) br label %l l: br label %l }
define i64 @jumps(i64 %n) { call void @jump(i64 %n) ret i64 %n }
@turns = global i64 0
define i64 @turn(i64 %n) {
  br label %l
l:
  %i = phi i64 [ 0, %0 ], [ %j, %l ]
  %j = add i64 %i, 1
  store volatile i64 %j, ptr @turns
  %more = icmp ult i64 %j, %n
  br i1 %more, label %l, label %e
e:
  ret i64 %j
}
define i64 @spin(i64 %n) { br label %l l: br label %l }
@pid = global i64 0
define i64 @forks(i64 %n) {
  %p = call i64 @do_fork() store i64 %p, ptr @pid br label %l l: br label %l }
define i64 @deep(i64 %n) {
  %m = alloca [64 x i64]
  store volatile i64 %n, ptr %m
  %k = add i64 %n, 1
  %r = call i64 @deep(i64 %k)
  %v = load volatile i64, ptr %m
  %s = add i64 %r, %v
  ret i64 %s
}
";

/// Long enough for a signal on a busy machine; such a call ends the test if it waits for it.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(3);

fn session() -> Jit {
    let jit = Jit::new().expect("a session");
    jit.define_fn("pause", pause).expect("defined");
    // SAFETY: a function of that type.
    unsafe { jit.main().define_address("jump", jump as *const ()) }.expect("defined");
    // SAFETY: forks.
    jit.define_fn("do_fork", || i64::from(unsafe { libc::fork() }))
        .expect("defined");
    jit.add_ir("m", CODE).expect("it loads");
    jit
}

fn function(jit: &Jit, name: &str) -> Func<F> {
    // SAFETY: a function of `CODE`.
    unsafe { jit.function(name) }.expect("it is there")
}

fn kind(result: Result<i64, uruk::Trap>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(trap) => trap.kind.to_string(),
    }
}

const DIVISION: &str = "division by zero, or its result does not fit";

thread_local! {
    static LANDING: Cell<*const Landing> = const { Cell::new(std::ptr::null()) };
}

/// A `longjmp` of the host's.
extern "C" fn jump(_: i64) {
    // SAFETY: set by `left`, whose call goes on.
    unsafe { land(LANDING.get()) }
}

/// Calls what leaves by [`jump`]: a `setjmp`.
fn left(jumps: &Func<F>, limit: Option<Duration>) {
    unsafe extern "C-unwind" fn body(data: *mut u8) {
        // SAFETY: what `left` gives.
        let (jumps, limit) = unsafe { &*data.cast::<(&Func<F>, Option<Duration>)>() };
        let _ = match limit {
            Some(limit) => jumps.within(*limit).call_guarded(1),
            None => jumps.call_guarded(1),
        };
    }
    let mut landing = Landing::new();
    let mut data = (jumps, limit);
    LANDING.set(&raw const landing);
    // SAFETY: the data that `body` takes; what it leaves needs no end.
    let left = unsafe { call_landed(&raw mut landing, body, (&raw mut data).cast()) };
    assert_eq!(left, 1);
}

/// Calls below a frame of so many bytes.
#[inline(never)]
fn below<R>(work: impl FnOnce() -> R) -> R {
    let room = std::hint::black_box([1_u8; 4096]);
    let result = work();
    std::hint::black_box(room);
    result
}

#[test]
fn calls_that_a_jump_of_the_host_left_count_no_more() {
    let jit = session();
    let (jumps, spin, div) = (
        function(&jit, "jumps"),
        function(&jit, "spin"),
        function(&jit, "div"),
    );
    for turn in 0..100 {
        // Its limit passes, and it is not there any more.
        let limit = [None, Some(LONG), Some(Duration::from_millis(1))][turn % 3];
        left(&jumps, limit);
        let spun = spin.within(SHORT).call_guarded(0).expect_err("it spins");
        assert!(matches!(spun.kind, TrapKind::Deadline(_)), "{spun}");
        assert_eq!(kind(div.call_guarded(0)), DIVISION);
        left(&jumps, limit);
        assert_eq!(kind(below(|| div.call_guarded(0))), DIVISION);
        let spun = below(|| spin.within(SHORT).call_guarded(0)).expect_err("it spins");
        assert!(matches!(spun.kind, TrapKind::Deadline(_)), "{spun}");
    }
}

unsafe extern "C" {
    fn getcontext(context: *mut libc::ucontext_t) -> libc::c_int;
    fn makecontext(context: *mut libc::ucontext_t, start: extern "C" fn(), count: libc::c_int, ...);
    fn swapcontext(from: *mut libc::ucontext_t, to: *const libc::ucontext_t) -> libc::c_int;
}

/// A fiber that makes one guarded call; its stack has a page below it that is none.
struct Fiber {
    home: libc::ucontext_t,
    away: libc::ucontext_t,
    stack: *mut libc::c_void,
    owned: bool,
    work: Option<Box<dyn FnOnce() -> String>>,
    result: Option<String>,
}

const STACK: usize = 256 << 10;
const PAGE: usize = 4096;

thread_local! {
    static RUNNING: Cell<*mut Fiber> = const { Cell::new(std::ptr::null_mut()) };
}

/// Back to who resumed the fiber, until it is resumed.
fn pause(n: i64) -> i64 {
    let fiber = RUNNING.get();
    if !fiber.is_null() {
        // SAFETY: the running fiber's contexts.
        unsafe { swapcontext(&raw mut (*fiber).away, &raw const (*fiber).home) };
    }
    n
}

extern "C" fn start() {
    let fiber = RUNNING.get();
    // SAFETY: the running fiber.
    unsafe {
        let work = (*fiber).work.take().expect("it is made with some");
        (*fiber).result = Some(work());
    }
}

fn map(size: usize) -> *mut libc::c_void {
    let (kind, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: fresh memory.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, kind, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory
}

impl Fiber {
    fn new(work: impl FnOnce() -> String + 'static) -> Box<Fiber> {
        let stack = map(STACK);
        // SAFETY: fresh memory.
        unsafe {
            libc::mprotect(stack, PAGE, libc::PROT_NONE);
            let mut fiber = Fiber::on(stack, work);
            fiber.owned = true;
            fiber
        }
    }

    /// On `STACK` bytes from `stack` on.
    ///
    /// # Safety
    /// Nothing else uses them as long as the fiber lives.
    unsafe fn on(stack: *mut libc::c_void, work: impl FnOnce() -> String + 'static) -> Box<Fiber> {
        // SAFETY: by the caller's promise; contexts are plain data that the calls fill.
        unsafe {
            let mut fiber = Box::new(Fiber {
                home: std::mem::zeroed(),
                away: std::mem::zeroed(),
                stack,
                owned: false,
                work: Some(Box::new(work)),
                result: None,
            });
            getcontext(&mut fiber.away);
            fiber.away.uc_stack.ss_sp = stack;
            fiber.away.uc_stack.ss_size = STACK;
            fiber.away.uc_link = &raw mut fiber.home;
            makecontext(&mut fiber.away, start, 0);
            fiber
        }
    }

    /// Runs it on; its result when it is over.
    fn resume(&mut self) -> Option<&str> {
        let before = RUNNING.replace(self);
        // SAFETY: contexts of a fiber that is not over.
        unsafe { swapcontext(&raw mut self.home, &raw const self.away) };
        RUNNING.set(before);
        self.result.as_deref()
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: mapped by `new`.
            unsafe { libc::munmap(self.stack, STACK) };
        }
    }
}

fn guarded(f: &Func<F>, argument: i64, limit: Option<Duration>) -> Box<Fiber> {
    let f = f.clone();
    Fiber::new(move || {
        kind(match limit {
            Some(limit) => f.within(limit).call_guarded(argument),
            None => f.call_guarded(argument),
        })
    })
}

#[test]
fn guarded_calls_on_fibers_end_in_any_order() {
    let jit = session();
    let (paused, spin, div) = (
        function(&jit, "paused"),
        function(&jit, "spin"),
        function(&jit, "div"),
    );
    for turn in 0..3 {
        let mut fibers: Vec<_> = (0..4)
            .map(|n| guarded(&paused, [5, 0][n % 2], None))
            .collect();
        for fiber in &mut fibers {
            assert_eq!(fiber.resume(), None);
        }
        assert_eq!(kind(div.call_guarded(0)), DIVISION);
        for place in [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]][turn] {
            let expected = ["20", DIVISION][place % 2];
            assert_eq!(fibers[place].resume(), Some(expected));
            assert_eq!(kind(div.call_guarded(0)), DIVISION);
            let spun = spin.within(SHORT).call_guarded(0).expect_err("it spins");
            assert!(matches!(spun.kind, TrapKind::Deadline(_)), "{spun}");
        }
        drop(fibers);
        assert_eq!(kind(div.within(LONG).call_guarded(4)), "25");
    }
}

#[test]
fn limits_and_interrupts_find_their_fiber() {
    let jit = session();
    let (paused_spin, paused, spin) = (
        function(&jit, "paused_spin"),
        function(&jit, "paused"),
        function(&jit, "spin"),
    );
    let limited = || guarded(&paused_spin, 1, Some(SHORT));
    let (mut a, mut b) = (limited(), limited());
    let mut long = guarded(&paused, 4, Some(LONG));
    assert_eq!((a.resume(), b.resume(), long.resume()), (None, None, None));
    std::thread::sleep(2 * SHORT);
    // Theirs are over, this one's is not.
    let spun = spin.within(10 * SHORT).call_guarded(0).expect_err("spins");
    assert!(
        matches!(spun.kind, TrapKind::Deadline(it) if it == 10 * SHORT),
        "{spun}"
    );
    assert_eq!(a.resume(), Some("not done within 3ms"));
    assert_eq!(long.resume(), Some("25"));
    assert_eq!(b.resume(), Some("not done within 3ms"));
    // A fiber that is resumed is what the thread is in.
    let mut fiber = guarded(&paused_spin, 1, None);
    assert_eq!(fiber.resume(), None);
    let (thread, other) = (GuestThread::current(), jit.clone());
    assert!(!jit.interrupt(&thread), "this stack is in no call");
    let asking = std::thread::spawn(move || {
        while !other.interrupt(&thread) {
            std::thread::yield_now();
        }
    });
    assert_eq!(fiber.resume(), Some("interrupted"));
    asking.join().expect("no panic");
}

#[test]
fn fibers_that_are_freed_within_a_call_leave_nothing() {
    let jit = session();
    let (paused, div) = (function(&jit, "paused"), function(&jit, "div"));
    for _ in 0..200 {
        let mut fiber = guarded(&paused, 5, Some(SHORT));
        assert_eq!(fiber.resume(), None);
        drop(fiber);
        assert_eq!(kind(div.within(LONG).call_guarded(0)), DIVISION);
    }
    // Some of these lie right below the thread's own stack.
    let deep = function(&jit, "deep");
    let mut fibers: Vec<_> = (0..8).map(|_| guarded(&deep, 0, None)).collect();
    for fiber in &mut fibers {
        assert_eq!(fiber.resume(), Some("stack overflow"));
    }
}

#[test]
fn an_outer_and_an_inner_call_are_interrupted() {
    let jit = session();
    let (one, two) = (jit.downgrade(), jit.downgrade());
    let ask = move || {
        i64::from(
            one.upgrade()
                .expect("there")
                .interrupt(&GuestThread::current()),
        )
    };
    jit.define_fn("ask", ask).expect("defined");
    jit.define_fn("host", move |limited: i64| {
        let jit = two.upgrade().expect("there");
        assert!(jit.interrupt(&GuestThread::current()));
        let inner = function(&jit, "inner");
        let ended = match limited {
            0 => inner.call_guarded(1),
            // It asks for nothing, and arms the timer for itself.
            _ => inner.within(LONG).call_guarded(0),
        };
        assert_eq!(kind(ended), "interrupted");
    })
    .expect("defined");
    jit.add_ir(
        "n",
        "declare void @host(i64) declare i64 @ask()
         define i64 @inner(i64 %asks) {
           %c = icmp ne i64 %asks, 0
           br i1 %c, label %a, label %l
         a:
           %x = call i64 @ask()
           br label %l
         l:
           br label %l
         }
         define i64 @outer(i64 %n) { call void @host(i64 %n) br label %l l: br label %l }",
    )
    .expect("it loads");
    jit.main().compile("inner").expect("it compiles");
    let outer = function(&jit, "outer");
    for turn in 0..20 {
        assert_eq!(kind(outer.call_guarded(turn % 2)), "interrupted");
        let ended = outer.within(LONG).call_guarded(turn % 2);
        assert_eq!(kind(ended), "interrupted");
    }
}

#[test]
fn each_interrupt_that_is_said_to_be_ends_its_call() {
    let jit = session();
    let spin = function(&jit, "spin");
    jit.main().compile("spin").expect("it compiles");
    let (thread, other) = (GuestThread::current(), jit.clone());
    const TURNS: usize = 1000;
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let asking = std::thread::spawn(move || {
        for turn in 0..TURNS {
            while !other.interrupt(&thread) {
                std::hint::spin_loop();
            }
            let begun = Instant::now();
            while DONE.load(Ordering::Acquire) == turn {
                if begun.elapsed() > Duration::from_secs(60) {
                    eprintln!("interrupt {turn} is lost");
                    std::process::abort();
                }
                std::thread::yield_now();
            }
        }
    });
    for turn in 0..TURNS {
        let ended = match turn % 2 {
            0 => spin.call_guarded(0),
            _ => spin.within(LONG).call_guarded(0),
        };
        assert_eq!(kind(ended), "interrupted");
        DONE.store(turn + 1, Ordering::Release);
    }
    asking.join().expect("no panic");
}
