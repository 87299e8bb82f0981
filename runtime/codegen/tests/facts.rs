//! Facts about callees that are not copied: inference, uses, and dependencies.

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{
    Compile, Compiled, DependenceKind, FactStore, Knowledge, ModulePlan, Reader, Tier,
};

/// A module, its plan, and its facts.
struct Fixture {
    reader: Reader,
    plan: ModulePlan,
    store: Arc<FactStore>,
}

impl Fixture {
    fn new(ir: &str) -> Fixture {
        let reader = reader(ir);
        let plan = plan(&reader);
        Fixture {
            reader,
            plan,
            store: Arc::default(),
        }
    }

    fn compile(&mut self, function: &str, facts: Knowledge) -> Compiled {
        let function = id(&self.reader, function);
        let how = Compile::at(Tier::Optimized).knowing(facts);
        let made = self.reader.compile(&self.plan, function, &how);
        made.expect("compiles")
    }

    fn declared(&mut self, function: &str) -> Compiled {
        self.compile(function, Knowledge::Declared)
    }

    fn inferred(&mut self, function: &str) -> Compiled {
        let store = Arc::clone(&self.store);
        self.compile(function, Knowledge::Inferred(store))
    }

    /// Names of the functions a version depends on, which all are facts.
    fn facts(&self, made: &Compiled) -> Vec<String> {
        let symbols = &self.reader.summary().symbols;
        let of = made.depends.iter().map(|depends| {
            assert_eq!(depends.kind, DependenceKind::Fact);
            symbols[depends.symbol.index()].name.clone()
        });
        let mut names: Vec<String> = of.collect();
        names.sort();
        names
    }

    /// Makes another definition of `name` the bound one.
    fn interpose(&mut self, name: &str) {
        let id = id(&self.reader, name);
        self.plan.imports[id.index()].defined = false;
    }
}

/// `noinline` keeps bodies from being copied.
const PURE: &str = "
    define i32 @deep(i32 %x) noinline { %y = mul i32 %x, %x ret i32 %y }
    define i32 @pure(i32 %x) noinline {
      %y = call i32 @deep(i32 %x) %z = add i32 %y, 1 ret i32 %z
    }
    define i32 @f(i32 %x) {
      %a = call i32 @pure(i32 %x)
      %b = call i32 @pure(i32 %x)
      %c = add i32 %a, %b
      ret i32 %c
    }
    define void @g(i32 %x) { %a = call i32 @pure(i32 %x) ret void }";

fn calls(made: &Compiled, callee: &str) -> usize {
    let text = describe(&made.object);
    text.matches(&format!("{callee} by type")).count()
}

#[test]
fn calls_of_pure_functions_are_shared_and_dropped() {
    let mut module = Fixture::new(PURE);
    assert_eq!(calls(&module.declared("g"), "pure"), 1);
    let code = disassemble(&module.declared("f").object);
    assert_eq!(code.matches("call").count(), 2, "{code}");
    assert_eq!(module.store.stats().functions, 0);

    assert_eq!(calls(&module.inferred("g"), "pure"), 0);
    let code = disassemble(&module.inferred("f").object);
    assert_eq!(code.matches("call").count(), 1, "{code}");
    assert_eq!(module.store.stats().functions, 2);
}

#[test]
fn facts_depend_on_all_they_were_inferred_through() {
    let mut module = Fixture::new(PURE);
    let made = module.inferred("f");
    assert_eq!(module.facts(&made), ["deep", "pure"]);
    // Also when they were known before, and the call was removed.
    let made = module.inferred("g");
    assert_eq!(module.facts(&made), ["deep", "pure"]);
    let made = module.declared("f");
    assert_eq!(module.facts(&made), ["pure"]);
}

#[test]
fn what_is_replaced_is_forgotten_with_all_above_it() {
    let mut module = Fixture::new(PURE);
    module.inferred("f");
    let (deep, pure) = (id(&module.reader, "deep"), id(&module.reader, "pure"));
    module.store.forget(&[pure]);
    assert_eq!(module.store.stats().functions, 1);
    module.inferred("f");
    assert_eq!(module.store.stats().functions, 2);
    module.store.forget(&[deep]);
    assert_eq!(module.store.stats().functions, 0);
}

