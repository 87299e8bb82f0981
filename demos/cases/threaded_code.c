// Interpreters that translate their program to addresses, or distances, of labels, which mean the
// same in all versions of the function.
#include <stdio.h>

typedef long word;

static word threaded(void **code, int n, int translate) {
  static void *const labels[] = {&&add, &&decrement, &&loop, &&end};
  if (translate) {
    for (int i = 0; i < n; i++) code[i] = labels[(word)code[i]];
    return 0;
  }
  word sum = 0, count = 100;
  void **pc = code;
  goto **pc++;
add:
  sum += count;
  goto **pc++;
decrement:
  count--;
  goto **pc++;
loop:
  if (count) pc = code;
  goto **pc++;
end:
  return sum;
}

static word by_distance(int *code, int n, int translate) {
  static const int distances[] = {&&twice - &&twice, &&add - &&twice, &&end - &&twice};
  if (translate) {
    for (int i = 0; i < n; i++) code[i] = distances[code[i]];
    return 0;
  }
  word value = 1;
  int *pc = code;
  goto *(&&twice + *pc++);
twice:
  value *= 2;
  goto *(&&twice + *pc++);
add:
  value += 3;
  goto *(&&twice + *pc++);
end:
  return value;
}

/* One that keeps nothing may change its code. */
static word direct(const char *code) {
  static void *const labels[] = {&&more, &&less, &&end};
  word value = 0;
  goto *labels[*code++ - '0'];
more:
  value += 2;
  goto *labels[*code++ - '0'];
less:
  value -= 1;
  goto *labels[*code++ - '0'];
end:
  return value;
}

__attribute__((noinline)) static word other(word i) { return i * 3; }

int main(void) {
  void *code[] = {(void *)0, (void *)1, (void *)2, (void *)3};
  int distances[] = {0, 0, 1, 0, 2};
  threaded(code, 4, 1);
  by_distance(distances, 5, 1);
  word sum = 0;
  for (word i = 0; i < 100000; i++) {
    sum += threaded(code, 4, 0) + by_distance(distances, 5, 0) + direct("00100012") + other(i);
  }
  printf("%ld\n", sum);
}
