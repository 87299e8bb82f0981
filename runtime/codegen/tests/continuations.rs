//! Continuations: the loops that can be left, the agreement of the two ends, and the resulting
//! code.

mod support;

use std::sync::{Arc, Mutex};

use support::{describe, disassemble, id, plan, reader};

use uruk_codegen::{
    CodegenError, Compile, Compiled, Counters, Heads, Reason, Start, Tier, Transform,
};
use uruk_testing::Random;

const LOOP: &str = "define i64 @f(ptr %p, i64 %n) {
  entry: %s = alloca i64 store i64 0, ptr %s br label %head
  head:
    %i = phi i64 [ 0, %entry ], [ %j, %head ]
    %a = load i64, ptr %s
    %b = add i64 %a, %i
    store i64 %b, ptr %s
    %j = add i64 %i, 1
    %more = icmp ult i64 %j, %n
    br i1 %more, label %head, label %done
  done: %r = load i64, ptr %s ret i64 %r }";

fn baseline(ir: &str) -> Compiled {
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let mut how = Compile::baseline().counting(Counters::Entry);
    how.leaves = true;
    reader.compile(&plan, f, &how).expect("compiles")
}

fn continuation(ir: &str, start: Start) -> Result<Compiled, CodegenError> {
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let mut how = Compile::at(Tier::Optimized);
    how.start = Some(start);
    reader.compile(&plan, f, &how)
}

fn start(heads: &Heads, place: usize) -> Start {
    let head = &heads.counted[place];
    Start {
        block: head.block,
        fingerprint: head.fingerprint.expect("LLVM knows it"),
        passed: None,
    }
}

#[test]
fn a_loop_is_counted_at_its_head_and_left() {
    let compiled = baseline(LOOP);
    assert_eq!(compiled.heads.counted.len(), 1);
    assert_eq!(compiled.heads.counted[0].around, None);
    assert!(compiled.heads.refused.is_empty());
    let words = describe(&compiled.object);
    assert!(words.contains("uruk.loops by"), "{words}");
    // Without a request to leave loops, it counts at its latches.
    let mut reader = reader(LOOP);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let how = Compile::baseline().counting(Counters::Entry);
    let plain = reader.compile(&plan, f, &how).expect("compiles");
    assert!(plain.heads.counted.is_empty());
    assert!(!describe(&plain.object).contains("uruk.loops"));
}

#[test]
fn a_continuation_has_the_name_of_the_body_and_no_memory() {
    let heads = baseline(LOOP).heads;
    let made = continuation(LOOP, start(&heads, 0)).expect("compiles");
    assert_eq!(describe(&made.object), "defines uruk.body.f");
    // A variable in memory of the old frame is a register here.
    assert!(!disassemble(&made.object).contains("rsp"));
    assert!(made.heads.counted.is_empty() && !made.counts);
}

#[test]
fn the_two_ends_must_agree() {
    let heads = baseline(LOOP).heads;
    let right = start(&heads, 0);
    let wrong = [
        Start {
            fingerprint: right.fingerprint ^ 1,
            ..right.clone()
        },
        Start {
            block: 0,
            ..right.clone()
        },
        Start {
            block: 77,
            ..right.clone()
        },
    ];
    for start in wrong {
        let cause = continuation(LOOP, start).expect_err("not there");
        let changed = matches!(
            cause,
            CodegenError::NoContinuation {
                reason: Reason::Changed,
                ..
            }
        );
        assert!(changed, "{cause}");
    }
    // Another body does not match, though its loop has the same head.
    let other = LOOP.replace("%b = add", "%b = sub");
    assert!(continuation(&other, right).is_err());
}

