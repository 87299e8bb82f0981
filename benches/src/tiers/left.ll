; A loop of 32 instructions that runs until it is optimized: `llvm.is.constant` of what any pass
; can compute is false in code of tier 1, which computes nothing, and true in any other. What it
; computes goes to memory, so that the loop is not only its counter.

@format = private constant [6 x i8] c"%.3f\0A\00"
@result = global i64 0

declare i1 @llvm.is.constant.i64(i64)
declare i32 @clock_gettime(i32, ptr)
declare i32 @printf(ptr, ...)

define i64 @spin(i64 %seed, ptr %out) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %latch ]
  %a = phi i64 [ %seed, %entry ], [ %a3, %latch ]
  %b = phi i64 [ 1, %entry ], [ %b.next, %latch ]
  %known = and i64 %i, 0
  %optimized = call i1 @llvm.is.constant.i64(i64 %known)
  br i1 %optimized, label %done, label %step
step:
  %s1 = shl i64 %a, 13
  %a1 = xor i64 %a, %s1
  %s2 = lshr i64 %a1, 7
  %a2 = xor i64 %a1, %s2
  %s3 = shl i64 %a2, 17
  %a3 = xor i64 %a2, %s3
  %low = and i64 %a3, 1
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %left, label %right
left:
  %l1 = mul i64 %a3, 3
  %l2 = add i64 %b, %l1
  br label %join
right:
  %r1 = lshr i64 %b, 3
  %r2 = xor i64 %r1, %a3
  br label %join
join:
  %b1 = phi i64 [ %l2, %left ], [ %r2, %right ]
  %t1 = shl i64 %b1, 5
  %t2 = lshr i64 %b1, 59
  %b.next = or i64 %t1, %t2
  %masked = and i64 %b.next, 7
  %place = getelementptr i64, ptr %out, i64 %masked
  store i64 %a3, ptr %place
  br label %latch
latch:
  %i.next = add i64 %i, 1
  %over = icmp eq i64 %i.next, 4000000000
  br i1 %over, label %done, label %loop
done:
  ret i64 %b
}

define double @now() noinline {
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %at = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %at
  %whole = sitofp i64 %seconds to double
  %part = sitofp i64 %nanoseconds to double
  %thousands = fmul double %whole, 1.0e3
  %millionths = fdiv double %part, 1.0e6
  %ms = fadd double %thousands, %millionths
  ret double %ms
}

define i32 @main() {
  %out = alloca [8 x i64]
  %before = call double @now()
  %result = call i64 @spin(i64 88172645463325252, ptr %out)
  %after = call double @now()
  store i64 %result, ptr @result
  %took = fsub double %after, %before
  %printed = call i32 (ptr, ...) @printf(ptr @format, double %took)
  ret i32 0
}
