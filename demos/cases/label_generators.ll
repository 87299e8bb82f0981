; Generators by labels: a function stores the label of another one at which that is to begin, and
; which in turn stores where it goes on.
; levels: O0
; vary: --baseline off
; vary: --tiers 2
; vary: --tiers 3
target triple = "x86_64-pc-linux-gnu"
%frame = type { ptr, i64, i64 }
@f = private constant [5 x i8] c"%ld\0A\00"
declare i32 @printf(ptr, ...)
define void @make(ptr %g, i64 %from, i64 %to) noinline {
  store ptr blockaddress(@resume, %start), ptr %g
  %a = getelementptr %frame, ptr %g, i64 0, i32 1
  store i64 %from, ptr %a
  %b = getelementptr %frame, ptr %g, i64 0, i32 2
  store i64 %to, ptr %b
  ret void
}
define i64 @resume(ptr %g, i64 %scale, i64 %offset) noinline {
entry:
  %where = load ptr, ptr %g
  %a = getelementptr %frame, ptr %g, i64 0, i32 1
  %b = getelementptr %frame, ptr %g, i64 0, i32 2
  indirectbr ptr %where, [label %start, label %again, label %over]
start:
  %v = load i64, ptr %a
  store ptr blockaddress(@resume, %again), ptr %g
  %s = mul i64 %v, %scale
  %s1 = add i64 %s, %offset
  ret i64 %s1
again:
  %v2 = load i64, ptr %a
  %n = add i64 %v2, 1
  store i64 %n, ptr %a
  %t = load i64, ptr %b
  %c = icmp uge i64 %n, %t
  br i1 %c, label %end, label %more
more:
  %s2 = mul i64 %n, %scale
  %s3 = add i64 %s2, %offset
  ret i64 %s3
end:
  store ptr blockaddress(@resume, %over), ptr %g
  ret i64 -1
over:
  ret i64 -1
}
define i64 @sum(i64 %from, i64 %to) noinline {
entry:
  %g = alloca %frame
  call void @make(ptr %g, i64 %from, i64 %to)
  br label %loop
loop:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %r = call i64 @resume(ptr %g, i64 3, i64 7)
  %e = icmp eq i64 %r, -1
  br i1 %e, label %out, label %next
next:
  %t1 = add i64 %t, %r
  br label %loop
out:
  %r2 = call i64 @resume(ptr %g, i64 3, i64 7)
  %t2 = add i64 %t, %r2
  ret i64 %t2
}
define i32 @main(i32 %c, ptr %v) {
entry:
  %n = icmp sgt i32 %c, 1
  %times = select i1 %n, i64 900, i64 300
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %s = phi i64 [ 0, %entry ], [ %u, %loop ]
  %x = call i64 @sum(i64 %i, i64 1000)
  %y = and i64 %x, 1048575
  %u = add i64 %s, %y
  %j = add i64 %i, 1
  %k = icmp slt i64 %j, %times
  br i1 %k, label %loop, label %out
out:
  %p = call i32 (ptr, ...) @printf(ptr @f, i64 %u)
  ret i32 0
}
