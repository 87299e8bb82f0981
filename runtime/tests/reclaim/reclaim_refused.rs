//! Processes whose filter refuses a system call that freeing code needs: code is freed by other
//! means, or the reason is told. Each test runs itself in a process of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uruk::{Event, Jit, MemoryStats, ReclaimKind, Replacement};
use uruk_testing::Child;

/// Says that the process is one to be filtered.
const CHILD: &str = "URUK_TEST_REFUSED";

/// Has `call` fail by `EPERM` in all threads.
fn refuse(call: i64) {
    let instruction = |code, k, jt| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut code = [
        instruction(load, 0, 0),
        instruction(equal, call as u32, 1),
        instruction(ret, libc::SECCOMP_RET_ALLOW, 0),
        instruction(ret, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
    ];
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_mut_ptr(),
    };
    let (operation, flags) = (
        libc::SECCOMP_SET_MODE_FILTER,
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
    // SAFETY: a program that the kernel copies.
    let filtered = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(libc::SYS_seccomp, operation, flags, &program)
    };
    assert_eq!(filtered, 0);
}

/// Runs a test in a process of its own.
fn apart(test: &str, filtered: fn()) {
    if std::env::var_os(CHILD).is_some() {
        return filtered();
    }
    Child::of(module_path!(), test).env(CHILD, "1").passes();
}

fn body(value: u32) -> String {
    format!("define i32 @f() {{ ret i32 {value} }}")
}

/// Replaces `f` now and then; what is known of memory at the end, and the reasons that were told.
fn replaced() -> (MemoryStats, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let told = Arc::clone(&told);
        move |event: &Event| {
            if let Event::CodeStays { cause, .. } = event {
                told.lock().expect("whole").push(cause.clone());
            }
        }
    };
    let jit = Jit::builder().jobs(1).on_event(listener).build();
    let jit = jit.expect("a session");
    jit.add_ir("m", &body(0)).expect("valid IR");
    // SAFETY: its type is as said.
    let f = unsafe { jit.function::<extern "C" fn() -> i32>("f") }.expect("typed");
    assert_eq!(f.call(), 0);
    // More than can be rolled back.
    for value in 1..20 {
        let new = Replacement::ir("n", &body(value));
        let _ = jit.main().replace(new).expect("replaced");
        assert_eq!(f.call(), value as i32);
        jit.reclaim(ReclaimKind::Sweep, Duration::from_secs(60));
    }
    let memory = jit.stats().memory;
    let told = told.lock().expect("whole").clone();
    (memory, told)
}

#[test]
fn without_barriers_of_the_kernel_code_is_freed_all_the_same() {
    apart(
        "without_barriers_of_the_kernel_code_is_freed_all_the_same",
        || {
            refuse(libc::SYS_membarrier);
            let (memory, told) = replaced();
            assert!(memory.freed > 0, "{memory:?}");
            assert_eq!((memory.stays, told), (None, Vec::new()));
        },
    );
}

#[test]
fn without_reading_of_other_stacks_the_reason_is_told_once() {
    apart(
        "without_reading_of_other_stacks_the_reason_is_told_once",
        || {
            refuse(libc::SYS_process_vm_readv);
            let (memory, told) = replaced();
            assert_eq!(memory.freed, 0);
            let stays = memory.stays.expect("a reason");
            assert!(stays.contains("process_vm_readv"), "{stays}");
            assert_eq!(told, [stays]);
        },
    );
}
