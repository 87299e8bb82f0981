/* Runs one script of JavaScript again and again: program N SCRIPT (`steady.h`).
 * What it prints goes into the checksum. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quickjs.h"
#include "steady.h"

static uint64_t printed;

static void print(const char *text) {
  for (; *text; text++) printed = (printed ^ (unsigned char)*text) * 1099511628211u;
}

static JSValue print_into_sum(JSContext *context, JSValueConst self, int count,
                              JSValueConst *arguments) {
  (void)self;
  for (int i = 0; i < count; i++) {
    const char *text = JS_ToCString(context, arguments[i]);
    if (text == NULL) return JS_EXCEPTION;
    print(text);
    JS_FreeCString(context, text);
  }
  return JS_UNDEFINED;
}

static int report(JSContext *context) {
  JSValue error = JS_GetException(context);
  const char *text = JS_ToCString(context, error);
  fprintf(stderr, "%s\n", text == NULL ? "an error" : text);
  return 1;
}

/* The whole script in a function: what it defines is defined anew each time. */
static char *wrapped(const char *path) {
  static const char before[] = "(function () {", after[] = "\n})()";
  FILE *file = fopen(path, "r");
  if (file == NULL) return NULL;
  size_t room = 1 << 20, length = sizeof before - 1;
  char *text = malloc(room);
  if (text == NULL) return NULL;
  memcpy(text, before, length);
  length += fread(text + length, 1, room - length - sizeof after, file);
  fclose(file);
  memcpy(text + length, after, sizeof after);
  return text;
}

static const char *text;

static uint64_t iterate(void *opaque) {
  JSContext *context = opaque, *other;
  printed = 14695981039346656037u;
  JSValue value = JS_Eval(context, text, strlen(text), "script", JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(value)) exit(report(context));
  JS_FreeValue(context, value);
  while (JS_ExecutePendingJob(JS_GetRuntime(context), &other) > 0) continue;
  return printed;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: program N SCRIPT\n");
    return 2;
  }
  text = wrapped(argv[2]);
  JSRuntime *runtime = JS_NewRuntime();
  JSContext *context = runtime == NULL ? NULL : JS_NewContext(runtime);
  if (context == NULL || text == NULL) {
    fprintf(stderr, "no memory, or no script\n");
    return 1;
  }
  JSValue global = JS_GetGlobalObject(context), console = JS_NewObject(context);
  JS_SetPropertyStr(context, console, "log",
                    JS_NewCFunction(context, print_into_sum, "log", 1));
  JS_SetPropertyStr(context, global, "console", console);
  JS_FreeValue(context, global);
  return steady("script", atol(argv[1]), iterate, context);
}
