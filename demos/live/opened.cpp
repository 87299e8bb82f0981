// Opened and closed in a loop: it stays native.
static int calls;
extern "C" int opened_work(int x) {
  for (int i = 0; i < 1000; i++) calls += x ^ i;
  return calls;
}
