//! Tests of line tables of C compilers, and of damaged ones.

use std::path::Path;
use std::process::Command;

use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use uruk_tools::{Lines, symfile};

const SOURCE: &str = "int other(int x) {\n  return x;\n}\nint wanted(int x) {\n  x *= 3;\n\
                      #include \"part.h\"\n  return x;\n}\n";
const PART: &str = "\nx += 1;\n";
const ENTRY: u64 = 0x5000_0000_1000;

/// The object of the source, compiled with options.
fn compile(name: &str, options: &[&str]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("lines.c"), SOURCE).unwrap();
    std::fs::write(folder.join("part.h"), PART).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(options)
        .args(["-c", "lines.c", "-o", "lines.o"]);
    let compiled = compiler.current_dir(&folder).status();
    assert!(compiled.unwrap().success());
    std::fs::read(folder.join("lines.o")).unwrap()
}

#[test]
fn lines_are_those_of_the_source() {
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        for sections in ["-fno-function-sections", "-ffunction-sections"] {
            let object = compile("good", &[version, sections, "-O0"]);
            let lines = Lines::of_object(&object, "wanted", ENTRY, 1000).unwrap();
            let lines = lines.lines();
            assert_eq!(lines[0].address, ENTRY);
            let found: Vec<(&str, u32)> = lines
                .iter()
                .map(|line| (line.file.rsplit('/').next().unwrap(), line.line))
                .collect();
            let expected = [
                ("lines.c", 4),
                ("lines.c", 5),
                ("part.h", 2),
                ("lines.c", 7),
            ];
            let mut distinct = found.clone();
            distinct.dedup();
            assert_eq!(distinct[..4], expected, "{version} {sections}");
            assert!(lines.iter().all(|line| Path::new(line.file).is_absolute()));
            assert!(lines.is_sorted_by_key(|line| line.address));
        }
    }
}

#[test]
fn what_has_no_lines_has_none() {
    let object = compile("none", &["-g0"]);
    let none = Lines::of_object(&object, "wanted", ENTRY, 1000).unwrap();
    assert!(none.lines().is_empty());
    let object = compile("some", &["-g"]);
    let none = Lines::of_object(&object, "absent", ENTRY, 1000).unwrap();
    assert!(none.lines().is_empty());
    assert!(Lines::of_object(b"no object", "wanted", ENTRY, 1000).is_err());
}

#[test]
fn damage_is_an_error_or_other_lines() {
    let object = compile("damaged", &["-gdwarf-5"]);
    for at in 0..object.len() {
        let mut damaged = object.clone();
        damaged[at] ^= 0x55;
        if let Ok(lines) = Lines::of_object(&damaged, "wanted", ENTRY, 1000) {
            let range = ENTRY..ENTRY + 1000;
            assert!(
                lines
                    .lines()
                    .iter()
                    .all(|line| range.contains(&line.address))
            );
        }
        let _ = Lines::of_object(&object[..at], "wanted", ENTRY, 1000);
    }
}

/// A data section in a group, as C++ compilers emit for exceptions.
const GROUPED: &str = "asm(\".pushsection .data.part,\\\"awG\\\",@progbits,part,comdat\\n\"
                       \".quad wanted\\n.popsection\");
                       int wanted(int x) { return x + 1; }";

#[test]
fn debuggers_get_no_groups() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("groups");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("grouped.c"), GROUPED).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-c", "grouped.c", "-o", "grouped.o"]);
    assert!(compiler.current_dir(&folder).status().unwrap().success());
    let object = std::fs::read(folder.join("grouped.o")).unwrap();
    let groups = |bytes: &[u8]| {
        let header = elf::FileHeader64::<object::LittleEndian>::parse(bytes).unwrap();
        let sections = header.sections(object::LittleEndian, bytes).unwrap();
        let grouped = sections.iter().filter(|section| {
            let flags = section.sh_flags(object::LittleEndian) & elf::SHF_GROUP;
            section.sh_type(object::LittleEndian) == elf::SHT_GROUP
                || flags != elf::SectionFlags::default()
        });
        grouped.count()
    };
    assert!(groups(&object) >= 2, "the group, and its section");
    let told = symfile::of_debug_info(&object, "wanted", ENTRY).unwrap();
    assert_eq!(groups(&told.expect("debug information")), 0);
}
