/* A program that does one thing for a while, and something besides that a compiler beside it has to
   live with. Prints one number, which depends on all it did: the same with and without `uruk live`.

       faults MODE [MILLISECONDS] */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Local, and called through a pointer: only the program's symbol table knows where it is. */
static uint32_t mix(uint32_t state, const uint8_t *bytes, size_t count) {
  for (size_t at = 0; at < count; at++) state = (state ^ bytes[at]) * 16777619u;
  return state;
}

static uint32_t (*volatile call)(uint32_t, const uint8_t *, size_t) = mix;

/* What is called was made another function, which calls may reach sooner or later. */
static volatile int patched;

/* Each round does the same, so the number does not depend on how many there were. */
static uint32_t work(long milliseconds) {
  uint8_t bytes[4096];
  for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (uint8_t)(at * 7);
  uint32_t result = 0;
  clock_t end = clock() + milliseconds * (CLOCKS_PER_SEC / 1000);
  do
    for (int round = 0; round < 100; round++) {
      uint32_t found = call(2166136261u, bytes, sizeof bytes);
      if (result && found != result && !patched) abort();
      result = found;
    }
  while (clock() < end);
  return result;
}

enum { WHERE = offsetof(struct seccomp_data, nr), THIRD = offsetof(struct seccomp_data, args[2]) };

#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, what)
#define IF_IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IF_HAS(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)

/* From now on no thread gets memory that can be executed. */
static int forbid_code(void) {
  struct sock_filter filter[] = {
      LOAD(WHERE),
      IF_IS(SYS_mmap, 2, 0),
      IF_IS(SYS_mprotect, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      LOAD(THIRD),
      IF_HAS(PROT_EXEC, 0, 1),
      REFUSE(EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* From now on nobody counts events of the processor, as in most containers. */
static int forbid_events(void) {
  struct sock_filter filter[] = {
      LOAD(WHERE),
      IF_IS(SYS_perf_event_open, 0, 1),
      REFUSE(EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* Some memory more than there is now, and not a byte beyond. */
static int limit_memory(size_t megabytes) {
  FILE *file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  if (!file || fscanf(file, "%lu", &pages) != 1) return 1;
  fclose(file);
  rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (megabytes << 20);
  struct rlimit limit = {bytes, bytes};
  return setrlimit(RLIMIT_AS, &limit);
}

static int limit(int resource, rlim_t most) {
  struct rlimit limit = {most, most};
  return setrlimit(resource, &limit);
}

/* From now on nothing is opened. */
static int limit_files(void) { return limit(RLIMIT_NOFILE, 0); }

/* From now on no thread begins. The kernel grants root any number, so it is somebody else. */
static int limit_processes(void) {
  if (!geteuid() && setresuid(65534, 65534, 65534)) return 1;
  return limit(RLIMIT_NPROC, 0);
}

/* Whether the bytes of a function, and what is in front of it, are those of before. */
static const uint8_t *text(void) { return (const uint8_t *)(uintptr_t)call - 14; }

/* Makes the function another one, as programs do that patch themselves: it returns 7. */
static int patch(void) {
  patched = 1;
  static const uint8_t code[] = {0xb8, 7, 0, 0, 0, 0xc3};
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)call;
  void *start = (void *)(at / page * page);
  if (mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC)) return 1;
  memcpy((void *)at, code, sizeof code);
  return mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "plain";
  long milliseconds = count > 2 ? atol(arguments[2]) : 500;
  uint8_t before[16];
  if (!strcmp(mode, "no-code") && forbid_code()) return 3;
  if (!strcmp(mode, "no-events") && forbid_events()) return 3;
  if (!strcmp(mode, "memory") && limit_memory(count > 3 ? (size_t)atol(arguments[3]) : 64)) return 3;
  if (!strcmp(mode, "files") && limit_files()) return 3;
  if (!strcmp(mode, "processes") && limit_processes()) return 3;
  if (!strcmp(mode, "late-files")) {
    work(count > 3 ? atol(arguments[3]) : 100);
    if (limit_files()) return 3;
  }
  if (!strcmp(mode, "late-processes")) {
    work(count > 3 ? atol(arguments[3]) : 100);
    if (limit_processes()) return 3;
  }
  /* Whatever is being read or compiled by then finds no more. */
  if (!strcmp(mode, "late-memory")) {
    work(count > 3 ? atol(arguments[3]) : 100);
    if (limit_memory(0)) return 3;
  }
  if (!strcmp(mode, "late-no-code")) {
    work(count > 3 ? atol(arguments[3]) : 100);
    if (forbid_code()) return 3;
  }
  if (!strcmp(mode, "text")) memcpy(before, text(), sizeof before);
  if (!strcmp(mode, "patch") && patch()) return 3;
  printf("%08x\n", work(milliseconds));
  if (!strcmp(mode, "late-patch")) printf("%d %08x\n", patch(), work(10));
  if (!strcmp(mode, "text")) fprintf(stderr, "text: %d\n", memcmp(before, text(), sizeof before) != 0);
  return 0;
}
