// Handlers of signals allocate by the program's malloc, which may be called anywhere, while the
// program and the C library allocate, and while the process is copied.
// flags: -fno-builtin
// gate: D
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC 0x1badb002cafef00dULL
struct head { size_t size; uint64_t magic; };
static char *start;
static size_t used;
static long strangers;
static volatile sig_atomic_t handled;

// One step takes room: nothing is ever given back.
void *malloc(size_t size) {
  size_t whole = (size + sizeof(struct head) + 15) & ~(size_t)15;
  char *base = __atomic_load_n(&start, __ATOMIC_ACQUIRE);
  if (!base) {
    char *made = mmap(NULL, (size_t)4 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (__atomic_compare_exchange_n(&start, &base, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) base = made;
  }
  size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
  if (at + whole > (size_t)4 << 30) { errno = ENOMEM; return NULL; }
  struct head *head = (struct head *)(base + at);
  *head = (struct head){size, MAGIC};
  return head + 1;
}
void free(void *p) {
  if (p && ((struct head *)p)[-1].magic != MAGIC) __atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED);
}
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *old, size_t size) {
  void *p = malloc(size);
  if (p && old) {
    size_t before = ((struct head *)old)[-1].size;
    memcpy(p, old, before < size ? before : size);
    free(old);
  }
  return p;
}

static void handler(int signal) {
  int kept = errno;
  char *text = strdup("from a handler");
  char *again = realloc(text, 100);
  if (strcmp(again, "from a handler") || signal != SIGALRM) abort();
  free(again);
  handled++;
  errno = kept;
}

static long work(int rounds) {
  long sum = 0;
  for (int i = 0; i < rounds; i++) {
    char *texts[20], *made = NULL;
    for (int k = 0; k < 20; k++) texts[k] = strdup("some text");
    size_t size = 0;
    FILE *out = open_memstream(&made, &size);
    fprintf(out, "%d %s", i, texts[3]);
    fclose(out);
    sum += (long)size;
    free(made);
    for (int k = 0; k < 20; k++) free(texts[k]);
  }
  return sum;
}

int main(void) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (handled < 200) work(20);
  for (int i = 0; i < 5; i++) {
    pid_t child = fork();
    if (child == 0) _exit(work(10) > 100 ? 0 : 1);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status) printf("a child: %d\n", status);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%ld, %ld from elsewhere\n", work(100), strangers);
}
