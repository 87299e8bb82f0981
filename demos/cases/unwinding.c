// Walking the stack from C: the unwinder sees every frame of ours, through a library
// frame too, and stops cleanly at the bottom.
// gate: C
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

struct walk { int frames; _Unwind_Ptr functions[64]; };

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *arg) {
  struct walk *walk = arg;
  if (walk->frames < 64) {
    _Unwind_Ptr pc = _Unwind_GetIP(context) - 1;
    walk->functions[walk->frames] = (_Unwind_Ptr)_Unwind_FindEnclosingFunction((void *)pc);
  }
  walk->frames++;
  return _URC_NO_REASON;
}

__attribute__((noinline)) static void measure(struct walk *walk) {
  walk->frames = 0;
  _Unwind_Backtrace(visit, walk);
  __asm__ volatile("");
}

/* Through pointers, so that no tier inlines: frames are counted. */
static void (*volatile take_measure)(struct walk *) = measure;
static int nested(int n, struct walk *walk);
static int (*volatile again)(int, struct walk *) = nested;

__attribute__((noinline)) static int nested(int n, struct walk *walk) {
  volatile int one = 1;
  if (n) return again(n - 1, walk) + one;
  take_measure(walk);
  return 0;
}

static struct walk in_callback;
static int compare(const void *a, const void *b) {
  if (!in_callback.frames) take_measure(&in_callback);
  return *(const int *)a - *(const int *)b;
}

int main(void) {
  struct walk shallow, deep;
  nested(0, &shallow);
  nested(10, &deep);
  printf("%d\n", deep.frames - shallow.frames);
  int same = 0;
  for (int i = 1; i < 12; i++) same += deep.functions[i] && deep.functions[i] == deep.functions[1];
  printf("%d\n", same);
  int numbers[] = {3, 1, 2};
  qsort(numbers, 3, sizeof *numbers, compare);
  printf("%d\n", in_callback.frames > shallow.frames);
  void *addresses[64];
  printf("%d\n", backtrace(addresses, 64) > 1);
}
