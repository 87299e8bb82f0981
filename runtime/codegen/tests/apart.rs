//! Constants with sections of their own, and constants that stay beside the code.

mod support;

use object::{Object, ObjectSection};
use support::{id, plan, reader};
use uruk_codegen::{APART, Compile, Tier, is_shared, stays_with_code};

/// The sections of constants of a function, but for unwind records.
fn constants(ir: &str, function: &str, tier: Tier) -> Vec<(String, Vec<u8>)> {
    let mut reader = reader(ir);
    let (plan, function) = (plan(&reader), id(&reader, function));
    let how = Compile::at(tier);
    let compiled = reader.compile(&plan, function, &how).expect("compiles");
    let file = object::File::parse(&*compiled.object).expect("an object");
    let sections = file.sections().filter_map(|section| {
        let name = section.name().expect("a name").to_owned();
        let constant = name.starts_with(".rodata") || name.starts_with(".data");
        constant.then(|| (name, section.data().expect("bytes").to_vec()))
    });
    sections.collect()
}

const LINE: &str = "
    @line = private unnamed_addr constant [6 x i8] c\"line\\0A\\00\", align 1
    declare i32 @printf(ptr, ...)
    define void @f() {
      %n = call i32 (ptr, ...) @printf(ptr @line)
      ret void
    }";

#[test]
fn a_string_that_was_made_is_apart() {
    assert_eq!(constants(LINE, "f", Tier::Baseline), []);
    for tier in [Tier::Optimized, Tier::Guided] {
        let found = constants(LINE, "f", tier);
        let [(name, bytes)] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(name.starts_with(APART) && is_shared(name), "{name}");
        assert_eq!(bytes, b"line\0");
    }
}

/// A switch of numbers: its table is LLVM's own and apart, though only a load sees it.
#[test]
fn a_table_of_a_switch_is_apart_and_literals_are_not() {
    let cases: String = (0..9).map(|i| format!("i32 {i}, label %c{i}\n")).collect();
    let blocks: String = (0..9).map(|i| format!("c{i}: br label %end\n")).collect();
    let values: Vec<String> = (0..9i32)
        .map(|i| format!("[ {}.25, %c{i} ]", i * i * 7 % 11))
        .collect();
    let ir = format!(
        "define double @f(i32 %i) {{
         entry:
           switch i32 %i, label %other [ {cases} ]
         {blocks}
         other: br label %end
         end:
           %v = phi double {}, [ 0.5, %other ]
           %w = fmul double %v, 3.75
           ret double %w
         }}",
        values.join(", ")
    );
    let found = constants(&ir, "f", Tier::Optimized);
    let (apart, inside): (Vec<_>, Vec<_>) =
        found.iter().partition(|(name, _)| name.starts_with(APART));
    assert_eq!(apart.len(), 1, "{found:?}");
    assert!(
        !inside.is_empty() && inside.iter().all(|(name, _)| stays_with_code(name, false)),
        "{found:?}"
    );
}

/// A table of labels moves with the code it leads to.
#[test]
fn tables_of_labels_stay() {
    let ir = "
        @table = private constant [2 x ptr] [ptr blockaddress(@f, %a), ptr blockaddress(@f, %b)]
        define i32 @f(i64 %i) {
        entry:
          %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
          %l = load ptr, ptr %p
          indirectbr ptr %l, [label %a, label %b]
        a:
          ret i32 1
        b:
          ret i32 2
        }";
    for tier in [Tier::Baseline, Tier::Optimized] {
        let found = constants(ir, "f", tier);
        let apart = found.iter().any(|(name, _)| name.starts_with(APART));
        assert!(!apart && !found.is_empty(), "{tier:?}: {found:?}");
    }
}
