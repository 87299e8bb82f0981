//! First calls on small stacks.

mod support;

use std::arch::naked_asm;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{returns, serve, table};
use uruk_stubs::{EntryAddress, call_ptr};

const STACK: usize = 16 << 10;
const PAGE: usize = 4096;

/// 16 KiB between guard pages, filled with a pattern.
struct Stack {
    base: *mut u8,
}

impl Stack {
    fn new() -> Stack {
        // SAFETY: a new mapping; its middle is made accessible and filled.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::mmap(
                ptr::null_mut(),
                STACK + 2 * PAGE,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            );
            assert_ne!(all, libc::MAP_FAILED);
            let base = all.cast::<u8>().add(PAGE);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(base.cast(), STACK, access), 0);
            base.write_bytes(0xa5, STACK);
            Stack { base }
        }
    }

    fn top(&self) -> u64 {
        self.base.addr() as u64 + STACK as u64
    }

    /// Bytes from the top to the lowest that was written.
    fn used(&self) -> usize {
        // SAFETY: the stack's bytes, which no thread uses now.
        let bytes = unsafe { std::slice::from_raw_parts(self.base, STACK) };
        STACK - bytes.iter().take_while(|byte| **byte == 0xa5).count()
    }
}

/// Calls `entry` with rsp at `top`.
#[unsafe(naked)]
unsafe extern "C" fn on_stack(top: u64, entry: u64) -> u64 {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

#[test]
fn a_first_call_needs_little_of_a_small_stack() {
    let (heap, table) = table();
    let entry = returns(&heap, 7);
    let _service = serve(&table, move |table, f| {
        table.publish(f, EntryAddress(entry));
    });
    for misaligned in [0, 8, 16, 24, 48] {
        let stack = Stack::new();
        let f = table.allocate().unwrap();
        // SAFETY: a function without arguments, on a stack of its own.
        let got = unsafe { on_stack(stack.top() - misaligned, table.stub_address(f).0) };
        assert_eq!(got, 7);
        let used = stack.used();
        println!("first call: {used} bytes of stack");
        assert!(used > 512 && used < 6 << 10, "{used} bytes");
    }
}

#[test]
fn a_thread_with_the_smallest_stack() {
    static STUB: AtomicU64 = AtomicU64::new(0);
    extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: a function without arguments.
        let got = unsafe { call_ptr(STUB.load(Ordering::Relaxed)) };
        ptr::without_provenance_mut(got as usize)
    }
    let (heap, table) = table();
    let entry = returns(&heap, 8);
    let _service = serve(&table, move |table, f| {
        table.publish(f, EntryAddress(entry));
    });
    let f = table.allocate().unwrap();
    STUB.store(table.stub_address(f).0, Ordering::Relaxed);
    let stack = Stack::new();
    // SAFETY: plain uses of the pthread API with live arguments; the stack
    // outlives the thread.
    let got = unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let set = libc::pthread_attr_setstack(&mut attributes, stack.base.cast(), STACK);
        assert_eq!(set, 0);
        let mut thread = 0;
        let made = libc::pthread_create(&mut thread, &attributes, run, ptr::null_mut());
        assert_eq!(made, 0);
        let mut got = ptr::null_mut();
        libc::pthread_join(thread, &mut got);
        libc::pthread_attr_destroy(&mut attributes);
        got.addr()
    };
    assert_eq!(got, 8);
}

#[test]
fn a_handler_on_a_small_alternate_stack() {
    static STUB: AtomicU64 = AtomicU64::new(0);
    static GOT: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: i32) {
        // SAFETY: a function without arguments.
        let got = unsafe { call_ptr(STUB.load(Ordering::Relaxed)) };
        GOT.store(got, Ordering::Relaxed);
    }
    let (heap, table) = table();
    let entry = returns(&heap, 9);
    let _service = serve(&table, move |table, f| {
        table.publish(f, EntryAddress(entry));
    });
    let f = table.allocate().unwrap();
    STUB.store(table.stub_address(f).0, Ordering::Relaxed);
    let stack = Stack::new();
    std::thread::spawn(move || {
        let stack = stack;
        // SAFETY: the alternate stack outlives its use; the handler is
        // async-signal-safe.
        unsafe {
            let alternate = libc::stack_t {
                ss_sp: stack.base.cast(),
                ss_flags: 0,
                ss_size: STACK,
            };
            assert_eq!(libc::sigaltstack(&alternate, ptr::null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()), 0);
            libc::raise(libc::SIGUSR2);
            let none = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            libc::sigaltstack(&none, ptr::null_mut());
        }
        println!("handler and first call: {} bytes of stack", stack.used());
    })
    .join()
    .unwrap();
    assert_eq!(GOT.load(Ordering::Relaxed), 9);
}

// SAFETY: owns plain memory.
unsafe impl Send for Stack {}
