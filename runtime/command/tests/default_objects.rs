//! `uruk run` with objects of C++ as compilers make them for executables: their variables of
//! libraries, vtables, type information and personality are copies or entries of the program, and
//! thread-locals of libraries have static storage.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Streams, vtables and type information of the library, as data and as operands of code.
const PROGRAM: &str = r#"
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <typeinfo>

struct Ours : std::runtime_error {
  int n;
  explicit Ours(int n) : std::runtime_error("ours"), n(n) {}
};
struct Buffer : std::stringbuf {
  int syncs = 0;
  int sync() override { return ++syncs, 0; }
};
std::ostream *const streams[] = {&std::cout, &std::cerr};
const std::type_info *const types[] = {&typeid(int), &typeid(std::runtime_error), &typeid(Ours)};
static int order(int n) { try { if (n > 1) throw Ours(n); throw n; }
  catch (const std::exception &it) { return dynamic_cast<const Ours &>(it).n; }
  catch (int it) { return -it; } }

int main(int argc, char **) {
  *streams[0] << "begin " << (streams[0] == &std::cout) << (std::cin.tie() == &std::cout) << "\n";
  for (const std::type_info *type : types) std::cout << type->name() << " ";
  std::cout << order(argc) << " " << order(argc + 4) << "\n";
  Buffer buffer;
  std::ostream into(&buffer);
  into << 42 << std::flush;
  std::cout << buffer.str() << " " << buffer.syncs << "\n";
  std::streambuf *before = std::cout.rdbuf(&buffer);
  std::cout << " kept";
  std::cout.rdbuf(before);
  std::cout << buffer.str() << std::endl;
  try { std::cout.exceptions(std::ios::badbit); std::cout.setstate(std::ios::badbit); }
  catch (const std::ios_base::failure &) { std::cout.clear(); std::cout << "failed\n"; }
  try { std::stoi("none"); } catch (std::invalid_argument &it) { std::cout << it.what() << "\n"; }
  std::set_terminate([] { std::cout << "ended\n" << std::flush; std::_Exit(7); });
  throw Ours(3);
}
"#;

/// Thread-locals of the library, which the headers' functions read at fixed places of each thread.
const ONCE: &str = r#"
#include <atomic>
#include <cstdio>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

static std::once_flag once, again;
static std::atomic<int> calls;
static int part(int n) {
  std::call_once(once, [&] { calls += 100; });
  try { std::call_once(again, [&] { if (n) throw std::runtime_error("again"); calls += 1000; }); }
  catch (std::runtime_error &) { return n; }
  return -n;
}

int main() {
  int sum = part(1);
  for (int round = 0; round < 4; ++round) {
    auto one = std::async(std::launch::async, part, round);
    std::promise<int> promise;
    std::thread other([&] { promise.set_value(part(2)); });
    sum = sum * 10 + one.get() + promise.get_future().get();
    other.join();
  }
  std::printf("%d %d\n", sum != 0, calls.load());
  return 7;
}
"#;

/// Thread-locals of its own, more than a process has room for at fixed places by chance: the process
/// begins once more, which the program cannot see.
const LOCALS: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <pthread.h>
#include <string>

static thread_local char bytes[20000];
thread_local int counted = 5;
alignas(128) thread_local struct { long first, rest[500]; } many = {7, {8}};
thread_local std::string text = "made in each thread";

static void *work(void *) {
  bytes[19999]++; counted++; many.rest[499]++; text += ".";
  std::printf("%d %d %ld %ld %ld %s %ld\n", bytes[19999], counted, many.first, many.rest[0],
    many.rest[499], text.c_str(), (long)&many % 128);
  return nullptr;
}

int main(int count, char **words) {
  const char *preloaded = std::getenv("LD_PRELOAD");
  std::printf("%d %s %d\n", count, preloaded ? preloaded : "none", open("/", O_RDONLY));
  for (int round = 0; round < 3; round++) {
    work(nullptr);
    pthread_t threads[4];
    for (pthread_t &thread : threads) {
      pthread_create(&thread, nullptr, work, nullptr);
      pthread_join(thread, nullptr);
    }
  }
  return 7;
}
"#;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shown(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

/// The results of a program, natively and run.
fn check(compiler: &str, folder: &Path, options: &[&str]) {
    let compile = |options: &[&str], to: &str| {
        let mut compiler = Command::new(compiler);
        compiler.args(["-w", "main.cpp", "-o", to]).args(options);
        let done = compiler.current_dir(folder).status();
        assert!(done.expect("runs").success(), "{compiler:?}");
    };
    compile(options, "native");
    compile(&[options, &["-c"]].concat(), "main.o");
    for (eager, preload) in [
        (&[][..], None),
        (&["--eager"], None),
        (&[], Some("/nowhere/lib.so:libm.so.6")),
    ] {
        let command = |program: &Path| {
            let mut command = Command::new(program);
            if let Some(preload) = preload {
                command.env("LD_PRELOAD", preload);
            }
            command
        };
        let native = command(&folder.join("native")).output();
        let native = shown(&native.expect("runs"));
        assert_eq!(native.0, Some(7), "{native:?}");
        let mut uruk = command(Path::new(env!("CARGO_BIN_EXE_uruk")));
        uruk.arg("run").args(eager).args(["main.o", "-lstdc++"]);
        let output = uruk.current_dir(folder).output().expect("runs");
        assert_eq!(shown(&output), native, "{compiler} {options:?}: {output:?}");
    }
}

fn check_compiler(compiler: &str) {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("skipped: {compiler} is not installed");
        return;
    }
    let name = format!("uruk-objects-{compiler}-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).expect("made");
    for program in [PROGRAM, ONCE, LOCALS] {
        std::fs::write(folder.0.join("main.cpp"), program).expect("written");
        for level in ["-O0", "-O2"] {
            check(compiler, &folder.0, &[level, "-pthread"]);
            check(
                compiler,
                &folder.0,
                &[level, "-pthread", "-fno-pie", "-no-pie"],
            );
        }
    }
}

#[test]
fn objects_of_clang_for_executables_run() {
    check_compiler("clang++-22");
}

#[test]
fn objects_of_gcc_for_executables_run() {
    check_compiler("g++");
}
