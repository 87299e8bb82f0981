; Vectors that are computed with are taken apart into their lanes.

target triple = "x86_64-unknown-linux-gnu"

define void @lanes(ptr %p, ptr %q, i32 %k) {
;> function(i64 %0, i64 %1, i32 %2)
;> b0:
;>   %3 = load i32 %0 align 16
;>   %4 = offset %0 4
;>   %5 = load i32 %4 align 4
;>   %6 = offset %0 8
;>   %7 = load i32 %6 align 8
;>   %8 = offset %0 12
;>   %9 = load i32 %8 align 4
;>   %10 = load i32 %1 align 4
;>   %11 = offset %1 4
;>   %12 = load i32 %11 align 4
;>   %13 = offset %1 8
;>   %14 = load i32 %13 align 4
;>   %15 = offset %1 12
;>   %16 = load i32 %15 align 4
;>   %17 = add i32 %3, 1
;>   %18 = add i32 %5, 2
;>   %19 = add i32 %7, 3
;>   %20 = add i32 %9, 4
;>   %21 = icmp slt i32 %17, %10
;>   %22 = icmp slt i32 %18, %12
;>   %23 = icmp slt i32 %19, %2
;>   %24 = icmp slt i32 %20, %16
;>   %25 = select i32 %21, %17, %10
;>   %26 = select i32 %22, %18, %12
;>   %27 = select i32 %23, %19, %2
;>   %28 = select i32 %24, %20, %16
;>   store i32 %28 to %0 align 8
;>   %29 = offset %0 4
;>   store i32 %10 to %29 align 4
;>   return
  %a = load <4 x i32>, ptr %p, align 16
  %b = load <4 x i32>, ptr %q, align 4
  %c = add <4 x i32> %a, <i32 1, i32 2, i32 3, i32 4>
  %d = insertelement <4 x i32> %b, i32 %k, i32 2
  %is = icmp slt <4 x i32> %c, %d
  %e = select <4 x i1> %is, <4 x i32> %c, <4 x i32> %d
  %f = shufflevector <4 x i32> %e, <4 x i32> %b, <2 x i32> <i32 3, i32 4>
  store <2 x i32> %f, ptr %p, align 8
  ret void
}

define i16 @bits(ptr %p) {
;> function(i64 %0) -> i16
;> b0:
;>   %1 = load i8 %0 align 1
;>   %2 = offset %0 1
;>   %3 = load i8 %2 align 1
;>   %4 = offset %0 2
;>   %5 = load i8 %4 align 1
;>   %6 = offset %0 3
;>   %7 = load i8 %6 align 1
;>   %8 = offset %0 4
;>   %9 = load i8 %8 align 1
;>   %10 = offset %0 5
;>   %11 = load i8 %10 align 1
;>   %12 = offset %0 6
;>   %13 = load i8 %12 align 1
;>   %14 = offset %0 7
;>   %15 = load i8 %14 align 1
;>   %16 = offset %0 8
;>   %17 = load i8 %16 align 1
;>   %18 = offset %0 9
;>   %19 = load i8 %18 align 1
;>   %20 = offset %0 10
;>   %21 = load i8 %20 align 1
;>   %22 = offset %0 11
;>   %23 = load i8 %22 align 1
;>   %24 = offset %0 12
;>   %25 = load i8 %24 align 1
;>   %26 = offset %0 13
;>   %27 = load i8 %26 align 1
;>   %28 = offset %0 14
;>   %29 = load i8 %28 align 1
;>   %30 = offset %0 15
;>   %31 = load i8 %30 align 1
;>   %32 = icmp eq i8 %1, 0
;>   %33 = icmp eq i8 %3, 0
;>   %34 = icmp eq i8 %5, 0
;>   %35 = icmp eq i8 %7, 0
;>   %36 = icmp eq i8 %9, 0
;>   %37 = icmp eq i8 %11, 0
;>   %38 = icmp eq i8 %13, 0
;>   %39 = icmp eq i8 %15, 0
;>   %40 = icmp eq i8 %17, 0
;>   %41 = icmp eq i8 %19, 0
;>   %42 = icmp eq i8 %21, 0
;>   %43 = icmp eq i8 %23, 0
;>   %44 = icmp eq i8 %25, 0
;>   %45 = icmp eq i8 %27, 0
;>   %46 = icmp eq i8 %29, 0
;>   %47 = icmp eq i8 %31, 0
;>   %48 = zext i1 %32 to i16
;>   %49 = zext i1 %33 to i16
;>   %50 = shl i16 %49, 1
;>   %51 = or i16 %48, %50
;>   %52 = zext i1 %34 to i16
;>   %53 = shl i16 %52, 2
;>   %54 = or i16 %51, %53
;>   %55 = zext i1 %35 to i16
;>   %56 = shl i16 %55, 3
;>   %57 = or i16 %54, %56
;>   %58 = zext i1 %36 to i16
;>   %59 = shl i16 %58, 4
;>   %60 = or i16 %57, %59
;>   %61 = zext i1 %37 to i16
;>   %62 = shl i16 %61, 5
;>   %63 = or i16 %60, %62
;>   %64 = zext i1 %38 to i16
;>   %65 = shl i16 %64, 6
;>   %66 = or i16 %63, %65
;>   %67 = zext i1 %39 to i16
;>   %68 = shl i16 %67, 7
;>   %69 = or i16 %66, %68
;>   %70 = zext i1 %40 to i16
;>   %71 = shl i16 %70, 8
;>   %72 = or i16 %69, %71
;>   %73 = zext i1 %41 to i16
;>   %74 = shl i16 %73, 9
;>   %75 = or i16 %72, %74
;>   %76 = zext i1 %42 to i16
;>   %77 = shl i16 %76, 10
;>   %78 = or i16 %75, %77
;>   %79 = zext i1 %43 to i16
;>   %80 = shl i16 %79, 11
;>   %81 = or i16 %78, %80
;>   %82 = zext i1 %44 to i16
;>   %83 = shl i16 %82, 12
;>   %84 = or i16 %81, %83
;>   %85 = zext i1 %45 to i16
;>   %86 = shl i16 %85, 13
;>   %87 = or i16 %84, %86
;>   %88 = zext i1 %46 to i16
;>   %89 = shl i16 %88, 14
;>   %90 = or i16 %87, %89
;>   %91 = zext i1 %47 to i16
;>   %92 = shl i16 %91, 15
;>   %93 = or i16 %90, %92
;>   return %93
  %a = load <16 x i8>, ptr %p, align 1
  %is = icmp eq <16 x i8> %a, zeroinitializer
  %m = bitcast <16 x i1> %is to i16
  ret i16 %m
}

