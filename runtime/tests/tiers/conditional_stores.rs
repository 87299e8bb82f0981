//! Stores that do not always run stay where they are, whatever tags say of those that do.
//!
//! LLVM up to 23 keeps `c[1]` of the loop below in a register, which its other stores change
//! (`codegen::tags`).

use uruk::{Jit, Tier, Tiers};

/// Counts how often the first numbers of four, as many as the first says and one more, are turned round
/// until the first is 0: twice two numbers are exchanged, written out, by two pointers that do not meet in
/// one round. Ends after 20 rounds in any case.
const FLIPS: &str = "
    define i32 @flips(i32 %order) {
    entry:
      %c = alloca [4 x i8], align 4
      store i32 %order, ptr %c
      %top = load i8, ptr %c
      %none = icmp eq i8 %top, 0
      br i1 %none, label %done, label %round
    round:
      %n = phi i8 [ %top, %entry ], [ %next, %again ]
      %count = phi i32 [ 0, %entry ], [ %more, %again ]
      %far = zext i8 %n to i64
      %numbers = add nuw i64 %far, 1
      %half = lshr i64 %numbers, 1
      %b0 = getelementptr i8, ptr %c, i64 %far
      call void @llvm.experimental.noalias.scope.decl(metadata !1)
      call void @llvm.experimental.noalias.scope.decl(metadata !2)
      %x0 = load i8, ptr %c, !alias.scope !1, !noalias !2
      %y0 = load i8, ptr %b0, !alias.scope !2, !noalias !1
      store i8 %y0, ptr %c, !alias.scope !1, !noalias !2
      store i8 %x0, ptr %b0, !alias.scope !2, !noalias !1
      %one = icmp eq i64 %half, 1
      br i1 %one, label %again, label %second
    second:
      %a1 = getelementptr i8, ptr %c, i64 1
      %b1 = getelementptr i8, ptr %b0, i64 -1
      %x1 = load i8, ptr %a1, !alias.scope !1, !noalias !2
      %y1 = load i8, ptr %b1, !alias.scope !2, !noalias !1
      store i8 %y1, ptr %a1, !alias.scope !1, !noalias !2
      store i8 %x1, ptr %b1, !alias.scope !2, !noalias !1
      br label %again
    again:
      %more = add i32 %count, 1
      %next = load i8, ptr %c
      %over = icmp eq i8 %next, 0
      %long = icmp eq i32 %more, 20
      %end = or i1 %over, %long
      br i1 %end, label %done, label %round
    done:
      %all = phi i32 [ 0, %entry ], [ %more, %again ]
      ret i32 %all
    }
    declare void @llvm.experimental.noalias.scope.decl(metadata)
    !0 = distinct !{!0}
    !1 = !{!3}
    !2 = !{!4}
    !3 = distinct !{!3, !0}
    !4 = distinct !{!4, !0}";

fn flips(mut order: [u8; 4]) -> i32 {
    let mut count = 0;
    while order[0] != 0 {
        let first = usize::from(order[0]);
        order[..=first].reverse();
        count += 1;
    }
    count
}

/// All orders of four numbers.
fn orders() -> Vec<[u8; 4]> {
    let all = (0..256u32).map(|it| [0, 2, 4, 6].map(|bit| (it >> bit & 3) as u8));
    let differ = |order: &[u8; 4]| (0..4).all(|number| order.contains(&number));
    all.filter(differ).collect()
}

#[test]
fn what_does_not_always_run_is_kept_in_no_register() {
    assert_eq!(orders().len(), 24);
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        let jit = Jit::builder().tiers(Tiers::Fixed(tier));
        let jit = jit.build().expect("a session");
        jit.add_ir("m", FLIPS).expect("valid IR");
        // SAFETY: a function of that type.
        let found = unsafe { jit.function::<extern "C" fn(i32) -> i32>("flips") };
        let found = found.expect("typed");
        for order in orders() {
            let count = found.call(i32::from_le_bytes(order));
            assert_eq!(count, flips(order), "{order:?}, {tier:?}");
        }
    }
}
