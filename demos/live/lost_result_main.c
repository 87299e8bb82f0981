// The lines of lost_result.c, in a file that is not exchanged.
#include <stdio.h>

int report(int kind);

int main(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int first = 0, second = 0;
        for (int i = 0; i < 20000; i++) first = report(0), second = report(1);
        printf("%d %d\n", first, second);
        fflush(stdout);
    }
    return 0;
}
