// Names that linkers define, in functions, in data and in an object file.
// object: linker_names_object.c
// levels: O0 O2 O2+nopic
// gate: B
#include <elf.h>
#include <stdio.h>
#include <string.h>

extern char etext, _etext, edata, _edata, end, _end, __bss_start;
extern char __data_start, data_start __attribute__((weak)), __executable_start;
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));
extern Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));
extern void (*__init_array_start[])(void) __attribute__((weak, visibility("hidden")));
extern void (*__init_array_end[])(void) __attribute__((weak, visibility("hidden")));

static int initialized = 5;
static int zeroed[100];
static char *const in_data[] = {&etext, &edata, &end};
int linker_names_object(char **found);

/* Compilers take it for granted that two names are two variables. */
__attribute__((noinline)) static int same(char *volatile one, char *volatile other) { return one == other; }
__attribute__((noinline)) static int before(char *volatile one, char *volatile other) { return one < other; }

int main(void) {
  initialized++;
  zeroed[99] = initialized;
  char *code = (char *)main;
  printf("%d %d\n", before(&__executable_start, code), before(code, &etext));
  printf("%d %d %d\n", same(&etext, &_etext), same(&edata, &_edata), same(&end, &_end));
  printf("%d %d\n", before(&__data_start, (char *)&initialized + 1), before((char *)&initialized, &edata));
  printf("%d %d\n", before((char *)&zeroed[0], &end), before((char *)&zeroed[99], &end));
  printf("%d %d\n", before(&edata - 1, &__bss_start), before(&__bss_start, &end));
  printf("%d %d %d\n", same(in_data[0], &etext), same(in_data[1], &edata), same(in_data[2], &end));
  printf("%d\n", memcmp(__ehdr_start, "\177ELF\2\1\1", 7));
  int debug = 0;
  for (Elf64_Dyn *one = _DYNAMIC; one->d_tag != DT_NULL; one++) debug += one->d_tag == DT_DEBUG && one->d_un.d_ptr;
  printf("%d %d\n", debug, __init_array_start <= __init_array_end);
  char *found[4] = {&etext, &edata, &end, &__bss_start};
  printf("%d\n", linker_names_object(found));
}
