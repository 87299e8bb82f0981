//! Hand-assembled functions with hand-written unwind data, and their callers.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::c_void;

use uruk_unwind::Row;

/// Distance between functions.
pub const STRIDE: usize = 64;

/// `sub rsp, 8; mov rax, rdi; mov rdi, rsi; call rax; add rsp, 8; ret`
const CALLER: [u8; 17] = [
    0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08,
    0xc3,
];

/// Bytes of it that are left when the call is the last instruction.
const CALL_LAST: usize = 12;

/// Calls its first argument with its second.
pub type Caller =
    unsafe extern "C-unwind" fn(unsafe extern "C-unwind" fn(*mut c_void), *mut c_void);

/// One mapping: a page range of functions, then their frame descriptions.
pub struct Code {
    pub base: u64,
    pub size: usize,
    pub rows: Vec<Row>,
    /// The CIE, followed by all FDEs and a zero length.
    pub eh_frame: u64,
}

impl Code {
    /// Maps `count` functions. The odd ones end with their call instruction.
    pub fn new(count: usize) -> Code {
        let text = (count * STRIDE).next_multiple_of(4096);
        let cie = cie();
        let frames = cie.len() + count * fde(0, 0, 0).len() + 4;
        let size = text + frames.next_multiple_of(4096);
        // SAFETY: a new private mapping.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the mapping is ours, writable and zero.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), size) };
        let base = memory.expose_provenance() as u64;
        bytes[text..text + cie.len()].copy_from_slice(&cie);
        let mut end = text + cie.len();
        let mut rows = Vec::new();
        for i in 0..count {
            let len = if i % 2 == 1 { CALL_LAST } else { CALLER.len() };
            let at = i * STRIDE;
            bytes[at..at + STRIDE].fill(0xcc);
            bytes[at..at + len].copy_from_slice(&CALLER[..len]);
            let start = base + at as u64;
            let entry = fde(end - text, start, len as u64);
            bytes[end..end + entry.len()].copy_from_slice(&entry);
            rows.push(Row {
                start,
                end: start + len as u64,
                fde: base + end as u64,
            });
            end += entry.len();
        }
        // SAFETY: the mapping is ours and no code writes it any more.
        let sealed = unsafe { libc::mprotect(memory, size, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(sealed, 0);
        Code {
            base,
            size,
            rows,
            eh_frame: base + text as u64,
        }
    }

    pub fn function(&self, i: usize) -> Caller {
        let address = std::ptr::with_exposed_provenance::<c_void>(self.rows[i].start as usize);
        // SAFETY: the bytes there are a function of that type.
        unsafe { std::mem::transmute::<*const c_void, Caller>(address) }
    }
}

fn cie() -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 1]; // id of a CIE, version
    body.extend(b"zR\0");
    body.extend([1, 0x78, 16]); // code by 1, data by -8, return address in column 16
    body.extend([1, 0x00]); // augmentation: absolute pointers
    body.extend([0x0c, 7, 8, 0x90, 1]); // CFA = rsp + 8, return address at CFA - 8
    record(body)
}

/// An FDE; `offset` is that from its CIE.
fn fde(offset: usize, start: u64, len: u64) -> Vec<u8> {
    let mut body = (offset as u32 + 4).to_le_bytes().to_vec();
    body.extend(start.to_le_bytes());
    body.extend(len.to_le_bytes());
    body.push(0); // no augmentation
    body.extend([0x44, 0x0e, 16]); // after 4 bytes: CFA = rsp + 16
    record(body)
}

fn record(mut body: Vec<u8>) -> Vec<u8> {
    body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
    let mut record = (body.len() as u32).to_le_bytes().to_vec();
    record.extend(body);
    record
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn step(context: *mut c_void, list: *mut c_void) -> i32 {
    // SAFETY: `backtrace` passed its list, and libgcc its context.
    unsafe { (*list.cast::<Vec<u64>>()).push(_Unwind_GetIP(context) as u64) };
    0
}

/// Appends the return addresses of the stack to a `Vec<u64>`.
pub unsafe extern "C-unwind" fn backtrace(list: *mut c_void) {
    // SAFETY: `step` takes the same list.
    unsafe { _Unwind_Backtrace(step, list) };
}

/// Panics without the hook's output.
pub unsafe extern "C-unwind" fn throw(payload: *mut c_void) {
    std::panic::resume_unwind(Box::new(payload.addr()));
}

/// Throws through function `i` and returns the caught payload.
pub fn throw_through(code: &Code, i: usize, payload: usize) -> usize {
    let function = code.function(i);
    let caught = std::panic::catch_unwind(|| {
        let payload = std::ptr::without_provenance_mut(payload);
        // SAFETY: the function calls `throw` with the payload.
        unsafe { function(throw, payload) }
    });
    *caught.unwrap_err().downcast::<usize>().unwrap()
}
