//! `uruk run` with archives, shared libraries, `-L` and `-l`, as a linker has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("uruk-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    /// What clang makes of a C source with these options.
    fn compile(&self, to: &str, source: &str, options: &[&str]) -> PathBuf {
        let c = self.0.join(format!("{to}.c"));
        std::fs::write(&c, source).unwrap();
        let file = self.0.join(to);
        let mut clang = Command::new("clang-22");
        clang.args(["-O1", "-fPIC"]).args(options);
        assert!(
            clang
                .arg(&c)
                .arg("-o")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        file
    }

    fn archive(&self, to: &str, members: &[&Path]) -> PathBuf {
        let file = self.0.join(to);
        let mut ar = Command::new("llvm-ar-22");
        assert!(
            ar.arg("rcs")
                .arg(&file)
                .args(members)
                .status()
                .unwrap()
                .success()
        );
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Folder, args: &[&str]) -> Output {
    let uruk = env!("CARGO_BIN_EXE_uruk");
    let output = Command::new(uruk)
        .arg("run")
        .args(args)
        .current_dir(&folder.0)
        .output();
    output.unwrap()
}

const BITCODE: [&str; 2] = ["-c", "-emit-llvm"];

#[test]
fn a_program_gets_the_members_it_needs() {
    let folder = Folder::new("archive");
    folder.compile(
        "main.bc",
        "#include <stdio.h>
         extern int one(void);
         int main(void) { printf(\"main %d\\n\", one()); return 0; }",
        &BITCODE,
    );
    // One needs two, which is an object; three is not needed, and could not be linked.
    let one = folder.compile(
        "one.bc",
        "#include <stdio.h>
         extern int two(void);
         __attribute__((constructor)) static void start(void) { puts(\"constructor\"); }
         int one(void) { return two() - 1; }",
        &BITCODE,
    );
    let two = folder.compile("two.o", "int two(void) { return 2; }", &["-c"]);
    let three = folder.compile(
        "three.o",
        "extern int nowhere; int three(void) { return nowhere; }",
        &["-c"],
    );
    folder.archive("libparts.a", &[&three, &two, &one]);
    for args in [
        &["main.bc", "libparts.a"][..],
        &["libparts.a", "main.bc"],
        &["-L", ".", "-l", "parts", "main.bc"],
        &["-L.", "-l:libparts.a", "-lm", "-lc", "main.bc"],
        &["--eager", "-L.", "-lparts", "main.bc"],
    ] {
        let output = run(&folder, args);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "constructor\nmain 1\n", "{args:?}: {output:?}");
    }
    let output = run(&folder, &["main.bc"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("`one`"), "{said}");
}

#[test]
fn a_program_gets_shared_libraries_by_path_and_by_name() {
    let folder = Folder::new("shared");
    folder.compile(
        "main.bc",
        "extern int one(void); int main(void) { return one() - 1; }",
        &BITCODE,
    );
    folder.compile("libone.so", "int one(void) { return 1; }", &["-shared"]);
    // A linker's script names the library; it comes before an archive.
    let script = format!(
        "/* GNU ld */ GROUP ( {} )",
        folder.0.join("libone.so").display()
    );
    std::fs::write(folder.0.join("libscript.so"), script).unwrap();
    std::fs::write(folder.0.join("libscript.a"), "!<arch>\nno archive").unwrap();
    for args in [
        &["main.bc", "libone.so"][..],
        &["-L.", "-lone", "main.bc"],
        &["-L", ".", "-lscript", "main.bc"],
    ] {
        let output = run(&folder, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let output = run(&folder, &["-lnowhere-to-be-found", "main.bc"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("libnowhere-to-be-found.so"), "{said}");
}
