// Functions without prologue, return addresses, frame addresses.
// flags: -fno-omit-frame-pointer
// vary: --tiers 2
// vary: --tiers 3
// gate: B
#include <stdint.h>
#include <stdio.h>

__attribute__((naked)) int add(int a, int b) { __asm__("leal (%rdi,%rsi), %eax; ret"); }

__attribute__((noinline)) static void *return_address(void) {
  __asm__ volatile("");
  return __builtin_return_address(0);
}
__attribute__((noinline)) static int frame_is_near(void) {
  char here;
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  return frame - (uintptr_t)&here < 4096;
}

int main(void) {
  int (*volatile f)(int, int) = add;
  printf("%d\n", f(40, 2));
  void *first = return_address();
  void *second = return_address();
  printf("%d %d %d\n", first != NULL, first != second, frame_is_near());
}
