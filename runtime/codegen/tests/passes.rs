//! Loops in the pipelines of tiers 2 and 3.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use support::{disassemble, id, plan, reader};
use uruk_codegen::{Compile, Counters, Profile, Tier};

/// The inner loop of spectral-norm: divisions that depend only on the counter, and a sum whose
/// order is fixed. It is unrolled four times on any CPU.
const SUMS: &str = "
    define double @f(ptr %u, i32 %n, i32 %i) {
    entry: br label %loop
    loop:
      %j = phi i32 [ 0, %entry ], [ %next, %loop ]
      %s = phi double [ 0.0, %entry ], [ %sum, %loop ]
      %t = add i32 %i, %j
      %t1 = add i32 %t, 1
      %p = mul i32 %t, %t1
      %h = lshr i32 %p, 1
      %q = add i32 %h, %i
      %q1 = add i32 %q, 1
      %d = sitofp i32 %q1 to double
      %r = fdiv double 1.0, %d
      %k = zext i32 %j to i64
      %a = getelementptr double, ptr %u, i64 %k
      %v = load double, ptr %a
      %m = fmul double %r, %v
      %sum = fadd double %s, %m
      %next = add nuw nsw i32 %j, 1
      %more = icmp slt i32 %next, %n
      br i1 %more, label %loop, label %end, !llvm.loop !0
    end: ret double %sum
    }
    !0 = distinct !{!0, !1}
    !1 = !{!\"llvm.loop.unroll.count\", i32 4}";

#[test]
fn what_unrolling_puts_side_by_side_is_packed() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let mut reader = reader(SUMS);
        let (plan, f) = (plan(&reader), id(&reader, "f"));
        let out = reader.compile(&plan, f, &Compile::at(tier));
        let code = disassemble(&out.expect("compiles").object);
        assert!(code.contains("divpd"), "{tier:?}:\n{code}");
    }
}

