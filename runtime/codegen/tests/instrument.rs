//! Hooks at entries and returns: their calls and arguments, in all copies of a body.

mod support;

use object::{Object, ObjectSection};
use support::{describe, disassemble, id, plan, reader};
use uruk_codegen::{Compile, Tier};

const TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

/// The symbols that the object of `function` refers to at a tier.
fn check(ir: &str, function: &str, tier: Tier) -> String {
    let mut reader = reader(ir);
    let plan = plan(&reader);
    let function = id(&reader, function);
    let compiled = reader.compile(&plan, function, &Compile::at(tier));
    describe(&compiled.expect("compiles").object)
}

fn attributes(kind: &str) -> String {
    format!(
        "\"instrument-function-entry{kind}\"=\"__cyg_profile_func_enter\"
         \"instrument-function-exit{kind}\"=\"__cyg_profile_func_exit\""
    )
}

#[test]
fn hooks_get_the_canonical_address_at_every_tier() {
    for kind in ["", "-inlined"] {
        let ir = format!(
            "define i32 @f(i32 %x) {} {{ %y = add i32 %x, 1 ret i32 %y }}",
            attributes(kind)
        );
        for tier in TIERS {
            // 41 GOTPCRELX: calls through slots; 42 REX_GOTPCRELX: the address.
            let out = check(&ir, "f", tier);
            let mut lines: Vec<&str> = out.lines().collect();
            lines.dedup();
            assert_eq!(
                lines,
                [
                    "__cyg_profile_func_enter by type 41",
                    "__cyg_profile_func_exit by type 41",
                    "defines uruk.body.f",
                    "f by type 42"
                ],
                "{kind} {tier:?}"
            );
        }
    }
}

#[test]
fn what_is_inlined_brings_the_hooks_that_are_put_in_before() {
    let ir = |kind: &str, more: &str| {
        format!(
            "define internal i32 @g(i32 %x) {more} {} {{ %y = mul i32 %x, 3 ret i32 %y }}
             define i32 @f(i32 %x) {{ %y = call i32 @g(i32 %x) ret i32 %y }}",
            attributes(kind)
        )
    };
    for tier in [Tier::Optimized, Tier::Guided] {
        let out = check(&ir("", ""), "f", tier);
        assert!(out.contains("__cyg_profile_func_exit by type 41"), "{out}");
        assert!(out.contains("g by type 42"), "{out}");
        assert!(!out.contains("g by type 41"), "{out}");
        assert_eq!(check(&ir("-inlined", ""), "f", tier), "defines uruk.body.f");
    }
    let out = check(&ir("", "alwaysinline"), "f", Tier::Baseline);
    assert!(out.contains("__cyg_profile_func_enter by type 41"), "{out}");
    assert!(!out.contains("uruk.inline"), "{out}");
}

#[test]
fn a_function_with_hooks_has_effects() {
    // Its result is not used: natively the hooks are present when attributes are inferred.
    let ir = format!(
        "define internal i32 @g(i32 %x) noinline {} {{ %y = mul i32 %x, 3 ret i32 %y }}
         define void @f(i32 %x) {{ %y = call i32 @g(i32 %x) ret void }}",
        attributes("")
    );
    let mut reader = reader(&ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let store = std::sync::Arc::new(uruk_codegen::FactStore::new());
    let how = Compile::at(Tier::Optimized).knowing(uruk_codegen::Knowledge::Inferred(store));
    let out = describe(&reader.compile(&plan, f, &how).expect("compiles").object);
    assert!(out.contains("g by type 41"), "{out}");
}

#[test]
fn the_modules_own_hooks_are_called() {
    let ir = "
        define internal void @mcount() { ret void }
        define void @f() \"instrument-function-entry-inlined\"=\"mcount\" { ret void }";
    let mut reader = reader(ir);
    let mut plan = plan(&reader);
    let (f, hook) = (id(&reader, "f"), id(&reader, "mcount"));
    plan.imports[hook.index()].name = "mcount.of.this.module".into();
    for tier in TIERS {
        let compiled = reader.compile(&plan, f, &Compile::at(tier));
        let out = describe(&compiled.expect("compiles").object);
        assert_eq!(out, "defines uruk.body.f\nmcount.of.this.module by type 41");
    }
}

#[test]
fn nothing_comes_between_a_musttail_call_and_its_return() {
    let ir = format!(
        "declare i32 @g(i32)
         define i32 @f(i32 %x) {} {{ %y = musttail call i32 @g(i32 %x) ret i32 %y }}",
        attributes("")
    );
    for tier in TIERS {
        let out = check(&ir, "f", tier);
        assert!(out.contains("__cyg_profile_func_exit by"), "{out}");
        assert!(out.contains("f by type 42"), "{out}");
    }
}

#[test]
fn an_unknown_hook_is_an_error_that_names_it() {
    for attribute in [
        "instrument-function-entry",
        "instrument-function-exit-inlined",
    ] {
        let ir = format!("define void @f() \"{attribute}\"=\"puts\" {{ ret void }}");
        let mut reader = reader(&ir);
        let (plan, f) = (plan(&reader), id(&reader, "f"));
        for tier in TIERS {
            let result = reader.compile(&plan, f, &Compile::at(tier));
            let text = result.expect_err("no such hook").to_string();
            assert!(text.contains("`puts`"), "{text}");
        }
    }
}

#[test]
fn versions_have_no_room_for_patches() {
    let ir = "define i32 @f(i32 %x) \"function-instrument\"=\"xray-always\"
            \"patchable-function-entry\"=\"2\" \"patchable-function-prefix\"=\"2\" {
          ret i32 %x
        }";
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    for tier in TIERS {
        let compiled = reader.compile(&plan, f, &Compile::at(tier));
        let object = compiled.expect("compiles").object;
        assert!(!disassemble(&object).contains("nop"), "{tier:?}");
        let file = object::File::parse(&*object).expect("an object");
        for section in file.sections() {
            let name = section.name().expect("a name");
            assert!(
                !name.contains("xray") && !name.contains("patchable"),
                "{name}"
            );
        }
    }
}

#[test]
fn functions_in_tables_of_a_collector_stay_with_the_data() {
    let ir = |collector: &str| {
        format!(
            "define void @f() gc \"{collector}\" {{ ret void }} define void @g() {{ ret void }}"
        )
    };
    for collector in ["ocaml", "erlang", "shadow-stack"] {
        let mut reader = reader(&ir(collector));
        let plan = plan(&reader);
        let data = reader.compile_data(&plan).expect("compiles");
        assert!(describe(&data.expect("a function")).contains("defines f"));
    }
    let mut reader = reader(&ir("statepoint-example"));
    let plan = plan(&reader);
    assert_eq!(reader.compile_data(&plan).expect("compiles"), None);
}
