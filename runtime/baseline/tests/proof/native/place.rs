//! Places compiled code in executable memory, applies its relocations, and provides the world
//! around it.

use uruk_baseline::ir::{Function, Reach};
use uruk_baseline::{Code, Fixup, FixupKind};

use super::enter::uruk_proof_host;
use crate::world::{EXITS, HOSTS, Layout, PIECES, ROOM, STUB};

/// Bytes for code; then for stubs and words, which are written only by the test; then pieces.
const CODE: usize = 1 << 20;
const WORDS: usize = 1 << 16;

/// One mapping: code, stubs, words that hold addresses, pieces of memory, all in reach of a 32-bit
/// distance.
#[derive(Debug)]
pub struct Arena {
    base: u64,
}

const EXECUTED: i32 = libc::PROT_READ | libc::PROT_EXEC;
const WRITTEN: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Arena {
    pub fn new() -> Arena {
        let size = CODE + 2 * WORDS + PIECES.len() * ROOM;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is never unmapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, WRITTEN, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "no memory");
        let arena = Arena { base: at as u64 };
        for index in 0..2 * HOSTS as u64 {
            let mut stub = vec![0x41, 0xbb];
            stub.extend((index as u32).to_le_bytes());
            stub.extend([0xff, 0x25, 0, 0, 0, 0]);
            stub.extend((uruk_proof_host as *const () as u64).to_le_bytes());
            arena.write(arena.layout().stubs + index * STUB, &stub);
        }
        // `mov rax, [rdi]; ret`: the first word of the pair is the address.
        arena.write(arena.thread_stub(), &[0x48, 0x8b, 0x07, 0xc3]);
        for index in 0..EXITS {
            let stub = arena.layout().exit(24 * index as u32);
            // `jmp *word(%rip)`.
            let distance = arena.exit_word(index).wrapping_sub(stub + 6) as u32;
            arena.write(stub, &[0xff, 0x25]);
            arena.write(stub + 2, &distance.to_le_bytes());
        }
        arena.protect(CODE, WORDS, EXECUTED);
        arena
    }

    pub fn layout(&self) -> Layout {
        Layout {
            pieces: self.base + (CODE + 2 * WORDS) as u64,
            stubs: self.base + CODE as u64,
        }
    }

    /// The word with the address of an exit: among the last ones.
    fn exit_word(&self, index: usize) -> u64 {
        self.layout().pieces - 8 * (1 + index as u64)
    }

    fn thread_stub(&self) -> u64 {
        self.layout().stubs + 2 * HOSTS as u64 * STUB
    }

    fn protect(&self, from: usize, size: usize, how: i32) {
        let at = (self.base + from as u64) as *mut libc::c_void;
        // SAFETY: pages of the arena, in which no thread runs at this time.
        let failed = unsafe { libc::mprotect(at, size, how) };
        assert_eq!(failed, 0, "pages that cannot be protected");
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        // SAFETY: callers write within the arena, to pages that are writable.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        }
    }

    /// The contents of the nth piece of memory.
    pub fn piece(&self, nth: usize) -> [u8; ROOM] {
        let mut bytes = [0; ROOM];
        let from = (self.layout().pieces + (nth * ROOM) as u64) as *const u8;
        // SAFETY: within the arena.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), ROOM) };
        bytes
    }

    pub fn set_piece(&self, nth: usize, bytes: &[u8; ROOM]) {
        self.write(self.layout().pieces + (nth * ROOM) as u64, bytes);
    }

    /// Places code and the exits of its loops, and returns its address. The code placed before is
    /// overwritten.
    pub fn place(&self, function: &Function, code: &Code, exits: &Code) -> Result<u64, String> {
        let mut bytes = self.fixed(function, code, self.base, 0)?;
        bytes.resize(bytes.len().next_multiple_of(16), 0xcc);
        let behind = self.base + bytes.len() as u64;
        bytes.extend(self.fixed(function, exits, behind, code.fixups.len())?);
        for head in &function.counting.heads {
            let place = exits.blocks.iter().find(|exit| exit.0 == head.block);
            let &(_, place) = place.ok_or("a loop without an exit")?;
            let word = self.exit_word(head.exit as usize / 24);
            self.write(word, &(behind + u64::from(place)).to_le_bytes());
        }
        let size = bytes.len().next_multiple_of(4096).max(4096);
        if size > CODE {
            return Err("more code than there is room for".to_string());
        }
        self.protect(0, size, WRITTEN);
        self.write(self.base, &bytes);
        // The bytes behind the function are never run.
        self.write(
            self.base + bytes.len() as u64,
            &vec![0xcc; size - bytes.len()],
        );
        self.protect(0, size, EXECUTED);
        Ok(self.base)
    }

    /// The bytes of code that is to lie at an address, when so many words are used by other code.
    fn fixed(
        &self,
        function: &Function,
        code: &Code,
        base: u64,
        mut used: usize,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = code.bytes.clone();
        let words = self.base + (CODE + WORDS) as u64;
        let mut behind = 0;
        for fixup in &code.fixups {
            let Fixup {
                at,
                kind,
                symbol,
                addend,
            } = *fixup;
            if at < behind {
                return Err(format!("fix-ups at {at} that overlap or are not sorted"));
            }
            let target = self.target(function, code, symbol.index())?;
            let word = words + used as u64 * 16;
            used += 1;
            self.write(word, &target.to_le_bytes());
            self.write(word + 8, &0u64.to_le_bytes());
            let from = base + u64::from(at) + 4;
            let (value, count) = match kind {
                FixupKind::Absolute64 => (target.wrapping_add_signed(addend), 8),
                FixupKind::Distance => (target.wrapping_add_signed(addend).wrapping_sub(from), 4),
                _ => (word.wrapping_add_signed(addend).wrapping_sub(from), 4),
            };
            if kind == FixupKind::Distance && i32::try_from(value as i64).is_err() {
                return Err(format!("symbol {} is too far for a distance", symbol.0));
            }
            let field = bytes.get_mut(at as usize..at as usize + count);
            let field = field.ok_or("a fix-up outside of the code")?;
            field.copy_from_slice(&value.to_le_bytes()[..count]);
            behind = at + count as u32;
        }
        Ok(bytes)
    }

    fn target(&self, function: &Function, code: &Code, index: usize) -> Result<u64, String> {
        let (name, is_thread_local) = match function.symbols.get(index) {
            Some(data) => (&*data.name, data.reach == Reach::ThreadLocal),
            None => {
                let added = code.library.get(index - function.symbols.len());
                (*added.ok_or("a fix-up of no symbol")?, false)
            }
        };
        let _ = is_thread_local;
        if name == "__tls_get_addr" {
            return Ok(self.thread_stub());
        }
        let ours = self.layout().address_of(name);
        ours.or_else(|| library(name))
            .ok_or(format!("nobody has {name}"))
    }
}

