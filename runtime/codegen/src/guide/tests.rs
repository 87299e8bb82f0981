//! Effects of probes and profiles on a unit, as IR before any pass.

use std::collections::HashMap;
use std::sync::Arc;

use inkwell::llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use inkwell::llvm_sys::core::LLVMPrintModuleToString;

use uruk_base::{Nanos, Tier};

use crate::bitcode::Bitcode;
use crate::candidates::Wanted;
use crate::compile::{Compile, Counters};
use crate::context::take_message;
use crate::copy::UnitCopy;
use crate::library::stock::stock;
use crate::plan::plan_alone;
use crate::planning::Planning;
use crate::probe;
use crate::profile::{Probes, Profile, ProfileError, Site};
use crate::reader::Reader;
use crate::source::Source;
use crate::summary::SymbolId;
use crate::unit::Unit;

const IR: &str = "
    declare i64 @llvm.expect.i64(i64, i64)
    declare void @far()
    define i32 @callee(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
    define i32 @wide(i64 %x) { ret i32 1 }
    define i32 @f(ptr %p, i32 %x) memory(read) {
    entry:
      %big = icmp sgt i32 %x, 9
      %wide = zext i1 %big to i64
      %likely = call i64 @llvm.expect.i64(i64 %wide, i64 1)
      %c = icmp ne i64 %likely, 0
      br i1 %c, label %many, label %call
    many:
      switch i32 %x, label %out [ i32 10, label %call i32 11, label %call i32 12, label %rare ]
    rare:
      br label %out
    call:
      %r = call i32 %p(i32 %x)
      br label %out
    out:
      %s = phi i32 [ 0, %many ], [ 1, %rare ], [ %r, %call ]
      ret i32 %s
    }";

const SITES: [Site; 3] = [Site::Branch, Site::Switch { ways: 3 }, Site::Call];
/// Where the pointer of the profile points to.
const SEEN: u64 = 0x5000;

fn id(reader: &Reader, name: &str) -> SymbolId {
    let symbols = &reader.summary().symbols;
    let index = symbols.iter().position(|s| s.name == name);
    SymbolId(index.expect("defined") as u32)
}

/// The unit of `function` before passes, its probes, and a summary of applied and refused profiles.
fn unit(reader: &mut Reader, how: &Compile, function: &str) -> (String, Option<Probes>, String) {
    let plan = plan_alone(reader.summary());
    let function = id(reader, function);
    stock(reader, &plan, Wanted::CalleesOf(function), how);
    let reader = &*reader;
    let source = Source {
        reader,
        plan: &plan,
    };
    let planned = Planning::new(source, how)
        .function(function)
        .expect("planned");
    let module = source.fresh("unit");
    let mut copy = UnitCopy::new(source, how, "unit", &module);
    let body = copy.function(planned).expect("copied");
    let probes = match how.counters {
        // SAFETY: a live copy of an ordinary function.
        Counters::Full => unsafe { probe::insert(reader.context(), &module, body) },
        _ => None,
    };
    copy.apply_profiles().expect("applied");
    let contents = copy.finish().expect("finished");
    let unit = Unit { module, contents };
    let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
    // SAFETY: a live module; no message is requested.
    let broken = unsafe { LLVMVerifyModule(unit.module.raw(), action, std::ptr::null_mut()) };
    // SAFETY: a live module; the text is ours.
    let text = unsafe { take_message(LLVMPrintModuleToString(unit.module.raw())) };
    assert_eq!(broken, 0, "not valid IR: {text}");
    let outcome = format!(
        "{} guided, {} promoted, {} refused",
        unit.contents.guided_functions,
        unit.contents.promoted,
        unit.contents.refused.len()
    );
    (text, probes, outcome)
}

fn reader(ir: &str) -> Reader {
    let bitcode = Bitcode::from_ir_text("test.ll", ir).expect("valid IR");
    Reader::new(&bitcode).expect("readable")
}

/// Guided by a profile of `f` whose pointer led to `target`.
fn guided(reader: &Reader, target: &str) -> Compile {
    let probes = Probes::of(SITES.to_vec(), Vec::new()).expect("few words");
    let words = [50, 1000, 100, 0, 99, 1, SEEN, 980, 1000];
    let profile = Profile::new(&probes, &words).expect("as long");
    assert_eq!(profile.observed_targets(), [SEEN]);
    let profiles = HashMap::from([(id(reader, "f"), Arc::new(profile))]);
    let targets = HashMap::from([(SEEN, id(reader, target))]);
    Compile::at(Tier::Guided).guided(profiles, targets)
}

#[test]
fn every_site_is_probed_without_new_branches() {
    let mut reader = reader(IR);
    let how = Compile::at(Tier::Optimized).counting(Counters::Full);
    let (text, probes, _) = unit(&mut reader, &how, "f");
    let probes = probes.expect("probed");
    assert_eq!((probes.sites(), probes.words()), (&SITES[..], 11));
    assert!(text.contains("@uruk.probes = external hidden global [11 x i64], align 8"));
    // Entry, two of the branch, three ways, the call: last, same, all; the argument: value, lead.
    let stores = text
        .lines()
        .filter(|l| l.contains("store i64") && l.contains("@uruk.probes"));
    assert_eq!(stores.count(), 11, "{text}");
    assert_eq!(text.matches("br i1").count(), 1, "{text}");
    // The ways to `out` and `call` are shared with other edges.
    assert_eq!(text.matches("phi i64").count(), 2, "{text}");
    assert!(
        text.contains("phi i64 [ 0, %2 ], [ 1, %23 ], [ 1, %23 ]"),
        "{text}"
    );
    // It writes now.
    assert!(!text.contains("memory(read)"), "{text}");
}

#[test]
fn counts_become_weights() {
    let mut reader = reader(IR);
    let how = guided(&reader, "callee");
    let (text, _, outcome) = unit(&mut reader, &how, "f");
    assert_eq!(outcome, "1 guided, 1 promoted, 0 refused");
    for expected in [
        "!{!\"function_entry_count\", i64 50}",
        "!{!\"branch_weights\", i32 100, i32 900}",
        // By edge: out, then `call` twice, of 99.
        "!{!\"branch_weights\", i32 0, i32 50, i32 50, i32 1}",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains("call i64 @llvm.expect"), "{text}");
}

#[test]
fn a_dominant_target_is_called_directly_behind_a_comparison() {
    let mut reader = reader(IR);
    let how = guided(&reader, "callee");
    let (text, ..) = unit(&mut reader, &how, "f");
    assert!(text.contains("icmp eq ptr %0, @callee"), "{text}");
    assert!(text.contains("call i32 @callee(i32 %1)"), "{text}");
    assert!(text.contains("call i32 %0(i32 %1)"), "{text}");
    assert!(
        text.contains("!{!\"branch_weights\", i32 980, i32 20}"),
        "{text}"
    );
    assert!(
        text.contains("define available_externally i32 @callee"),
        "{text}"
    );
}

#[test]
fn the_function_itself_is_compared_by_its_canonical_address() {
    let ir = "define i32 @f(ptr %p, i32 %x) {
        %r = call i32 %p(ptr %p, i32 %x)
        ret i32 %r
    }";
    let mut reader = reader(ir);
    let probes = Probes::of(vec![Site::Call], Vec::new()).expect("few words");
    let profile = Profile::new(&probes, &[1, SEEN, 99, 99]).expect("as long");
    let f = id(&reader, "f");
    let how = Compile::at(Tier::Guided).guided(
        HashMap::from([(f, Arc::new(profile))]),
        HashMap::from([(SEEN, f)]),
    );
    let (text, ..) = unit(&mut reader, &how, "f");
    assert!(text.contains("icmp eq ptr %0, @f\n"), "{text}");
    assert!(
        text.contains("call i32 @uruk.body.f(ptr %0, i32 %1)"),
        "{text}"
    );
}

