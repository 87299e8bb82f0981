enum { DATA, ZEROS, CONSTANT, TABLE, LOCAL, KINDS };
// What a library is to look for, and what it found.
struct looked {
  const void *at[KINDS];
  const void *tls;
  int stop;
  int entries, named, odd;
  int seen[KINDS];
  int tls_seen, tls_same;
  unsigned long long adds, subs;
};
int look(struct looked *);
