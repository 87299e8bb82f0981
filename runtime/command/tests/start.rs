//! How `uruk run` starts a program: names, launchers, stacks, and files that only LLVM's own tools take.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("uruk-start-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
        Folder(folder)
    }

    fn compile(&self, compiler: &str, to: &str, source: &str, options: &[&str]) -> PathBuf {
        let c = self.0.join(format!("{to}.c"));
        std::fs::write(&c, source).unwrap();
        let file = self.0.join(to);
        let mut command = Command::new(compiler);
        command.arg("-w").arg("-c").args(options).arg(&c);
        let status = command.arg("-o").arg(&file).status();
        assert!(status.expect(compiler).success());
        file
    }

    fn uruk(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
        command.args(args).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tells its arguments, and starts itself again by each of its two names.
const AGAIN: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void again(const char *file, char *name) {
  fflush(stdout);
  if (fork() == 0) { execl(file, name, "again", "--", "-x y", (char *)0); _exit(9); }
  int status; wait(&status);
}
int main(int count, char **words) {
  printf("%s:", program_invocation_short_name);
  for (int i = 1; i < count; i++) printf(" [%s]", words[i]);
  printf("\n");
  if (count < 3) { again(words[0], words[0]); again("/proc/self/exe", "other"); }
  return count;
}"#;

#[test]
fn a_program_is_told_a_name() {
    let folder = Folder::new("name");
    folder.compile("clang-22", "p.bc", AGAIN, &["-emit-llvm"]);
    let output = folder.uruk(&["run", "--argv0", "/some/where/name", "p.bc", "--", "a", "b"]);
    assert_eq!(said(&output), "name: [a] [b]\n", "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_launcher_is_a_file_that_starts_the_program() {
    let folder = Folder::new("launcher");
    folder.compile("clang-22", "p.bc", AGAIN, &["-emit-llvm"]);
    let wanted = "started: [a]\nstarted: [again] [--] [-x y]\nother: [again] [--] [-x y]\n";
    let make = [
        "run",
        "--tiers",
        "1",
        "--launcher",
        "./started",
        "p.bc",
        "--",
        "a",
    ];
    for _ in 0..2 {
        let output = folder.uruk(&make);
        assert_eq!(said(&output), wanted, "{output:?}");
        assert_eq!(output.status.code(), Some(2));
    }
    // By itself, in another folder, under another name.
    let file = folder.0.join("started");
    let mut command = Command::new(&file);
    command.arg("a").current_dir(folder.0.join("elsewhere"));
    assert_eq!(said(&command.output().unwrap()), wanted);
    let mut command = Command::new(&file);
    let output = command.arg0("named").args(["a", "b"]).output().unwrap();
    assert_eq!(said(&output), "named: [a] [b]\n");
    // Another file stays as it is.
    std::fs::write(folder.0.join("mine"), "mine").unwrap();
    let output = folder.uruk(&["run", "--launcher=mine", "p.bc"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no launcher"));
    assert_eq!(std::fs::read(folder.0.join("mine")).unwrap(), b"mine");
    assert_ne!(file.metadata().unwrap().permissions().mode() & 0o100, 0);
}

/// As `ulimit -s`, in KiB.
fn with_stack(kib: u64, program: &Path, args: &[&str]) -> Output {
    let script = format!("ulimit -s {kib}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(program).args(args);
    shell.output().unwrap()
}

#[test]
fn a_small_stack_is_the_programs() {
    let folder = Folder::new("stack");
    let source = "#include <stdio.h>
        #include <sys/resource.h>
        static int deep(int n) { volatile char room[100]; room[n] = 1; return n ? deep(n - 1) + room[n] : 0; }
        int main(void) {
          struct rlimit limit; getrlimit(RLIMIT_STACK, &limit);
          char here; printf(\"%d %d\\n\", (int)(limit.rlim_cur >> 10), deep(90)); return 0; }";
    let file = folder.compile("clang-22", "p.bc", source, &["-emit-llvm", "-O1"]);
    let uruk = Path::new(env!("CARGO_BIN_EXE_uruk"));
    let output = with_stack(64, uruk, &["--version"]);
    assert!(said(&output).starts_with("uruk "), "{output:?}");
    let output = with_stack(64, uruk, &["run", "--help"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for options in [&[][..], &["--eager"], &["--tiers", "2"], &["--stats"]] {
        let args = [&["run"], options, &[file.to_str().unwrap()]].concat();
        let output = with_stack(64, uruk, &args);
        assert_eq!(said(&output), "64 90\n", "{options:?}: {output:?}");
    }
}

/// GNU C's nested functions, as gcc has them: an object that asks for a stack that code runs on.
#[test]
fn nested_functions_of_gcc_are_called_by_trampolines() {
    if Command::new("gcc").arg("--version").output().is_err() {
        return;
    }
    let folder = Folder::new("nested");
    let source = "#include <stdio.h>
        #include <stdlib.h>
        static long apply(long (*f)(long), long n) { long s = 0; for (long i = 0; i < n; i++) s += f(i); return s; }
        int main(int argc, char **argv) {
          long k = argc;
          long f(long x) { k++; return k * x; }
          printf(\"%ld\\n\", apply(f, 1000));
          int order = -1;
          int compare(const void *a, const void *b) { return order * (*(int *)a - *(int *)b); }
          int v[] = {3, 1, 2};
          qsort(v, 3, sizeof *v, compare);
          printf(\"%d%d%d\\n\", v[0], v[1], v[2]);
          return 0; }";
    for level in ["-O0", "-O2"] {
        folder.compile("gcc", "nested.o", source, &[level]);
        for options in [&[][..], &["--eager"], &["--tiers", "2"]] {
            let args = [&["run"], options, &["nested.o"]].concat();
            let output = folder.uruk(&args);
            assert_eq!(
                said(&output),
                "333832500\n321\n",
                "{level} {options:?}: {output:?}"
            );
        }
    }
}

/// In strings, names and comments, LLVM takes any byte.
#[test]
fn ir_text_has_bytes_that_are_no_utf_8() {
    let folder = Folder::new("text");
    let text = b"; caf\xe9
        source_filename = \"caf\xe9.c\"
        @text = constant [6 x i8] c\"caf\xe9\\0A\\00\"
        @\"na\xefve\" = global i32 3
        declare i32 @puts(ptr)
        declare i64 @write(i32, ptr, i64)
        define i32 @main() {
          %n = call i64 @write(i32 1, ptr @text, i64 5)
          %v = load i32, ptr @\"na\xefve\"
          ret i32 %v
        }";
    std::fs::write(folder.0.join("t.ll"), text).unwrap();
    for options in [
        &[][..],
        &["--eager"],
        &["--tiers", "2"],
        &["--tiers", "1", "--baseline", "off"],
    ] {
        let args = [&["run"], options, &["t.ll"]].concat();
        let output = folder.uruk(&args);
        assert_eq!(output.stdout, b"caf\xe9\n", "{options:?}: {output:?}");
        assert_eq!(output.status.code(), Some(3));
    }
}

/// Variables that begin as zeros may be larger than what code reaches; of others as many as there is
/// no room for are refused with sizes.
#[test]
fn large_variables_lie_apart_or_are_refused_with_sizes() {
    let folder = Folder::new("room");
    let source = "#include <stdio.h>
        extern char of_another[]; extern char *inside;
        static char large[4L << 30]; static struct { long a; double b[3]; } many[100L << 20];
        static char *ends[] = { large, large + (3L << 30), &of_another[2500000000L] };
        int main(int count, char **words) {
            long last = (4L << 30) - count;
            large[last] = 5; *ends[1] = 6; many[count].b[2] = 7; *ends[2] = 8; *inside = 9;
            printf(\"%d %d %d %d %d %d\\n\", large[last], large[3L << 30], large[0],
                (int)many[1].b[2], of_another[2500000000L], of_another[count]);
            return ends[0] != large;
        }";
    folder.compile("clang-22", "p.bc", source, &["-O1", "-emit-llvm"]);
    let source = "char of_another[3L << 30]; char *inside = of_another + 1;";
    folder.compile("clang-22", "q.bc", source, &["-emit-llvm"]);
    for options in [
        &[][..],
        &["--eager"],
        &["--tiers", "2"],
        &["--tiers", "3"],
        &["--tiers", "1", "--baseline", "off"],
    ] {
        let args = [&["run"], options, &["p.bc", "q.bc"]].concat();
        let output = folder.uruk(&args);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "5 6 0 7 8 9\n", "{options:?}: {output:?}");
        assert_eq!(output.status.code(), Some(0));
    }
    let source = "__attribute__((section(\".bss.large\"))) char large[4L << 30];
        int main(int count, char **words) { large[count] = 5; return large[1]; }";
    folder.compile("clang-22", "r.bc", source, &["-emit-llvm"]);
    let output = folder.uruk(&["run", "r.bc"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("4294967296"), "{said}");
    assert!(said.contains("1.9 GB"), "{said}");
}
