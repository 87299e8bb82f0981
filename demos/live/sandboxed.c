// A program that answers lines, and gives up all system calls but those, or root's rights, when it is
// told to.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ANSWER
#define ANSWER 7
#endif

static volatile int spent;

// Takes time, as the program is looked at once it has used some.
__attribute__((noinline)) int number(void) {
    int known = ANSWER;
    for (int i = 0; i < 100000; i++) spent += i;
    // Its callers are compiled without the number.
    __asm__("" : "+r"(known));
    return known;
}

static int give_up(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static int give_up_root(void) {
    return geteuid() ? -1 : setresuid(65534, 65534, 65534);
}

int main(void) {
    char buffer[64], answer[64], text[64];
    setvbuf(stdin, buffer, _IOFBF, sizeof buffer);
    if (write(1, "ready\n", 6) != 6) return 1;
    while (fgets(text, sizeof text, stdin)) {
        int state = strcmp(text, "give up\n") == 0        ? give_up()
                    : strcmp(text, "give up root\n") == 0 ? give_up_root()
                                                          : number();
        int size = snprintf(answer, sizeof answer, "%d\n", state);
        if (write(1, answer, (size_t)size) != size) return 1;
    }
    return 0;
}
