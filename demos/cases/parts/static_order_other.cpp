// More static objects for static_order.cpp.
#include <cstdio>
struct Quiet {
  const char *name;
  explicit Quiet(const char *n) : name(n) { std::printf("+quiet %s\n", name); }
  ~Quiet() { std::printf("-quiet %s\n", name); }
};
__attribute__((init_priority(400))) static Quiet between("between");
static Quiet plain("plain");
void other() { static Quiet local("local"); }
