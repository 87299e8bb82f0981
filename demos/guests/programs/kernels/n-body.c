/* Bodies that attract each other, by the leapfrog method: a chain of square roots
 * and divisions over a small array of structures. SIZE is the number of steps. */
#include <math.h>

#include "kernel.h"

enum { BODIES = 6, AXES = 3 };

struct body {
  double place[AXES];
  double speed[AXES];
  double mass;
};

/* A heavy body and lighter ones around it, each on a circle slightly tilted. */
static void place_bodies(struct body *bodies) {
  bodies[0] = (struct body){.mass = 1000.0};
  for (int i = 1; i < BODIES; i++) {
    double radius = 3.0 + 2.5 * i, turn = 1.3 * i;
    double speed = sqrt(bodies[0].mass / radius);
    bodies[i] = (struct body){
        .place = {radius * cos(turn), radius * sin(turn), 0.1 * i},
        .speed = {-speed * sin(turn), speed * cos(turn), 0.02 * speed},
        .mass = 0.2 / i,
    };
  }
}

static double squared(const double *vector) {
  double sum = 0.0;
  for (int axis = 0; axis < AXES; axis++) sum += vector[axis] * vector[axis];
  return sum;
}

static void attract(struct body *a, struct body *b, double step) {
  double apart[AXES];
  for (int axis = 0; axis < AXES; axis++) apart[axis] = a->place[axis] - b->place[axis];
  double square = squared(apart);
  double strength = step / (square * sqrt(square));
  for (int axis = 0; axis < AXES; axis++) {
    a->speed[axis] -= apart[axis] * b->mass * strength;
    b->speed[axis] += apart[axis] * a->mass * strength;
  }
}

static void drift(struct body *bodies, double step) {
  for (int i = 0; i < BODIES; i++)
    for (int axis = 0; axis < AXES; axis++)
      bodies[i].place[axis] += step * bodies[i].speed[axis];
}

void advance(struct body *bodies, double step) {
  drift(bodies, 0.5 * step);
  for (int i = 0; i < BODIES; i++)
    for (int j = i + 1; j < BODIES; j++) attract(&bodies[i], &bodies[j], step);
  drift(bodies, 0.5 * step);
}

static double energy(const struct body *bodies) {
  double sum = 0.0;
  for (int i = 0; i < BODIES; i++) {
    sum += 0.5 * bodies[i].mass * squared(bodies[i].speed);
    for (int j = 0; j < i; j++) {
      double apart[AXES];
      for (int axis = 0; axis < AXES; axis++)
        apart[axis] = bodies[i].place[axis] - bodies[j].place[axis];
      sum -= bodies[i].mass * bodies[j].mass / sqrt(squared(apart));
    }
  }
  return sum;
}

static uint64_t work(long steps) {
  struct body bodies[BODIES];
  place_bodies(bodies);
  for (long i = 0; i < steps; i++) advance(bodies, 0.001);
  return kernel_bits(energy(bodies));
}

int main(int argc, char **argv) { return kernel("n-body", argc, argv, work); }
