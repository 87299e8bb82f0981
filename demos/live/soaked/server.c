/* A server whose answers carry the versions that computed them. Each of its worker threads has an epoll
   of its own; a thread sends signals to the workers, and their handler calls `outer`.

       single N    single VERSION AGAIN VALUE
       pair N      pair OUTER VALUE BEFORE VALUE AFTER VALUE
       fork N      both lines in one, from a child
       thread N    both lines in one, from a new thread
       state       state SIGNALS MIXED ASKED CALLS: signals handled, those that found numbers of two
                   versions, calls of `single` that the server made and that `single` counted

       server SOCKET */
#include "soaked.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { WORKERS = 4, LONGEST = 256, PERIOD = 2000 };

static struct {
  pthread_t thread;
  int epoll;
} workers[WORKERS];

static atomic_ulong asked, signals, mixed;

static int single_line(unsigned long number, char *reply, size_t room) {
  unsigned again;
  atomic_fetch_add(&asked, 1);
  struct half made = single(number, &again);
  return snprintf(reply, room, "single %u %u %lu", made.version, again, made.value);
}

static int pair_line(unsigned long number, char *reply, size_t room) {
  struct two made = outer(number);
  return snprintf(reply, room, "pair %u %lu %u %lu %u %lu", made.outer.version, made.outer.value,
                  made.before.version, made.before.value, made.after.version, made.after.value);
}

static int both_lines(unsigned long number, char *reply, size_t room) {
  int length = single_line(number, reply, room);
  reply[length++] = ' ';
  return length + pair_line(number, reply + length, room - (size_t)length);
}

/* A child answers by a pipe, so that a child that hangs or dies is seen. */
static int forked(unsigned long number, char *reply, size_t room) {
  int ends[2], status;
  if (pipe(ends)) return snprintf(reply, room, "error pipe");
  pid_t child = fork();
  if (child == 0) {
    int length = both_lines(number, reply, room);
    _exit(write(ends[1], reply, (size_t)length) != length);
  }
  close(ends[1]);
  size_t held = 0;
  while (child > 0 && held < room) {
    ssize_t got = read(ends[0], reply + held, room - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held += (size_t)got;
  }
  close(ends[0]);
  if (child < 0) return snprintf(reply, room, "error fork");
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (status) return snprintf(reply, room, "error child %d", status);
  /* The child counted in its copy. */
  return (int)held;
}

struct threaded {
  unsigned long number;
  char *reply;
  size_t room;
  int length;
};

static void *thread(void *argument) {
  struct threaded *it = argument;
  it->length = both_lines(it->number, it->reply, it->room);
  return 0;
}

static int answer(char *line, char *reply, size_t room) {
  char *space = strchr(line, ' ');
  unsigned long number = space ? strtoul(space + 1, 0, 10) : 0;
  if (space) *space = 0;
  if (!strcmp(line, "single")) return single_line(number, reply, room);
  if (!strcmp(line, "pair")) return pair_line(number, reply, room);
  if (!strcmp(line, "fork")) return forked(number, reply, room);
  if (!strcmp(line, "thread")) {
    struct threaded it = {number, reply, room, 0};
    pthread_t made;
    if (pthread_create(&made, 0, thread, &it)) return snprintf(reply, room, "error thread");
    pthread_join(made, 0);
    return it.length;
  }
  return snprintf(reply, room, "state %lu %lu %lu %lu", atomic_load(&signals), atomic_load(&mixed),
                  atomic_load(&asked), single_calls());
}

static void *work(void *argument) {
  int epoll = workers[(long)argument].epoll;
  for (;;) {
    struct epoll_event events[16];
    int ready = epoll_wait(epoll, events, 16, -1);
    for (int at = 0; at < ready; at++) {
      char line[LONGEST], reply[LONGEST];
      int connection = events[at].data.fd;
      int length = 0;
      if (receive(connection, line, sizeof line)) {
        length = answer(line, reply, sizeof reply - 1);
        reply[length++] = '\n';
      }
      if (!length || !send_all(connection, reply, (size_t)length)) close(connection);
    }
  }
  return 0;
}

static void handle(int signal) {
  (void)signal;
  int kept = errno;
  struct two made = outer(signals);
  unsigned version = made.outer.version;
  if (made.before.version != version || made.after.version != version) atomic_fetch_add(&mixed, 1);
  atomic_fetch_add(&signals, 1);
  errno = kept;
}

static void *interrupt(void *argument) {
  (void)argument;
  for (unsigned turn = 0;; turn++) {
    usleep(PERIOD);
    pthread_kill(workers[turn % WORKERS].thread, SIGUSR1);
  }
  return 0;
}

int main(int count, char **arguments) {
  if (count != 2) {
    fputs("usage: server SOCKET\n", stderr);
    return 2;
  }
  int sockets = listening(arguments[1]);
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  for (long at = 0; at < WORKERS; at++) {
    workers[at].epoll = epoll_create1(EPOLL_CLOEXEC);
    pthread_create(&workers[at].thread, 0, work, (void *)at);
  }
  pthread_t interrupting;
  pthread_create(&interrupting, 0, interrupt, 0);
  puts("ready");
  fflush(stdout);
  for (unsigned turn = 0;; turn++) {
    int connection = accept4(sockets, 0, 0, SOCK_CLOEXEC);
    if (connection < 0) continue;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = connection};
    epoll_ctl(workers[turn % WORKERS].epoll, EPOLL_CTL_ADD, connection, &event);
  }
}
