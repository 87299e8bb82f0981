//! `uruk run` with an allocator that is loaded before everything else, as leak checkers are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Ends the process if a block is released that it did not make. Defines no alignment forms of
/// `operator new`: those of the C++ library call `aligned_alloc`.
const ALLOCATOR: &str = r#"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define MARK 0x5ca1ab1e5ca1ab1eul
struct head { size_t size, mark; };
static char *volatile next;
static char *volatile end;
static volatile int taken;
static void *make(size_t size, size_t align) {
  if (align < 16) align = 16;
  while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE)) ;
  size_t need = size + 2 * align + 32;
  if (!next || (size_t)(end - next) < need) {
    size_t room = need > (64ul << 20) ? need : 64ul << 20;
    next = mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    end = next + room;
  }
  size_t at = ((size_t)next + sizeof(struct head) + align - 1) & -align;
  next = (char *)at + size;
  __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
  ((struct head *)at)[-1] = (struct head){size, MARK};
  return (void *)at;
}
static struct head *head(void *p) {
  struct head *h = (struct head *)p - 1;
  if (h->mark != MARK) { write(2, "foreign block\n", 14); _exit(99); }
  return h;
}
void *malloc(size_t n) { return make(n, 16); }
void free(void *p) { if (p) head(p); }
void *calloc(size_t a, size_t b) { return make(a * b, 16); }
void *realloc(void *p, size_t n) {
  void *q = make(n, 16);
  if (p) { size_t old = head(p)->size; memcpy(q, p, old < n ? old : n); }
  return q;
}
void *memalign(size_t a, size_t n) { return make(n, a); }
void *aligned_alloc(size_t a, size_t n) { return make(n, a); }
void *valloc(size_t n) { return make(n, 4096); }
void *pvalloc(size_t n) { return make((n + 4095) & -4096ul, 4096); }
int posix_memalign(void **to, size_t a, size_t n) { *to = make(n, a); return 0; }
size_t malloc_usable_size(void *p) { return p ? head(p)->size : 0; }
void *_Znwm(size_t n) { return make(n, 16); }
void *_Znam(size_t n) { return make(n, 16); }
void _ZdlPv(void *p) { free(p); }
void _ZdaPv(void *p) { free(p); }
void _ZdlPvm(void *p, size_t n) { free(p); }
void _ZdaPvm(void *p, size_t n) { free(p); }
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  char *made = malloc(40), *copied = strdup("copied");
  printf("%d %d\n", ((unsigned long *)made)[-1] == 0x5ca1ab1e5ca1ab1eul,
         ((unsigned long *)copied)[-1] == 0x5ca1ab1e5ca1ab1eul);
  made = realloc(made, 4000);
  free(made);
  free(copied);
  return 5;
}
"#;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compile(folder: &Path, to: &str, source: &str, options: &[&str]) {
    let c = folder.join(format!("{to}.c"));
    std::fs::write(&c, source).expect("written");
    let mut clang = Command::new("clang-22");
    clang
        .args(["-w", "-O1", "-fPIC", "-fno-builtin"])
        .args(options);
    let ran = clang.arg(&c).arg("-o").arg(folder.join(to)).status();
    assert!(ran.expect("clang runs").success());
}

#[test]
fn a_preloaded_allocator_has_all_blocks() {
    let name = format!("uruk-preloaded-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).expect("made");
    compile(&folder.0, "liballocator.so", ALLOCATOR, &["-shared"]);
    compile(&folder.0, "main.bc", PROGRAM, &["-c", "-emit-llvm"]);
    for options in [&[][..], &["--baseline", "off"], &["--eager"]] {
        let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
        uruk.arg("run").args(options).arg("main.bc");
        uruk.env("LD_PRELOAD", folder.0.join("liballocator.so"));
        let output = uruk.current_dir(&folder.0).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            (output.status.code(), &*said),
            (Some(5), "1 1\n"),
            "{options:?}: {output:?}"
        );
    }
}
