//! Modules read one after the other at shared desks. Their code does not depend on modules read
//! before, on whether they stayed open, or on whether they came as text.

mod support;

use std::sync::Arc;

use support::id;
use uruk_codegen::plan::plan_alone;
use uruk_codegen::{
    Bitcode, CodegenError, Compile, FactStore, Knowledge, Reader, ReaderPool, ReadingRoom,
    SymbolId, Tier,
};

/// A module with a struct that others name, too, if `named`; data, calls, an alias and a group.
fn text(number: usize, named: bool) -> String {
    let fields = ["i32, i64", "ptr, i8, i8", "double"][number % 3];
    let (definition, pair) = match named {
        true => (format!("%pair = type {{ {fields} }}"), "%pair".to_owned()),
        false => (String::new(), format!("{{ {fields} }}")),
    };
    format!(
        "{definition}
         $grouped = comdat any
         @data = global {pair} zeroinitializer
         @table = internal constant [2 x i64] [i64 {number}, i64 7]
         @other = alias i64 (i64), ptr @f
         declare i64 @outside(i64)
         define internal i64 @small(i64 %x) {{ %y = mul i64 %x, {number} ret i64 %y }}
         define linkonce_odr i64 @grouped(i64 %x) comdat {{ %y = xor i64 %x, 3 ret i64 %y }}
         define i64 @f(i64 %x) {{
           %at = getelementptr [2 x i64], ptr @table, i64 0, i64 %x
           %a = load i64, ptr %at
           %b = call i64 @small(i64 %a)
           %c = call i64 @grouped(i64 %b)
           %d = call i64 @outside(i64 %c)
           store i64 %d, ptr @data
           ret i64 %d }}"
    )
}

/// All code of a module: its data, and its functions at all tiers.
fn compiled(reader: &mut Reader) -> Vec<Vec<u8>> {
    let plan = plan_alone(reader.summary());
    let mut objects = vec![reader.compile_data(&plan).expect("compiles").expect("data")];
    for name in ["f", "small", "grouped"] {
        for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
            let facts = Knowledge::Inferred(Arc::new(FactStore::new()));
            let how = Compile::at(tier).knowing(facts);
            let made = reader.compile(&plan, id(reader, name), &how);
            objects.push(made.expect("compiles").object);
        }
    }
    objects
}

fn alone(text: &str) -> Reader {
    Reader::new(&Bitcode::from_ir_text("m", text).expect("valid")).expect("readable")
}

#[test]
fn a_module_that_is_read_again_gives_the_same_code() {
    let room = ReadingRoom::new();
    let texts: Vec<String> = (0..24).map(|n| text(n, n % 2 == 0)).collect();
    let pools: Vec<ReaderPool> = (texts.iter().enumerate())
        .map(|(number, text)| match number % 4 {
            0 | 1 => ReaderPool::from_ir_text("m", text, 2, &room).expect("valid"),
            _ => {
                let bitcode = Bitcode::from_ir_text("m", text).expect("valid");
                ReaderPool::new(bitcode, 2, &room).expect("readable")
            }
        })
        .collect();
    for (pool, text) in pools.iter().zip(&texts) {
        let mut expected = alone(text);
        assert_eq!(
            format!("{:?}", pool.summary()),
            format!("{:?}", expected.summary())
        );
        let expected = compiled(&mut expected);
        // It is not open any more: others were read since.
        let first = compiled(&mut pool.reader().expect("readable"));
        let again = compiled(&mut pool.reader().expect("readable"));
        // Two at once, one of which finds it open.
        let mut two = [0; 2].map(|_| pool.reader().expect("readable"));
        let both = two.each_mut().map(|reader| compiled(reader));
        for (which, found) in [&first, &again, &both[0], &both[1]].into_iter().enumerate() {
            assert!(*found == expected, "{which} of {text}");
        }
    }
}

#[test]
fn what_is_compared_between_modules_names_structs_as_their_files_do() {
    let room = ReadingRoom::new();
    let text = "%handle = type opaque
        %pair = type { i32, i64 }
        @global = global %pair zeroinitializer
        @pointers = global [2 x %pair] [%pair { i32 1, i64 2 }, %pair zeroinitializer]
        define void @f(ptr byval(%pair) %x) { ret void }
        define %pair @g(%pair %x) { ret %pair %x }";
    let pools: Vec<ReaderPool> = (0..20)
        .map(|n| match n % 2 {
            0 => ReaderPool::from_ir_text("m", text, 2, &room).expect("valid"),
            _ => {
                let bitcode = Bitcode::from_ir_text("m", text).expect("valid");
                ReaderPool::new(bitcode, 2, &room).expect("readable")
            }
        })
        .collect();
    let said = |reader: &Reader| {
        let [f, g] = ["f", "g"].map(|name| reader.signature(id(reader, name)));
        let data = ["global", "pointers"].map(|name| {
            let symbol = id(reader, name);
            (reader.layout(symbol), reader.initializer(symbol))
        });
        format!("{f} {g} {data:?} {:?}", reader.types())
    };
    let expected = said(&alone(text));
    assert!(expected.contains("%pair") && !expected.contains("%pair."));
    for pool in &pools {
        let _ = pool.reader().expect("readable");
        assert_eq!(said(&pool.faithful().expect("readable")), expected);
    }
}

#[test]
fn an_error_is_told_when_it_would_be_of_bitcode() {
    let room = ReadingRoom::new();
    let pool = |text: &str| ReaderPool::from_ir_text("m", text, 1, &room);
    let syntax = pool("define i32 @f() { ret }").err();
    assert!(matches!(syntax, Some(CodegenError::Syntax { .. })));
    let machine = pool("target triple = \"aarch64-linux-gnu\"").err();
    assert!(matches!(machine, Some(CodegenError::Target { .. })));
    // Only the verifier finds this error: it is reported when the function is compiled.
    let invalid = pool(
        "define i32 @bad(i1 %c) { br i1 %c, label %a, label %b
           a: %x = add i32 1, 2 br label %b
           b: ret i32 %x }
         define i32 @good() { ret i32 1 }",
    )
    .expect("readable");
    let plan = plan_alone(invalid.summary());
    for (index, fails) in [(0, true), (1, false), (0, true)] {
        let mut reader = invalid.reader().expect("readable");
        let made = reader.compile_function(&plan, SymbolId(index));
        assert_eq!(made.is_err(), fails, "{made:?}");
    }
}

#[test]
fn a_reader_of_a_large_module_goes_when_others_are_used() {
    let room = ReadingRoom::new();
    let large = |number: usize| {
        let bytes = format!("c\"{}\"", "x".repeat(40 << 10));
        let text = format!(
            "@data = constant [40960 x i8] {bytes}
             define i64 @f() {{ ret i64 {number} }}"
        );
        let bitcode = Bitcode::from_ir_text("m", &text).expect("valid");
        ReaderPool::new(bitcode, 1, &room).expect("readable")
    };
    // More than the limit; each has one reader at most, which is kept or made again.
    let pools: Vec<ReaderPool> = (0..120).map(large).collect();
    for pool in pools.iter().chain(&pools) {
        let mut reader = pool.reader().expect("readable");
        let plan = plan_alone(reader.summary());
        let function = id(&reader, "f");
        reader.compile_function(&plan, function).expect("compiles");
    }
}
