; Intrinsics: what each becomes.

define i32 @bits(i32 %a, i32 %b) {
;> function(i32 %0, i32 %1) -> i32
;> b0:
;>   %2 = ctlz i32 %0
;>   %3 = smax i32 %2, %1
;>   %4 = fshr i32 %3, %0, %1
;>   %5 = usub.sat i32 %4, %1
;>   %6, %7 = umul.overflow i32 %5, %1
;>   %8 = icmp slt i32 %6, %1
;>   %9 = icmp sgt i32 %6, %1
;>   %10 = zext i1 %8 to i8
;>   %11 = zext i1 %9 to i8
;>   %12 = sub i8 %11, %10
;>   %13 = sext i8 %12 to i32
;>   return %13
  %1 = call i32 @llvm.ctlz.i32(i32 %a, i1 true)
  %2 = call i32 @llvm.smax.i32(i32 %1, i32 %b)
  %3 = call i32 @llvm.fshr.i32(i32 %2, i32 %a, i32 %b)
  %4 = call i32 @llvm.usub.sat.i32(i32 %3, i32 %b)
  %5 = call { i32, i1 } @llvm.umul.with.overflow.i32(i32 %4, i32 %b)
  %6 = extractvalue { i32, i1 } %5, 0
  %7 = call i8 @llvm.scmp.i8.i32(i32 %6, i32 %b)
  %8 = sext i8 %7 to i32
  %9 = call i32 @llvm.expect.i32(i32 %8, i32 0)
  ret i32 %9
}

define double @floats(double %a, double %b, float %f) {
;> function(f64 %0, f64 %1, f32 %2) -> f64
;> symbol @floor indirect
;> symbol @__powidf2 indirect
;> symbol @sinf indirect
;> b0:
;>   %3 = fmul f64 %0, %1
;>   %4 = fadd f64 %3, #3ff0000000000000
;>   %5 = fma f64 %4, %1, %0
;>   %6 = fabs f64 %5
;>   %7 = call @floor(f64 %6) -> f64
;>   %8 = copysign f64 %7, %1
;>   %9 = call @__powidf2(f64 %8, i32 3) -> f64
;>   %10 = call @sinf(f32 %2) -> f32
;>   %11 = fptosi.sat f32 %10 to i32
;>   %12 = fcmp uno f64 %9, %9
;>   %13 = fabs f64 %9
;>   %14 = fcmp olt f64 %13, #7ff0000000000000
;>   %15 = uitofp i32 %11 to f64
;>   return %15
  %1 = call double @llvm.fmuladd.f64(double %a, double %b, double 1.0)
  %2 = call double @llvm.fma.f64(double %1, double %b, double %a)
  %3 = call double @llvm.fabs.f64(double %2)
  %4 = call double @llvm.floor.f64(double %3)
  %5 = call double @llvm.copysign.f64(double %4, double %b)
  %6 = call double @llvm.powi.f64.i32(double %5, i32 3)
  %7 = call float @llvm.sin.f32(float %f)
  %8 = call i32 @llvm.fptosi.sat.i32.f32(float %7)
  %9 = call i1 @llvm.is.fpclass.f64(double %6, i32 3)
  %10 = call i1 @llvm.is.fpclass.f64(double %6, i32 504)
  %11 = uitofp i32 %8 to double
  ret double %11
}

define i64 @memory(ptr %p, ptr %q, i32 %n) {
;> function(i64 %0, i64 %1, i32 %2) -> i64
;> b0:
;>   %3 = alloca 8 align 8
;>   memcpy %0, %1, 16
;>   %4 = zext i32 %2 to i64
;>   memmove %0, %1, %4 volatile
;>   memset %0, 0, 8
;>   %5 = zext i1 1 to i64
;>   %6 = and i64 %0, 18446744073709551608
;>   %7 = load i64 %6 align 8
;>   %8 = add i64 %7, %5
;>   return %8
  %a = alloca i64, align 8
  call void @llvm.lifetime.start.p0(ptr %a)
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %q, i64 16, i1 false)
  call void @llvm.memmove.p0.p0.i32(ptr %p, ptr %q, i32 %n, i1 true)
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 8, i1 false)
  %s = call i64 @llvm.objectsize.i64.p0(ptr %p, i1 false, i1 true, i1 false)
  %c = call i1 @llvm.is.constant.i32(i32 %n)
  %k = call i1 @llvm.is.constant.i32(i32 4)
  %z = zext i1 %k to i64
  %m = call ptr @llvm.ptrmask.p0.i64(ptr %p, i64 -8)
  %l = load i64, ptr %m, align 8
  call void @llvm.lifetime.end.p0(ptr %a)
  %r = add i64 %l, %z
  ret i64 %r
}

define ptr @frame(ptr %p) {
;> function(i64 %0) -> i64
;> b0:
;>   %1 = stacksave
;>   %2 = frameaddress 0
;>   %3 = offset %2 8
;>   %4 = returnaddress 0
;>   %5 = frameaddress 1
;>   prefetch %0
;>   stackrestore %1
;>   pause
;>   return %3
  %s = call ptr @llvm.stacksave.p0()
  %a = call ptr @llvm.addressofreturnaddress.p0()
  %r = call ptr @llvm.returnaddress(i32 0)
  %f = call ptr @llvm.frameaddress.p0(i32 1)
  call void @llvm.prefetch.p0(ptr %p, i32 0, i32 3, i32 1)
  call void @llvm.stackrestore.p0(ptr %s)
  call void @llvm.x86.sse2.pause()
  ret ptr %a
}

@tls = thread_local global i32 0

define ptr @local() {
;> function() -> i64
;> symbol @tls threadlocal
;> b0:
;>   %0 = threadlocal @tls
;>   return %0
  %a = call ptr @llvm.threadlocal.address.p0(ptr @tls)
  ret ptr %a
}
