; Blocks, phis, switches, labels, exceptions.

@kind = external constant ptr
declare i32 @__gxx_personality_v0(...)
declare i32 @may_throw(i32)
declare void @done()

define i32 @order(i32 %n) {
;> function(i32 %0) -> i32
;> b0:
;>   jump b1
;> b1:
;>   %1 = phi i32 [b0 %0]
;>   switch i32 %1 b2, b4, b4 [1, 4294967294]
;> b2:
;>   %2 = icmp eq i32 %1, 3
;>   branch %2 b3, b3
;> b3:
;>   %3 = phi i32 [b2 1] [b2 1]
;>   %4 = phi f32 [b2 #40000000] [b2 #40000000]
;>   return %3
;> b4:
;>   %5 = phi i32 [b1 %1] [b1 %1]
;>   return %5
entry:
  br label %late
early:
  %e = phi i32 [ %l, %late ], [ %l, %late ]
  ret i32 %e
dead:
  br label %late
late:
  %l = phi i32 [ %n, %entry ], [ 5, %dead ]
  switch i32 %l, label %other [
    i32 1, label %early
    i32 -2, label %early
  ]
other:
  %c = icmp eq i32 %l, 3
  br i1 %c, label %end, label %end
end:
  %p = phi { i32, float } [ { i32 1, float 2.0 }, %other ], [ { i32 1, float 2.0 }, %other ]
  %x = extractvalue { i32, float } %p, 0
  ret i32 %x
}

define i32 @goto(i32 %n) {
;> function(i32 %0) -> i32
;> symbol @uruk.labels.goto near
;> b0:
;>   %1 = icmp eq i32 %0, 0
;>   %2 = select i64 %1, @uruk.labels.goto+1, @uruk.labels.goto+2
;>   %3 = sub i64 %2, @uruk.labels.goto+1
;>   dispatch %3 b1, b2 [0, 1]
;> b1:
;>   return 1
;> b2:
;>   return 2
entry:
  %c = icmp eq i32 %n, 0
  %t = select i1 %c, ptr blockaddress(@goto, %a), ptr blockaddress(@goto, %b)
  indirectbr ptr %t, [label %a, label %b]
a:
  ret i32 1
b:
  ret i32 2
}

define i32 @throws(i32 %n) personality ptr @__gxx_personality_v0 {
;> function(i32 %0) -> i32
;> symbol @__gxx_personality_v0 indirect
;> symbol @may_throw indirect
;> symbol @kind indirect
;> personality @__gxx_personality_v0
;> b0:
;>   %1 = invoke @may_throw(i32 %0) -> i32 to b1, b2
;> b1:
;>   return %1
;> b2:
;>   %2, %3 = landingpad cleanup catch @kind catch null filter [@kind] filter []
;>   %4 = typeid @kind
;>   %5 = icmp eq i32 %3, %4
;>   branch %5 b3, b4
;> b3:
;>   return %3
;> b4:
;>   resume %2, %3
entry:
  %r = invoke i32 @may_throw(i32 %n) to label %fine unwind label %bad
fine:
  ret i32 %r
bad:
  %p = landingpad { ptr, i32 }
    cleanup
    catch ptr @kind
    catch ptr null
    filter [1 x ptr] [ptr @kind]
    filter [0 x ptr] zeroinitializer
  %s = extractvalue { ptr, i32 } %p, 1
  %k = call i32 @llvm.eh.typeid.for.p0(ptr @kind)
  %c = icmp eq i32 %s, %k
  br i1 %c, label %caught, label %on
caught:
  ret i32 %s
on:
  resume { ptr, i32 } %p
}

define void @ends(i1 %c) {
;> function(i1 %0)
;> symbol @done indirect
;> b0:
;>   branch %0 b1, b2
;> b1:
;>   trap
;>   unreachable
;> b2:
;>   call @done()
;>   return
  br i1 %c, label %a, label %b
a:
  call void @llvm.trap()
  unreachable
b:
  call void @done()
  ret void
}

@table = internal constant [3 x ptr] [ptr blockaddress(@jumps, %a), ptr blockaddress(@jumps, %b), ptr blockaddress(@jumps, %a)]
@other = internal constant [1 x ptr] [ptr blockaddress(@jumps, %b)]

define i32 @jumps(ptr %code) {
;> function(i64 %0) -> i32
;> symbol @table near
;> symbol @uruk.labels.jumps near
;> symbol @other near
;> b0:
;>   %1 = alloca 8 align 8
;>   %2 = load i8 %0 align 1
;>   %3 = zext i8 %2 to i64
;>   %4 = offset @table [%3 i64 8] 0
;>   %5 = load i64 %4 align 8
;>   jump b1
;> b1:
;>   %6 = phi i64 [b0 %5] [b2 %12]
;>   %7 = sub i64 %6, @uruk.labels.jumps+2
;>   dispatch %7 b2, b3 [0, 1]
;> b2:
;>   %8 = phi i32 [b1 1]
;>   %9 = load i32 %0 align 4
;>   %10 = offset @other [%9 i32 8] 0
;>   %11 = load i64 %10 align 8
;>   store i64 %11 to %1 align 8
;>   %12 = load i64 %1 align 8
;>   jump b1
;> b3:
;>   %13 = phi i32 [b1 2]
;>   return %13
entry:
  %next = alloca ptr, align 8
  %o = load i8, ptr %code, align 1
  %i = zext i8 %o to i64
  %p = getelementptr inbounds [3 x ptr], ptr @table, i64 0, i64 %i
  %t = load ptr, ptr %p, align 8
  br label %dispatch
dispatch:
  %l = phi ptr [ %t, %entry ], [ %v, %a ]
  indirectbr ptr %l, [label %a, label %b]
a:
  %n = phi i32 [ 1, %dispatch ]
  %j = load i32, ptr %code, align 4
  %q = getelementptr inbounds [1 x ptr], ptr @other, i64 0, i32 %j
  %u = load ptr, ptr %q, align 8
  store ptr %u, ptr %next, align 8
  %v = load ptr, ptr %next, align 8
  br label %dispatch
b:
  %m = phi i32 [ 2, %dispatch ]
  ret i32 %m
}
