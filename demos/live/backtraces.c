/* Walks of the stack by a program whose functions change meanwhile: through its own frames and such of
   the C library between them, as deep each time, and down to the same three of whoever began the
   thread.

   | what is walked from | frames of the library between |
   |---|---|
   | a function that is called by its address | none |
   | what `qsort` compares by | those of `qsort` |
   | a handler of a signal that the thread raises | those of `raise`, and the kernel's |

   Before, a function calls itself and sleeps at each step, so that one chain has code of several
   versions in it. All calls are by addresses that the compiler does not know: nothing is inlined, and
   frames are the same ones at any level of optimization.

       backtraces         walks some times
       backtraces mixed   until it saw chains, with frames of the library between, that have both native
                          frames of the program and others; after a while that is told, and the status 1 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define APART __attribute__((noinline))
/* What follows a call, so that it is not a jump. */
#define BACK __asm__ volatile("")

enum { MOST = 128, BOTTOM = 3, STEPS = 5, KINDS = 3, ROUNDS = 20, SECONDS = 100 };

struct walk {
  int depth, told;
  uintptr_t at[MOST];
};

static struct walk walked;
static int mixed;
static uintptr_t library;

int main(int count, char **arguments);

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *arg) {
  struct walk *walk = arg;
  if (walk->depth < MOST) walk->at[walk->depth] = _Unwind_GetIP(context);
  walk->depth++;
  return _URC_NO_REASON;
}

APART static void take(void) {
  void *addresses[MOST];
  walked.depth = 0;
  _Unwind_Backtrace(visit, &walked);
  walked.told = backtrace(addresses, MOST);
  BACK;
}
static void (*volatile take_now)(void) = take;

static void on_signal(int number) {
  take_now();
  BACK;
}

static int compare(const void *a, const void *b) {
  take_now();
  BACK;
  return *(const int *)a - *(const int *)b;
}

APART static void by_qsort(void) {
  int two[] = {2, 1};
  qsort(two, 2, sizeof *two, compare);
  BACK;
}

APART static void by_signal(void) {
  raise(SIGUSR1);
  BACK;
}

static int nested(int steps, void (*last)(void));
static int (*volatile again)(int, void (*)(void)) = nested;

APART static int nested(int steps, void (*last)(void)) {
  struct timespec moment = {0, 500000};
  nanosleep(&moment, NULL);
  if (steps) return again(steps - 1, last) + 1;
  last();
  BACK;
  return 0;
}

static int is_native(uintptr_t at) { return at - (uintptr_t)main + (1 << 20) < (2 << 20); }

static int is_library(uintptr_t at) {
  Dl_info info;
  return dladdr((void *)at, &info) && (uintptr_t)info.dli_fbase == library;
}

/* Whether some frames of the program are native, and some are not. */
static int is_mixed(void) {
  int native = 0, other = 0;
  for (int i = 0; i < walked.depth - BOTTOM; i++) {
    if (is_native(walked.at[i]))
      native = 1;
    else if (!is_library(walked.at[i]))
      other = 1;
  }
  return native && other;
}

static void print(const char *thread, int kind) {
  printf("%s %d: %d frames, %d told:", thread, kind, walked.depth, walked.told);
  for (int i = walked.depth - BOTTOM; i < walked.depth; i++) {
    Dl_info info;
    int found = i >= 0 && dladdr((void *)walked.at[i], &info);
    const char *name = found ? strrchr(info.dli_fname, '/') : NULL;
    printf(" %s+%lx", name ? name : "?", found ? (long)(walked.at[i] - (uintptr_t)info.dli_fbase) : 0);
  }
  printf("\n");
}

/* The frames of whoever began the thread, if these are as deep as before. */
static int is_same(const struct walk *before) {
  size_t last = before->depth - BOTTOM, size = BOTTOM * sizeof *before->at;
  return before->depth == walked.depth && before->told == walked.told &&
         memcmp(before->at + last, walked.at + last, size) == 0;
}

static void *walk_all(void *thread) {
  void (*kinds[KINDS])(void) = {take, by_qsort, by_signal};
  struct walk first[KINDS];
  int saw[KINDS] = {0}, wanted = mixed;
  time_t end = time(NULL) + SECONDS;
  for (int round = 0; round < ROUNDS || wanted; round++) {
    for (int kind = 0; kind < KINDS; kind++) {
      again(STEPS, kinds[kind]);
      if (!round) {
        first[kind] = walked;
        print(thread, kind);
      } else if (!is_same(&first[kind])) {
        printf("in round %d\n", round);
        print(thread, kind);
        return thread;
      }
      saw[kind] |= is_mixed();
    }
    if (saw[0] && saw[1] && saw[2]) wanted = 0;
    if (wanted && time(NULL) > end) {
      printf("%s: never mixed\n", (char *)thread);
      return thread;
    }
  }
  return NULL;
}
static void *(*volatile walk_them)(void *) = walk_all;

int main(int count, char **arguments) {
  Dl_info info;
  if (dladdr((void *)qsort, &info)) library = (uintptr_t)info.dli_fbase;
  mixed = count > 1 && !strcmp(arguments[1], "mixed");
  signal(SIGUSR1, on_signal);
  if (walk_them("main")) return 1;
  pthread_t thread;
  void *failed = NULL;
  if (pthread_create(&thread, NULL, walk_them, "thread")) return 2;
  pthread_join(thread, &failed);
  return failed != NULL;
}