#[test]
fn nests_are_known_and_every_head_has_a_continuation() {
    let ir = "define void @f(ptr %p) {
      entry: br label %a
      a: %i = phi i64 [ 0, %entry ], [ %i1, %al ] br label %b
      b: %j = phi i64 [ 0, %a ], [ %j1, %bl ] br label %c
      c:
        %k = phi i64 [ 0, %b ], [ %k1, %c ]
        %q = getelementptr i64, ptr %p, i64 %k
        %v = load i64, ptr %q
        %w = add i64 %v, %j
        store i64 %w, ptr %q
        %k1 = add i64 %k, 1
        %mk = icmp ult i64 %k1, 1000
        br i1 %mk, label %c, label %bl
      bl: %j1 = add i64 %j, 1 %mj = icmp ult i64 %j1, 1000 br i1 %mj, label %b, label %al
      al: %i1 = add i64 %i, 1 %mi = icmp ult i64 %i1, 1000 br i1 %mi, label %a, label %done
      done: ret void }";
    let heads = baseline(ir).heads;
    let around: Vec<_> = heads.counted.iter().map(|head| head.around).collect();
    assert_eq!(around, [None, Some(0), Some(1)]);
    let whole = Compile::at(Tier::Optimized);
    let mut reader = reader(ir);
    let (plan, f) = (plan(&reader), id(&reader, "f"));
    let whole = reader.compile(&plan, f, &whole).expect("compiles");
    let vectors = |compiled: &Compiled| disassemble(&compiled.object).matches("padd").count();
    for place in 0..3 {
        let made = continuation(ir, start(&heads, place)).expect("compiles");
        // The nest itself is as when it is entered from the beginning: vectorized.
        assert!(vectors(&made) >= vectors(&whole), "{place}");
    }
    assert!(vectors(&whole) > 0);
}

/// The reason why the only loop of a function cannot be left.
fn stays(ir: &str) -> Vec<(Reason, u32)> {
    let heads = baseline(ir).heads;
    assert!(heads.counted.is_empty(), "{ir}");
    heads.refused
}

#[test]
fn what_cannot_be_left_says_why() {
    let spin = "br label %head head: call void @g() br label %head";
    let rest = "declare void @g() declare ptr @llvm.frameaddress.p0(i32)
        declare void @llvm.va_start.p0(ptr) declare ptr @llvm.stacksave.p0()
        declare void @llvm.stackrestore.p0(ptr)";
    let check = |reason: Reason, body: &str| {
        assert_eq!(stays(&format!("{body} {rest}")), [(reason, 1)], "{body}");
    };
    check(
        Reason::FrameAddress,
        &format!("define void @f() {{ %a = call ptr @llvm.frameaddress.p0(i32 0) {spin} }}"),
    );
    check(
        Reason::Arguments,
        "define void @f(...) { %l = alloca [24 x i8] br label %head head: call void @g()
         call void @llvm.va_start.p0(ptr %l) br label %head }",
    );
    check(
        Reason::SavedStack,
        "define void @f(ptr %p) { br label %head head: %s = load ptr, ptr %p
         call void @llvm.stackrestore.p0(ptr %s) br label %head }",
    );
    check(
        Reason::TailCall,
        "define void @f() { br label %head head: call void @g()
         br i1 undef, label %head, label %out out: musttail call void @g() ret void }",
    );
    check(
        Reason::Entry,
        "define void @f() personality ptr @p { invoke void @g() to label %out unwind label %pad
         pad: %l = landingpad { ptr, i32 } cleanup
         invoke void @g() to label %out unwind label %pad
         out: ret void } declare i32 @p(...)",
    );
    // A loop that is entered beside its head.
    let heads = baseline(
        "define void @f(i1 %c) { br i1 %c, label %a, label %b a: call void @g() br label %b
         b: call void @g() br label %a } declare void @g()",
    );
    assert_eq!(heads.heads.counted.len(), 1);
    // A stack pointer of its own is restored; arguments found before are available.
    let heads = baseline(
        "define void @f() { br label %head head: %s = call ptr @llvm.stacksave.p0()
         %a = alloca i8, i64 7 call void @h(ptr %a) call void @llvm.stackrestore.p0(ptr %s)
         br label %head }
         declare void @h(ptr) declare ptr @llvm.stacksave.p0()
         declare void @llvm.stackrestore.p0(ptr)",
    );
    assert_eq!(heads.heads.counted.len(), 1);
}

