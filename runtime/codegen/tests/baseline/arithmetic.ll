; Integers, floating point, comparisons, choices and conversions.

define i32 @ints(i32 %a, i32 %b) {
;> function(i32 %0, i32 %1) -> i32
;> b0:
;>   %2 = add i32 %0, 4294967295
;>   %3 = sdiv i32 %2, %1
;>   %4 = urem i32 %3, 7
;>   %5 = shl i32 %4, 3
;>   %6 = xor i32 %5, %0
;>   %7 = icmp ugt i32 %6, %1
;>   %8 = select i32 %7, %6, undef
;>   return %8
  %s = add nsw i32 %a, -1
  %d = sdiv i32 %s, %b
  %r = urem i32 %d, 7
  %h = shl i32 %r, 3
  %x = xor i32 %h, %a
  %c = icmp ugt i32 %x, %b
  %o = select i1 %c, i32 %x, i32 poison
  ret i32 %o
}

define double @floats(double %a, double %b, float %f) {
;> function(f64 %0, f64 %1, f32 %2) -> f64
;> b0:
;>   %3 = fadd f64 %0, #3ff8000000000000
;>   %4 = fneg f64 %3
;>   %5 = frem f64 %4, %1
;>   %6 = fpext f32 %2 to f64
;>   %7 = fcmp une f64 %6, %5
;>   %8 = select f64 %7, %5, #0
;>   return %8
  %s = fadd double %a, 0x3FF8000000000000
  %n = fneg double %s
  %r = frem double %n, %b
  %e = fpext float %f to double
  %c = fcmp une double %e, %r
  %o = select i1 %c, double %r, double 0.0
  ret double %o
}

define i64 @conversions(i8 %a, float %f, ptr %p, i64 %w) {
;> function(i8 %0, f32 %1, i64 %2, i64 %3) -> i64
;> b0:
;>   %4 = zext i8 %0 to i64
;>   %5 = sext i8 %0 to i64
;>   %6 = trunc i64 %3 to i17
;>   %7 = zext i17 %6 to i64
;>   %8 = fptoui f32 %1 to i64
;>   %9 = bits f32 %1 to i32
;>   %10 = zext i32 %9 to i64
;>   %11 = trunc i64 %2 to i32
;>   %12 = zext i32 %11 to i64
;>   %13 = zext i32 %11 to i64
;>   %14 = add i64 %4, %5
;>   %15 = add i64 %14, %7
;>   %16 = add i64 %15, %8
;>   %17 = add i64 %16, %10
;>   %18 = add i64 %17, %2
;>   %19 = add i64 %18, %12
;>   %20 = add i64 %19, %13
;>   return %20
  %z = zext i8 %a to i64
  %s = sext i8 %a to i64
  %t = trunc i64 %w to i17
  %u = zext i17 %t to i64
  %i = fptoui float %f to i64
  %b = bitcast float %f to i32
  %x = zext i32 %b to i64
  %q = ptrtoint ptr %p to i64
  %h = ptrtoint ptr %p to i32
  %k = zext i32 %h to i64
  %y = inttoptr i32 %h to ptr
  %v = ptrtoint ptr %y to i64
  %1 = add i64 %z, %s
  %2 = add i64 %1, %u
  %3 = add i64 %2, %i
  %4 = add i64 %3, %x
  %5 = add i64 %4, %q
  %6 = add i64 %5, %k
  %7 = add i64 %6, %v
  ret i64 %7
}

define i32 @frozen(i32 %a) {
;> function(i32 %0) -> i32
;> b0:
;>   %1 = add i32 %0, 0
;>   return %1
  %f = freeze i32 %a
  %u = freeze i32 undef
  %s = add i32 %f, %u
  ret i32 %s
}

define x86_fp80 @long(x86_fp80 %a) {
;> function(f80 %0) -> f80
;> wide 3fff8000000000000000
;> b0:
;>   %1 = fadd f80 %0, $0
;>   return %1
  %s = fadd x86_fp80 %a, 0xK3FFF8000000000000000
  ret x86_fp80 %s
}
