// As `listed_data.c`, with more thread-locals than the runtime has static storage for.
// library: listed_data_library.c
// flags: -pthread -DTHREAD_LOCAL_BYTES=20000
// link: -pthread
#include "listed_data.c"
