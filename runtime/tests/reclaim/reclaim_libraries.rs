//! Libraries of a host that is not the command go to stacks of their own, each in its way, and
//! are loaded before the session is made or after code was freed: what rests there is kept.
//!
//! The host itself goes to no other stack. Its libraries are those of the end-to-end cases.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{Event, Freed, HeapConfig, Jit, ReclaimConfig, ReclaimKind, Tier};

/// Long enough for a cycle on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// Why memory is searched, as it was told.
type Causes = Arc<Mutex<Vec<String>>>;

fn jit() -> (Jit, Causes) {
    let mut heap = HeapConfig::default();
    heap.freed = Freed::Protect {
        quarantine: 4 << 20,
    };
    let mut reclaim = ReclaimConfig::default();
    for (name, value) in [
        ("backoff_min", "1ms"),
        ("backoff_max", "10ms"),
        ("interval", "0ns"),
    ] {
        reclaim.set(name, value).expect("a setting");
    }
    let causes = Causes::default();
    let told = Arc::clone(&causes);
    let builder = Jit::builder().heap(heap).reclaim(reclaim).jobs(1);
    let builder = builder.on_event(move |event| {
        if let Event::StacksSearched { cause, .. } = event {
            told.lock().expect("no panic").push(cause.clone());
        }
    });
    let jit = builder.build().expect("a session");
    jit.pause_tiers();
    (jit, causes)
}

/// A library of the sources `name` in the cases' folder, linked against `needs`.
fn build(name: &str, needs: &[&Path]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/cases/parts");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reclaim-libraries");
    std::fs::create_dir_all(&folder).expect("a folder");
    let output = folder.join(format!("lib{name}.so"));
    let beside = Path::new(option_env!("LLVM_SYS_221_PREFIX").unwrap_or("/usr/lib/llvm-22"));
    let clang = ["clang-22", "clang"].map(|name| beside.join("bin").join(name));
    let clang = clang.into_iter().find(|clang| clang.exists());
    let status = Command::new(clang.unwrap_or_else(|| "clang-22".into()))
        .args(["-O1", "-fPIC", "-shared"])
        .arg("-o")
        .arg(&output)
        .arg(source.join(format!("{name}.c")))
        .args(needs)
        .status()
        .expect("clang runs");
    assert!(status.success(), "{name}");
    output
}

/// A library that is loaded.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let path = CString::new(path.to_str().expect("text")).expect("no zero");
        // SAFETY: a library of the test.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?}");
        Library(handle)
    }

    fn find(&self, name: &str) -> *const () {
        let name = CString::new(name).expect("no zero");
        // SAFETY: a live handle.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found.cast_const().cast()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: no thread is in it any more.
        unsafe { libc::dlclose(self.0) };
    }
}

static START: AtomicU64 = AtomicU64::new(0);
static RESULT: AtomicU64 = AtomicU64::new(0);

/// Runs on the fiber.
extern "C" fn body(_: i32) {
    // SAFETY: the function below.
    let run: extern "C" fn(u64) -> u64 =
        unsafe { std::mem::transmute(START.load(Ordering::Relaxed)) };
    RESULT.store(run(40), Ordering::Relaxed);
}

fn churn(jit: &Jit) {
    for tier in Tier::ALL.into_iter().cycle().take(9) {
        jit.compile_at("away", tier).expect("a function");
        assert!(jit.reclaim(ReclaimKind::Evacuate, SOON));
    }
}

/// Rests in the library whose functions begin with `prefix`, which is opened before the
/// session or after it freed code, and comes back.
fn check(path: &Path, prefix: &str, before: bool, cause: &str) {
    let early = before.then(|| Library::open(path));
    let (jit, causes) = jit();
    jit.add_ir(
        "m",
        "@rest = global ptr null
         define i64 @away(i64 %x) {
           %y = add i64 %x, 1
           %f = load ptr, ptr @rest
           %n = icmp eq ptr %f, null
           br i1 %n, label %end, label %go
         go:
           call void %f(i32 0)
           br label %end
         end:
           %z = add i64 %y, 1
           ret i64 %z
         }",
    )
    .expect("valid IR");
    // SAFETY: the function above.
    let away = unsafe { jit.function::<extern "C" fn(u64) -> u64>("away") }.expect("typed");
    assert_eq!(away.call(1), 3);
    if !before {
        churn(&jit);
        assert!(jit.stats().memory.freed > 0, "nothing rests");
        assert!(causes.lock().expect("no panic").is_empty());
    }
    let library = early.unwrap_or_else(|| Library::open(path));
    let name = |name: &str| library.find(&format!("{prefix}{name}"));
    // SAFETY: as the library has it.
    let make: extern "C" fn(i32, extern "C" fn(i32)) = unsafe { std::mem::transmute(name("make")) };
    // SAFETY: as above.
    let go: extern "C" fn(i32) = unsafe { std::mem::transmute(name("go")) };
    let rest = jit.lookup("rest").expect("defined") as *mut *const ();
    // SAFETY: a pointer of the module above, which no thread reads now.
    unsafe { rest.write(name("rest")) };
    START.store(jit.lookup("away").expect("defined"), Ordering::Relaxed);
    RESULT.store(0, Ordering::Relaxed);
    make(0, body);
    go(0);
    assert_eq!(RESULT.load(Ordering::Relaxed), 0, "it rests");
    churn(&jit);
    assert!(jit.stats().memory.pinned > 0, "the fiber holds its code");
    let told = causes.lock().expect("no panic").clone();
    assert!(told.len() == 1 && told[0].contains(cause), "{told:?}");
    go(0);
    assert_eq!(RESULT.load(Ordering::Relaxed), 42);
}

#[test]
fn code_that_rests_in_a_library_is_kept() {
    let context = build("fibers_context", &[]);
    let outer = build("fibers_outer", &[&context]);
    let switch = build("fibers_switch", &[]);
    let signal = build("fibers_signal", &[]);
    for before in [false, true] {
        check(&switch, "fiber_", before, "loads its stack pointer");
        check(&signal, "fiber_", before, "sigaltstack and longjmp");
        check(&context, "fiber_", before, "context");
        check(&outer, "fibers_outer_", before, "context");
    }
}
