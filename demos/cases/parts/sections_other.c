// One more entry for sections.c.
struct entry { const char *name; int (*run)(int); };
static int third(int x) { return x + 3; }
static const struct entry third_entry __attribute__((section("registry"), used)) = {"third", third};
