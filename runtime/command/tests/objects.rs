//! Objects that compilers make for executables, by default flags and without position-independent
//! code, use variables and functions of shared libraries as natively: a static linker copies such
//! variables into the program, and has libraries use the copy.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that another one needs.
const DEEP: &str = r#"
int deep = 7;
extern int deep_alias __attribute__((alias("deep"), weak));
int read_deep(void) { return deep * 10 + deep_alias; }
"#;

/// A library whose constructor changes a variable and keeps a pointer to it.
const LIBRARY: &str = r#"
extern int deep;
int counter = 1;
int zeroed;
__attribute__((weak)) int feeble = 3;
struct pair { long first; int *second; char text[40]; } pair = {4, &counter, "initial"};
static int *kept;
__attribute__((constructor)) static void begin(void) { counter = 5; kept = &counter; deep++; }
int step(void) { return ++*kept; }
int read_all(void) { return counter * 1000 + zeroed * 100 + feeble * 10 + (int)pair.first; }
int function(int x) { return x + 1; }
int (*its_function(void))(int) { return function; }
const struct pair *its_pair(void) { return &pair; }
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ, **__environ, **_environ;
extern int counter, zeroed, deep, deep_alias;
extern __attribute__((weak)) int feeble;
extern struct pair { long first; int *second; char text[40]; } pair;
int step(void), read_all(void), read_deep(void), function(int);
int (*its_function(void))(int);
const struct pair *its_pair(void);
static int (*in_data)(int) = function;
static int *in_data_too = &counter;
/* Compilers take it for granted that two names are two variables. */
__attribute__((noinline)) static int same(void *volatile one, void *volatile other) { return one == other; }
int main(int argc, char **argv) {
  char *words[] = {argv[0], "-a", "-b", "value", "rest", 0};
  int option, found = 0;
  while ((option = getopt(5, words, "ab:")) != -1) found = found * 100 + option;
  printf("%d %d %s\n", found, optind, words[optind]);
  optind = 1;
  printf("%d\n", getopt(5, words, "ab:"));
  printf("%d %d\n", same(&environ, &__environ), same(&environ, &_environ));
  setenv("OWN_NAME", "set", 1);
  int there = 0;
  for (char **one = environ; *one; one++) there += !strcmp(*one, "OWN_NAME=set");
  char *alone[] = {"ONLY=this", 0};
  environ = alone;
  printf("%d %s %d\n", there, getenv("ONLY"), getenv("OWN_NAME") == 0);
  printf("%d\n", counter);
  printf("%d\n", step());
  printf("%d\n", counter);
  counter = 20;
  zeroed = 2;
  feeble++;
  pair.first = 6;
  printf("%d\n", step());
  printf("%d %d\n", read_all(), *in_data_too);
  deep += 10;
  deep_alias += 100;
  printf("%d %d %d\n", read_deep(), deep, same(&deep, &deep_alias));
  printf("%d %s %d\n", pair.second == &counter, pair.text, its_pair() == &pair);
  printf("%d %d %d\n", in_data == its_function(), function == its_function(), in_data(41));
  int (*puts_there)(const char *) = puts;
  puts_there("through a pointer");
  FILE *own = tmpfile(), *before = stdout;
  fflush(stdout);
  stdout = own;
  puts("hidden");
  stdout = before;
  fprintf(stdout, "%ld\n", ftell(own));
  fputs("to standard error\n", stderr);
  return fflush(stdout) + 3;
}
"#;

const CXX: &str = r#"
#include <exception>
#include <iomanip>
#include <iostream>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <typeinfo>
#include <vector>
struct Own : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Buffer : std::stringbuf {};
static int caught;
int main() {
  std::cout << "hello " << 42 << ' ' << std::hex << 255 << std::dec << '\n';
  std::cout << (std::cin.tie() == &std::cout) << (std::cerr.tie() == &std::cout) << '\n';
  try {
    std::vector<int>().at(3);
  } catch (const std::out_of_range &) {
    caught++;
  }
  try {
    throw Own("own");
  } catch (const std::exception &error) {
    std::cout << error.what() << (typeid(error) == typeid(Own)) << '\n';
  }
  try {
    std::stoi("no number");
  } catch (const std::invalid_argument &error) {
    std::cout << (typeid(error) == typeid(std::invalid_argument)) << '\n';
  }
  std::ostringstream text;
  std::streambuf *before = std::cout.rdbuf(text.rdbuf());
  std::cout << "captured";
  std::cout.rdbuf(before);
  std::ostream *stream = &std::cout;
  std::cout << text.str() << (dynamic_cast<std::ostringstream *>(stream) == nullptr) << caught;
  std::cout << std::use_facet<std::ctype<char>>(std::locale()).toupper('x') << std::endl;
  std::cerr << "to standard error" << std::endl;
  return 3;
}
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("objects")
            .join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }

    fn call(&self, program: &str, words: &str) -> Output {
        let mut command = Command::new(program);
        let words = words.split_whitespace();
        command
            .current_dir(&self.0)
            .args(words)
            .env("LD_LIBRARY_PATH", &self.0);
        command
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    fn make(&self, program: &str, words: &str) {
        let output = self.call(program, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words}: {said}");
    }

    /// Compares the program of a source natively and under `uruk run`, in several modes.
    fn compare(&self, compiler: &str, flags: &str, source: &str, libraries: &str) {
        let link = if flags.contains("-fno-pi") {
            "-no-pie"
        } else {
            ""
        };
        self.make(compiler, &format!("-w {flags} -c {source} -o one.o"));
        self.make(compiler, &format!("{link} one.o -o native -L. {libraries}"));
        let native = self.call("./native", "");
        assert_eq!(native.status.code(), Some(3), "{native:?}");
        for options in ["", "--eager", "--no-preempt", "--tiers 1"] {
            let line = format!("run {options} -L . {libraries} one.o");
            let ours = self.call(env!("CARGO_BIN_EXE_uruk"), &line);
            let text = |output: &Output| {
                let (out, err) = (&output.stdout, &output.stderr);
                format!(
                    "{}{}",
                    String::from_utf8_lossy(out),
                    String::from_utf8_lossy(err)
                )
            };
            assert_eq!(text(&ours), text(&native), "{compiler} {flags} {options}");
            assert_eq!(ours.status.code(), native.status.code());
        }
    }
}

