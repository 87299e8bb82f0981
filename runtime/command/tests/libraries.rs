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

/// Thin archives name files, from their own folder on. `ar` takes the members of an archive in one
/// apart.
#[test]
fn members_of_thin_archives_are_read_where_they_are() {
    let folder = Folder::new("thin");
    std::fs::create_dir_all(folder.0.join("parts/deep")).unwrap();
    folder.compile(
        "main.bc",
        "extern int one(void), two(void), odd(void);
         int main(void) { return one() * 100 + two() * 10 + odd(); }",
        &BITCODE,
    );
    let two = "extern int one(void); int two(void) { return one() + 1; }";
    folder.compile("parts/one.bc", "int one(void) { return 1; }", &BITCODE);
    folder.compile("parts/deep/two.o", two, &["-c"]);
    folder.compile("parts/deep/odd.o", "int odd(void) { return 3; }", &["-c"]);
    let make = |tool: &str, words: &[&str]| {
        let mut command = Command::new(tool);
        let made = command.args(words).current_dir(&folder.0).status();
        made.is_ok_and(|status| status.success())
    };
    let members = ["parts/one.bc", "parts/deep/two.o", "parts/deep/odd.o"];
    let words = [&["rcsT", "parts/thin.a"], &members[..]].concat();
    assert!(make("llvm-ar-22", &words));
    let check = |archive: &str| {
        for args in [
            &["main.bc", archive][..],
            &["--eager", "main.bc", archive],
            &[
                "-Lparts",
                &format!("-l:{}", &archive["parts/".len()..]),
                "main.bc",
            ],
        ] {
            let output = run(&folder, args);
            assert_eq!(output.status.code(), Some(123), "{args:?}: {output:?}");
        }
    };
    check("parts/thin.a");
    // An archive in it, which is not thin.
    let inner = [
        "rcs",
        "parts/inner.a",
        "parts/deep/two.o",
        "parts/deep/odd.o",
    ];
    assert!(make("ar", &inner), "binutils");
    // Only LLVM's tool knows bitcode; this one asks for an object.
    folder.compile("parts/one.o", "int one(void) { return 1; }", &["-c"]);
    assert!(make(
        "ar",
        &["rcsT", "parts/nested.a", "parts/inner.a", "parts/one.o"]
    ));
    check("parts/nested.a");
    // What is named is not there any more, or is another file.
    std::fs::write(folder.0.join("parts/inner.a"), "!<arch>\n").unwrap();
    std::fs::remove_file(folder.0.join("parts/one.bc")).unwrap();
    for (archive, part) in [("parts/thin.a", "one.bc"), ("parts/nested.a", "inner.a")] {
        let output = run(&folder, &["main.bc", archive]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part), "{said}");
    }
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
