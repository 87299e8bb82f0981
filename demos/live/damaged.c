/* Functions of many kinds that `edits_loop.c` does not call unless it is asked to. A new version is this
   file with -DVERSION=2. */
#include <stdio.h>
#include <string.h>

#ifndef VERSION
#define VERSION 1
#endif

static const int table[4] = {1, 2, 3, 4};
struct pair {
  int first;
  double second;
  char text[8];
} pair = {1, 2.0, "abc"};

static __attribute__((noinline)) int chosen(int x, const char *text) {
  switch (x) {
  case 1: return 3;
  case 2: return (int)strlen(text);
  case 7: return 9;
  default: return table[x & 3];
  }
}

static __attribute__((noinline)) float grown(float x) {
  for (int i = 0; i < 10; i++) x = x * 1.5f + (float)pair.second;
  return x;
}

long answer(int number, int x) {
  char text[32];
  snprintf(text, sizeof text, "%d", chosen(number, pair.text));
  return VERSION + chosen(x, text) + (int)grown(1.0f) % 2;
}
