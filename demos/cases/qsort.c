// Library functions that call back.
#define _GNU_SOURCE
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int by_key(const void *a, const void *b, void *sign) {
  return *(int *)sign * strcmp(*(const char *const *)a, *(const char *const *)b);
}
static int by_text(const void *a, const void *b) { return strcmp(a, b); }
static void visit(const void *node, VISIT which, int depth) {
  if (which == postorder || which == leaf) printf("%d:%s ", depth >= 0, *(const char *const *)node);
}

int main(void) {
  int numbers[1000];
  for (int i = 0; i < 1000; i++) numbers[i] = (i * 7919) % 1009;
  qsort(numbers, 1000, sizeof *numbers, by_value);
  int key = 504, sorted = 1;
  for (int i = 1; i < 1000; i++) sorted &= numbers[i - 1] <= numbers[i];
  printf("%d %d\n", sorted, bsearch(&key, numbers, 1000, sizeof key, by_value) != NULL);
  const char *words[] = {"uruk", "ur", "eridu", "lagash", "nippur"};
  int sign = -1;
  qsort_r(words, 5, sizeof *words, by_key, &sign);
  for (int i = 0; i < 5; i++) printf("%s ", words[i]);
  void *root = NULL;
  for (int i = 0; i < 5; i++) tsearch(words[i], &root, by_text);
  printf("\n");
  twalk(root, visit);
  printf("\n");
}
