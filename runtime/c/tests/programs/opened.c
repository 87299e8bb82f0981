/* A host that opens the library when it runs, closes it again, and lives on. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <uruk.h>

/* What `dlsym` answers, as a function. */
static uruk_function find(void *library, const char *name)
{
    void *address = dlsym(library, name);
    uruk_function function;
    memcpy(&function, &address, sizeof function);
    return function;
}

int main(int count, char **arguments)
{
    void *library = dlopen(count > 1 ? arguments[1] : "liburuk.so", RTLD_NOW | RTLD_LOCAL);
    uruk_error *(*jit_new)(const uruk_settings *, uruk_jit **);
    const uruk_dylib *(*jit_main)(const uruk_jit *);
    uruk_error *(*add_ir)(const uruk_dylib *, const char *, const char *);
    uruk_error *(*lookup)(const uruk_dylib *, const char *, const char *, uruk_function *);
    void (*jit_free)(uruk_jit *);
    uruk_jit *jit;
    uruk_function function;

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    jit_new = (uruk_error * (*)(const uruk_settings *, uruk_jit **)) find(library, "uruk_jit_new");
    jit_main = (const uruk_dylib *(*)(const uruk_jit *))find(library, "uruk_jit_main");
    add_ir = (uruk_error * (*)(const uruk_dylib *, const char *, const char *))
        find(library, "uruk_dylib_add_ir");
    lookup = (uruk_error * (*)(const uruk_dylib *, const char *, const char *, uruk_function *))
        find(library, "uruk_dylib_function");
    jit_free = (void (*)(uruk_jit *))find(library, "uruk_jit_free");
    if (jit_new(NULL, &jit) != NULL
        || add_ir(jit_main(jit), "m", "define i32 @f() { ret i32 42 }") != NULL
        || lookup(jit_main(jit), "f", "i32 ()", &function) != NULL) {
        return 2;
    }
    if (((int (*)(void))function)() != 42) {
        return 3;
    }
    jit_free(jit);
    dlclose(library);
    puts("passed");
    return 0;
}