#[test]
fn only_bound_definitions_have_facts() {
    let mut module = Fixture::new(PURE);
    module.interpose("pure");
    assert_eq!(calls(&module.inferred("g"), "pure"), 1);
    let mut module = Fixture::new(PURE);
    module.interpose("deep");
    assert_eq!(calls(&module.inferred("g"), "pure"), 1);
}

#[test]
fn nothing_is_inferred_where_somebody_waits() {
    let mut module = Fixture::new(PURE);
    let known = Knowledge::Known(Arc::clone(&module.store));
    assert_eq!(calls(&module.compile("g", known.clone()), "pure"), 1);
    let g = id(&module.reader, "g");
    let how = Compile::baseline().knowing(Knowledge::Inferred(Arc::clone(&module.store)));
    let made = module.reader.compile(&module.plan, g, &how);
    assert_eq!(calls(&made.expect("compiles"), "pure"), 1);
    assert_eq!(module.store.stats().functions, 0);

    // Facts that one reader found are used by another.
    module.inferred("f");
    module.reader = reader(PURE);
    assert_eq!(calls(&module.compile("g", known), "pure"), 0);
}

/// Tier 1 executes code that better versions omit.
const USELESS: &str = "
    define i32 @traps(ptr %p, i32 %d) noinline {
      %v = load i32, ptr %p
      %q = sdiv i32 %v, %d
      ret i32 7
    }
    define i32 @f(i32 %x) {
      %slot = alloca i32
      store i32 %x, ptr %slot
      %d = or i32 %x, 1234
      %r = call i32 @traps(ptr %slot, i32 %d)
      ret i32 %r
    }";

#[test]
fn facts_hold_for_the_slowest_version() {
    let mut module = Fixture::new(USELESS);
    let code = disassemble(&module.inferred("f").object);
    assert!(
        code.contains("],edi") || code.contains("],e"),
        "the store: {code}"
    );
    assert!(code.contains("4D2h"), "the divisor: {code}");
    assert!(module.store.stats().facts > 0);
}

/// As clang writes it at -O0.
const DEAD: &str = "
    @sink = global i32 0
    define i32 @half(i32 noundef %used, i32 noundef %dead) noinline optnone {
      %a = alloca i32
      %b = alloca i32
      store i32 %used, ptr %a
      store i32 %dead, ptr %b
      %v = load i32, ptr %a
      store volatile i32 %v, ptr @sink
      ret i32 %v
    }
    define i32 @f(i32 %x) {
      %d = mul i32 %x, 1234
      %r = call i32 @half(i32 noundef %x, i32 noundef %d)
      ret i32 %r
    }";

#[test]
fn dead_arguments_are_not_computed() {
    // A callee beyond the root's budget of candidates would do as well.
    let ir = DEAD.replace("noinline optnone", "noinline");
    let mut module = Fixture::new(&ir);
    let code = disassemble(&module.declared("f").object);
    assert!(code.contains("4D2h"), "{code}");
    let made = module.inferred("f");
    let code = disassemble(&made.object);
    assert!(!code.contains("4D2h"), "{code}");
    assert_eq!(calls(&made, "half"), 1);
    assert_eq!(module.facts(&made), ["half"]);
}

#[test]
fn arguments_that_calls_themselves_use_are_not_dead() {
    let mut module = Fixture::new(
        "define void @take(ptr byval(i64) %s, i32 %n) noinline {
           call void asm sideeffect \"\", \"\"() ret void
         }
         define void @f(i64 %x) {
           %s = alloca i64
           store i64 %x, ptr %s
           call void @take(ptr byval(i64) %s, i32 5)
           ret void
         }",
    );
    let code = disassemble(&module.inferred("f").object);
    assert!(!code.contains("edi,5"), "{code}");
    assert!(code.contains("mov [rsp],r"), "the copy: {code}");
}

#[test]
fn readonly_and_captures_let_values_stay_in_registers() {
    let mut module = Fixture::new(
        "declare void @far()
         define i32 @look(ptr %p) noinline { %v = load i32, ptr %p ret i32 %v }
         define i32 @f(i32 %x) {
           %slot = alloca i32
           store i32 %x, ptr %slot
           %a = call i32 @look(ptr %slot)
           call void @far()
           %b = load i32, ptr %slot
           %c = add i32 %a, %b
           ret i32 %c
         }",
    );
    let loads = |made: &Compiled| disassemble(&made.object).matches(",[rsp").count();
    assert_eq!(loads(&module.declared("f")), 2);
    // One match is the slot's address, not a load.
    assert_eq!(loads(&module.inferred("f")), 1);
}

