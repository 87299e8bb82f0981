; Integers of 128 bits are halves.

define i128 @arithmetic(i128 %a, i128 %b) {
;> function(i64 %0 paired, i64 %1, i64 %2 paired, i64 %3) -> i64, i64
;> b0:
;>   %4, %5 = wide.add %0, %1, %2, %3
;>   %6, %7 = wide.mul %4, %5, 18446744073709551611, 18446744073709551615
;>   %8 = xor i64 %6, %0
;>   %9 = xor i64 %7, %1
;>   %10, %11 = wide.udiv %8, %9, 0, 68719476736
;>   return %10, %11
  %s = add i128 %a, %b
  %m = mul i128 %s, -5
  %x = xor i128 %m, %a
  %d = udiv i128 %x, 1267650600228229401496703205376
  ret i128 %d
}

define i64 @high(i64 %a, i64 %b) {
;> function(i64 %0, i64 %1) -> i64
;> b0:
;>   %2 = ashr i64 %1, 63
;>   %3, %4 = wide.mul %0, 0, %1, %2
;>   return %4
  %x = zext i64 %a to i128
  %y = sext i64 %b to i128
  %m = mul i128 %x, %y
  %h = lshr i128 %m, 64
  %t = trunc i128 %h to i64
  ret i64 %t
}

define i128 @shifts(i128 %a, i128 %n) {
;> function(i64 %0 paired, i64 %1, i64 %2 paired, i64 %3) -> i64, i64
;> b0:
;>   %4 = shl i64 %0, 4
;>   %5 = ashr i64 %4, 36
;>   %6 = ashr i64 %4, 63
;>   %7, %8 = wide.lshr %5, %6, %2
;>   return %7, %8
  %l = shl i128 %a, 68
  %r = ashr i128 %l, 100
  %v = lshr i128 %r, %n
  ret i128 %v
}

define i1 @compares(i128 %a, ptr %p) {
;> function(i64 %0 paired, i64 %1, i64 %2) -> i1 zext
;> b0:
;>   %3 = load i64 %2 align 16
;>   %4 = offset %2 8
;>   %5 = load i64 %4 align 8
;>   store i64 %0 to %2 align 8
;>   %6 = offset %2 8
;>   store i64 %1 to %6 align 8
;>   %7 = wide.icmp slt %0, %1, %3, %5
;>   return %7
  %l = load i128, ptr %p, align 16
  store i128 %a, ptr %p, align 8
  %c = icmp slt i128 %a, %l
  ret i1 %c
}

define i128 @bits(i128 %a) {
;> function(i64 %0 paired, i64 %1) -> i64, i64
;> b0:
;>   %2 = ctpop i64 %0
;>   %3 = ctpop i64 %1
;>   %4 = add i64 %2, %3
;>   %5 = ctlz i64 %1
;>   %6 = ctlz i64 %0
;>   %7 = add i64 %6, 64
;>   %8 = icmp eq i64 %1, 0
;>   %9 = select i64 %8, %7, %5
;>   %10 = bswap i64 0
;>   %11 = bswap i64 %9
;>   %12 = wide.icmp ult %4, 0, %10, %11
;>   %13 = select i64 %12, %4, %10
;>   %14 = select i64 %12, 0, %11
;>   return %13, %14
  %c = call i128 @llvm.ctpop.i128(i128 %a)
  %z = call i128 @llvm.ctlz.i128(i128 %a, i1 false)
  %s = call i128 @llvm.bswap.i128(i128 %z)
  %m = call i128 @llvm.umin.i128(i128 %c, i128 %s)
  ret i128 %m
}

define { i128, i1 } @overflow(i128 %a, i128 %b) {
;> function(i64 %0 paired, i64 %1, i64 %2 paired, i64 %3) -> i64, i64, i1
;> b0:
;>   %4, %5 = wide.sub %0, %1, %2, %3
;>   %6 = xor i64 %1, %5
;>   %7 = xor i64 %1, %3
;>   %8 = and i64 %6, %7
;>   %9 = icmp slt i64 %8, 0
;>   return %4, %5, %9
  %r = call { i128, i1 } @llvm.ssub.with.overflow.i128(i128 %a, i128 %b)
  ret { i128, i1 } %r
}

define { i128, i1 } @product(i128 %a, i128 %b) {
;> function(i64 %0 paired, i64 %1, i64 %2 paired, i64 %3) -> i64, i64, i1
;> b0:
;>   %4, %5 = umul.overflow i64 %1, %2
;>   %6, %7 = umul.overflow i64 %0, %3
;>   %8, %9 = wide.mul %0, 0, %2, 0
;>   %10 = add i64 %4, %6
;>   %11, %12 = uadd.overflow i64 %9, %10
;>   %13 = icmp ne i64 %1, 0
;>   %14 = icmp ne i64 %3, 0
;>   %15 = and i1 %13, %14
;>   %16 = or i1 %15, %5
;>   %17 = or i1 %16, %7
;>   %18 = or i1 %17, %12
;>   return %8, %11, %18
  %r = call { i128, i1 } @llvm.umul.with.overflow.i128(i128 %a, i128 %b)
  ret { i128, i1 } %r
}
