// Run-time type information: dynamic_cast down, across and to void, multiple and virtual
// inheritance, typeid, pure virtual calls through members; types shared with another
// module and with libstdc++.
// extra: dynamic_cast_other.cpp
// gate: C
#include <cstdio>
#include <stdexcept>
#include <typeinfo>

struct Root {
  virtual ~Root() = default;
  virtual int number() const = 0;
};
struct Left : virtual Root {
  int number() const override { return 1; }
  int left = 10;
};
struct Right : virtual Root {
  virtual int right() const { return 20; }
};
struct Bottom : Left, Right {
  int number() const override { return 3; }
  int right() const override { return left + 15; }
};
struct Other {
  virtual ~Other() = default;
};
struct Both final : Bottom, Other {};

struct Shared {
  virtual ~Shared();
  virtual const char *name() const;
};
Shared *make_shared_derived();
bool is_derived(const Shared *);

int main() {
  Both both;
  Root *root = &both;
  Right *right = dynamic_cast<Right *>(root);
  std::printf("%d %d %d\n", root->number(), right->right(), dynamic_cast<Left *>(right)->left);
  std::printf("%d\n", dynamic_cast<Other *>(root) == static_cast<Other *>(&both));
  std::printf("%d\n", dynamic_cast<void *>(right) == &both);
  Bottom bottom;
  root = &bottom;
  std::printf("%d\n", dynamic_cast<Both *>(root) == nullptr);
  try {
    (void)dynamic_cast<Both &>(*root);
  } catch (const std::bad_cast &) {
    std::printf("bad cast\n");
  }
  std::printf("%s %d\n", typeid(*root).name(), typeid(*right) == typeid(Both));
  int (Root::*method)() const = &Root::number;
  int Left::*member = &Left::left;
  std::printf("%d %d\n", (root->*method)(), both.*member);

  Shared *shared = make_shared_derived();
  std::printf("%s %d %s\n", shared->name(), is_derived(shared), typeid(*shared).name());
  delete shared;
  try {
    throw std::invalid_argument("x");
  } catch (std::exception &e) {
    std::printf("%d\n", dynamic_cast<std::logic_error *>(&e) != nullptr);
  }
}
