; Memory, addresses, aggregates, atomics.

%pair = type { i32, double }
%nest = type { i8, %pair, [3 x i16], ptr }

@data = global %nest zeroinitializer
@far = external global i32
@weak = extern_weak global i32
@tls = thread_local global i32 0
@name = alias %nest, ptr @data

define i32 @frame(i32 %n) {
;> function(i32 %0) -> i32
;> b0:
;>   %1 = alloca 4 align 4
;>   %2 = alloca 240 align 16
;>   store i32 %0 to %1 align 4 volatile
;>   %3 = load i32 %1 align 2
;>   %4 = zext i32 %3 to i64
;>   %5 = alloca.dynamic %4 2 align 8
;>   store i16 1 to %5 align 8
;>   return %3
  %a = alloca i32, align 4
  %b = alloca [10 x i64], i32 3, align 16
  store volatile i32 %n, ptr %a, align 4
  %v = load i32, ptr %a, align 2
  %d = alloca i16, i32 %v, align 8
  store i16 1, ptr %d, align 8
  ret i32 %v
}

define ptr @addresses(ptr %p, i64 %i, i8 %j) {
;> function(i64 %0, i64 %1, i8 %2) -> i64
;> b0:
;>   %3 = offset %0 [%1 i64 40] [%2 i8 2] 24
;>   %4 = offset %3 16
;>   %5 = offset %4 -8
;>   %6 = offset %5 [%1 i64 4] 0
;>   return %6
  %a = getelementptr inbounds %nest, ptr %p, i64 %i, i32 2, i8 %j
  %b = getelementptr %nest, ptr %a, i32 0, i32 1, i32 1
  %c = getelementptr i8, ptr %b, i64 -8
  %d = getelementptr [0 x i32], ptr %c, i64 0, i64 %i
  ret ptr %d
}

define i32 @globals(i64 %i) {
;> function(i64 %0) -> i32
;> symbol @data near
;> symbol @far indirect
;> symbol @weak indirect weak
;> symbol @tls threadlocal
;> symbol @name indirect
;> symbol @globals indirect
;> b0:
;>   %1 = load i32 @data+48 align 4
;>   %2 = load i32 @far align 4
;>   %3 = load i32 @weak align 4
;>   %4 = threadlocal @tls
;>   %5 = load i32 %4 align 4
;>   %6 = load i32 @name align 4
;>   store i64 @globals to @data+32 align 8
;>   store i64 @far to @data+32 align 8
;>   store i64 9 to @data+32 align 8
;>   return %6
  %a = load i32, ptr getelementptr inbounds (%nest, ptr @data, i32 1, i32 1), align 4
  %b = load i32, ptr @far, align 4
  %c = load i32, ptr @weak, align 4
  %d = load i32, ptr @tls, align 4
  %e = load i32, ptr @name, align 4
  %g = getelementptr %nest, ptr @data, i64 0, i32 3
  store ptr @globals, ptr %g, align 8
  store i64 ptrtoint (ptr @far to i64), ptr %g, align 8
  store i64 sub (i64 ptrtoint (ptr getelementptr (i8, ptr @data, i64 9) to i64), i64 ptrtoint (ptr @data to i64)), ptr %g, align 8
  ret i32 %e
}

