// What libraries for fibers offer: each of them goes to other stacks in another way.
#pragma once
enum { FIBERS = 4 };
typedef void fiber_body(int fiber);

// Makes a fiber, which runs `body` once somebody goes to it.
void fiber_make(int fiber, fiber_body *body);
// Runs a fiber until it rests, or ends.
void fiber_go(int fiber);
// Back to who ran the fiber.
void fiber_rest(int fiber);
