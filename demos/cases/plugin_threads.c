// Threads open and close plugins at the same time, and call the program through them, while
// another one copies the process.
// opens: plugin_many.c
// opens: plugin_more.c
// flags: -pthread
// link: -rdynamic
// hazard: the words of a library are written while another thread opens or closes one
// repeat: 3
// gate: D
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int program_base = 1000;
int program_add(int x) { return x + 1; }
int program_sub(int x) { return x - 1; }
int program_abs(int x) { return x < 0 ? -x : x; }
static char **paths;

static void *opens(void *arg) {
  long wrong = 0, which = (long)arg & 1;
  for (int round = 0; round < 150; round++) {
    void *plugin = dlopen(paths[which], round & 1 ? RTLD_NOW : RTLD_LAZY);
    int (*run)(int) = plugin ? (int (*)(int))dlsym(plugin, which ? "more_run" : "many_run") : 0;
    int x = round + 2, expected = x + (which ? -1 : 1) + 1000 + x + 4;
    if (!run || run(x) != expected) wrong++;
    if (plugin) dlclose(plugin);
  }
  return (void *)wrong;
}

int main(int argc, char **argv) {
  if (argc != 3) return 1;
  paths = argv + 1;
  pthread_t threads[4];
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, opens, (void *)i);
  for (int i = 0; i < 5; i++) {
    pid_t child = fork();
    if (child == 0) _exit(program_add(3));
    int status;
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
  }
  for (int i = 0; i < 4; i++) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    printf("%ld wrong\n", (long)wrong);
  }
}
