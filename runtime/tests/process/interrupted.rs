//! Handlers of signals that call functions without code, and members of a set that is
//! exchanged, while the thread they interrupt is in the library.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uruk::{Error, Func, Jit, Level, ReplaceError, Replacement};

type Answer = extern "C" fn() -> i32;

/// How long a test may take before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// The functions that the handler calls next, and the number at which it ends; one test at a time.
static FUNCTIONS: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(0);
/// Signals that were handled, and answers that were wrong.
static HANDLED: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicBool = AtomicBool::new(false);
static SERIAL: Mutex<()> = Mutex::new(());

/// Calls the function at an address; every second call does so in a child as well.
fn call(function: u64, number: usize) -> i32 {
    // SAFETY: a function of the tests' modules, of this type.
    let function = unsafe { std::mem::transmute::<u64, Answer>(function) };
    if FORKING.load(Ordering::Relaxed) && number.is_multiple_of(2) {
        // SAFETY: the child calls the function and ends; the parent waits for it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(function());
            }
            let mut status = -1;
            let ended = libc::waitpid(child, &mut status, 0);
            if ended != child || status != 0 {
                WRONG.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    function()
}

/// Every function is called once, and answers 0.
extern "C" fn on_signal(_: libc::c_int) {
    let number = NEXT.load(Ordering::Relaxed);
    if number < LIMIT.load(Ordering::Relaxed) {
        // SAFETY: `storm` keeps that many there.
        let function = unsafe { *FUNCTIONS.load(Ordering::Acquire).add(number) };
        if call(function, number) != 0 {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
        NEXT.store(number + 1, Ordering::Relaxed);
    }
    HANDLED.fetch_add(1, Ordering::Release);
}

fn open_signals() -> u64 {
    let mut mask = 0_u64;
    let size = size_of::<u64>();
    let none = std::ptr::null::<u64>();
    // SAFETY: asks for the calling thread's mask, which the kernel keeps in 8 bytes.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            none,
            &mut mask,
            size,
        )
    };
    assert_eq!(failed, 0);
    mask
}

/// Ends a storm.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        LIMIT.store(0, Ordering::Relaxed);
    }
}

/// Does `work` until a handler, which interrupts it again and again, has called all of
/// `functions`, or so many times.
fn storm(functions: &[u64], rounds: usize, work: impl FnMut(usize)) {
    storm_with(on_signal as *const () as usize, functions, rounds, work);
}

/// The same with another handler.
fn storm_with(handler: usize, functions: &[u64], rounds: usize, mut work: impl FnMut(usize)) {
    FUNCTIONS.store(functions.as_ptr().cast_mut(), Ordering::Release);
    NEXT.store(0, Ordering::Relaxed);
    LIMIT.store(functions.len(), Ordering::Relaxed);
    // SAFETY: plain data; the handler does what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    // SAFETY: takes nothing.
    let target = unsafe { libc::pthread_self() };
    let mask = open_signals();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut pause = 0;
            while NEXT.load(Ordering::Relaxed) < LIMIT.load(Ordering::Relaxed) {
                let handled = HANDLED.load(Ordering::Acquire);
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                while HANDLED.load(Ordering::Acquire) == handled {
                    std::thread::yield_now();
                }
                // At another instant each time.
                pause = (pause + 37) % 211;
                (0..pause).for_each(|_| std::hint::spin_loop());
            }
        });
        // Also when `work` panics: the scope waits for the thread.
        let _end = End;
        let mut round = 0;
        while NEXT.load(Ordering::Relaxed) < LIMIT.load(Ordering::Relaxed) && round < rounds {
            work(round);
            round += 1;
        }
        if IS_CHILD.load(Ordering::Relaxed) {
            // Copied where the last round ended; the thread that the scope waits for was not.
            // SAFETY: a child ends without the harness.
            unsafe { libc::_exit(0) };
        }
    });
    assert_eq!(open_signals(), mask, "the mask is what it was");
    assert_eq!(WRONG.swap(0, Ordering::Relaxed), 0);
}

/// Runs a test alone, and ends the process should it hang.
fn alone(test: impl FnOnce()) {
    let _alone = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let result = waiting.recv_timeout(PATIENCE);
        if result == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
}

/// A session with functions that were not called yet, and their addresses.
fn fresh(count: usize) -> (Jit, Vec<u64>) {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    let ir: String = (0..count)
        .map(|n| format!("define i32 @f{n}() {{ %v = sub i32 {n}, {n} ret i32 %v }}\n"))
        .collect();
    jit.add_ir("fresh", &(ir + "@data = global i32 7"))
        .expect("valid IR");
    let addresses = (0..count).map(|n| jit.lookup(&format!("f{n}")));
    let addresses = addresses.collect::<Result<_, _>>().expect("defined");
    (jit, addresses)
}