/// A value that a loop keeps in memory that nothing else leads to stays in a register.
#[test]
fn pointers_that_nothing_else_leads_to_are_promised_to_be_so() {
    let code = |promise: &str, begin: &str, read: &str, behind: &str| {
        let ir = format!(
            "define void @f(ptr {promise} %a, ptr {promise} %b, i64 %n) {{
             entry: {begin} br label %head
             head:
               %i = phi i64 [ 0, %entry ], [ %j, %head ]
               {read}
               %x = load i64, ptr %p
               %z = load i64, ptr %q
               %y = xor i64 %x, %z
               store i64 %y, ptr %p
               %j = add i64 %i, 1
               %more = icmp ult i64 %j, %n
               br i1 %more, label %head, label %done
             done: {behind} ret void }}
             declare void @g(ptr, ptr)"
        );
        let made = continuation(&ir, start(&baseline(&ir).heads, 0)).expect("compiles");
        disassemble(&made.object)
    };
    let check = |begin: &str, read: &str, behind: &str| {
        let [plain, promised] = ["", "noalias"].map(|promise| code(promise, begin, read, behind));
        plain != promised
    };
    let stored = "%r = alloca ptr store ptr %a, ptr %r %s = alloca ptr store ptr %b, ptr %s";
    let loaded = "%p = load ptr, ptr %r %q = load ptr, ptr %s";
    let made = "%p = getelementptr i64, ptr %a, i64 3 %q = getelementptr i64, ptr %b, i64 %n";
    assert!(check(stored, loaded, ""));
    assert!(check("", made, ""));
    // Pointers that are also elsewhere: passed to a call, stored, across the head, made of two.
    let read_again = "%l = load ptr, ptr %r %m = load ptr, ptr %s call void @g(ptr %l, ptr %m)";
    assert!(!check(stored, loaded, read_again));
    assert!(!check("call void @g(ptr %a, ptr %b)", made, ""));
    let twice = "store ptr %b, ptr %r store ptr %a, ptr %s";
    assert!(!check(&format!("{stored} {twice}"), loaded, ""));
    let cross = "%c = getelementptr i64, ptr %a, i64 %n %d = getelementptr i64, ptr %b, i64 %n";
    assert!(!check(
        cross,
        made,
        "store i64 0, ptr %c store i64 0, ptr %d"
    ));
    let either = "%c = icmp eq i64 %n, 9 %d = select i1 %c, ptr %a, ptr %b store i64 0, ptr %d";
    assert!(!check(either, made, ""));
}

/// Each iteration has scopes of its own.
#[test]
fn what_is_peeled_has_no_scopes_of_the_nest() {
    let accesses = |declaration: &str| {
        let ir = format!(
            "define void @f(ptr %p, ptr %q, i64 %n) {{
             entry: br label %outer
             outer:
               %i = phi i64 [ 0, %entry ], [ %i1, %latch ]
               {declaration}
               br label %inner
             inner:
               %j = phi i64 [ 0, %outer ], [ %j1, %inner ]
               store volatile i64 %j, ptr %q
               %j1 = add i64 %j, 1
               %again = icmp ult i64 %j1, %n
               br i1 %again, label %inner, label %latch
             latch:
               %from = getelementptr i64, ptr %q, i64 %i
               %x = load i64, ptr %from, !noalias !2
               %to = getelementptr i64, ptr %p, i64 %i
               store i64 %x, ptr %to, !alias.scope !2
               %i1 = add i64 %i, 1
               %more = icmp ult i64 %i1, %n
               br i1 %more, label %outer, label %done
             done: ret void }}
             declare void @llvm.experimental.noalias.scope.decl(metadata)
             !0 = distinct !{{!0}}
             !1 = distinct !{{!1, !0}}
             !2 = !{{!1}}"
        );
        let heads = baseline(&ir).heads;
        let inner = heads.counted.iter().position(|it| it.around.is_some());
        let mut reader = reader(&ir);
        let (plan, f) = (plan(&reader), id(&reader, "f"));
        let mut how = Compile::at(Tier::Optimized);
        how.start = Some(start(&heads, inner.expect("a loop in a loop")));
        let text = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&text);
        how.transform = Some(Transform::new(move |unit| {
            *seen.lock().unwrap() = unit.module.print_to_string().to_string();
            Ok(())
        }));
        reader.compile(&plan, f, &how).expect("compiles");
        let text = text.lock().unwrap();
        ["load i64, ptr %", "!noalias", "!alias.scope"].map(|it| text.matches(it).count())
    };
    let scope = "call void @llvm.experimental.noalias.scope.decl(metadata !2)";
    let [loads, noalias, scopes] = accesses(scope);
    assert!(loads >= 2);
    assert_eq!((noalias, scopes), (1, 1));
    // A scope that is the whole function's is the same in all copies.
    let [_, noalias, scopes] = accesses("");
    assert_eq!((noalias, scopes), (2, 2));
}

