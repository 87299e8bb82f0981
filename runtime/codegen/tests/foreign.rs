//! Bodies that travel between modules: inlining, and the meaning of their names there.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{
    Access, Compile, Compiled, DependenceKind, ModulePlan, Offer, Parcel, Reader, SymbolId, Tier,
};

fn parcel_as(reader: &mut Reader, plan: &ModulePlan, name: &str) -> Option<Parcel> {
    let function = id(reader, name);
    let made = reader.parcel(plan, function, &Compile::at(Tier::Optimized));
    made.expect("readable")
}

fn parcel(reader: &mut Reader, name: &str) -> Option<Parcel> {
    let plan = plan(reader);
    parcel_as(reader, &plan, name)
}

/// Compiles `function` of `reader`, with parcels as bodies of the functions it declares.
fn compile(reader: &mut Reader, function: &str, parcels: Vec<Parcel>) -> Compiled {
    let (plan, function) = (plan(reader), id(reader, function));
    let symbol = |name: &str| {
        let symbols = reader.summary().symbols.iter();
        let at = symbols.clone().position(|symbol| symbol.name == name)?;
        Some(SymbolId(at as u32))
    };
    let offers = parcels.into_iter().map(|parcel| Offer {
        symbols: symbol(parcel.name()).into_iter().collect(),
        parcel: Arc::new(parcel),
    });
    let how = Compile::at(Tier::Optimized).offering(offers.collect(), HashMap::new());
    reader.compile(&plan, function, &how).expect("compiles")
}

fn rename(reader: &Reader, plan: &mut ModulePlan, name: &str, link_name: &str, access: Access) {
    let import = &mut plan.imports[id(reader, name).index()];
    import.name = link_name.into();
    import.access = access;
}

#[test]
fn a_body_of_another_module_is_inlined() {
    let mut b = reader("define i32 @g(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }");
    let mut a = reader(
        "declare i32 @g(i32)
         define internal i32 @own(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }
         define i32 @f(i32 %x) { %y = call i32 @own(i32 %x) ret i32 %y }",
    );
    let (plan, f) = (plan(&a), id(&a, "f"));
    let wanted = a.wanted(&plan, f, &Compile::at(Tier::Optimized));
    assert_eq!(wanted.expect("readable"), [id(&a, "g")]);
    let g = parcel(&mut b, "g").expect("travels");
    assert_eq!(g.uses()[0].kind, DependenceKind::Body);
    let out = compile(&mut a, "f", vec![g]);
    assert_eq!(disassemble(&out.object), "lea eax,[rdi+rdi*2]\nret\n");
    assert_eq!(out.taken, [0]);
    // Without the parcel the call is left.
    let out = compile(&mut a, "f", Vec::new());
    assert!(describe(&out.object).contains("g by type"), "{out:?}");
}

#[test]
fn what_it_mentions_is_its_own_modules() {
    let mut b = reader(
        "@count = internal global i32 0
         @text = private constant [3 x i8] c\"ab\\00\"
         @shared = external global i32
         @errno = external thread_local global i32
         declare i32 @puts(ptr)
         define internal i32 @same(i32 %x) noinline { ret i32 %x }
         define i32 @g(i32 %x) {
           %old = load i32, ptr @count
           %s = load i32, ptr @shared
           %e = load i32, ptr @errno
           %z = add i32 %s, %e
           %new = add i32 %old, %z
           store i32 %new, ptr @count
           %n = call i32 @puts(ptr @text)
           %y = call i32 @same(i32 %x)
           ret i32 %y
         }",
    );
    let mut plan = plan(&b);
    for (name, link_name) in [("count", "count.b"), ("text", "text.b")] {
        rename(&b, &mut plan, name, link_name, Access::Near);
    }
    rename(&b, &mut plan, "same", "same.b", Access::Indirect);
    let g = parcel_as(&mut b, &plan, "g").expect("travels");
    let mut mentions: Vec<&str> = g.mentions().collect();
    mentions.sort_unstable();
    let all = ["count.b", "errno", "puts", "same.b", "shared", "text.b"];
    assert_eq!(mentions, all);
    assert_eq!(g.callees().collect::<Vec<_>>(), ["puts", "same.b"]);
    let mut a = reader(
        "@count = internal global i32 7
         @shared = external global i32
         declare i32 @puts(ptr)
         declare i32 @g(i32)
         define internal i32 @same(i32 %x) noinline { ret i32 1 }
         define i32 @f(i32 %x) {
           %c = load i32, ptr @count
           %s = load i32, ptr @shared
           %n = call i32 @puts(ptr null)
           %y = call i32 @g(i32 %c)
           %z = call i32 @same(i32 %s)
           %r = add i32 %y, %z
           ret i32 %r
         }",
    );
    let out = compile(&mut a, "f", vec![g]);
    let text = describe(&out.object);
    let names: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
    for name in [
        "count", "count.b", "text.b", "puts", "same", "same.b", "shared", "errno",
    ] {
        assert!(names.contains(&name), "{name}: {text}");
    }
    // One name has one meaning: no symbol was renamed because it was declared twice.
    for name in names {
        let known =
            all.contains(&name) || ["defines", "count", "same", "__tls_get_addr"].contains(&name);
        assert!(known, "{name}: {text}");
    }
    // Near data is addressed directly, the rest through the table.
    assert!(text.contains("count.b by type 2"), "{text}");
}

