/* Words in a text, by Horspool's skips and letter by letter: loops that are left in the
 * middle, a table on the stack, `memcmp`. */
#include "once.h"

enum { SIZE = BY_SIZE(80000000, 2500000), WORDS = 6 };

static char text[SIZE + 1];

KERNEL long skips(const char *word, long length) {
  long skip[256], found = 0;
  for (int c = 0; c < 256; c++) skip[c] = length;
  for (long i = 0; i + 1 < length; i++) skip[(unsigned char)word[i]] = length - 1 - i;
  for (long at = 0; at + length <= SIZE; at += skip[(unsigned char)text[at + length - 1]])
    if (memcmp(text + at, word, (size_t)length) == 0) found++;
  return found;
}

KERNEL long letters(const char *word) {
  long found = 0;
  for (const char *at = text; *at; at++) {
    const char *here = at, *letter = word;
    while (*letter && *here == *letter) {
      here++;
      letter++;
    }
    if (!*letter) found++;
  }
  return found;
}

int main(void) {
  static const char *const words[WORDS] = {"abba", "dada", "cabcab", "bad", "acdcacdc", "aaaaa"};
  for (long i = 0; i < SIZE; i++) text[i] = "abcd"[draw() % 4];
  for (int word = 0; word < WORDS; word++) {
    long length = (long)strlen(words[word]);
    note((uint64_t)(word % 2 ? letters(words[word]) : skips(words[word], length)));
  }
  return report("search");
}