#[test]
fn first_calls_where_the_library_was_interrupted() {
    alone(|| {
        let (jit, functions) = fresh(480);
        let main = jit.main();
        let mut parts = functions.chunks(80);
        let mut storm = |work: &mut dyn FnMut(usize)| {
            storm(parts.next().expect("functions left"), usize::MAX, work);
        };
        storm(&mut |round| {
            let name = ["f1", "data", "missing", "strlen"][round % 4];
            assert_eq!(jit.lookup(name).is_ok(), round % 4 != 2);
        });
        storm(&mut |_| assert!(jit.tier("f0").is_ok()));
        storm(&mut |_| assert!(jit.stats().functions > 0));
        storm(&mut |_| {
            // SAFETY: of that type.
            drop(unsafe { jit.function::<Answer>("f2") }.expect("typed"));
        });
        storm(&mut |round| {
            let tracker = main.create_tracker().expect("there");
            let ir = format!("define i32 @g{round}() {{ ret i32 1 }} @h{round} = global i32 1");
            tracker.add_ir("g", &ir).expect("valid IR");
            // SAFETY: no thread has addresses of it.
            unsafe { tracker.remove() }.expect("there");
        });
        storm(&mut |round| {
            let name = format!("f{}", round % 8);
            jit.compile_at(&name, uruk::Tier::Optimized).expect("valid");
            jit.pause_tiers();
            jit.resume_tiers();
        });
    });
}

#[test]
fn forks_where_the_library_was_interrupted() {
    alone(|| {
        let (jit, functions) = fresh(60);
        FORKING.store(true, Ordering::Relaxed);
        // Nothing that allocates: the C library's fork waits for its allocator's locks.
        storm(&functions, usize::MAX, |_| {
            assert!(jit.tier("f0").is_ok() && jit.lookup("data").is_ok());
        });
        FORKING.store(false, Ordering::Relaxed);
    });
}

/// Set in a child that goes on with what its parent was doing.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
static CHILDREN: AtomicU32 = AtomicU32::new(0);

/// Forks where a wait for a word was interrupted, or where the thread has just opened its
/// signals for one: so not within the allocator, whose locks the C library's `fork` would wait
/// for. The child returns to the wait, and its parent waits for it.
extern "C" fn fork_and_return(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    const WAIT: i64 = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as i64;
    // SAFETY: the kernel's record of what was interrupted.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as usize;
    // SAFETY: code was executed before this place.
    let before: [u8; 2] = unsafe { std::ptr::with_exposed_provenance::<[u8; 2]>(at - 2).read() };
    let register = |name: libc::c_int| registers[name as usize];
    let opens = (register(libc::REG_RDI), register(libc::REG_R10)) == (libc::SIG_SETMASK.into(), 8);
    let may = before == [0x0f, 0x05] && (opens || register(libc::REG_RSI) == WAIT);
    if may && !IS_CHILD.load(Ordering::Relaxed) {
        // SAFETY: the parent waits for the child, which ends in `work`.
        unsafe {
            match libc::fork() {
                0 => IS_CHILD.store(true, Ordering::Relaxed),
                child => {
                    let mut status = -1;
                    let ended = libc::waitpid(child, &mut status, 0);
                    CHILDREN.fetch_add(1, Ordering::Relaxed);
                    let well = ended == child && status == 0;
                    WRONG.fetch_add(u32::from(!well), Ordering::Relaxed);
                }
            }
        }
    }
    HANDLED.fetch_add(1, Ordering::Release);
}