/// A chain of `count` functions of a hundred instructions, called by `f`.
fn chain(count: usize, last: &str) -> String {
    let mut ir = String::new();
    for n in 0..count {
        let next = match n + 1 == count {
            true => last.to_owned(),
            false => format!("f{}", n + 1),
        };
        let _ = writeln!(
            ir,
            "define i32 @f{n}(i32 %x) noinline {{ %v0 = add i32 %x, 1"
        );
        for i in 0..98 {
            let _ = writeln!(ir, "%v{} = mul i32 %v{i}, %x", i + 1);
        }
        let _ = writeln!(ir, "%r = call i32 @{next}(i32 %v98) ret i32 %r }}");
    }
    ir.push_str(
        "define i32 @end(i32 %x) noinline { ret i32 %x }
         define void @f(i32 %x) { %r = call i32 @f0(i32 %x) ret void }",
    );
    ir
}

#[test]
fn a_large_graph_is_known_in_steps() {
    let mut module = Fixture::new(&chain(5, "end"));
    assert_eq!(calls(&module.inferred("f"), "f0"), 0);
    assert_eq!(module.store.stats().functions, 6);

    // Too deep for one budget: no function is complete, so all bodies read are taken.
    let mut module = Fixture::new(&chain(25, "end"));
    assert_eq!(calls(&module.inferred("f"), "f0"), 1);
    let first = module.store.stats();
    assert!((5..20).contains(&first.functions), "{first:?}");
    // It stays so, and costs nothing again.
    assert_eq!(calls(&module.inferred("f"), "f0"), 1);
    assert_eq!(module.store.stats(), first);

    // Two callees, of which one fits.
    let ir = chain(25, "end").replace("@f(i32 %x) {", "@f(i32 %x) { %e = call i32 @end(i32 %x) ");
    let mut module = Fixture::new(&ir);
    assert_eq!(calls(&module.inferred("f"), "end"), 0);
    assert_eq!(module.store.stats().functions, 1);
}

#[test]
fn cycles_are_known_as_one() {
    let mut module = Fixture::new(&chain(4, "f0"));
    let made = module.inferred("f");
    // It is not known whether it ends.
    assert_eq!(calls(&made, "f0"), 1);
    assert_eq!(module.facts(&made), ["f0", "f1", "f2", "f3"]);
    assert!(module.store.stats().facts >= 4);
}

#[test]
fn a_body_that_is_broken_or_odd_has_no_facts() {
    let mut module = Fixture::new(
        "@table = internal constant [1 x ptr] [ptr blockaddress(@jumps, %there)]
         define void @jumps(ptr %p) noinline {
           indirectbr ptr %p, [label %there]
         there:
           ret void
         }
         define void @naked() naked noinline { call void asm sideeffect \"ret\", \"\"() unreachable }
         define void @calls() noinline { call void @jumps(ptr null) ret void }
         define void @f() {
           call void @jumps(ptr null)
           call void @naked()
           call void @calls()
           ret void
         }",
    );
    let made = module.inferred("f");
    for callee in ["jumps", "naked", "calls"] {
        assert_eq!(calls(&made, callee), 1, "{callee}");
    }
}

#[test]
fn inline_bodies_of_others_are_depended_on() {
    let mut module = Fixture::new(
        "define available_externally i32 @inline(i32 %x) alwaysinline {
           %y = call i32 @below(i32 %x) ret i32 %y
         }
         define i32 @below(i32 %x) noinline { ret i32 %x }
         define i32 @outer(i32 %x) noinline { %y = call i32 @inline(i32 %x) ret i32 %y }
         define void @f(i32 %x) { %y = call i32 @outer(i32 %x) ret void }",
    );
    // The copy is still used.
    module.interpose("inline");
    let made = module.inferred("f");
    assert_eq!(calls(&made, "outer"), 0);
    assert_eq!(module.facts(&made), ["below", "inline", "outer"]);
}
