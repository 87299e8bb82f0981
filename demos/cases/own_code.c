// A program that makes code itself, and calls it and is called by it.
// gate: D
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) static int callback(int x) { return x + 1; }

int main(void) {
  /* sub rsp,8; call rsi; add eax,eax; add rsp,8; ret */
  static const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd6, 0x01,
                                       0xc0, 0x48, 0x83, 0xc4, 0x08, 0xc3};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  int (*made)(int, int (*)(int)) = (int (*)(int, int (*)(int)))page;
  printf("%d\n", made(20, callback));
  printf("%d\n", munmap(page, 4096));
}
