; Values whose parts LLVM passes one by one, between functions of both compilers: vectors whose
; number of lanes is no power of two, and an i128 within an aggregate when one register is left.
; Assembly in a body leaves it to LLVM at tier 1.
; levels: O0
; vary: --tiers 1
; vary: --tiers 2
; gate: D
target triple = "x86_64-unknown-linux-gnu"

@lane = private constant [4 x i8] c"%d \00"
@wide = private constant [21 x i8] c"%lld %lld %lld %lld\0A\00"

declare i32 @printf(ptr, ...)

define void @show(<7 x i8> %v, <3 x i16> %w) noinline {
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %b = extractelement <7 x i8> %v, i32 %i
  %n = zext i8 %b to i32
  %r = call i32 (ptr, ...) @printf(ptr @lane, i32 %n)
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 7
  br i1 %more, label %loop, label %shorts
shorts:
  %h0 = extractelement <3 x i16> %w, i32 0
  %h1 = extractelement <3 x i16> %w, i32 1
  %h2 = extractelement <3 x i16> %w, i32 2
  %e0 = zext i16 %h0 to i32
  %e1 = zext i16 %h1 to i32
  %e2 = zext i16 %h2 to i32
  %r0 = call i32 (ptr, ...) @printf(ptr @lane, i32 %e0)
  %r1 = call i32 (ptr, ...) @printf(ptr @lane, i32 %e1)
  %r2 = call i32 (ptr, ...) @printf(ptr @lane, i32 %e2)
  ret void
}

define <3 x i8> @bytes_by_llvm(<3 x i8> %a, i32 %k, <3 x i8> %b) noinline {
  call void asm sideeffect "xorl %eax, %eax", "~{eax}"()
  %c = sub <3 x i8> %b, %a
  ret <3 x i8> %c
}

define <3 x i8> @bytes(<3 x i8> %a, i32 %k, <3 x i8> %b) noinline {
  %c = add <3 x i8> %a, %b
  ret <3 x i8> %c
}

define <3 x i16> @shorts_by_llvm(<3 x i16> %a, <5 x i8> %b, <6 x i8> %c) noinline {
  call void asm sideeffect "xorl %eax, %eax", "~{eax}"()
  %x = shufflevector <5 x i8> %b, <5 x i8> poison, <3 x i32> <i32 4, i32 2, i32 0>
  %y = shufflevector <6 x i8> %c, <6 x i8> poison, <3 x i32> <i32 5, i32 3, i32 1>
  %z = add <3 x i8> %x, %y
  %w = zext <3 x i8> %z to <3 x i16>
  %s = sub <3 x i16> %a, %w
  ret <3 x i16> %s
}

define void @split_by_llvm(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, { i128 } %f, i64 %g, i64 %h) noinline {
  call void asm sideeffect "xorl %eax, %eax", "~{eax}"()
  %i = extractvalue { i128 } %f, 0
  %low = trunc i128 %i to i64
  %up = lshr i128 %i, 64
  %high = trunc i128 %up to i64
  %r = call i32 (ptr, ...) @printf(ptr @wide, i64 %low, i64 %high, i64 %g, i64 %h)
  %s = call i64 @split(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, { i128 } { i128 55340232221128654849 }, i64 %g, i64 %h)
  ret void
}

define i64 @split(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, { i128 } %f, i64 %g, i64 %h) noinline {
  %i = extractvalue { i128 } %f, 0
  %low = trunc i128 %i to i64
  %up = lshr i128 %i, 64
  %high = trunc i128 %up to i64
  %r = call i32 (ptr, ...) @printf(ptr @wide, i64 %low, i64 %high, i64 %g, i64 %h)
  ret i64 %low
}

define i32 @main() {
  %v = call <3 x i8> @bytes(<3 x i8> <i8 1, i8 2, i8 3>, i32 7, <3 x i8> <i8 10, i8 20, i8 30>)
  %w = call <3 x i8> @bytes_by_llvm(<3 x i8> %v, i32 7, <3 x i8> <i8 100, i8 90, i8 80>)
  %s = shufflevector <3 x i8> %v, <3 x i8> %w, <7 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 0>
  %x = call <3 x i16> @shorts_by_llvm(<3 x i16> <i16 1000, i16 2000, i16 3000>, <5 x i8> <i8 1, i8 2, i8 3, i8 4, i8 5>, <6 x i8> <i8 6, i8 7, i8 8, i8 9, i8 10, i8 11>)
  call void @show(<7 x i8> %s, <3 x i16> %x)
  call void @split_by_llvm(i64 1, i64 2, i64 3, i64 4, i64 5, { i128 } { i128 1844674407370955161605 }, i64 6, i64 7)
  %r = call i64 @split(i64 1, i64 2, i64 3, i64 4, i64 5, { i128 } { i128 36893488147419103235 }, i64 8, i64 9)
  ret i32 0
}
