//! Data that is laid out without LLVM against LLVM's object file: the same symbols, bytes,
//! references and places.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile64, Sym};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, elf,
};
use uruk_lower::data::{Data, Form, Holds, Place};

use crate::bitcode::Bitcode;
use crate::numbered::damage::damaged;
use crate::numbered::{Numbered, summaries};
use crate::plan::plan_alone;
use crate::reader::Reader;

/// One symbol, from either source.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    section: String,
    kind: &'static str,
    weak: bool,
    size: u64,
    /// Its place in its section, if all agree on the other contents.
    at: u64,
    bytes: Vec<u8>,
    /// Offset, kind, symbol, addend.
    fields: Vec<(u64, u32, String, i64)>,
}

type All = BTreeMap<String, Told>;

/// Names of mergeable sections of constants count as `.rodata`.
fn plain_name(name: &str) -> String {
    match name.strip_prefix(".rodata.") {
        Some(rest) if rest.starts_with("cst") || rest.starts_with("str") => ".rodata".into(),
        _ => name.into(),
    }
}

fn of_object(bytes: &[u8]) -> (All, Vec<(String, u64)>) {
    let file = ElfFile64::<LittleEndian>::parse(bytes).expect("an object");
    let mut all = All::new();
    for symbol in file.symbols() {
        let name = symbol.name().expect("text").to_owned();
        if name.is_empty() || symbol.is_local() || symbol.is_undefined() {
            continue;
        }
        let mut told = Told {
            section: String::from("common"),
            kind: "common",
            weak: symbol.is_weak(),
            size: symbol.size(),
            // For a tentative one, the alignment.
            at: symbol.elf_symbol().st_value(LittleEndian),
            bytes: Vec::new(),
            fields: Vec::new(),
        };
        if let Some(index) = symbol.section_index() {
            let section = file.section_by_index(index).expect("one");
            told.section = plain_name(section.name().expect("text"));
            told.kind = match section.kind() {
                SectionKind::Data if told.section == ".data.rel.ro" => "addresses",
                // Arrays of functions are a kind of their own.
                SectionKind::Data | SectionKind::Unknown => "variables",
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => "constants",
                SectionKind::UninitializedData => "zeros",
                SectionKind::Tls => "thread",
                SectionKind::UninitializedTls => "thread zeros",
                other => panic!("{name} is in {other:?}"),
            };
            let range = told.at..told.at + told.size;
            let data = section.data().expect("its bytes");
            let data = data.get(range.start as usize..range.end as usize);
            told.bytes = data.map_or(Vec::new(), <[u8]>::to_vec);
            for (at, relocation) in section.relocations() {
                if !range.contains(&at) {
                    continue;
                }
                let RelocationTarget::Symbol(target) = relocation.target() else {
                    panic!("{name} refers to no symbol");
                };
                let target = file.symbol_by_index(target).expect("one");
                let object::RelocationFlags::Elf { r_type } = relocation.flags() else {
                    panic!("ELF");
                };
                let to = target.name().expect("text").to_owned();
                let field = (at - range.start, r_type.0, to, relocation.addend());
                told.fields.push(field);
            }
        }
        all.insert(name, told);
    }
    let sections = file.sections();
    let aligns = sections.filter(|it| it.size() != 0);
    let aligns = aligns.map(|it| (plain_name(it.name().expect("text")), it.align()));
    (all, aligns.collect())
}

fn of_data(data: &Data) -> All {
    let mut all = All::new();
    for symbol in &data.symbols {
        let mut told = Told {
            section: String::from("common"),
            kind: "common",
            weak: symbol.is_weak,
            size: symbol.size,
            at: 0,
            bytes: Vec::new(),
            fields: Vec::new(),
        };
        match symbol.place {
            Place::Outside => continue,
            Place::Common(align) => told.at = align,
            Place::In(index, at) => {
                let section = &data.sections[index as usize];
                told.section = section.name.to_string();
                told.kind = match section.holds {
                    Holds::Variables => "variables",
                    Holds::Constants => "constants",
                    Holds::Addresses => "addresses",
                    Holds::Zeros => "zeros",
                    Holds::ThreadLocals => "thread",
                    Holds::ThreadLocalZeros => "thread zeros",
                };
                told.at = at;
                let range = at as usize..(at + symbol.size) as usize;
                told.bytes = section.bytes.get(range).map_or(Vec::new(), <[u8]>::to_vec);
                for field in &section.fields {
                    if !(at..at + symbol.size).contains(&field.at) {
                        continue;
                    }
                    let kind = match field.form {
                        Form::Address => elf::R_X86_64_64,
                        Form::Distance => elf::R_X86_64_PC32,
                        Form::LongDistance => elf::R_X86_64_PC64,
                    };
                    let to = data.symbols[field.symbol as usize].name.to_string();
                    told.fields.push((field.at - at, kind.0, to, field.addend));
                }
            }
        }
        all.insert(symbol.name.to_string(), told);
    }
    all
}

