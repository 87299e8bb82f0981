; What is counted, and what crosses where loops are left.

declare void @use(ptr)

define i32 @sum(ptr %p, i32 %n, i8 %k) {
;> function(i64 %0, i32 %1, i8 %2) -> i32
;> symbol @use indirect
;> symbol @uruk.counters near
;> symbol @uruk.loops near
;> counters @uruk.counters
;> loops @uruk.loops
;> head b1 slot 0 count 24 left 28 (i64 %0, i32 %1, i64 %3, i32 %4, i32 %5) loaded 3
;> b0:
;>   %3 = alloca 32 align 4
;>   %4 = alloca 4 align 4
;>   store i32 0 to %4 align 4
;>   call @use(i64 %3)
;>   jump b1
;> b1:
;>   %5 = phi i32 [b0 0] [b2 %11]
;>   %6 = icmp slt i32 %5, %1
;>   branch %6 b2, b3
;> b2:
;>   %7 = offset %0 [%5 i32 4] 0
;>   %8 = load i32 %7 align 4
;>   %9 = load i32 %4 align 4
;>   %10 = add i32 %9, %8
;>   store i32 %10 to %4 align 4
;>   store i32 %10 to %3 align 4
;>   %11 = add i32 %5, 1
;>   jump b1
;> b3:
;>   call @use(i64 %3)
;>   %12 = load i32 %4 align 4
;>   return %12
entry:
  %room = alloca [8 x i32], align 4
  %total = alloca i32, align 4
  store i32 0, ptr %total, align 4
  call void @use(ptr %room)
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %c = icmp slt i32 %i, %n
  br i1 %c, label %body, label %end
body:
  %a = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %a, align 4
  %t = load i32, ptr %total, align 4
  %s = add i32 %t, %v
  store i32 %s, ptr %total, align 4
  store i32 %s, ptr %room, align 4
  %next = add i32 %i, 1
  br label %head
end:
  call void @use(ptr %room)
  %r = load i32, ptr %total, align 4
  ret i32 %r
}

define i128 @stored(i128 %x, i32 %n) {
;> function(i64 %0 paired, i64 %1, i32 %2) -> i64, i64
;> symbol @uruk.counters near
;> symbol @uruk.loops near
;> counters @uruk.counters
;> loops @uruk.loops
;> head b1 slot 0 count 24 left 28 (i64 undef, i32 %2, i32 %3) stored 0 at 0 i64 %0, 0 at 8 i64 %1
;> b0:
;>   jump b1
;> b1:
;>   %3 = phi i32 [b0 0] [b1 %4]
;>   %4 = add i32 %3, 1
;>   %5 = icmp slt i32 %4, %2
;>   branch %5 b1, b2
;> b2:
;>   return %0, %1
entry:
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %head ]
  %next = add i32 %i, 1
  %c = icmp slt i32 %next, %n
  br i1 %c, label %head, label %end
end:
  ret i128 %x
}

define double @fused(ptr %p, double %a, i64 %n) {
;> function(i64 %0, f64 %1, i64 %2) -> f64
;> symbol @uruk.counters near
;> symbol @uruk.loops near
;> counters @uruk.counters
;> loops @uruk.loops
;> head b1 slot 0 count 48 left 56 (i64 %0, f64 %1, i64 %2, i64 %3)
;> head b2 slot 8 count 52 left 60 (i64 %0, f64 %1, i64 %2, i64 %3, i64 %4, f64 %5)
;> b0:
;>   jump b1
;> b1:
;>   %3 = phi i64 [b0 0] [b3 %10]
;>   jump b2
;> b2:
;>   %4 = phi i64 [b1 0] [b2 %8]
;>   %5 = phi f64 [b1 #0] [b2 %7]
;>   %6 = fmul f64 %5, %1
;>   %7 = fadd f64 %6, #3ff0000000000000
;>   %8 = add i64 %4, 1
;>   %9 = icmp slt i64 %8, %2
;>   branch %9 b2, b3
;> b3:
;>   store f64 %7 to %0 align 8
;>   %10 = add i64 %3, 1
;>   %11 = icmp slt i64 %10, %2
;>   branch %11 b1, b4
;> b4:
;>   return %7
entry:
  br label %outer
outer:
  %j = phi i64 [ 0, %entry ], [ %j.next, %latch ]
  br label %inner
inner:
  %i = phi i64 [ 0, %outer ], [ %i.next, %inner ]
  %s = phi double [ 0.0, %outer ], [ %m, %inner ]
  %m = call double @llvm.fmuladd.f64(double %s, double %a, double 1.0)
  %i.next = add i64 %i, 1
  %c = icmp slt i64 %i.next, %n
  br i1 %c, label %inner, label %latch
latch:
  store double %m, ptr %p, align 8
  %j.next = add i64 %j, 1
  %d = icmp slt i64 %j.next, %n
  br i1 %d, label %outer, label %end
end:
  ret double %m
}