#[test]
fn what_cannot_travel_stays() {
    let mut b = reader(
        "@sink = external global ptr
         define i32 @apart(i32 %x) noinline { ret i32 %x }
         define i32 @twice() returns_twice { ret i32 0 }
         define ptr @label(i1 %c) { br i1 %c, label %a, label %b a: ret ptr blockaddress(@label, %b) b: ret ptr null }
         define i32 @good(i32 %x) { ret i32 %x }
         declare i32 @missing()",
    );
    for name in ["apart", "twice", "label", "missing"] {
        assert!(parcel(&mut b, name).is_none(), "{name}");
    }
    assert!(parcel(&mut b, "good").is_some());
    // A definition that is not the bound one, or was replaced, is not offered.
    let mut lost = plan(&b);
    lost.imports[id(&b, "good").index()].defined = false;
    assert!(parcel_as(&mut b, &lost, "good").is_none());
    let mut replaced = plan(&b);
    replaced.imports[id(&b, "good").index()].replaced = true;
    assert!(parcel_as(&mut b, &replaced, "good").is_none());
}

#[test]
fn metadata_that_leads_elsewhere_is_left_behind() {
    let mut b = reader(
        "define internal i32 @one(i32 %x) noinline { ret i32 1 }
         define internal i32 @two(i32 %x) noinline { ret i32 2 }
         define i32 @g(ptr %f, ptr %p) {
           %n = load i32, ptr %p, !range !1
           %y = call i32 %f(i32 %n), !callees !0
           ret i32 %y
         }
         !0 = !{ptr @one, ptr @two}
         !1 = !{i32 0, i32 9}",
    );
    let g = parcel(&mut b, "g").expect("travels");
    assert_eq!(g.mentions().count(), 0);
    let mut a = reader(
        "declare i32 @g(ptr, ptr)
         define i1 @f(ptr %f, ptr %p) { %y = call i32 @g(ptr %f, ptr %p) %z = icmp eq i32 %y, 0 ret i1 %z }",
    );
    let out = compile(&mut a, "f", vec![g]);
    assert!(!disassemble(&out.object).contains("jmp"), "inlined");
}

#[test]
fn a_recursive_body_calls_the_function_itself() {
    let mut b = reader(
        "define i32 @g(i32 %x) {
           %c = icmp eq i32 %x, 0
           br i1 %c, label %end, label %more
         more:
           %y = sub i32 %x, 1
           %z = call i32 @g(i32 %y)
           %w = mul i32 %z, %x
           ret i32 %w
         end:
           ret i32 1
         }",
    );
    // Passes turn this one into a loop; a function that calls itself twice stays recursive.
    let g = parcel(&mut b, "g").expect("travels");
    let mut a = reader(
        "declare i32 @g(i32)
         define i32 @f(i32 %x) { %y = call i32 @g(i32 %x) ret i32 %y }",
    );
    let out = compile(&mut a, "f", vec![g]);
    let text = describe(&out.object);
    assert!(
        !text.contains("g.1") && !text.contains("uruk.body.g"),
        "{text}"
    );
}

#[test]
fn small_constants_keep_their_values() {
    let mut b = reader(
        "@table = internal constant [4 x i32] [i32 5, i32 6, i32 7, i32 8]
         define i32 @g(i32 %i) {
           %p = getelementptr [4 x i32], ptr @table, i32 0, i32 %i
           %y = load i32, ptr %p
           ret i32 %y
         }",
    );
    let g = parcel(&mut b, "g").expect("travels");
    let constant = g
        .uses()
        .iter()
        .any(|used| used.kind == DependenceKind::Fact);
    assert!(constant, "{:?}", g.uses());
    let mut a = reader(
        "declare i32 @g(i32)
         define i32 @f() { %y = call i32 @g(i32 2) ret i32 %y }",
    );
    let out = compile(&mut a, "f", vec![g]);
    assert_eq!(disassemble(&out.object), "mov eax,7\nret\n");
}