define { i32, double } @aggregates(ptr %p, { i32, double } %x) {
;> function(i64 %0, i32 %1, f64 %2) -> i32, f64
;> b0:
;>   %3 = load i32 %0 align 8
;>   %4 = offset %0 8
;>   %5 = load f64 %4 align 8
;>   store i32 %3 to %0 align 4
;>   %6 = offset %0 8
;>   store f64 #4000000000000000 to %6 align 4
;>   %7 = load i8 %0 align 8
;>   %8 = offset %0 8
;>   %9 = load i32 %8 align 8
;>   %10 = offset %0 16
;>   %11 = load f64 %10 align 8
;>   %12 = offset %0 24
;>   %13 = load i16 %12 align 8
;>   %14 = offset %0 26
;>   %15 = load i16 %14 align 2
;>   %16 = offset %0 28
;>   %17 = load i16 %16 align 4
;>   %18 = offset %0 32
;>   %19 = load i64 %18 align 8
;>   %20 = offset %0 8
;>   store i32 %3 to %20 align 8
;>   %21 = offset %0 16
;>   store f64 #4000000000000000 to %21 align 8
;>   store i32 7 to %0 align 8
;>   %22 = offset %0 8
;>   store f64 #3ff0000000000000 to %22 align 8
;>   store i16 1 to %0 align 2
;>   %23 = offset %0 2
;>   store i16 2 to %23 align 2
;>   store i8 0 to %0 align 8
;>   %24 = offset %0 8
;>   store i32 0 to %24 align 8
;>   %25 = offset %0 16
;>   store f64 #0 to %25 align 8
;>   %26 = offset %0 24
;>   store i16 0 to %26 align 8
;>   %27 = offset %0 26
;>   store i16 0 to %27 align 2
;>   %28 = offset %0 28
;>   store i16 0 to %28 align 4
;>   %29 = offset %0 32
;>   store i64 0 to %29 align 8
;>   return %3, %2
  %a = load %pair, ptr %p, align 8
  %i = extractvalue %pair %a, 0
  %b = insertvalue %pair %a, double 2.0, 1
  store %pair %b, ptr %p, align 4
  %n = load %nest, ptr %p, align 8
  %h = extractvalue %nest %n, 2, 1
  %m = insertvalue %nest undef, %pair %b, 1
  store %nest %m, ptr %p, align 8
  store %pair { i32 7, double 1.0 }, ptr %p, align 8
  store [2 x i16] [i16 1, i16 2], ptr %p, align 2
  store %nest zeroinitializer, ptr %p, align 8
  %o = insertvalue { i32, double } %x, i32 %i, 0
  ret { i32, double } %o
}

define i32 @atomics(ptr %p, i32 %v) {
;> function(i64 %0, i32 %1) -> i32
;> b0:
;>   %2 = load i32 %0 align 4 weak
;>   store i32 %1 to %0 align 4 strong
;>   %3 = rmw nand i32 %0, %1
;>   %4, %5 = cmpxchg i32 %0, %2, %1
;>   fence strong
;>   fence weak
;>   %6 = add i32 %4, %3
;>   return %6
  %a = load atomic i32, ptr %p acquire, align 4
  store atomic i32 %v, ptr %p seq_cst, align 4
  %o = atomicrmw nand ptr %p, i32 %v monotonic
  %x = cmpxchg ptr %p, i32 %a, i32 %v acq_rel monotonic
  %w = extractvalue { i32, i1 } %x, 0
  fence seq_cst
  fence syncscope("singlethread") seq_cst
  %s = add i32 %w, %o
  ret i32 %s
}