/// Two loops of four passes; the second one's name follows.
const SHORT: &str = "
    define void @f(ptr %p) {
    entry: br label %a
    a:
      %i = phi i64 [ 0, %entry ], [ %i1, %a ]
      %pi = getelementptr i64, ptr %p, i64 %i
      store volatile i64 %i, ptr %pi
      %i1 = add i64 %i, 1
      %mi = icmp ult i64 %i1, 4
      br i1 %mi, label %a, label %b, !llvm.loop !0
    b:
      %j = phi i64 [ 0, %a ], [ %j1, %b ]
      %pj = getelementptr i64, ptr %p, i64 %j
      store volatile i64 %j, ptr %pj
      %j1 = add i64 %j, 1
      %mj = icmp ult i64 %j1, 4
      br i1 %mj, label %b, label %end, !llvm.loop !1
    end: ret void
    }
    !0 = distinct !{!0, !2, !3}
    !2 = !{!\"llvm.loop.mustprogress\"}
    !3 = !{!\"llvm.loop.unroll.disable\"}
    !1 = distinct !{!1, ";

#[test]
fn what_a_level_forbids_all_loops_is_allowed_and_what_a_user_forbids_one_is_not() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let jumps = |second: &str| {
            let mut reader = reader(&format!("{SHORT}{second}}}"));
            let (plan, f) = (plan(&reader), id(&reader, "f"));
            let out = reader.compile(&plan, f, &Compile::at(tier));
            let code = disassemble(&out.expect("compiles").object);
            code.lines().filter(|line| line.starts_with('j')).count()
        };
        assert_eq!(jumps("!3, !2"), 0, "{tier:?}");
        assert_eq!(jumps("!2"), 1, "{tier:?}");
    }
}

/// Marks every other pair of words, like the free slots of a hash table.
const MARKS: &str = "
    define void @f(ptr %p, i32 %n) {
    entry:
      %some = icmp sgt i32 %n, 0
      br i1 %some, label %loop, label %out
    loop:
      %i = phi i32 [ 0, %entry ], [ %next, %loop ]
      %k = zext i32 %i to i64
      %a = getelementptr [16 x i8], ptr %p, i64 %k, i64 8
      store i8 16, ptr %a
      %next = add nuw nsw i32 %i, 1
      %more = icmp slt i32 %next, %n
      br i1 %more, label %loop, label %out
    out: ret void
    }";

/// A loop with counts of few passes is compiled like one without counts. (LLVM stores 32 lanes one
/// by one, each under a condition.)
#[test]
fn short_loops_are_not_predicated() {
    let mut reader = reader(MARKS);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let counting = Compile::at(Tier::Optimized).counting(Counters::Full);
    let probed = reader.compile(&plan, f, &counting).expect("compiles");
    let probes = probed.probes.expect("probes");
    let mut instructions = |executed: u64, taken: u64| {
        let mut words = vec![0; probes.words() as usize];
        words[..5].copy_from_slice(&[1000, 1000, 1000, executed, taken]);
        let profile = Arc::new(Profile::new(&probes, &words).expect("as long"));
        let profiles = HashMap::from([(f, profile)]);
        let how = Compile::at(Tier::Guided).guided(profiles, HashMap::new());
        let out = reader.compile(&plan, f, &how).expect("compiles");
        assert_eq!(out.guided, 1);
        disassemble(&out.object).lines().count()
    };
    let long = instructions(100_000, 99_000);
    for passes in [2, 3, 7] {
        let short = instructions(1000 * passes, 1000 * (passes - 1));
        assert!(short < long + 40, "{short} instructions, and {long}");
    }
}

/// The IR from which the machine code of `f` is made.
fn listed(ir: &str, tier: Tier) -> String {
    let mut how = Compile::at(tier);
    let listing = Arc::new(OnceLock::new());
    how.listing = Some(Arc::clone(&listing));
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    reader.compile(&plan, f, &how).expect("compiles");
    listing.get().expect("what was emitted").clone()
}

/// Sums in memory, whose store runs in each round or, with `condition`, only for positive `%x`; the
/// tags say that it aliases no other.
fn sum(condition: bool) -> String {
    let way = match condition {
        true => "br i1 %positive, label %add, label %next",
        false => "br label %add",
    };
    format!(
        "define void @f(ptr %sum, ptr %from, ptr %to, i64 %n) {{
        entry: br label %loop
        loop:
          %i = phi i64 [ 0, %entry ], [ %more, %next ]
          %a = getelementptr i64, ptr %from, i64 %i
          %b = getelementptr i64, ptr %to, i64 %i
          %x = load i64, ptr %a, !alias.scope !2, !noalias !1
          store i64 %x, ptr %b, !alias.scope !2, !noalias !1
          %positive = icmp sgt i64 %x, 0
          {way}
        add:
          %s = load i64, ptr %sum, !alias.scope !1, !noalias !2
          %t = add i64 %s, %x
          store i64 %t, ptr %sum, !alias.scope !1, !noalias !2
          br label %next
        next:
          %more = add nuw i64 %i, 1
          %again = icmp ult i64 %more, %n
          br i1 %again, label %loop, label %done
        done: ret void
        }}
        !0 = distinct !{{!0}}
        !1 = !{{!3}}
        !2 = !{{!4}}
        !3 = distinct !{{!3, !0}}
        !4 = distinct !{{!4, !0}}"
    )
}

/// A store that always runs is kept in a register by its tags; one that may not run has its own at
/// the end.
#[test]
fn tags_of_stores_in_loops_are_believed_where_those_run_and_are_kept() {
    for tier in [Tier::Optimized, Tier::Guided] {
        let always = listed(&sum(false), tier);
        assert!(always.contains(".promoted"), "{tier:?}:\n{always}");
        let maybe = listed(&sum(true), tier);
        let stores = maybe.lines().filter(|line| line.contains("store i64"));
        let tags = |line: &str| line.contains("!alias.scope") && line.contains("!noalias");
        let kept: Vec<&str> = stores.collect();
        assert!(kept.len() >= 2, "{tier:?}:\n{maybe}");
        assert!(kept.iter().all(|line| tags(line)), "{tier:?}:\n{maybe}");
        assert!(!maybe.contains("!uruk."), "{tier:?}:\n{maybe}");
    }
}
