//! A signal handler leaves a first call at every single instruction: no request is lost or made
//! twice.
//!
//! A child makes first calls; its parent traces it, lets it execute `n` instructions of the `n`-th
//! call and sends the signal.

#[path = "support/leaving.rs"]
mod leaving;
mod support;

use std::io::Error;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leaving::{attempt_here, leave};
use support::{returns, serve, table};
use uruk_stubs::EntryAddress;

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    leave(context);
}

#[derive(Clone, Copy, PartialEq)]
enum Code {
    Served,
    Prepared,
}

/// The child: makes first calls until they are no longer left; returns a status.
fn make_first_calls(code: Code) -> i32 {
    // SAFETY: a handler of the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
        libc::alarm(600);
    }
    let (heap, table) = table();
    let entry = returns(&heap, 5);
    let service = serve(&table, move |table, f| {
        table.publish(f, EntryAddress(entry));
    });
    let functions = table.allocate_many(20_000).unwrap();
    // SAFETY: has no pointers.
    if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
        return 77;
    }
    let (mut called, mut whole) = (0, 0);
    for f in functions {
        if code == Code::Prepared {
            table.prepare(f, EntryAddress(entry));
        }
        let stub = table.stub_address(f).0;
        called += 1;
        match attempt_here(stub, true) {
            Some(5) => whole += 1,
            Some(_) => return 2,
            None => {
                if attempt_here(stub, false) != Some(5) {
                    return 3;
                }
            }
        }
        // Calls differ by a few instructions.
        if whole == 20 {
            break;
        }
    }
    if table
        .wait_request(Some(Duration::from_millis(50)))
        .is_some()
    {
        return 4;
    }
    let served = service.served.load(Ordering::Relaxed);
    let expected = if code == Code::Served { called } else { 0 };
    // Do not drop the service: its thread may go on.
    std::mem::forget(service);
    if served == expected && whole == 20 {
        0
    } else {
        5
    }
}

fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a live word.
    let got = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(got, child, "{}", Error::last_os_error());
    status
}

fn go_on(child: i32, how: libc::c_uint, signal: i32) {
    // SAFETY: `child` is stopped and traced by us.
    let done = unsafe { libc::ptrace(how, child, 0, signal) };
    assert_eq!(done, 0, "{}", Error::last_os_error());
}

/// The parent: returns the number of calls, and the child's status.
fn trace(child: i32) -> (usize, i32) {
    let mut calls = 0;
    let mut status = wait(child);
    while libc::WIFSTOPPED(status) {
        let signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP {
            go_on(child, libc::PTRACE_CONT, signal);
            status = wait(child);
            continue;
        }
        // At the `int3` of a call.
        for _ in 0..calls {
            go_on(child, libc::PTRACE_SINGLESTEP, 0);
            status = wait(child);
            if !libc::WIFSTOPPED(status) {
                return (calls, status);
            }
        }
        calls += 1;
        go_on(child, libc::PTRACE_CONT, libc::SIGUSR1);
        status = wait(child);
    }
    (calls, status)
}

fn leave_everywhere(code: Code) {
    // SAFETY: the child uses only functions that work in a child of a process with threads: glibc's
    // allocator and threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = make_first_calls(code);
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let (calls, status) = trace(child);
    assert!(libc::WIFEXITED(status), "ended by signal {status}");
    match libc::WEXITSTATUS(status) {
        77 => println!("skipped: tracing is not allowed here"),
        status => {
            println!("left at {calls} instructions");
            assert_eq!(status, 0);
            assert!(calls > 100, "{calls}");
        }
    }
}

#[test]
fn leaving_at_every_instruction() {
    leave_everywhere(Code::Served);
}

#[test]
fn leaving_at_every_instruction_of_prepared_code() {
    leave_everywhere(Code::Prepared);
}
