// A malloc that counts, adds a header and calls the next one, as allocation profilers do.
// flags: -pthread
// gate: D
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
static long live, made, strangers;
#define MAGIC 0x1234567890abcdefULL
struct head { size_t size; uint64_t magic; };

void *malloc(size_t size) {
  struct head *head = __libc_malloc(size + sizeof *head);
  if (!head) return NULL;
  __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
  *head = (struct head){size, MAGIC};
  return head + 1;
}
void free(void *p) {
  if (!p) return;
  struct head *head = (struct head *)p - 1;
  if (head->magic != MAGIC) { __atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED); return; }
  head->magic = 0;
  __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
  __libc_free(head);
}
void *calloc(size_t n, size_t size) {
  void *p = malloc(n * size);
  return p ? memset(p, 0, n * size) : NULL;
}
void *realloc(void *old, size_t size) {
  void *p = malloc(size);
  if (p && old) {
    size_t before = ((struct head *)old)[-1].size;
    memcpy(p, old, before < size ? before : size);
    free(old);
  }
  return p;
}

__attribute__((noinline)) static int fresh(int n) {
  char *texts[50];
  int sum = 0;
  for (int i = 0; i < 50; i++) {
    if (asprintf(&texts[i], "%*d", n + i, i) < 0) return -1;
    sum += (int)strlen(texts[i]);
  }
  for (int i = 0; i < 50; i++) free(texts[i]);
  return sum;
}
static void *thread(void *arg) {
  long sum = 0;
  for (int i = 0; i < 300; i++) sum += fresh(i % 40 + 1);
  *(long *)arg = sum;
  return NULL;
}

int main(void) {
  long before = live, sums[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, &sums[i]);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 4; i++) printf("%ld\n", sums[i]);
  printf("%d %ld\n", made > 60000, strangers);
  char *copy = strdup("text");
  printf("%d\n", live > before);
  free(copy);
  printf("%ld from elsewhere\n", strangers);
}