#[test]
fn targets_of_other_types_or_out_of_sight_are_not_promoted() {
    let mut reader = reader(IR);
    for target in ["wide", "far"] {
        let how = guided(&reader, target);
        let (text, _, outcome) = unit(&mut reader, &how, "f");
        assert_eq!(outcome, "1 guided, 0 promoted, 0 refused");
        assert!(!text.contains("icmp eq ptr"), "{text}");
    }
}

#[test]
fn a_profile_of_another_body_changes_nothing() {
    let mut reader = reader(&IR.replace("i32 12, label %rare", ""));
    let how = guided(&reader, "callee");
    let (text, _, outcome) = unit(&mut reader, &how, "f");
    assert_eq!(outcome, "0 guided, 0 promoted, 1 refused");
    assert!(!text.contains("branch_weights"), "{text}");
    let (plan, f) = (plan_alone(reader.summary()), id(&reader, "f"));
    let with = reader.compile(&plan, f, &how).expect("compiles");
    let error = &with.refused[0].error;
    assert!(
        matches!(error, ProfileError::Misfit { first: 1, .. }),
        "{error}"
    );
    let without = reader.compile(&plan, f, &Compile::at(Tier::Guided));
    assert_eq!(with.object, without.expect("compiles").object);
}

#[test]
fn calls_that_may_unwind_or_must_be_tail_calls_are_promoted_too() {
    let ir = "
        declare i32 @personality(...)
        define i32 @callee(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define i32 @f(ptr %p, i32 %x) personality ptr @personality {
          %r = invoke i32 %p(i32 %x) to label %good unwind label %bad
        good:
          %g = phi i32 [ %r, %0 ]
          ret i32 %g
        bad:
          %b = phi i32 [ %x, %0 ]
          %l = landingpad { ptr, i32 } cleanup
          ret i32 %b
        }
        define i32 @g(i32 %x) {
          %p = load ptr, ptr null
          %r = musttail call i32 %p(i32 %x)
          ret i32 %r
        }";
    let mut reader = reader(ir);
    let targets = HashMap::from([(SEEN, id(&reader, "callee"))]);
    for (name, direct) in [
        ("f", "invoke i32 @callee(i32"),
        ("g", "musttail call i32 @callee(i32"),
    ] {
        let probes = Probes::of(vec![Site::Call], Vec::new()).expect("few words");
        let profile = Profile::new(&probes, &[1, SEEN, 99, 99]).expect("as long");
        let profiles = HashMap::from([(id(&reader, name), Arc::new(profile))]);
        let how = Compile::at(Tier::Guided).guided(profiles, targets.clone());
        let (text, _, outcome) = unit(&mut reader, &how, name);
        assert_eq!(outcome, "1 guided, 1 promoted, 0 refused");
        assert!(text.contains(direct), "{text}");
    }
}

#[test]
fn calls_that_are_hot_may_let_larger_callees_in() {
    let ir = "define i32 @callee(i32 %x) { %y = mul i32 %x, 3 ret i32 %y }
        define i32 @f(i32 %x) {
            %rare = icmp eq i32 %x, 9
            br i1 %rare, label %seldom, label %often
        seldom:
            %a = call i32 @callee(i32 1)
            br label %out
        often:
            %b = call i32 @callee(i32 2)
            br label %out
        out:
            %r = phi i32 [ %a, %seldom ], [ %b, %often ]
            ret i32 %r
        }";
    let mut reader = reader(ir);
    let probes = Probes::of(vec![Site::Branch], Vec::new()).expect("few words");
    let profile = Profile::new(&probes, &[1000, 1000, 10]).expect("as long");
    let mut hot = |profile: Profile| {
        let profiles = HashMap::from([(id(&reader, "f"), Arc::new(profile))]);
        let how = Compile::at(Tier::Guided).guided(profiles, HashMap::new());
        let (text, ..) = unit(&mut reader, &how, "f");
        ["1", "2"].map(|argument| {
            let start = format!("call i32 @callee(i32 {argument})");
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.split_once(&start));
            let attributes = line.expect("a call").1.trim();
            let threshold = "{ \"function-inline-threshold\"=\"1000\" }";
            let noted = format!("attributes {attributes} = {threshold}");
            assert_eq!(attributes.is_empty(), !text.contains(&noted), "{text}");
            !attributes.is_empty()
        })
    };
    // By their share; where the time of counting is known, by their rate.
    assert_eq!(hot(profile.clone()), [false, true]);
    let counted_for = |time| profile.clone().counted_for(time);
    assert_eq!(hot(counted_for(Nanos::from_ms(1))), [false, true]);
    assert_eq!(hot(counted_for(Nanos::from_us(50))), [true, true]);
    assert_eq!(hot(counted_for(Nanos::from_ms(20))), [false, false]);
}