fn compare_c(name: &str, compilers: &[&str], flags: &[&str]) {
    let folder = Folder::new(name);
    folder.write("deep.c", DEEP);
    folder.write("library.c", LIBRARY);
    folder.write("program.c", PROGRAM);
    folder.make("clang-22", "-O1 -fPIC -shared deep.c -o libdeep.so");
    folder.make(
        "clang-22",
        "-O1 -fPIC -shared library.c -o liblibrary.so -L. -ldeep",
    );
    for compiler in compilers {
        for flags in flags {
            folder.compare(compiler, flags, "program.c", "-llibrary -ldeep");
        }
    }
}

#[test]
fn variables_of_libraries_are_the_programs() {
    compare_c(
        "default",
        &["clang-22", "gcc"],
        &["-O0", "-O2", "-O2 -fPIC"],
    );
}

#[test]
fn variables_of_libraries_have_copies_below_2_gib() {
    compare_c(
        "fixed",
        &["clang-22", "gcc"],
        &["-O0 -fno-pie", "-O2 -fno-pie"],
    );
}

#[test]
fn streams_and_types_of_the_cxx_library_are_the_programs() {
    let folder = Folder::new("cxx");
    folder.write("program.cpp", CXX);
    for compiler in ["clang++-22", "g++"] {
        for flags in ["-O0", "-O2", "-O2 -fno-pie", "-O0 -fno-pie"] {
            folder.compare(compiler, flags, "program.cpp", "");
        }
    }
}

#[test]
fn thread_local_common_symbols_merge_to_the_largest() {
    let folder = Folder::new("common");
    // As Fortran's `threadprivate` common blocks, of which each file may know a part.
    let other = "__asm__(\".tls_common shared,8,8\\n.tls_common own,4,64\");
        extern __thread long shared[1];
        extern __thread int own;
        long first(void) { return shared[0] + ++own; }
        long odd(void) { return (long)&own % 64; }";
    let program = "#include <pthread.h>
        #include <stdio.h>
        __asm__(\".tls_common shared,24,16\\n.tls_common defined,4,4\");
        extern __thread long shared[3];
        __thread int after = 7;
        long first(void), odd(void);
        static void *use(void *start) {
          printf(\"%ld %ld %ld %d\\n\", shared[0], shared[1], shared[2], after);
          shared[0] = (long)start;
          shared[2] = 9;
          printf(\"%ld %ld %ld %ld %d\\n\", first(), first(), odd(), shared[2], after);
          return 0;
        }
        int main(void) {
          pthread_t thread;
          use((void *)100);
          pthread_create(&thread, 0, use, (void *)200);
          pthread_join(thread, 0);
          use((void *)300);
          return 3;
        }";
    folder.write("other.c", other);
    folder.write("program.c", program);
    // The assembler of clang has no such directive.
    for flags in ["-O0", "-O2 -fPIC"] {
        folder.make("gcc", &format!("{flags} -c other.c -o other.o"));
        folder.compare("gcc", flags, "program.c", "other.o");
    }
}

#[test]
fn vectorcall_functions_are_found_by_modules_and_objects() {
    let folder = Folder::new("vectorcall");
    folder.write(
        "a.c",
        "__attribute__((vectorcall)) int f(int a, long b);
         int main(void) { return f(3, 4); }",
    );
    folder.write(
        "b.c",
        "__attribute__((vectorcall)) int f(int a, long b) { return a * 10 + b; }",
    );
    for name in ["a", "b"] {
        folder.make("clang-22", &format!("-c {name}.c -o {name}.o"));
        folder.make(
            "clang-22",
            &format!("-c -emit-llvm -O1 {name}.c -o {name}.bc"),
        );
    }
    for files in ["a.o b.o", "a.o b.bc", "a.bc b.o", "a.bc b.bc"] {
        for options in ["", "--eager", "--tiers 2"] {
            let ours = folder.call(
                env!("CARGO_BIN_EXE_uruk"),
                &format!("run {options} {files}"),
            );
            assert_eq!(ours.status.code(), Some(34), "{files} {options}: {ours:?}");
        }
    }
}

#[test]
fn objects_that_cannot_run_are_refused_by_their_options() {
    let folder = Folder::new("refused");
    folder.write("main.c", "int main(void) { return 3; }");
    for (flags, said) in [
        ("-flto", "-ffat-lto-objects"),
        ("-fsplit-stack", "-fsplit-stack"),
    ] {
        folder.make("gcc", &format!("-O1 {flags} -c main.c -o main.o"));
        let ours = folder.call(env!("CARGO_BIN_EXE_uruk"), "run main.o");
        assert_eq!(ours.status.code(), Some(125), "{ours:?}");
        assert!(
            String::from_utf8_lossy(&ours.stderr).contains(said),
            "{ours:?}"
        );
    }
}
