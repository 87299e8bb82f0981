int common_number __attribute__((common));
int weak_number = 8;
__attribute__((weak)) int weak_function(void) { return 2; }
int *common_at(void) { return &common_number; }
int *weak_at(void) { return &weak_number; }
int weak_call(void) { return weak_function(); }
