// A plugin in C++, opened: its allocations, those of its constructors too, are the program's;
// exceptions, inline functions and their statics are one.
// opens: plugin_new.cpp
// link: -rdynamic
// gate: D
#include "parts/plugin_new.h"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

static long live;
struct Head { std::size_t magic, pad; };
void *operator new(std::size_t size) {
  Head *head = static_cast<Head *>(std::malloc(size + sizeof(Head)));
  head->magic = 0xabcdef;
  live++;
  return head + 1;
}
void operator delete(void *p) noexcept {
  if (!p) return;
  Head *head = static_cast<Head *>(p) - 1;
  if (head->magic != 0xabcdef) {
    std::printf("a block from elsewhere\n");
    return;
  }
  head->magic = 0;
  live--;
  std::free(head);
}

int main(int argc, char **argv) {
  long before = live;
  void *plugin = dlopen(argv[argc - 1], RTLD_NOW);
  if (!plugin) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  std::printf("%d\n", live - before > 1);
  auto make = reinterpret_cast<std::string *(*)()>(dlsym(plugin, "plugin_make"));
  auto drop = reinterpret_cast<void (*)(std::string *)>(dlsym(plugin, "plugin_drop"));
  auto fail = reinterpret_cast<void (*)()>(dlsym(plugin, "plugin_throw"));
  auto shared = reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_shared"));
  before = live;
  std::string *text = make();
  std::printf("%s %d\n", text->c_str(), live > before);
  drop(text);
  delete make();
  std::printf("%d\n", live == before);
  try {
    fail();
  } catch (const PluginError &error) {
    std::printf("%d %s\n", error.number, error.what());
  }
  Shared<int>::count() = 40;
  std::printf("%d %d\n", shared(), Shared<int>::count());
}
