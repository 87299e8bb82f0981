// The shared classes of dynamic_cast.cpp: its vtables live here.
#include <cstdio>
struct Shared {
  virtual ~Shared();
  virtual const char *name() const;
};
struct SharedDerived : Shared {
  ~SharedDerived() override { std::printf("~SharedDerived\n"); }
  const char *name() const override { return "derived elsewhere"; }
};
Shared::~Shared() { std::printf("~Shared\n"); }
const char *Shared::name() const { return "shared"; }
Shared *make_shared_derived() { return new SharedDerived; }
bool is_derived(const Shared *s) { return dynamic_cast<const SharedDerived *>(s) != nullptr; }