/// Compares the data of a module; returns how many symbols it has, or why LLVM has to compile it.
fn compare(bitcode: &Bitcode) -> Result<usize, String> {
    let name = bitcode.name();
    let mut reader = Reader::new(bitcode).expect("valid");
    let plan = plan_alone(reader.summary());
    let numbered = Numbered::read(bitcode, reader.summary()).expect("read here, too");
    let ours = numbered
        .data(&plan)
        .map_err(|refused| refused.to_string())?;
    let theirs = reader.compile_data(&plan).expect("compiles");
    let (theirs, aligns) = theirs.as_deref().map(of_object).unwrap_or_default();
    let data = ours.unwrap_or_default();
    let ours = of_data(&data);
    let names = |all: &All| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs), "{name}");
    let mut split: Vec<&str> = Vec::new();
    for (at, (section, _)) in aligns.iter().enumerate() {
        if aligns[..at].iter().any(|(other, _)| other == section) {
            split.push(section);
        }
    }
    for (key, mut ours) in ours.into_iter() {
        let theirs = &theirs[&key];
        // If constants may be merged, LLVM has several sections of one name.
        if split.contains(&&*ours.section) || ours.kind == "constants" {
            ours.at = theirs.at;
        }
        // In a named section, constants with addresses are in a writable one.
        if ours.kind == "addresses" && ours.section != ".data.rel.ro" {
            ours.kind = "variables";
        }
        assert_eq!(&ours, theirs, "{name}: {key}");
    }
    for section in &data.sections {
        let align = aligns.iter().filter(|(name, _)| **name == *section.name);
        let align = align.map(|&(_, align)| align).max().unwrap_or(1);
        // The table of bounds has no symbol that counts; LLVM's is aligned likewise.
        let least = if section.size == 0 { 1 } else { align };
        assert_eq!(
            section.align.max(1),
            least.max(1),
            "{name}: {}",
            section.name
        );
    }
    Ok(data.symbols.len())
}

const TEXT: &str = r#"
    %mixed = type { i8, i32, [3 x i16], double, ptr }
    %packed = type <{ i8, i64, i8 }>
    @one = global i32 1
    @byte = global i8 -1, align 8
    @zero = global i64 0
    @zeros = global [100 x i8] zeroinitializer
    @parts = internal global { i32, [2 x ptr], float } { i32 0, [2 x ptr] zeroinitializer, float 0.0 }
    @nothing = global {} zeroinitializer
    @unknown = global i64 undef
    @half.known = global { i32, i32 } { i32 undef, i32 7 }
    @odd = global i24 -2
    @bit = global i1 true
    @wide = global i128 -170141183460469231731687303715884105728
    @wider = global i200 -5
    @floats = constant { half, bfloat, float, double, x86_fp80, fp128 }
        { half 0xH3C00, bfloat 0xR3F80, float 1.5, double -0.0, x86_fp80 0xK3FFF8000000000000000,
          fp128 0xL00000000000000003FFF000000000000 }
    @halves = constant [3 x half] [half 0xH3C00, half 0xH4000, half 0xH0000]
    @vector = global <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>
    @three = global <3 x i32> <i32 1, i32 2, i32 3>
    @vectors = global <2 x ptr> <ptr @one, ptr null>
    @text = private unnamed_addr constant [6 x i8] c"hello\00"
    @four = internal unnamed_addr constant i32 4
    @eight = internal unnamed_addr constant [2 x i32] [i32 1, i32 2]
    @sixteen = internal unnamed_addr constant [16 x i8] c"0123456789abcdef", align 16
    @mixed = global %mixed { i8 1, i32 2, [3 x i16] [i16 3, i16 4, i16 5], double 1.0, ptr @one }
    @packed = global %packed <{ i8 1, i64 2, i8 3 }>
    @packeds = constant [2 x %packed] [%packed <{ i8 1, i64 2, i8 3 }>, %packed zeroinitializer]
    @large = global [64 x i8] c"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    @large.constant = constant [20 x i32] [i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1,
        i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1, i32 1], align 4
    @large.zero = internal global [1000 x i8] zeroinitializer, align 1
    @to.function = global ptr @f
    @to.outside = constant ptr @there
    @to.weak = constant ptr @maybe
    @to.inside = constant [3 x ptr] [ptr getelementptr (i8, ptr @large, i64 5),
        ptr getelementptr inbounds (%mixed, ptr @mixed, i64 1, i32 2, i64 1),
        ptr getelementptr ([64 x i8], ptr @large, i64 0, i64 -3)]
    @as.number = global i64 ptrtoint (ptr @one to i64)
    @as.sum = global i64 add (i64 ptrtoint (ptr @one to i64), i64 12)
    @as.address = global ptr inttoptr (i64 4096 to ptr)
    @relative = private constant [2 x i32] [
        i32 trunc (i64 sub (i64 ptrtoint (ptr @f to i64), i64 ptrtoint (ptr @relative to i64)) to i32),
        i32 trunc (i64 sub (i64 ptrtoint (ptr @there to i64),
            i64 ptrtoint (ptr getelementptr inbounds ([2 x i32], ptr @relative, i32 0, i32 1) to i64)) to i32)]
    @distance = constant i64 sub (i64 ptrtoint (ptr @f to i64), i64 ptrtoint (ptr @distance to i64))
    @weak = weak global i32 3
    @inline = linkonce_odr constant i32 5
    @tentative = common global [7 x i32] zeroinitializer
    @tentative.aligned = common global i32 0, align 32
    @tentative.none = common global {} zeroinitializer
    @thread = thread_local global i32 7
    @thread.zero = thread_local(localexec) global [9 x i8] zeroinitializer
    @thread.constant = thread_local constant i32 0
    @there = external global i32
    @maybe = extern_weak global i32
    @named = global i32 6, section "mine"
    @named.too = global i8 0, section "mine", align 1
    @named.last = global i8 7, section "mine"
    @named.constant = constant i32 6, section "constants"
    @named.address = constant ptr @one, section "addresses"
    @named.data = global i32 6, section ".data.hot"
    @starts = global ptr @__start_mine
    @__start_mine = external global i8
    @__stop_constants = external hidden global i8
    @second = alias i32, ptr @one
    @inside = weak alias i8, getelementptr (i8, ptr @large, i64 7)
    @of.alias = alias i8, getelementptr (i8, ptr @inside, i64 1)
    @to.alias = global ptr @inside
    @of.function = alias void (), ptr @f
    @to.function.alias = global ptr @of.function
    @of.thread = thread_local alias i32, ptr @thread
    define void @f() { ret void }