/// Keeps the calling thread, and those it makes, on the processor it is on: what it makes does not
/// begin before it waits.
fn pin() {
    // SAFETY: a plain set, and the calling thread's own affinity.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

#[test]
fn children_that_return_to_a_wait() {
    alone(|| {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.add_ir("m", &halves(0)).expect("valid IR");
        let wanted = std::env::var("URUK_CHILDREN").ok();
        let wanted = wanted.and_then(|text| text.parse().ok()).unwrap_or(200);
        NEXT.store(0, Ordering::Relaxed);
        storm_with(
            fork_and_return as *const () as usize,
            &[0],
            usize::MAX,
            |round| {
                if round == 0 {
                    pin();
                }
                // SAFETY: of that type.
                let pair = unsafe { jit.function::<Answer>("pair") };
                let pair = pair.map_err(|cause| match cause {
                    Error::Copied { .. } => {}
                    cause => panic!("{cause}"),
                });
                let name = format!("f{round}");
                let ir = format!("define i32 @{name}() {{ ret i32 0 }}");
                let tracker = jit.main().create_tracker().expect("there");
                let added = tracker.add_ir(&name, &ir);
                assert!(matches!(added, Ok(()) | Err(Error::Copied { .. })));
                if IS_CHILD.load(Ordering::Relaxed) {
                    // Others go on, and what was given up leaves nothing behind.
                    let right =
                        pair.is_ok_and(|pair| pair.call() == 0) || jit.lookup("pair").is_ok();
                    let again = added.is_ok() || tracker.add_ir(&name, &ir).is_ok();
                    let found = jit.lookup(&name).is_ok();
                    // SAFETY: a child ends without the harness.
                    unsafe { libc::_exit(i32::from(!(right && again && found))) };
                }
                // SAFETY: no thread has addresses of it.
                unsafe { tracker.remove() }.expect("there");
                if CHILDREN.load(Ordering::Relaxed) >= wanted {
                    LIMIT.store(0, Ordering::Relaxed);
                }
            },
        );
    });
}

/// `pair` tells whether both halves are of the same version.
fn halves(version: u32) -> String {
    format!(
        "define i32 @one() {{ ret i32 {version} }}
        define i32 @two() {{ ret i32 {version} }}
        define i32 @pair() {{
          %a = call i32 @one()
          %b = call i32 @two()
          %d = sub i32 %a, %b
          ret i32 %d
        }}"
    )
}

#[test]
fn calls_of_members_where_a_replacement_was_interrupted() {
    alone(|| {
        let jit = Jit::builder().jobs(2).build().expect("a session");
        jit.add_ir("m", &halves(0)).expect("valid IR");
        let main = jit.main();
        // SAFETY: of that type.
        let pair: Func<Answer> = unsafe { jit.function("pair") }.expect("typed");
        assert_eq!(pair.call(), 0);
        // More than there is time for.
        let calls = vec![pair.address(); 1 << 22];
        let mut version = 0;
        storm(&calls, 120, |round| {
            version += 1;
            let level = match round % 3 {
                2 => Level::Quiescent { wait: PATIENCE },
                _ => Level::Immediate,
            };
            // All of them are replaced, so that no call meets two versions.
            let new = Replacement::ir("new", &halves(version)).level(level);
            let replaced = main.replace(new).expect("replaced");
            assert_eq!(replaced.functions.len(), 3);
            match round % 4 {
                0 => drop(replaced.rollback().expect("the latest")),
                1 => drop(jit.rollback().expect("the latest")),
                _ => {}
            }
        });
    });
}

/// The results of the host function below.
static ASKED: Mutex<Vec<(u64, Option<ReplaceError>)>> = Mutex::new(Vec::new());
static SESSION: Mutex<Option<Jit>> = Mutex::new(None);

extern "C" fn ask() {
    let jit = SESSION.lock().expect("sound").clone();
    let cause = jit.expect("there").rollback().err();
    let nested = match cause {
        Some(Error::Replace(cause)) => Some((*cause).clone()),
        _ => None,
    };
    ASKED.lock().expect("sound").push((open_signals(), nested));
}

/// Constructors run with the mask the program set, and who replaces in one is told so.
#[test]
fn code_of_the_program_runs_with_its_own_mask() {
    alone(|| {
        let with = |body: &str| {
            format!(
                "@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
                  [{{ i32, ptr, ptr }} {{ i32 65535, ptr @begin, ptr null }}]
                declare void @ask()
                define internal void @begin() {{ call void @ask() ret void }}
                define i32 @one() {{ ret i32 {body} }}"
            )
        };
        let jit = Jit::new().expect("a session");
        *SESSION.lock().expect("sound") = Some(jit.clone());
        // SAFETY: a function of that type, which stays.
        unsafe { jit.main().define_address("ask", ask as *const ()) }.expect("new");
        jit.add_ir("m", &with("1")).expect("valid IR");
        let mask = open_signals();
        // SAFETY: the constructor above.
        unsafe { jit.initialize() }.expect("initialized");
        let new = Replacement::ir("new", &with("2"));
        // SAFETY: as above.
        let new = unsafe { new.run_constructors() };
        jit.main().replace(new).expect("replaced");
        let asked = std::mem::take(&mut *ASKED.lock().expect("sound"));
        let expected = [
            (mask, Some(ReplaceError::NothingToRollBack)),
            (mask, Some(ReplaceError::Nested)),
        ];
        assert_eq!(asked, expected);
        *SESSION.lock().expect("sound") = None;
    });
}