define i8 @divided(ptr %p) {
;> function(i64 %0) -> i8
;> b0:
;>   %1 = load f32 %0 align 8
;>   %2 = offset %0 4
;>   %3 = load f32 %2 align 4
;>   %4 = fneg f32 %1
;>   %5 = fneg f32 %3
;>   %6 = bits f32 %4 to i32
;>   %7 = trunc i32 %6 to i8
;>   %8 = lshr i32 %6, 8
;>   %9 = trunc i32 %8 to i8
;>   %10 = lshr i32 %6, 16
;>   %11 = trunc i32 %10 to i8
;>   %12 = lshr i32 %6, 24
;>   %13 = trunc i32 %12 to i8
;>   %14 = bits f32 %5 to i32
;>   %15 = trunc i32 %14 to i8
;>   %16 = lshr i32 %14, 8
;>   %17 = trunc i32 %16 to i8
;>   %18 = lshr i32 %14, 16
;>   %19 = trunc i32 %18 to i8
;>   %20 = lshr i32 %14, 24
;>   %21 = trunc i32 %20 to i8
;>   return %19
  %a = load <2 x float>, ptr %p, align 8
  %b = fneg <2 x float> %a
  %c = bitcast <2 x float> %b to <8 x i8>
  %d = extractelement <8 x i8> %c, i64 6
  ret i8 %d
}

define <4 x i32> @passed(<4 x i32> %a) {
;> function(v128 %0) -> v128
;> b0:
;>   %1 = alloca 16 align 16
;>   store v128 %0 to %1 align 16
;>   %2 = load i32 %1 align 4
;>   %3 = offset %1 4
;>   %4 = load i32 %3 align 4
;>   %5 = offset %1 8
;>   %6 = load i32 %5 align 4
;>   %7 = offset %1 12
;>   %8 = load i32 %7 align 4
;>   %9 = add i32 %2, %2
;>   %10 = add i32 %4, %4
;>   %11 = add i32 %6, %6
;>   %12 = add i32 %8, %8
;>   store i32 %9 to %1 align 4
;>   %13 = offset %1 4
;>   store i32 %10 to %13 align 4
;>   %14 = offset %1 8
;>   store i32 %11 to %14 align 4
;>   %15 = offset %1 12
;>   store i32 %12 to %15 align 4
;>   %16 = load v128 %1 align 16
;>   return %16
  %b = add <4 x i32> %a, %a
  ret <4 x i32> %b
}
