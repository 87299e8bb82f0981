#include "part.h"

unsigned rounds;

static unsigned mix(unsigned state) { return (state ^ state >> 13) * 16777619u; }

unsigned part(unsigned state) {
  rounds++;
  return mix(state) + rounds;
}
