/* Four threads, each with a database of its own, whose sums and checksums are computed here as well.

       pause, go   threads stop between two transactions, or go on
       fork        a child makes a transaction: fork 0 if all was right
       state       state TRANSACTIONS WRONG LONGEST HITS SIGNALS: transactions made, those with a wrong
                   sum, microseconds of the longest since the last time that this was asked, and what
                   edited functions counted

       sqlite SOCKET */
#include "soaked.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>

#include "sqlite3.h"

enum { THREADS = 4, ROWS = 50, LONGEST = 256, PERIOD = 2000 };

/* Edited functions of SQLite count here. */
volatile long soak_hits;

static pthread_t threads[THREADS];
static pthread_rwlock_t turn = PTHREAD_RWLOCK_INITIALIZER;
static atomic_ulong transactions, wrong, longest, signals;

static void run(sqlite3 *db, const char *sql) {
  if (sqlite3_exec(db, sql, 0, 0, 0) == SQLITE_OK) return;
  fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
  atomic_fetch_add(&wrong, 1);
}

/* A checksum over all integers and texts that a query yields. */
static uint64_t sum(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement = 0;
  uint64_t made = 0;
  int code = sqlite3_prepare_v2(db, sql, -1, &statement, 0);
  while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    made = made * 31 + (uint64_t)sqlite3_column_int64(statement, 0);
    code = SQLITE_OK;
  }
  if (code != SQLITE_DONE) {
    fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
    atomic_fetch_add(&wrong, 1);
  }
  sqlite3_finalize(statement);
  return made;
}

static void expect(const char *what, uint64_t got, uint64_t wanted) {
  if (got == wanted) return;
  fprintf(stderr, "%s: %llu instead of %llu\n", what, (unsigned long long)got, (unsigned long long)wanted);
  atomic_fetch_add(&wrong, 1);
}

static sqlite3 *opened(void) {
  sqlite3 *db = 0;
  if (sqlite3_open(":memory:", &db)) atomic_fetch_add(&wrong, 1);
  run(db, "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c INTEGER); CREATE INDEX i ON t (b)");
  return db;
}

static int down(const void *a, const void *b) {
  uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
  return (first < second) - (first > second);
}

/* Fills the table, asks it, and empties it; every other change is taken back by SQLite itself. */
static void transaction(sqlite3 *db, uint64_t seed) {
  uint64_t total = 0, ordered = 0, all[ROWS];
  run(db, "BEGIN");
  for (uint64_t row = 0; row < ROWS; row++) {
    char sql[200];
    seed = seed * 6364136223846793005 + 1442695040888963407;
    uint64_t value = seed >> 34;
    all[row] = value;
    total += value;
    snprintf(sql, sizeof sql, "INSERT INTO t (b, c) VALUES (substr('abcdefgh', %d, 3) || printf('%%d', %d), %llu)",
             (int)(row % 5 + 1), (int)row, (unsigned long long)value);
    run(db, sql);
  }
  run(db, "COMMIT");
  qsort(all, ROWS, sizeof *all, down);
  for (int at = 0; at < ROWS; at++) ordered = ordered * 31 + all[at];
  run(db, "BEGIN");
  run(db, "UPDATE t SET c = c + 1, b = b || 'x' WHERE a % 2 = 0");
  expect("sum within a transaction", sum(db, "SELECT sum(c) FROM t"), total + ROWS / 2);
  run(db, "ROLLBACK");
  expect("sum", sum(db, "SELECT sum(c) FROM t"), total);
  expect("order", sum(db, "SELECT c FROM t ORDER BY c DESC"), ordered);
  expect("rows", sum(db, "SELECT count(*) FROM t WHERE length(b) > 3"), ROWS);
  expect("groups", sum(db, "SELECT count(*) FROM (SELECT b, max(c) FROM t GROUP BY b ORDER BY b DESC)"), ROWS);
  expect("join", sum(db, "SELECT sum(y.c) FROM t x JOIN t y ON x.b = y.b"), total);
  run(db, "DELETE FROM t");
}

static void *work(void *argument) {
  uint64_t seed = (uint64_t)(long)argument;
  sqlite3 *db = opened();
  for (;;) {
    pthread_rwlock_rdlock(&turn);
    unsigned long begun = microseconds();
    transaction(db, seed += 4);
    unsigned long took = microseconds() - begun, most = atomic_load(&longest);
    while (took > most && !atomic_compare_exchange_weak(&longest, &most, took)) continue;
    atomic_fetch_add(&transactions, 1);
    pthread_rwlock_unlock(&turn);
  }
  return 0;
}

/* The threads are between two transactions: SQLite's mutexes are free in the child. */
static int forked(void) {
  int status;
  pthread_rwlock_wrlock(&turn);
  pid_t child = fork();
  if (child == 0) {
    unsigned long before = wrong;
    sqlite3 *db = opened();
    transaction(db, 7);
    _exit(sqlite3_close(db) || wrong != before);
  }
  pthread_rwlock_unlock(&turn);
  if (child < 0) return -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/* A function of SQLite that a handler may call: it touches its arguments only. */
static void handle(int signal) {
  (void)signal;
  int kept = errno;
  if (sqlite3_stricmp("SELECT", "select") || !sqlite3_strglob("a*c", "abd")) atomic_fetch_add(&wrong, 1);
  atomic_fetch_add(&signals, 1);
  errno = kept;
}

static void *interrupt(void *argument) {
  (void)argument;
  for (unsigned turn = 0;; turn++) {
    usleep(PERIOD);
    pthread_kill(threads[turn % THREADS], SIGUSR1);
  }
  return 0;
}

static void converse(int connection) {
  char line[LONGEST], reply[LONGEST];
  int paused = 0;
  while (receive(connection, line, sizeof line)) {
    int length;
    if (!strcmp(line, "fork")) {
      length = snprintf(reply, sizeof reply, "fork %d\n", forked());
    } else if (!strcmp(line, "pause") && !paused) {
      paused = !pthread_rwlock_wrlock(&turn);
      length = snprintf(reply, sizeof reply, "paused\n");
    } else if (!strcmp(line, "go") && paused) {
      paused = pthread_rwlock_unlock(&turn);
      length = snprintf(reply, sizeof reply, "gone on\n");
    } else {
      length = snprintf(reply, sizeof reply, "state %lu %lu %lu %ld %lu\n", atomic_load(&transactions),
                        atomic_load(&wrong), atomic_exchange(&longest, 0), soak_hits, atomic_load(&signals));
    }
    if (!send_all(connection, reply, (size_t)length)) break;
  }
  if (paused) pthread_rwlock_unlock(&turn);
  close(connection);
}

int main(int count, char **arguments) {
  if (count != 2) {
    fputs("usage: sqlite SOCKET\n", stderr);
    return 2;
  }
  int sockets = listening(arguments[1]);
  pthread_rwlockattr_t writers_first;
  pthread_rwlockattr_init(&writers_first);
  pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&turn, &writers_first);
  sqlite3_initialize();
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  for (long at = 0; at < THREADS; at++) pthread_create(&threads[at], 0, work, (void *)at);
  pthread_t interrupting;
  pthread_create(&interrupting, 0, interrupt, 0);
  puts("ready");
  fflush(stdout);
  for (;;) {
    int connection = accept4(sockets, 0, 0, SOCK_CLOEXEC);
    if (connection >= 0) converse(connection);
  }
}