/// Loops that are entered anywhere, as by a `switch` into them: each has at most one loop around
/// it, and going outwards never comes back.
#[test]
fn who_goes_out_of_loops_comes_to_an_end() {
    let mut numbers = Random::new(1);
    let mut random = |below: u64| numbers.below(below);
    let mut nested = 0;
    for _ in 0..400 {
        let blocks = 4 + random(9);
        let mut ir = String::from("define void @f(ptr %p) { entry: br label %b0\n");
        for block in 0..blocks {
            ir += &format!("b{block}: %v{block} = load volatile i32, ptr %p\n");
            ir += &format!("switch i32 %v{block}, label %end [");
            for case in 0..1 + random(3) {
                // Mostly near, so that there are nests.
                let to = (block + blocks - 2 + random(4)) % blocks;
                ir += &format!(" i32 {case}, label %b{to}");
            }
            ir += " ]\n";
        }
        ir += "end: ret void }";
        let heads = baseline(&ir).heads.counted;
        for (own, head) in heads.iter().enumerate() {
            assert!(head.around.is_none_or(|it| (it as usize) < own), "{ir}");
            nested += u32::from(head.around.is_some());
        }
    }
    assert!(nested > 20, "{nested}");
}

#[test]
fn what_is_stored_keeps_its_heads() {
    let compiled = baseline(LOOP);
    let bytes = compiled.to_bytes().expect("storable");
    let again = Compiled::from_bytes(&bytes).expect("what was written");
    assert_eq!(again.heads, compiled.heads);
}

/// A loop that throws and catches, behind a query for the number of a type.
#[test]
fn each_function_numbers_what_it_catches_by_itself() {
    let ir = |behind: &str| {
        format!(
            "define i32 @f() personality ptr @p {{
             %t = call i32 @llvm.eh.typeid.for.p0(ptr @type)
             invoke void @g() to label %head unwind label %first
             first: %l1 = landingpad {{ ptr, i32 }} catch ptr @type catch ptr @other
             %s1 = extractvalue {{ ptr, i32 }} %l1, 1
             br label %head
             head: %c = phi i32 [ 0, %0 ], [ %s1, %first ], [ %c1, %next ]
             invoke void @g() to label %next unwind label %pad
             next: %c1 = {behind} br i1 %b, label %head, label %done
             pad: %l = landingpad {{ ptr, i32 }} catch ptr @type
             %s = extractvalue {{ ptr, i32 }} %l, 1
             %is = icmp eq i32 %s, %t
             %r = zext i1 %is to i32
             ret i32 %r
             done: ret i32 %c1 }}
             @type = external constant ptr @other = external constant ptr
             declare i32 @p(...) declare void @g() declare i32 @llvm.eh.typeid.for.p0(ptr)"
        )
    };
    // The number of a type is queried again; none crosses.
    let plain =
        ir("add i32 0, 1 %b = icmp eq i32 %c1, 0").replace("[ %s1, %first ]", "[ 7, %first ]");
    let heads = baseline(&plain).heads;
    assert_eq!(heads.counted.len(), 1);
    let made = continuation(&plain, start(&heads, 0)).expect("compiles");
    assert_eq!(made.heads, Heads::default());
    // The selected number does not cross.
    assert_eq!(
        stays(&ir("add i32 %c, 1 %b = icmp eq i32 %c1, 0")),
        [(Reason::Exception, 1)]
    );
}