"#;

fn bitcode(text: &str) -> Bitcode {
    Bitcode::from_ir_text("m", text).expect("valid")
}

#[test]
fn data_is_as_llvm_lays_it_out() {
    let symbols = compare(&bitcode(TEXT));
    assert!(symbols.clone().is_ok_and(|it| it > 60), "{symbols:?}");
}

#[test]
fn what_is_not_known_is_left_to_llvm() {
    let refused = [
        "@s = global i32 1, section \".init_array.x\" module asm \"nop\"",
        "@t = thread_local global i32 1 @a = global ptr @t",
        "@v = global <8 x i1> <i1 1, i1 0, i1 0, i1 0, i1 0, i1 0, i1 0, i1 0>",
        "@v = global i32 ptrtoint (ptr @v to i32)",
        "@a = global i32 1 @d = constant i64 sub (i64 ptrtoint (ptr @f to i64), i64 ptrtoint (ptr @a to i64)) define void @f() { ret void }",
        "define void @f() prefix i32 1 { ret void }",
        "@a = global i32 1, section \"s\" @b = constant i32 1, section \"s\"",
    ];
    for text in refused {
        let bitcode = bitcode(text);
        let reader = Reader::new(&bitcode).expect("valid");
        let plan = plan_alone(reader.summary());
        let numbered = Numbered::read(&bitcode, reader.summary()).expect("read here, too");
        assert!(numbered.data(&plan).is_err(), "{text}");
    }
}

/// Runs on the files that `URUK_BITCODE` names, with spaces between them.
#[test]
#[ignore = "files are to be named"]
fn data_of_files_is_as_llvm_lays_it_out() {
    let files = std::env::var("URUK_BITCODE").expect("names of files");
    let (mut symbols, mut refused) = (0, BTreeMap::<String, u32>::new());
    for file in files.split_whitespace() {
        let bytes = std::fs::read(file).expect("readable");
        match compare(&Bitcode::new(file, bytes)) {
            Ok(count) => symbols += count,
            Err(cause) => {
                println!("{file}: {cause}");
                *refused.entry(cause).or_default() += 1;
            }
        }
    }
    println!("{symbols} symbols; {refused:#?}");
}

/// Damaged bitcode is laid out or refused.
#[test]
fn damage_never_panics() {
    let mut whole = 0;
    for text in [TEXT, summaries::TEXT] {
        let good = bitcode(text);
        for bytes in damaged(good.bytes(), 0x6a09_e667_f3bc_c908, 3000) {
            let Some(numbered) = Numbered::alone(&Bitcode::new("m", bytes)) else {
                continue;
            };
            let plan = plan_alone(numbered.summary());
            whole += u32::from(numbered.data(&plan).is_ok());
        }
    }
    assert!(whole > 1000, "{whole}");
}
