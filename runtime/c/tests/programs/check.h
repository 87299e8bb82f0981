/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uruk.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* No error. */
#define FINE(call)                                                                         \
    do {                                                                                   \
        uruk_error *fine = (call);                                                         \
        if (fine != NULL) {                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, uruk_error_text(fine));     \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* An error of a code, whose text has a part. */
#define FAILS(call, expected, part)                                                        \
    do {                                                                                   \
        uruk_error *failed = (call);                                                       \
        if (uruk_error_code(failed) != (expected)                                          \
            || strstr(uruk_error_text(failed), (part)) == NULL) {                          \
            fprintf(stderr, "%s:%d: %d %s\n", __FILE__, __LINE__, uruk_error_code(failed), \
                    uruk_error_text(failed));                                              \
            abort();                                                                       \
        }                                                                                  \
        uruk_error_free(failed);                                                           \
    } while (0)

#endif
