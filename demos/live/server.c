/* A small server that counts and scores words, for `uruk live`: one thread for each connection on a
   socket of the machine, a request a line.

       uruk cc -O2 -pthread server.c -o server
       uruk live ./server SOCKET
       uruk cc -O2 -DFIXED -c server.c -o fix.o
       uruk swap PID fix.o
       uruk swap PID --rollback

   The score of a word leaves out its last letter; with FIXED it does not. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 400, LONGEST = 256 };

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

/* The reply to a request. Its first and last word say by which code it was made. Not inlined: who is in
   the loop below, which only ends with its connection, would finish with the old copy. */
__attribute__((noinline)) int answer(const char *word, char *reply, size_t room) {
  size_t length = strcspn(word, "\r\n");
  unsigned long worth = score(word, length);
  unsigned long number = atomic_fetch_add(&served, 1);
  const char *name = names[length < 4 ? 0 : length < 16 ? 1 : 2];
  return snprintf(reply, room, "%s %s %lu %lu " VERSION "\n", VERSION, name, worth, number);
}

static void *serve(void *argument) {
  int connection = (int)(long)argument;
  char line[LONGEST], reply[LONGEST];
  size_t held = 0;
  for (;;) {
    ssize_t got = read(connection, line + held, sizeof line - 1 - held);
    if (got <= 0) break;
    held += (size_t)got;
    line[held] = 0;
    char *end = strchr(line, '\n');
    if (!end) continue;
    int length = answer(line, reply, sizeof reply);
    if (write(connection, reply, (size_t)length) != length) break;
    held -= (size_t)(end + 1 - line);
    memmove(line, end + 1, held);
  }
  close(connection);
  return 0;
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
  int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 16)) {
    perror("server");
    return 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) {
    int connection = accept(listening, 0, 0);
    if (connection < 0) continue;
    pthread_t thread;
    if (pthread_create(&thread, 0, serve, (void *)(long)connection)) close(connection);
    else pthread_detach(thread);
  }
}
