; Labels of one function whose addresses other functions have: in their code, in constant tables
; that fold, in data that several share, and as distances. All mentions of one label are equal.
; levels: O0
; vary: --baseline off
; vary: --tiers 2
; vary: --tiers 3
target triple = "x86_64-pc-linux-gnu"
@f = private constant [14 x i8] c"%d %d %d %ld\0A\00"
@shared = internal constant [3 x ptr] [ptr blockaddress(@one, %a), ptr blockaddress(@one, %b), ptr blockaddress(@two, %c)]
@own = internal constant [2 x ptr] [ptr blockaddress(@one, %a), ptr blockaddress(@one, %b)]
@pub = global ptr blockaddress(@two, %d)
@dist = internal global [2 x i32] [i32 trunc (i64 sub (i64 ptrtoint (ptr blockaddress(@two, %d) to i64), i64 ptrtoint (ptr blockaddress(@two, %c) to i64)) to i32), i32 0]
declare i32 @printf(ptr, ...)
define i64 @one(ptr %p, i64 %n) noinline {
entry:
  indirectbr ptr %p, [label %a, label %b, label %a]
a:
  %x = phi i64 [ 1, %entry ], [ 1, %entry ], [ %x2, %loop ]
  %i = phi i64 [ %n, %entry ], [ %n, %entry ], [ %j, %loop ]
  br label %loop
loop:
  %x1 = mul i64 %x, 7
  %x2 = add i64 %x1, %i
  %j = sub i64 %i, 1
  %e = icmp sgt i64 %j, 0
  %to = select i1 %e, ptr blockaddress(@one, %a), ptr blockaddress(@one, %b)
  indirectbr ptr %to, [label %a, label %b]
b:
  %y = phi i64 [ 5, %entry ], [ %x2, %loop ]
  ret i64 %y
}
define i64 @two(ptr %p, i64 %n) noinline {
entry:
  indirectbr ptr %p, [label %c, label %d]
c:
  ret i64 %n
d:
  %r = add i64 %n, 1000
  ret i64 %r
}
define ptr @pick(i64 %i) noinline {
  %p = getelementptr [3 x ptr], ptr @shared, i64 0, i64 %i
  %v = load ptr, ptr %p
  ret ptr %v
}
define ptr @folded() noinline {
  %p = getelementptr [2 x ptr], ptr @own, i64 0, i64 1
  %v = load ptr, ptr %p
  ret ptr %v
}
define ptr @direct(i1 %c) noinline {
  %p = select i1 %c, ptr blockaddress(@one, %a), ptr blockaddress(@two, %d)
  ret ptr %p
}
define i64 @ownjump(i64 %i, i64 %n) noinline {
  %p = getelementptr [2 x ptr], ptr @own, i64 0, i64 %i
  %v = load ptr, ptr %p
  %r = call i64 @one(ptr %v, i64 %n)
  ret i64 %r
}
define i64 @dd() noinline {
  %o = load i32, ptr @dist
  %w = sext i32 %o to i64
  %t = getelementptr i8, ptr blockaddress(@two, %c), i64 %w
  %r = call i64 @two(ptr %t, i64 4)
  ret i64 %r
}
define i32 @main(i32 %argc, ptr %v) {
entry:
  %many = icmp sgt i32 %argc, 1
  %times = select i1 %many, i64 2000, i64 200
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %s = phi i64 [ 0, %entry ], [ %s9, %loop ]
  %a = call ptr @pick(i64 0)
  %b = call ptr @pick(i64 1)
  %c = call ptr @pick(i64 2)
  %fb = call ptr @folded()
  %da = call ptr @direct(i1 true)
  %dd = call ptr @direct(i1 false)
  %pd = load ptr, ptr @pub
  %e1 = icmp eq ptr %a, %da
  %e2 = icmp eq ptr %b, %fb
  %e3 = icmp eq ptr %pd, %dd
  %r1 = call i64 @one(ptr %a, i64 %k)
  %r2 = call i64 @one(ptr %fb, i64 %k)
  %r3 = call i64 @two(ptr %c, i64 %k)
  %r4 = call i64 @two(ptr %pd, i64 %k)
  %r5 = call i64 @ownjump(i64 0, i64 9)
  %r6 = call i64 @dd()
  %s1 = mul i64 %s, 31
  %s2 = add i64 %s1, %r1
  %s3 = add i64 %s2, %r2
  %s4 = add i64 %s3, %r3
  %s5 = add i64 %s4, %r4
  %s6 = add i64 %s5, %r5
  %s9 = add i64 %s6, %r6
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %times
  br i1 %more, label %loop, label %done
done:
  %x1 = zext i1 %e1 to i32
  %x2 = zext i1 %e2 to i32
  %x3 = zext i1 %e3 to i32
  %p = call i32 (ptr, ...) @printf(ptr @f, i32 %x1, i32 %x2, i32 %x3, i64 %s9)
  ret i32 0
}
