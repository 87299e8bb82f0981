/* Runs one Lua script.
 *   program SCRIPT ARGS...            once
 *   program steady N SCRIPT ARGS...   N times (`steady.h`): what the script prints
 *                                     goes into the checksum instead
 * The standard libraries are open, `arg` holds the arguments, an error is
 * reported with a traceback on stderr and ends the program with status 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include "steady.h"

static int traceback(lua_State *L) {
  const char *message = luaL_tolstring(L, 1, NULL);
  luaL_traceback(L, L, message, 1);
  return 1;
}

static uint64_t printed;

/* `print` of a script that is repeated. */
static int print_into_sum(lua_State *L) {
  int count = lua_gettop(L);
  for (int i = 1; i <= count; i++) {
    size_t length;
    const char *text = luaL_tolstring(L, i, &length);
    for (size_t at = 0; at < length; at++)
      printed = (printed ^ (unsigned char)text[at]) * 1099511628211u;
    lua_pop(L, 1);
  }
  return 0;
}

static int report(lua_State *L) {
  fprintf(stderr, "%s\n", lua_tostring(L, -1));
  return 1;
}

/* One run of the script, which lies on the stack above `traceback`. */
static uint64_t iterate(void *context) {
  lua_State *L = context;
  printed = 14695981039346656037u;
  lua_pushvalue(L, 2);
  if (lua_pcall(L, 0, 0, 1) != LUA_OK) exit(report(L));
  return printed;
}

static int run(lua_State *L, const char *script, long iterations) {
  lua_pushcfunction(L, traceback);
  if (luaL_loadfile(L, script) != LUA_OK) return report(L);
  if (iterations > 0) {
    lua_register(L, "print", print_into_sum);
    const char *slash = strrchr(script, '/');
    return steady(slash == NULL ? script : slash + 1, iterations, iterate, L);
  }
  return lua_pcall(L, 0, 0, 1) == LUA_OK ? 0 : report(L);
}

int main(int argc, char **argv) {
  int first = argc > 2 && strcmp(argv[1], "steady") == 0 ? 3 : 1;
  if (argc <= first) {
    fprintf(stderr, "usage: program [steady N] SCRIPT ARGS...\n");
    return 2;
  }
  lua_State *L = luaL_newstate();
  if (L == NULL) {
    fprintf(stderr, "no memory for a Lua state\n");
    return 1;
  }
  luaL_openlibs(L);
  lua_createtable(L, argc - first - 1, 0);
  for (int i = first + 1; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - first);
  }
  lua_setglobal(L, "arg");
  int status = run(L, argv[first], first == 3 ? atol(argv[2]) : 0);
  lua_close(L);
  return status;
}
