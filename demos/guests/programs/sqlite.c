/* Drives SQLite on a database in memory.
 *   program trivial      one statement without a table
 *   program work ROWS    tables, a big transaction, indexes, joins; every sum
 *                        is computed here as well and compared
 *   program steady N ROWS   a smaller piece of work on a database of its own, N
 *                        times (`steady.h`) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite3.h"
#include "steady.h"

enum { GROUPS = 97 };

static sqlite3 *db;

static void check(int code, const char *what) {
  if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW) return;
  fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db));
  exit(1);
}

static void run(const char *sql) {
  check(sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

static sqlite3_stmt *prepare(const char *sql) {
  sqlite3_stmt *statement = NULL;
  check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), sql);
  return statement;
}

/* The one integer that a query yields. */
static int64_t number(const char *sql) {
  sqlite3_stmt *statement = prepare(sql);
  check(sqlite3_step(statement), sql);
  int64_t value = sqlite3_column_int64(statement, 0);
  check(sqlite3_finalize(statement), sql);
  return value;
}

static void expect(const char *what, int64_t got, int64_t wanted) {
  printf("%-24s %lld\n", what, (long long)got);
  if (got == wanted) return;
  printf("%s: expected %lld\n", what, (long long)wanted);
  exit(1);
}

static int print_row(void *unused, int columns, char **values, char **names) {
  (void)unused;
  for (int i = 0; i < columns; i++)
    printf("%s%s=%s", i ? " " : "", names[i], values[i] ? values[i] : "NULL");
  printf("\n");
  return 0;
}

static void print_query(const char *sql) {
  check(sqlite3_exec(db, sql, print_row, NULL, NULL), sql);
}

static int64_t amount_of(int64_t row) { return (row * 7919) % 1000003; }

/* A scalar function of ours: SQLite calls back into the guest. */
static void twice(sqlite3_context *context, int count, sqlite3_value **values) {
  (void)count;
  sqlite3_result_int64(context, 2 * sqlite3_value_int64(values[0]));
}

/* A collation of ours: compares backwards. */
static int backwards(void *unused, int n, const void *a, int m, const void *b) {
  (void)unused;
  int order = memcmp(b, a, (size_t)(n < m ? n : m));
  return order ? order : m - n;
}

static void insert_rows(int64_t rows) {
  run("BEGIN");
  sqlite3_stmt *insert = prepare("INSERT INTO sale VALUES (?1, ?2, ?3, ?4)");
  for (int64_t row = 1; row <= rows; row++) {
    char note[32];
    int length = snprintf(note, sizeof note, "note %lld", (long long)row);
    check(sqlite3_bind_int64(insert, 1, row), "bind");
    check(sqlite3_bind_int64(insert, 2, row % GROUPS), "bind");
    check(sqlite3_bind_int64(insert, 3, amount_of(row)), "bind");
    check(sqlite3_bind_text(insert, 4, note, length, SQLITE_TRANSIENT), "bind");
    check(sqlite3_step(insert), "insert");
    check(sqlite3_reset(insert), "reset");
  }
  check(sqlite3_finalize(insert), "finalize");
  run("COMMIT");
}

