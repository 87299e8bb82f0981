// Calls a library that is made of hot.c.
#include <stdlib.h>

int work(int calls);

int main(int count, char **words) { return work(count > 1 ? atoi(words[1]) : 1500); }
