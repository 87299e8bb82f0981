/* Parts of the programs that `cargo xtask demo live-soak` exchanges functions of. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A version and the number that it computes: see `value` in each file. */
struct half {
  unsigned version;
  unsigned long value;
};

/* `single.c`: one function, exchanged at once. `again` is the version at its end; calls are counted in
   a static variable, which all versions share. */
struct half single(unsigned long number, unsigned *again);
unsigned long single_calls(void);

/* `pair.c`: the outer function calls the inner one before and after its own work. */
struct two {
  struct half outer, before, after;
};
struct two outer(unsigned long number);

/* A socket of this machine that listens. */
static inline int listening(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    fputs("the path has more than 107 bytes\n", stderr);
    exit(2);
  }
  strcpy(address.sun_path, path);
  int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(made, (struct sockaddr *)&address, sizeof address) || listen(made, 16)) {
    perror(path);
    exit(1);
  }
  return made;
}

/* Whether all of a text was sent. */
static inline int send_all(int connection, const char *text, size_t length) {
  while (length) {
    ssize_t sent = send(connection, text, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return 0;
    text += sent;
    length -= (size_t)sent;
  }
  return 1;
}

/* The next line, without its end; 0 at the end of the connection. Clients send one line and wait. */
static inline int receive(int connection, char *line, size_t room) {
  size_t held = 0;
  while (held < room) {
    ssize_t got = read(connection, line + held, room - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    held += (size_t)got;
    if (line[held - 1] == '\n') {
      line[held - 1] = 0;
      return 1;
    }
  }
  return 0;
}

static inline unsigned long microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long)now.tv_sec * 1000000 + (unsigned long)now.tv_nsec / 1000;
}
