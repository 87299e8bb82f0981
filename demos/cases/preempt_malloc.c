// The program's allocator, with headers of its own, serves the C library: strdup, getline,
// asprintf, open_memstream, directories and threads; blocks go back where they came from.
// flags: -pthread
// gate: D
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC 0x5eed5eed5eed5eedULL
struct head { size_t size; uint64_t magic; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;
static struct head *bins[64];
static long mallocs, frees, strangers;

static int bin_of(size_t size) {
  int bin = 0;
  while (((size_t)32 << bin) < size) bin++;
  return bin;
}
static void *take(size_t size) {
  if (size > (size_t)1 << 40) { errno = ENOMEM; return NULL; }
  int bin = bin_of(size);
  size_t whole = ((size_t)32 << bin) + sizeof(struct head);
  pthread_mutex_lock(&lock);
  mallocs++;
  struct head *head = bins[bin];
  if (head) {
    bins[bin] = *(struct head **)(head + 1);
  } else {
    if ((size_t)(end - next) < whole) {
      size_t chunk = whole > (1 << 22) ? whole : 1 << 22;
      next = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      end = next + chunk;
    }
    head = (struct head *)next;
    next += whole;
  }
  pthread_mutex_unlock(&lock);
  head->size = (size_t)32 << bin;
  head->magic = MAGIC;
  return head + 1;
}
void *malloc(size_t size) { return take(size); }
void free(void *p) {
  if (!p) return;
  struct head *head = (struct head *)p - 1;
  if (head->magic != MAGIC) { __atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED); return; }
  int bin = bin_of(head->size);
  head->magic = 0;
  pthread_mutex_lock(&lock);
  frees++;
  *(struct head **)p = bins[bin];
  bins[bin] = head;
  pthread_mutex_unlock(&lock);
}
void *calloc(size_t n, size_t size) {
  void *p = take(n * size);
  return p ? memset(p, 0, n * size) : NULL;
}
void *realloc(void *old, size_t size) {
  if (!old) return take(size);
  struct head *head = (struct head *)old - 1;
  if (head->magic != MAGIC) { strangers++; return NULL; }
  if (size <= head->size) return old;
  void *p = take(size);
  if (p) { memcpy(p, old, head->size); free(old); }
  return p;
}
void *memalign(size_t align, size_t size) {
  if (align <= 16) return take(size);
  errno = ENOMEM;
  return NULL;
}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
  *out = memalign(align, size);
  return *out ? 0 : ENOMEM;
}

static int is_ours(void *p) { return ((struct head *)p)[-1].magic == MAGIC; }

static void texts(void) {
  char *copy = strdup("a string"), *made = NULL, *line = NULL;
  size_t room = 0;
  int length = asprintf(&made, "%s and %d", copy, 42);
  FILE *in = fmemopen("one\nand a line that is longer than the one before it was, by far, so that room grows, and grows, and grows, and grows, and grows\n", 130, "r");
  int lines = 0;
  while (getline(&line, &room, in) > 0) lines++;
  fclose(in);
  printf("%d %d %d, %d %d lines\n", is_ours(copy), is_ours(made), is_ours(line), length, lines);
  char *stream = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&stream, &size);
  for (int i = 0; i < 1000; i++) fprintf(out, "%d,", i);
  fclose(out);
  printf("%zu %d\n", size, is_ours(stream));
  free(stream);
  // A block of the program's that the library makes longer.
  char *own = malloc(3);
  size_t own_size = 3;
  in = fmemopen("0123456789012345678901234567890123456789\n", 41, "r");
  printf("%zd %d\n", getline(&own, &own_size, in), is_ours(own));
  fclose(in);
  free(own); free(copy); free(made); free(line);
}

static void *thread(void *arg) {
  for (int i = 0; i < 200; i++) {
    char *text;
    if (asprintf(&text, "%d %p", i, arg) < 0) return NULL;
    free(text);
  }
  texts();
  return strdup("from a thread");
}

int main(void) {
  long before = mallocs;
  texts();
  printf("%d\n", mallocs - before > 8);
  printf("%d %d\n", setenv("A_NAME", "a value", 1), strcmp(getenv("A_NAME"), "a value"));
  DIR *folder = opendir("/");
  printf("%d\n", folder && readdir(folder) != NULL);
  closedir(folder);
  char *path = realpath("/proc/..", NULL);
  printf("%s %d\n", path, is_ours(path));
  free(path);
  printf("%d %d\n", dlopen("/no/such/library.so", RTLD_NOW) == NULL, dlerror() != NULL);
  printf("%d %d\n", dlsym(RTLD_DEFAULT, "no_such_name") == NULL, dlerror() != NULL);
  setlocale(LC_ALL, "C");
  qsort(bins, 0, sizeof *bins, NULL);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    void *text;
    pthread_create(&threads[i], NULL, thread, NULL);
    pthread_join(threads[i], &text);
    printf("%s %d\n", (char *)text, is_ours(text));
    free(text);
  }
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    texts();
    printf("child: %ld from elsewhere\n", strangers);
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  void *aligned = NULL;
  printf("%d %d\n", status, posix_memalign(&aligned, 16, 100));
  free(aligned);
  printf("%ld from elsewhere\n", strangers);
}
