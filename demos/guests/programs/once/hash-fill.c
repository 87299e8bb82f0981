/* A hash table that is filled, doubles when it is half full, and is asked: the table is a
 * structure on the stack of `main`, whose address functions get. */
#include "once.h"

enum { KEYS = BY_SIZE(5000000, 250000) };

struct slot {
  uint64_t key, value;
};

struct table {
  struct slot *slots;
  uint64_t mask, used;
};

static uint64_t mix(uint64_t key) {
  key ^= key >> 31;
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 29;
}

static struct slot *place(struct table *table, uint64_t key) {
  uint64_t at = mix(key) & table->mask;
  while (table->slots[at].key && table->slots[at].key != key) at = (at + 1) & table->mask;
  return &table->slots[at];
}

int main(void) {
  struct table table = {calloc(1 << 10, sizeof(struct slot)), (1 << 10) - 1, 0};
  if (!table.slots) return 1;
  uint64_t key = 1, longest = 0;
  for (long n = 0; n < KEYS; n++) {
    key = key * 6364136223846793005u + 1442695040888963407u;
    struct slot *slot = place(&table, (key >> 42) + 1);
    if (!slot->key) {
      slot->key = (key >> 42) + 1;
      table.used++;
    }
    slot->value += key >> 60;
    if (table.used * 2 <= table.mask) continue;
    struct table wider = {calloc(2 * (table.mask + 1), sizeof(struct slot)), 2 * table.mask + 1,
                          table.used};
    if (!wider.slots) return 1;
    for (uint64_t at = 0; at <= table.mask; at++)
      if (table.slots[at].key) *place(&wider, table.slots[at].key) = table.slots[at];
    free(table.slots);
    table = wider;
  }
  for (uint64_t at = 0, run = 0; at <= table.mask; at++) {
    run = table.slots[at].key ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  for (uint64_t asked = 1; asked < 1000; asked++) note(place(&table, asked)->value);
  note(table.used);
  note(longest);
  free(table.slots);
  return report("hash-fill");
}
