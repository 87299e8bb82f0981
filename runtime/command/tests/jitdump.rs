//! `uruk run --jitdump`: the records that `perf inject --jit` reads.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = r#"
    define i32 @jitted(i32 %n) noinline !dbg !10 {
      %a = mul i32 %n, 7, !dbg !11
      %b = sdiv i32 %a, %n, !dbg !12
      ret i32 %b, !dbg !13
    }
    define void @plain() noinline { ret void }
    define i32 @main(i32 %argc) {
      %r = call i32 @jitted(i32 %argc)
      call void @plain()
      ret i32 %r
    }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "made_up.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !3 = !DISubroutineType(types: !{})
    !4 = !DIFile(filename: "part/of.h", directory: "/source")
    !10 = distinct !DISubprogram(name: "jitted", file: !1, line: 31, type: !3, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: 32, column: 3, scope: !10)
    !12 = !DILocation(line: 33, column: 3, scope: !14)
    !13 = !DILocation(line: 34, column: 3, scope: !10)
    !14 = !DILexicalBlockFile(scope: !10, file: !4, discriminator: 0)
"#;

/// A function of the dump: its name, its addresses, and (address, file, line) of its lines.
struct Loaded {
    name: String,
    start: u64,
    end: u64,
    lines: Vec<(u64, String, u32)>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn text_at(bytes: &[u8], at: usize) -> String {
    let end = bytes[at..].iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(bytes[at..at + end].to_vec()).unwrap()
}

/// The records of a dump (`jitdump-specification.txt`).
fn records(dump: &[u8]) -> Vec<&[u8]> {
    let mut at = u32_at(dump, 8) as usize;
    let mut records = Vec::new();
    while at < dump.len() {
        let record = &dump[at..at + u32_at(dump, at + 4) as usize];
        records.push(record);
        at += record.len();
    }
    records
}

/// Reads the functions of a dump, record by record.
fn read(dump: &[u8]) -> Vec<Loaded> {
    let (mut all, mut lines) = (Vec::new(), Vec::new());
    for record in records(dump) {
        match u32_at(record, 0) {
            0 => {
                let (start, size) = (u64_at(record, 32), u64_at(record, 40));
                all.push(Loaded {
                    name: text_at(record, 56),
                    start,
                    end: start + size,
                    lines: std::mem::take(&mut lines),
                });
            }
            2 => {
                let mut entry = 32;
                for _ in 0..u64_at(record, 24) {
                    let file = text_at(record, entry + 16);
                    let next = entry + 17 + file.len();
                    lines.push((u64_at(record, entry), file, u32_at(record, entry + 8)));
                    entry = next;
                }
                assert_eq!(entry, record.len());
            }
            _ => {}
        }
    }
    all
}

/// Many functions, each called once, with time between for code to be moved.
fn many(pause_us: u32) -> String {
    let mut text = String::from("declare i32 @usleep(i32)\n");
    let mut main = String::new();
    for i in 0..60 {
        let factor = 2 * i + 3;
        text += &format!(
            "define i32 @f{i}(i32 %x) noinline {{ %y = mul i32 %x, {factor} ret i32 %y }}\n"
        );
        main += &format!(
            "  %r{i} = call i32 @f{i}(i32 {i})\n  %w{i} = call i32 @usleep(i32 {pause_us})\n"
        );
    }
    text + &format!("define i32 @main() {{\n{main}  ret i32 0\n}}\n")
}

#[test]
fn a_dump_follows_code_that_moves() {
    // On a busy machine it takes longer until the code is moved.
    let moved = [2_000, 20_000, 200_000].into_iter().map(moves);
    let moved = moved.into_iter().find(|&moves| moves > 0);
    assert!(moved.is_some(), "nothing moves");
}

/// How often the code of [`many`] moved; checks that its dump knows where all of it is.
fn moves(pause_us: u32) -> u32 {
    let folder = std::env::temp_dir().join(format!("uruk-jitdump-move-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file: PathBuf = folder.join("program.ll");
    std::fs::write(&file, many(pause_us)).unwrap();
    let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
    let option = format!("--jitdump={}", folder.display());
    uruk.args(["run", "--tiers=churn", &option]);
    for setting in ["evacuate_every=8", "interval=0ns", "cpu_fraction=1"] {
        uruk.arg(format!("--set=reclaim.{setting}"));
    }
    let child = uruk.arg(&file).spawn().unwrap();
    let dump = folder.join(format!("jit-{}.dump", child.id()));
    let status = child.wait_with_output().unwrap().status;
    assert_eq!(status.code(), Some(0));
    let dump = std::fs::read(&dump).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    // By index: where the code is, and its size.
    let (mut places, mut moves) = (HashMap::new(), 0);
    for record in records(&dump) {
        match u32_at(record, 0) {
            0 => {
                let (start, size, index) =
                    (u64_at(record, 32), u64_at(record, 40), u64_at(record, 48));
                assert_eq!(places.insert(index, (start, size)), None);
            }
            1 => {
                let (old, new) = (u64_at(record, 32), u64_at(record, 40));
                let (size, index) = (u64_at(record, 48), u64_at(record, 56));
                assert_eq!(u64_at(record, 24), new);
                assert_eq!(places.insert(index, (new, size)), Some((old, size)));
                moves += 1;
            }
            _ => {}
        }
    }
    assert!(places.len() > 60, "{} loads", places.len());
    moves
}

#[test]
fn a_dump_has_lines() {
    for tier in ["1", "2", "3"] {
        let folder = format!("uruk-jitdump-{tier}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let file: PathBuf = folder.join("program.ll");
        std::fs::write(&file, SOURCE).unwrap();
        let mut uruk = Command::new(env!("CARGO_BIN_EXE_uruk"));
        let option = format!("--jitdump={}", folder.display());
        uruk.args(["run", "--tiers", tier, &option]).arg(&file);
        let child = uruk.spawn().unwrap();
        let dump = folder.join(format!("jit-{}.dump", child.id()));
        let status = child.wait_with_output().unwrap().status;
        assert_eq!(status.code(), Some(7));
        let functions = read(&std::fs::read(&dump).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();

        let find = |name: &str| {
            let name = format!("{name} [tier {tier}]");
            functions.iter().find(|function| function.name == name)
        };
        let jitted = find("jitted").expect("the function");
        let inside = |address| (jitted.start..jitted.end).contains(&address);
        assert!(jitted.lines.iter().all(|line| inside(line.0)));
        assert!(jitted.lines.is_sorted_by_key(|line| line.0));
        let has = |file: &str, number| {
            let mut lines = jitted.lines.iter();
            lines.any(|line| line.1 == file && line.2 == number)
        };
        assert!(has("/source/made_up.c", 32), "tier {tier}");
        assert!(has("/source/part/of.h", 33), "tier {tier}");
        assert!(has("/source/made_up.c", 34), "tier {tier}");
        // Above tier 1 it is not called.
        let plain = find("plain");
        assert!(plain.is_some() || tier != "1");
        assert!(plain.is_none_or(|function| function.lines.is_empty()));
    }
}
