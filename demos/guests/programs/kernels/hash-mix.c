/* A hash table with open addressing under a mixture of insertions, look-ups and
 * removals of short names: byte loops, comparisons, loads nobody can predict. SIZE
 * is the number of operations. */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { PLACES = 1 << 15, NAME = 16, NAMES = 1 << 14 };

enum state { EMPTY, USED, GONE };

struct place {
  char name[NAME];
  uint32_t hash;
  uint32_t value;
  enum state state;
};

struct table {
  struct place *places;
  uint32_t used;
};

static uint32_t random_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (uint32_t)(*state >> 32);
}

/* A name for a number: letters, so that comparing takes a few bytes. */
static int name_of(uint32_t number, char *name) {
  int length = 0;
  name[length++] = (char)('a' + number % 5);
  do {
    name[length++] = (char)('a' + number % 26);
    number /= 26;
  } while (number != 0);
  name[length] = '\0';
  return length;
}

static uint32_t hash_of(const char *name, int length) {
  uint32_t hash = 2166136261u;
  for (int i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
  return hash ^ hash >> 15;
}

/* The place of a name; if it has none, the one where it may go. */
struct place *find(struct table *table, const char *name, uint32_t hash) {
  struct place *room = NULL;
  for (uint32_t at = hash;; at++) {
    struct place *place = &table->places[at % PLACES];
    if (place->state == EMPTY) return room != NULL ? room : place;
    if (place->state == GONE) {
      if (room == NULL) room = place;
    } else if (place->hash == hash && strcmp(place->name, name) == 0) {
      return place;
    }
  }
}

void insert(struct table *table, const char *name, int length, uint32_t hash, uint32_t value) {
  struct place *place = find(table, name, hash);
  if (place->state != USED) {
    memcpy(place->name, name, (size_t)length + 1);
    place->hash = hash;
    place->value = 0;
    place->state = USED;
    table->used++;
  }
  place->value += value;
}

static int erase(struct table *table, const char *name, uint32_t hash) {
  struct place *place = find(table, name, hash);
  if (place->state != USED) return 0;
  place->state = GONE;
  table->used--;
  return 1;
}

static uint64_t work(long operations) {
  struct table table = {calloc(PLACES, sizeof(struct place)), 0};
  if (table.places == NULL) return 0;
  uint64_t state = 0x9e3779b97f4a7c15u, sum = 0;
  for (long i = 0; i < operations; i++) {
    uint32_t random = random_next(&state);
    char name[NAME];
    int length = name_of(random % NAMES, name);
    uint32_t hash = hash_of(name, length);
    switch (random >> 28) {
      case 0: case 1: case 2: case 3: case 4: case 5:
        insert(&table, name, length, hash, random & 255);
        break;
      case 6:
        sum += (uint64_t)erase(&table, name, hash) << 20;
        break;
      default: {
        const struct place *place = find(&table, name, hash);
        if (place->state == USED) sum += place->value;
      }
    }
  }
  sum = sum * 31 + table.used;
  free(table.places);
  return sum;
}

int main(int argc, char **argv) { return kernel("hash-mix", argc, argv, work); }
