/* Bodies that attract each other, in an array of structures on the stack of the function
 * that moves them: its address does not leave it. */
#include "once.h"

enum { COUNT = 5, STEPS = BY_SIZE(9000000, 300000) };

struct body {
  double x[3], v[3], mass;
};

KERNEL double move(long steps, double dt) {
  struct body bodies[COUNT];
  for (int i = 0; i < COUNT; i++) {
    for (int axis = 0; axis < 3; axis++) {
      bodies[i].x[axis] = (i + 1) * 3.0 * ((axis + i) % 3 ? 0.7 : -0.4);
      bodies[i].v[axis] = 0.05 * (axis - 1) * (i % 2 ? 1 : -1);
    }
    bodies[i].mass = i ? 0.001 * i : 1;
  }
  for (long step = 0; step < steps; step++) {
    for (int i = 0; i < COUNT; i++)
      for (int j = i + 1; j < COUNT; j++) {
        struct body *a = &bodies[i], *b = &bodies[j];
        double between[3], square = 0.05;
        for (int axis = 0; axis < 3; axis++) {
          between[axis] = a->x[axis] - b->x[axis];
          square += between[axis] * between[axis];
        }
        double pull = dt / (square * sqrt(square));
        for (int axis = 0; axis < 3; axis++) {
          a->v[axis] -= between[axis] * b->mass * pull;
          b->v[axis] += between[axis] * a->mass * pull;
        }
      }
    for (int i = 0; i < COUNT; i++)
      for (int axis = 0; axis < 3; axis++) bodies[i].x[axis] += dt * bodies[i].v[axis];
  }
  double energy = 0;
  for (int i = 0; i < COUNT; i++)
    for (int axis = 0; axis < 3; axis++)
      energy += 0.5 * bodies[i].mass * bodies[i].v[axis] * bodies[i].v[axis];
  return energy;
}

int main(void) {
  /* Rounded less finely: this is a chaos. */
  note_real(BY_SIZE(rint(move(STEPS, 1e-7) * 1e4), move(STEPS, 1e-3)));
  return report("bodies");
}
