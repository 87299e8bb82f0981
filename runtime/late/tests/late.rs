//! Tests that the library is loaded only by `open` or by a call.

#![cfg(late)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
    fn LLVMContextCreate() -> *mut c_void;
    fn LLVMContextDispose(context: *mut c_void);
    fn LLVMDoubleTypeInContext(context: *mut c_void) -> *mut c_void;
    fn LLVMConstReal(kind: *mut c_void, value: f64) -> *mut c_void;
    fn LLVMConstRealGetDouble(value: *mut c_void, loses: *mut c_int) -> f64;
    fn LLVMCreateMessage(text: *const c_char) -> *mut c_char;
    fn LLVMDisposeMessage(text: *mut c_char);
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

fn note() {
    CALLED.fetch_add(1, Ordering::Relaxed);
    // LLVM can be called already.
    // SAFETY: a C string, which is copied and given back.
    unsafe { LLVMDisposeMessage(LLVMCreateMessage(c"open".as_ptr())) };
}

/// Whether a file of LLVM's is mapped.
fn is_mapped() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.contains("libLLVM")
}

/// One test, because it depends on the first action of the process.
#[test]
fn the_first_call_opens_the_library() {
    assert!(!uruk_late::is_open() && !is_mapped(), "nobody linked it");
    assert_eq!(uruk_late::function(), None);
    uruk_late::when_open(note);
    assert_eq!(CALLED.load(Ordering::Relaxed), 0);
    // Several threads at once, through entries without an earlier call.
    let threads: [_; 8] = std::array::from_fn(|number| {
        std::thread::spawn(move || {
            let (mut major, mut minor, mut patch) = (0, 0, 0);
            let mut loses = 1;
            // SAFETY: live pointers, and a context of this thread's.
            let value = unsafe {
                if number % 2 == 0 {
                    LLVMGetVersion(&mut major, &mut minor, &mut patch);
                }
                let context = LLVMContextCreate();
                let value = LLVMConstReal(LLVMDoubleTypeInContext(context), 0.1 + number as f64);
                let value = LLVMConstRealGetDouble(value, &mut loses);
                LLVMGetVersion(&mut major, &mut minor, &mut patch);
                LLVMContextDispose(context);
                value
            };
            // Vectors' registers are those of the call.
            assert_eq!((value, loses), (0.1 + number as f64, 0));
            format!("{major}.{minor}.{patch}")
        })
    });
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), uruk_late::BUILT_FOR);
    }
    assert_eq!(CALLED.load(Ordering::Relaxed), 1);
    assert!(uruk_late::is_open() && is_mapped());
    assert_eq!(uruk_late::open(), Ok(()));
    uruk_late::when_open(note);
    assert_eq!(CALLED.load(Ordering::Relaxed), 2);
    assert!(uruk_late::function().is_some() && uruk_late::stream_vtable().is_some());
    // Other libraries do not find the entries. SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"LLVMContextCreate".as_ptr()) };
    assert!(found.is_null());
    let own = std::fs::read_to_string("/proc/self/maps").expect("a list");
    let own = own.lines().find_map(|line| {
        line.find("/")
            .map(|at| &line[at..])
            .filter(|path| path.contains("libLLVM"))
    });
    let own = std::ffi::CString::new(own.expect("mapped")).expect("no zero byte");
    assert!(uruk_late::is_library(&own));
    assert!(!uruk_late::is_library(c"/x/libz.so"));
}
