// Boehm's collector, in a shared library, finds what only variables of the program lead to.
// link: -lgc
// options: -l gc
// flags: -DGC_THREADS
#include <gc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
  struct node *next;
  long value;
  char text[48];
};
static struct node *head;                      // begins as zeros
static struct node *table[64];
struct node *exported = (struct node *)1;      // begins as something else

__attribute__((noinline)) static void build(void) {
  for (int i = 0; i < 5000; i++) {
    struct node *node = GC_MALLOC(sizeof *node);
    node->value = i;
    strcpy(node->text, "kept");
    node->next = head;
    head = node;
    table[i & 63] = node;
  }
  exported = GC_MALLOC(sizeof *exported);
  exported->value = 99;
}

__attribute__((noinline)) static void churn(void) {
  for (int i = 0; i < 200000; i++) {
    struct node *node = GC_MALLOC(sizeof *node);
    node->value = -1;
    strcpy(node->text, "junk");
  }
  GC_gcollect();
}

static void *worker(void *argument) {
  churn();
  return argument;
}

int main(void) {
  GC_INIT();
  build();
  churn();
  pthread_t thread;
  GC_pthread_create(&thread, 0, worker, 0);
  GC_pthread_join(thread, 0);
  long sum = 0, bad = 0;
  for (struct node *node = head; node && !bad; node = node->next) {
    sum += node->value;
    bad += strcmp(node->text, "kept") != 0;
  }
  for (int i = 0; i < 64; i++) bad += strcmp(table[i]->text, "kept") != 0;
  printf("%ld %ld %ld %d\n", sum, bad, exported->value, GC_get_gc_no() > 0);
}
