// Constructors with and without priorities, with the program's arguments, in two
// modules; destructors in the opposite order, after atexit handlers.
// args: one two
// env: CASE_VARIABLE=seen
// extra: constructors_other.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONSTRUCTOR(n) __attribute__((constructor(n))) static void
#define DESTRUCTOR(n) __attribute__((destructor(n))) static void

CONSTRUCTOR(300) late(void) { puts("c 300"); }
CONSTRUCTOR(101) first(void) { puts("c 101"); }
__attribute__((constructor)) static void plain(void) { puts("c plain"); }
DESTRUCTOR(101) last(void) { puts("d 101"); }
DESTRUCTOR(300) early(void) { puts("d 300"); }
__attribute__((destructor)) static void plain_end(void) { puts("d plain"); }

__attribute__((constructor)) static void with_arguments(int argc, char **argv, char **envp) {
  int found = 0;
  for (; *envp; envp++) found += strcmp(*envp, "CASE_VARIABLE=seen") == 0;
  printf("%d %s %s %d\n", argc, argv[1], argv[2], found);
}

static void preinit(int argc, char **argv, char **envp) {
  (void)argv, (void)envp;
  printf("preinit %d\n", argc);
}
__attribute__((section(".preinit_array"), used)) static void (*pre)(int, char **, char **) = preinit;

static void at_exit(void) { puts("atexit"); }

int main(void) {
  atexit(at_exit);
  puts("main");
  return 0;
}
