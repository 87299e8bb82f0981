/* A small server that keeps values under keys and scores words, for `uruk live`: one thread for each
   connection on a socket of the machine, a request a line.

       set KEY VALUE    OLD stored OLD
       get KEY          OLD value VALUE OLD, or OLD none OLD
       WORD             OLD short|middle|long SCORE NUMBER OLD

   A request that cannot be answered gets OLD error WHY OLD. OLD stands for what made the reply:

       uruk cc -O2 -pthread server.c -o server
       uruk live ./server SOCKET
       uruk cc -O2 -DFIXED -c server.c -o fix.o
       uruk swap PID fix.o
       uruk swap PID --rollback

   The score of a word leaves out its last letter; with FIXED it does not, and replies say NEW. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 400, LONGEST = 256, SLOTS = 1024, KEY = 32, VALUE = 192 };

/* One key; empty if that is empty. Keys are never removed. */
struct entry {
  char key[KEY], value[VALUE];
};

static struct entry table[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong served;
static const char *const names[] = {"short", "middle", "long"};

#ifdef FIXED
#define VERSION "new"
#else
#define VERSION "old"
#endif

/* What a word is worth. */
static unsigned long score(const char *word, size_t length) {
  unsigned long sum = 0;
#ifndef FIXED
  length = length ? length - 1 : 0;
#endif
  for (int round = 0; round < ROUNDS; round++)
    for (size_t at = 0; at < length; at++) sum += (unsigned long)word[at] * (round % 7 + 1);
  return sum;
}

/* The place of a key, or where it would go; none if all places are taken. Under the lock. */
static struct entry *find(const char *key) {
  unsigned long hash = 5381;
  for (const char *at = key; *at; at++) hash = hash * 33 + (unsigned char)*at;
  for (size_t step = 0; step < SLOTS; step++) {
    struct entry *entry = &table[(hash + step) % SLOTS];
    if (!entry->key[0] || !strcmp(entry->key, key)) return entry;
  }
  return 0;
}

/* What is wrong with a value that was to be kept, if anything is. */
static const char *set(const char *key, const char *value) {
  if (strlen(value) >= VALUE) return "value too long";
  pthread_mutex_lock(&lock);
  struct entry *entry = find(key);
  if (entry) {
    strcpy(entry->key, key);
    strcpy(entry->value, value);
  }
  pthread_mutex_unlock(&lock);
  return entry ? 0 : "full";
}

/* Whether there is a value, which is copied. */
static int get(const char *key, char value[VALUE]) {
  pthread_mutex_lock(&lock);
  struct entry *entry = find(key);
  int found = entry && entry->key[0];
  if (found) strcpy(value, entry->value);
  pthread_mutex_unlock(&lock);
  return found;
}

/* The reply to a request that has a key: `set` and `get`. */
static int keep(const char *request, char *reply, size_t room) {
  char key[KEY], value[VALUE];
  const char *from = request + 4;
  size_t length = strcspn(from, " ");
  if (!length) return snprintf(reply, room, VERSION " error no key " VERSION "\n");
  if (length >= KEY) return snprintf(reply, room, VERSION " error key too long " VERSION "\n");
  memcpy(key, from, length);
  key[length] = 0;
  if (request[0] == 'g') {
    if (!get(key, value)) return snprintf(reply, room, VERSION " none " VERSION "\n");
    return snprintf(reply, room, VERSION " value %s " VERSION "\n", value);
  }
  const char *why = set(key, from[length] ? from + length + 1 : "");
  if (why) return snprintf(reply, room, VERSION " error %s " VERSION "\n", why);
  return snprintf(reply, room, VERSION " stored " VERSION "\n");
}

/* The reply to a request, shorter than `room`. Its first and last word say by which code it was made. Not
   inlined: who is in the loop below, which only ends with its connection, would finish with the old copy. */
__attribute__((noinline)) int answer(const char *request, char *reply, size_t room) {
  if (!strncmp(request, "set ", 4) || !strncmp(request, "get ", 4)) return keep(request, reply, room);
  size_t length = strlen(request);
  unsigned long worth = score(request, length);
  unsigned long number = atomic_fetch_add(&served, 1);
  const char *name = names[length < 4 ? 0 : length < 16 ? 1 : 2];
  return snprintf(reply, room, "%s %s %lu %lu " VERSION "\n", VERSION, name, worth, number);
}

/* Whether all of it went out. Nobody may be there to read it. */
static int send_all(int connection, const char *text, size_t length) {
  while (length) {
    ssize_t sent = send(connection, text, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return 0;
    text += sent;
    length -= (size_t)sent;
  }
  return 1;
}

/* Answers until the other end closes, or says more than a line may have. */
static void *serve(void *argument) {
  int connection = (int)(long)argument;
  char line[LONGEST], reply[LONGEST];
  size_t held = 0;
  for (;;) {
    char *end = memchr(line, '\n', held);
    if (end) {
      *end = 0;
      if (end > line && end[-1] == '\r') end[-1] = 0;
      int length = answer(line, reply, sizeof reply);
      if (!send_all(connection, reply, (size_t)length)) break;
      held -= (size_t)(end + 1 - line);
      memmove(line, end + 1, held);
      continue;
    }
    if (held == sizeof line) {
      static const char long_line[] = "error line too long\n";
      send_all(connection, long_line, sizeof long_line - 1);
      break;
    }
    ssize_t got = read(connection, line + held, sizeof line - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held += (size_t)got;
  }
  close(connection);
  return 0;
}

int main(int count, char **arguments) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (count != 2 || strlen(arguments[1]) >= sizeof address.sun_path) {
    fputs("usage: server SOCKET, a path of at most 107 bytes\n", stderr);
    return 2;
  }
  strcpy(address.sun_path, arguments[1]);
  int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 16)) {
    perror("server");
    return 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) {
    int connection = accept(listening, 0, 0);
    if (connection < 0) {
      /* Of too many connections some will end. */
      if (errno != EINTR) usleep(10000);
      continue;
    }
    pthread_t thread;
    if (pthread_create(&thread, 0, serve, (void *)(long)connection)) close(connection);
    else pthread_detach(thread);
  }
}