/// A landing pad before a loop, and a comparison of its selector behind the loop. `kept` is code
/// before the loop that uses the selector `%s` or the number `%t`, and `back` computes `%b` from
/// it.
fn choice(kept: &str, back: &str) -> String {
    format!(
        "define i32 @f(i64 %n) personality ptr @p {{
         %slot = alloca i64 %other = alloca i64
         invoke void @g() to label %fine unwind label %pad
         fine: ret i32 0
         pad: %l = landingpad {{ ptr, i32 }} catch ptr @type catch ptr @other
         %e = extractvalue {{ ptr, i32 }} %l, 0
         %s = extractvalue {{ ptr, i32 }} %l, 1
         %t = call i32 @llvm.eh.typeid.for.p0(ptr @type)
         {kept}
         br label %head
         head: %i = phi i64 [ 0, %pad ], [ %j, %head ] %j = add i64 %i, 1
         call void @use(ptr %e)
         %c = icmp ult i64 %j, %n br i1 %c, label %head, label %done
         done: {back}
         ret i32 %b }}
         @type = external constant ptr @other = external constant ptr @global = global i64 0
         declare i32 @p(...) declare void @g() declare void @use(ptr)
         declare i64 @same(i64)
         declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
         declare i32 @llvm.eh.typeid.for.p0(ptr)"
    )
}

#[test]
fn numbers_of_one_version_do_not_cross() {
    const WORD: &str = "%b = trunc i64 %w to i32";
    const SLOT: &str = "%b = load i32, ptr %slot";
    let cases = [
        ("%w = zext i32 %s to i64", WORD),
        ("%w = zext i32 %t to i64", WORD),
        ("%v = zext i32 %s to i64 %w = xor i64 %v, 12", WORD),
        ("%x = sub i32 %s, %t", "%b = add i32 %x, 1"),
        ("%x = icmp ult i32 %s, %t", "%b = zext i1 %x to i32"),
        (
            "%q = insertvalue { i32, ptr } undef, i32 %s, 0
             %x = extractvalue { i32, ptr } %q, 0",
            "%b = add i32 %x, 1",
        ),
        (
            "%x = insertelement <2 x i32> zeroinitializer, i32 %s, i32 0",
            "%b = extractelement <2 x i32> %x, i32 0",
        ),
        ("store i32 %s, ptr %slot", SLOT),
        (
            "store i32 %t, ptr %other
             call void @llvm.memcpy.p0.p0.i64(ptr %slot, ptr %other, i64 8, i1 false)",
            SLOT,
        ),
        // Outside the body's own values and memory the number may have any use.
        ("%v = zext i32 %s to i64 %w = call i64 @same(i64 %v)", WORD),
        ("store i32 %s, ptr @global", "%b = load i32, ptr @global"),
        ("store i32 %s, ptr %e", "%b = load i32, ptr %e"),
        ("store i32 %s, ptr %slot call void @use(ptr %slot)", SLOT),
        (
            "store i32 %s, ptr %slot
             call void @llvm.memcpy.p0.p0.i64(ptr @global, ptr %slot, i64 8, i1 false)",
            "%b = load i32, ptr @global",
        ),
        (
            "%a = getelementptr [9 x i64], ptr %slot, i64 0, i32 %s store i64 1, ptr %a",
            SLOT,
        ),
    ];
    for (kept, back) in cases {
        let ir = choice(kept, back);
        assert_eq!(stays(&ir), [(Reason::Exception, 1)], "{ir}");
    }
}

#[test]
fn loops_behind_a_landing_pad_are_left_if_no_number_crosses() {
    for (kept, back) in [
        // The exception itself is no number, and a number without later uses stays.
        (
            "%q = icmp eq i32 %s, %t %x = zext i1 %q to i32",
            "%b = add i32 1, 2",
        ),
        (
            "store i32 %s, ptr %slot",
            "store i64 7, ptr %slot %b = load i32, ptr %slot",
        ),
        ("", "%b = call i32 @llvm.eh.typeid.for.p0(ptr @type)"),
        ("", "%b = add i32 %t, 1"),
        (
            "store ptr %e, ptr %slot",
            "%q = load ptr, ptr %slot call void @use(ptr %q) %b = add i32 1, 2",
        ),
    ] {
        let ir = choice(kept, back);
        let heads = baseline(&ir).heads;
        assert_eq!(heads.counted.len(), 1, "{ir}");
        continuation(&ir, start(&heads, 0)).expect("compiles");
    }
}