static void work(int64_t rows) {
  run("CREATE TABLE shop (id INTEGER PRIMARY KEY, name TEXT NOT NULL)");
  run("CREATE TABLE sale (id INTEGER PRIMARY KEY, shop INTEGER NOT NULL,"
      " amount INTEGER NOT NULL, note TEXT)");
  for (int i = 0; i < GROUPS; i++) {
    char sql[80];
    snprintf(sql, sizeof sql, "INSERT INTO shop VALUES (%d, 'shop-%02d')", i, i);
    run(sql);
  }
  insert_rows(rows);

  int64_t total = 0, of_seven = 0, big = 0;
  for (int64_t row = 1; row <= rows; row++) {
    int64_t amount = amount_of(row);
    total += amount;
    if (row % GROUPS == 7) of_seven += amount;
    if (amount > 900000) big++;
  }
  expect("rows", number("SELECT count(*) FROM sale"), rows);
  expect("total", number("SELECT sum(amount) FROM sale"), total);
  run("CREATE INDEX sale_by_shop ON sale (shop, amount)");
  run("CREATE INDEX sale_by_amount ON sale (amount)");
  run("ANALYZE");
  expect("total by join",
         number("SELECT sum(amount) FROM shop JOIN sale ON sale.shop = shop.id"),
         total);
  expect("one shop",
         number("SELECT sum(amount) FROM sale JOIN shop ON sale.shop = shop.id"
                " WHERE shop.name = 'shop-07'"),
         of_seven);
  expect("big sales", number("SELECT count(*) FROM sale WHERE amount > 900000"), big);
  expect("scalar function", number("SELECT sum(twice(amount)) FROM sale"), 2 * total);
  print_query(
      "SELECT shop.name, count(*) AS sales, sum(amount) AS amount, max(note) AS note"
      " FROM sale JOIN shop ON shop.id = sale.shop GROUP BY shop.id"
      " ORDER BY amount DESC LIMIT 5");
  print_query(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12)"
      " SELECT group_concat(i * i, ',') AS squares FROM n");
  print_query(
      "SELECT name, rank() OVER (ORDER BY name COLLATE backwards) AS place"
      " FROM shop WHERE id < 4 ORDER BY id");
  print_query("SELECT round(avg(amount), 3) AS mean, printf('%.6e', sum(1.0 / (1 + amount)))"
              " AS inverse FROM sale");
  print_query("SELECT json_extract('{\"a\":[1,2,{\"b\":3}]}', '$.a[2].b') AS json");
  run("UPDATE sale SET amount = amount + 1 WHERE shop = 3");
  run("DELETE FROM sale WHERE id % 2 = 0");
  expect("rows left", number("SELECT count(*) FROM sale"), (rows + 1) / 2);
  run("VACUUM");
  print_query("PRAGMA integrity_check");
}

/* Look-ups by key, as many small statements as a program with an object mapper has. */
static uint64_t look_up(int64_t rows) {
  sqlite3_stmt *find = prepare("SELECT amount, length(note) FROM sale WHERE id = ?1");
  uint64_t sum = 0;
  for (int64_t key = 1; key <= rows; key++) {
    check(sqlite3_bind_int64(find, 1, key * 7 % rows + 1), "bind");
    check(sqlite3_step(find), "look up");
    sum = sum * 31 + (uint64_t)(sqlite3_column_int64(find, 0) + sqlite3_column_int64(find, 1));
    check(sqlite3_reset(find), "reset");
  }
  check(sqlite3_finalize(find), "finalize");
  return sum;
}

/* One iteration: make a database, fill it, ask it, drop it. */
static uint64_t iterate(void *context) {
  int64_t rows = *(int64_t *)context;
  check(sqlite3_open(":memory:", &db), "open");
  run("CREATE TABLE sale (id INTEGER PRIMARY KEY, shop INTEGER NOT NULL,"
      " amount INTEGER NOT NULL, note TEXT)");
  insert_rows(rows);
  run("CREATE INDEX sale_by_shop ON sale (shop, amount)");
  uint64_t sum = look_up(rows);
  static const char *const queries[] = {
      "SELECT sum(amount) FROM sale WHERE note LIKE '%7%'",
      "SELECT count(DISTINCT amount % 1000) FROM sale",
      "SELECT max(total) FROM (SELECT sum(amount) AS total FROM sale GROUP BY shop)",
      "SELECT sum(b.amount - a.amount) FROM sale a JOIN sale b ON b.id = a.id + 1"
      " WHERE a.shop < 20",
  };
  for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
    sum = sum * 31 + (uint64_t)number(queries[i]);
  run("DELETE FROM sale WHERE amount % 3 = 0");
  sum = sum * 31 + (uint64_t)number("SELECT count(*) FROM sale");
  check(sqlite3_close(db), "close");
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: program trivial | work ROWS | steady N ROWS\n");
    return 2;
  }
  if (argc == 4 && strcmp(argv[1], "steady") == 0) {
    int64_t rows = atoll(argv[3]);
    return steady("sqlite", atol(argv[2]), iterate, &rows);
  }
  check(sqlite3_open(":memory:", &db), "open");
  check(sqlite3_create_function(db, "twice", 1, SQLITE_UTF8, NULL, twice, NULL, NULL),
        "create function");
  check(sqlite3_create_collation(db, "backwards", SQLITE_UTF8, NULL, backwards),
        "create collation");
  if (strcmp(argv[1], "trivial") == 0) {
    print_query("SELECT 6 * 7 AS answer");
  } else {
    work(argc > 2 ? atoll(argv[2]) : 1000);
  }
  check(sqlite3_close(db), "close");
  printf("done\n");
  return 0;
}
