//! A first compile ahead of need: a kept machine serves a reader as an emitter of its own would.
//! One test: the machine is kept for the process.

mod support;

use support::{id, plan, reader};
use uruk_codegen::{Compile, Tier, warm};

/// Features as clang names them, others, none; assembly with a label of its own.
const IR: &str = r#"
define double @plain(ptr %a, i32 %n) "min-legal-vector-width"="0" "target-features"="+cx8,+sse2,+x87" {
entry:
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %head ]
  %sum = phi double [ 0.0, %entry ], [ %added, %head ]
  %index = zext i32 %i to i64
  %p = getelementptr double, ptr %a, i64 %index
  %x = load double, ptr %p
  %added = fadd double %sum, %x
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %head, label %out
out:
  ret double %added
}

define i32 @bare(i32 %x, i32 %y) {
  %sum = add i32 %x, %y
  %told = call i32 @elsewhere(i32 %sum)
  ret i32 %told
}

define i32 @without(i32 %x) "target-features"="-bmi,-bmi2,-avx" {
  %shifted = shl i32 3, %x
  ret i32 %shifted
}

define void @labelled() {
  call void asm sideeffect "1: nop\0A jmp 1f\0A 1:", ""()
  ret void
}

declare i32 @elsewhere(i32)
"#;

#[test]
fn what_was_warmed_up_serves_the_next_reader() {
    assert!(warm::is_cold() && !warm::is_ready());
    warm::warm_up(|| false).expect("a compile");
    assert!(!warm::is_cold() && warm::is_ready());

    let compile = |with: &mut uruk_codegen::Reader, name: &str| {
        let how = Compile::at(Tier::Optimized);
        let (plan, function) = (plan(with), id(with, name));
        with.compile(&plan, function, &how).expect("code").object
    };
    let (mut first, mut second) = (reader(IR), reader(IR));
    for name in ["plain", "bare", "without", "labelled", "plain"] {
        let object = compile(&mut first, name);
        assert!(!warm::is_ready(), "the first reader took it");
        assert_eq!(object, compile(&mut second, name), "{name}");
    }

    // A second call does nothing.
    warm::warm_up(|| unreachable!("nothing is done")).expect("nothing");
    assert!(!warm::is_ready());

    // A machine left by a reader serves another one, too, also after its assembly.
    drop(second);
    assert!(warm::is_ready());
    let mut third = reader(IR);
    for name in ["labelled", "without", "plain"] {
        assert_eq!(
            compile(&mut first, name),
            compile(&mut third, name),
            "{name}"
        );
    }
    assert!(!warm::is_ready());
}
