int library_count = 1;
static int *kept;

__attribute__((constructor)) static void begin(void) {
  library_count = 10;
  kept = &library_count;
}
int *library_kept(void) { return kept; }
int library_step(void) { return ++*kept; }
int library_function(int n) { return n + library_count; }
int (*library_address(void))(int) { return library_function; }
