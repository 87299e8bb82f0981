// A library that looks for the program's data as collectors and checkers for leaks do.
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include "listed_data.h"

typedef struct {
  size_t module, offset;
} tls_index;
extern void *__tls_get_addr(tls_index *);

static int within(uintptr_t start, size_t size, const void *at) {
  return (uintptr_t)at - start < size;
}

static int each(struct dl_phdr_info *info, size_t size, void *data) {
  struct looked *found = data;
  if (size < offsetof(struct dl_phdr_info, dlpi_tls_data) + sizeof(void *)) return 1;
  found->entries++;
  int main = found->entries == 1;
  if (main) found->named = info->dlpi_name[0] != 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_LOAD) {
      int writable = (header->p_flags & PF_W) != 0;
      for (int k = 0; k < KINDS; k++)
        if (within(start, header->p_memsz, found->at[k])) found->seen[k] = 1 + writable + 2 * main;
      if (header->p_filesz > header->p_memsz) found->odd++;
    }
    if (header->p_type == PT_TLS) {
      if (info->dlpi_tls_data && within((uintptr_t)info->dlpi_tls_data, header->p_memsz, found->tls)) {
        found->tls_seen = 1 + main;
        tls_index index = {info->dlpi_tls_modid, 0};
        found->tls_same = __tls_get_addr(&index) == info->dlpi_tls_data;
      }
      if (main) {
        // The template can be read.
        const volatile char *image = (const char *)start;
        for (size_t at = 0; at < header->p_filesz; at++) (void)image[at];
      }
    }
  }
  found->adds = info->dlpi_adds;
  found->subs = info->dlpi_subs;
  return found->entries == found->stop ? 77 : 0;
}

int look(struct looked *found) { return dl_iterate_phdr(each, found); }