define <4 x i32> @vectors(ptr %p, <2 x double> %v, i1 %c) {
;> function(i64 %0, v128 %1, i1 %2) -> v128
;> b0:
;>   %3 = alloca 16 align 16
;>   store v128 %1 to %3 align 16
;>   %4 = load f64 %3 align 8
;>   %5 = offset %3 8
;>   %6 = load f64 %5 align 8
;>   %7 = load i8 %0 align 1
;>   %8 = offset %0 1
;>   %9 = load i8 %8 align 1
;>   %10 = offset %0 2
;>   %11 = load i8 %10 align 1
;>   %12 = offset %0 3
;>   %13 = load i8 %12 align 1
;>   %14 = offset %0 4
;>   %15 = load i8 %14 align 1
;>   %16 = offset %0 5
;>   %17 = load i8 %16 align 1
;>   %18 = offset %0 6
;>   %19 = load i8 %18 align 1
;>   %20 = offset %0 7
;>   %21 = load i8 %20 align 1
;>   %22 = offset %0 8
;>   %23 = load i8 %22 align 1
;>   %24 = offset %0 9
;>   %25 = load i8 %24 align 1
;>   %26 = offset %0 10
;>   %27 = load i8 %26 align 1
;>   %28 = offset %0 11
;>   %29 = load i8 %28 align 1
;>   %30 = offset %0 12
;>   %31 = load i8 %30 align 1
;>   %32 = offset %0 13
;>   %33 = load i8 %32 align 1
;>   %34 = offset %0 14
;>   %35 = load i8 %34 align 1
;>   %36 = offset %0 15
;>   %37 = load i8 %36 align 1
;>   %38 = zext i8 %7 to i32
;>   %39 = zext i8 %9 to i32
;>   %40 = shl i32 %39, 8
;>   %41 = or i32 %38, %40
;>   %42 = zext i8 %11 to i32
;>   %43 = shl i32 %42, 16
;>   %44 = or i32 %41, %43
;>   %45 = zext i8 %13 to i32
;>   %46 = shl i32 %45, 24
;>   %47 = or i32 %44, %46
;>   %48 = zext i8 %15 to i32
;>   %49 = zext i8 %17 to i32
;>   %50 = shl i32 %49, 8
;>   %51 = or i32 %48, %50
;>   %52 = zext i8 %19 to i32
;>   %53 = shl i32 %52, 16
;>   %54 = or i32 %51, %53
;>   %55 = zext i8 %21 to i32
;>   %56 = shl i32 %55, 24
;>   %57 = or i32 %54, %56
;>   %58 = zext i8 %23 to i32
;>   %59 = zext i8 %25 to i32
;>   %60 = shl i32 %59, 8
;>   %61 = or i32 %58, %60
;>   %62 = zext i8 %27 to i32
;>   %63 = shl i32 %62, 16
;>   %64 = or i32 %61, %63
;>   %65 = zext i8 %29 to i32
;>   %66 = shl i32 %65, 24
;>   %67 = or i32 %64, %66
;>   %68 = zext i8 %31 to i32
;>   %69 = zext i8 %33 to i32
;>   %70 = shl i32 %69, 8
;>   %71 = or i32 %68, %70
;>   %72 = zext i8 %35 to i32
;>   %73 = shl i32 %72, 16
;>   %74 = or i32 %71, %73
;>   %75 = zext i8 %37 to i32
;>   %76 = shl i32 %75, 24
;>   %77 = or i32 %74, %76
;>   store f64 %4 to %0 align 16
;>   %78 = offset %0 8
;>   store f64 %6 to %78 align 8
;>   store i16 1 to %0 align 2
;>   %79 = offset %0 2
;>   store i16 2 to %79 align 2
;>   %80 = offset %0 6
;>   store i16 4 to %80 align 2
;>   %81 = offset %0 8
;>   store i16 5 to %81 align 2
;>   %82 = offset %0 10
;>   store i16 6 to %82 align 2
;>   %83 = offset %0 12
;>   store i16 7 to %83 align 2
;>   %84 = offset %0 14
;>   store i16 65535 to %84 align 2
;>   branch %2 b1, b2
;> b1:
;>   jump b2
;> b2:
;>   %85 = phi i32 [b0 %47] [b1 0]
;>   %86 = phi i32 [b0 %57] [b1 0]
;>   %87 = phi i32 [b0 %67] [b1 0]
;>   %88 = phi i32 [b0 %77] [b1 0]
;>   %89 = select i32 %2, %85, %47
;>   %90 = select i32 %2, %86, %57
;>   %91 = select i32 %2, %87, %67
;>   %92 = select i32 %2, %88, %77
;>   store i32 %89 to %3 align 4
;>   %93 = offset %3 4
;>   store i32 %90 to %93 align 4
;>   %94 = offset %3 8
;>   store i32 %91 to %94 align 4
;>   %95 = offset %3 12
;>   store i32 %92 to %95 align 4
;>   %96 = load v128 %3 align 16
;>   return %96
entry:
  %a = load <16 x i8>, ptr %p, align 1
  %b = bitcast <16 x i8> %a to <4 x i32>
  store <2 x double> %v, ptr %p, align 16
  store <8 x i16> <i16 1, i16 2, i16 undef, i16 4, i16 5, i16 6, i16 7, i16 -1>, ptr %p, align 2
  br i1 %c, label %more, label %end
more:
  br label %end
end:
  %r = phi <4 x i32> [ %b, %entry ], [ zeroinitializer, %more ]
  %s = select i1 %c, <4 x i32> %r, <4 x i32> %b
  ret <4 x i32> %s
}

define void @probed() "probe-stack"="inline-asm" {
;> function()
;> probes
;> b0:
;>   %0 = alloca 5000 align 1
;>   return
  %a = alloca [5000 x i8], align 1
  ret void
}