/// Functions of the C library and of the compiler's runtime library.
fn library(name: &str) -> Option<u64> {
    unsafe extern "C" {
        fn fmod(a: f64, b: f64) -> f64;
        fn _Unwind_Resume(exception: *mut u8) -> !;
        fn fmodf(a: f32, b: f32) -> f32;
        fn fma(a: f64, b: f64, c: f64) -> f64;
        fn fmaf(a: f32, b: f32, c: f32) -> f32;
        fn __divti3(a: i128, b: i128) -> i128;
        fn __udivti3(a: u128, b: u128) -> u128;
        fn __modti3(a: i128, b: i128) -> i128;
        fn __umodti3(a: u128, b: u128) -> u128;
    }
    let at = match name {
        "memcpy" => libc::memcpy as *const (),
        "memmove" => libc::memmove as *const (),
        "memset" => libc::memset as *const (),
        "_Unwind_Resume" => _Unwind_Resume as *const (),
        "fmod" => fmod as *const (),
        "fmodf" => fmodf as *const (),
        "fma" => fma as *const (),
        "fmaf" => fmaf as *const (),
        "__divti3" => __divti3 as *const (),
        "__udivti3" => __udivti3 as *const (),
        "__modti3" => __modti3 as *const (),
        "__umodti3" => __umodti3 as *const (),
        _ => return None,
    };
    Some(at as u64)
}
