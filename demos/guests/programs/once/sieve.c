/* Primes by crossing out, and the gaps between them, in `main`: bytes on the heap, inner
 * loops whose step changes. */
#include "once.h"

enum { N = BY_SIZE(70000000, 6000000) };

int main(void) {
  unsigned char *crossed = calloc(N, 1);
  if (!crossed) return 1;
  for (long p = 2; p * p < N; p++)
    if (!crossed[p])
      for (long multiple = p * p; multiple < N; multiple += p) crossed[multiple] = 1;
  long count = 0, last = 2, widest = 0;
  for (long n = 2; n < N; n++) {
    if (crossed[n]) continue;
    if (n - last > widest) widest = n - last;
    last = n;
    count++;
  }
  note((uint64_t)count);
  note((uint64_t)last);
  note((uint64_t)widest);
  free(crossed);
  return report("sieve");
}
