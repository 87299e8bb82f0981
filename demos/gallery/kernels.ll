; What the `tiers` demo runs: an interpreter's loop and two numeric kernels. Each takes
; how much there is to do and returns something that depends on all of it.

; Opcode and operand by turns; the last instruction jumps to the first one until the
; counter is used up. 1 adds, 2 multiplies, 3 mixes, 4 counts down and jumps.
@code = internal constant [12 x i8] c"\01\07\03\00\02\05\03\00\01\0B\04\00"

define internal i64 @mix(i64 %x) {
  %left = shl i64 %x, 13
  %once = xor i64 %x, %left
  %right = lshr i64 %once, 7
  %twice = xor i64 %once, %right
  ret i64 %twice
}

define i64 @interpret(i64 %rounds) {
entry:
  br label %fetch
fetch:
  %pc = phi i64 [ 0, %entry ], [ %next, %add ], [ %next, %mul ], [ %next, %mix ], [ %operand, %jump ]
  %value = phi i64 [ 1, %entry ], [ %sum, %add ], [ %product, %mul ], [ %mixed, %mix ], [ %value, %jump ]
  %count = phi i64 [ %rounds, %entry ], [ %count, %add ], [ %count, %mul ], [ %count, %mix ], [ %less, %jump ]
  %at = getelementptr i8, ptr @code, i64 %pc
  %opcode = load i8, ptr %at
  %after = getelementptr i8, ptr %at, i64 1
  %byte = load i8, ptr %after
  %operand = zext i8 %byte to i64
  %next = add i64 %pc, 2
  switch i8 %opcode, label %halt [ i8 1, label %add  i8 2, label %mul  i8 3, label %mix  i8 4, label %jump ]
add:
  %sum = add i64 %value, %operand
  br label %fetch
mul:
  %product = mul i64 %value, %operand
  br label %fetch
mix:
  %mixed = call i64 @mix(i64 %value)
  br label %fetch
jump:
  %less = sub i64 %count, 1
  %done = icmp eq i64 %less, 0
  br i1 %done, label %halt, label %fetch
halt:
  ret i64 %value
}

; Steps until z = z * z + c leaves the circle of radius 2.
define internal i64 @escape(double %re, double %im) {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %more, %step ]
  %x = phi double [ 0.0, %entry ], [ %x.next, %step ]
  %y = phi double [ 0.0, %entry ], [ %y.next, %step ]
  %xx = fmul double %x, %x
  %yy = fmul double %y, %y
  %square = fadd double %xx, %yy
  %outside = fcmp ogt double %square, 4.0
  %enough = icmp eq i64 %n, 200
  %stop = or i1 %outside, %enough
  br i1 %stop, label %done, label %step
step:
  %difference = fsub double %xx, %yy
  %x.next = fadd double %difference, %re
  %xy = fmul double %x, %y
  %double = fmul double %xy, 2.0
  %y.next = fadd double %double, %im
  %more = add i64 %n, 1
  br label %loop
done:
  ret i64 %n
}

define i64 @mandelbrot(i64 %size) {
entry:
  %scale = uitofp i64 %size to double
  %pixels = mul i64 %size, %size
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %loop ]
  %row = udiv i64 %i, %size
  %column = urem i64 %i, %size
  %fx = uitofp i64 %column to double
  %fy = uitofp i64 %row to double
  %ux = fdiv double %fx, %scale
  %uy = fdiv double %fy, %scale
  %sx = fmul double %ux, 3.0
  %re = fsub double %sx, 2.25
  %sy = fmul double %uy, 2.5
  %im = fsub double %sy, 1.25
  %steps = call i64 @escape(double %re, double %im)
  %total.next = add i64 %total, %steps
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %pixels
  br i1 %again, label %loop, label %done
done:
  ret i64 %total.next
}

; A five-point stencil on a 64 by 64 grid, from one half of `grid` into the other.
@grid = internal global [2 x [4096 x i32]] zeroinitializer

define internal void @sweep(ptr %from, ptr %to, i32 %salt) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 64, %entry ], [ %i.next, %loop ]
  %cell = getelementptr i32, ptr %from, i64 %i
  %up.at = getelementptr i32, ptr %cell, i64 -64
  %down.at = getelementptr i32, ptr %cell, i64 64
  %left.at = getelementptr i32, ptr %cell, i64 -1
  %right.at = getelementptr i32, ptr %cell, i64 1
  %middle = load i32, ptr %cell
  %up = load i32, ptr %up.at
  %down = load i32, ptr %down.at
  %left = load i32, ptr %left.at
  %right = load i32, ptr %right.at
  %vertical = add i32 %up, %down
  %horizontal = add i32 %left, %right
  %around = add i32 %vertical, %horizontal
  %weighted = mul i32 %middle, 3
  %sum = add i32 %around, %weighted
  %new = xor i32 %sum, %salt
  %target = getelementptr i32, ptr %to, i64 %i
  store i32 %new, ptr %target
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, 4032
  br i1 %again, label %loop, label %done
done:
  ret void
}

define i64 @stencil(i64 %sweeps) {
entry:
  call void @llvm.memset.p0.i64(ptr @grid, i8 1, i64 32768, i1 false)
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  %odd = and i64 %n, 1
  %even = xor i64 %odd, 1
  %from = getelementptr [2 x [4096 x i32]], ptr @grid, i64 0, i64 %odd
  %to = getelementptr [2 x [4096 x i32]], ptr @grid, i64 0, i64 %even
  %salt = trunc i64 %n to i32
  call void @sweep(ptr %from, ptr %to, i32 %salt)
  %n.next = add i64 %n, 1
  %again = icmp ult i64 %n.next, %sweeps
  br i1 %again, label %loop, label %done
done:
  %corner = getelementptr [2 x [4096 x i32]], ptr @grid, i64 0, i64 %even, i64 2080
  %result = load i32, ptr %corner
  %wide = zext i32 %result to i64
  ret i64 %wide
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A loop that is entered once: parts of 48 walks over a row of numbers, after each of which
; somebody is told.
@row = internal global [4096 x i32] zeroinitializer
declare void @tick()

define i64 @once(i64 %parts) {
entry:
  br label %part
part:
  %p = phi i64 [ 0, %entry ], [ %p.next, %told ]
  %seed = trunc i64 %p to i32
  br label %walk
walk:
  %w = phi i64 [ 0, %part ], [ %w.next, %walked ]
  br label %step
step:
  %i = phi i64 [ 0, %walk ], [ %i.next, %step ]
  %sum = phi i32 [ %seed, %walk ], [ %sum.next, %step ]
  %at = getelementptr [4096 x i32], ptr @row, i64 0, i64 %i
  %old = load i32, ptr %at
  %place = trunc i64 %i to i32
  %large = mul i32 %old, 1664525
  %mixed = xor i32 %large, %place
  %new = add i32 %mixed, %seed
  store i32 %new, ptr %at
  %sum.next = add i32 %sum, %new
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 4096
  br i1 %more, label %step, label %walked
walked:
  %w.next = add i64 %w, 1
  %walks = icmp ult i64 %w.next, 48
  br i1 %walks, label %walk, label %told
told:
  call void @tick()
  %p.next = add i64 %p, 1
  %again = icmp ult i64 %p.next, %parts
  br i1 %again, label %part, label %done
done:
  %result = zext i32 %sum.next to i64
  ret i64 %result
}
