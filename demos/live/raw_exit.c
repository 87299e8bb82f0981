/* The main thread ends by the system call, which the C library does not notice. */
int main(void) {
    __asm__ volatile("syscall" : : "a"(60), "D"(7) : "rcx", "r11", "memory");
    return 1;
}
