; Calls: whom, and how values are passed.

%big = type { [40 x i8] }

declare i32 @outer(i32, ...)
declare signext i8 @narrow(i8 zeroext, i16 signext)
declare void @memory(ptr byval(%big) align 16, ptr sret(%big), ptr nest)
declare extern_weak void @maybe()
declare i32 @_setjmp(ptr) returns_twice
declare { i64, double } @pair(i128, float)

define signext i16 @calls(ptr %f, i8 zeroext %a, ptr %p) {
;> function(i64 %0, i8 %1 zext, i64 %2) -> i16 sext
;> symbol @outer indirect
;> symbol @narrow indirect
;> symbol @maybe indirect weak
;> symbol @_setjmp indirect
;> b0:
;>   %3 = call variadic @outer(i32 1, f64 #4000000000000000, i64 %2) -> i32
;>   %4 = call @narrow(i8 %1 zext, i16 65535 sext) -> i8 sext
;>   %5 = call at %0(i8 %4 sext) -> i32
;>   call @maybe()
;>   %6 = call twice @_setjmp(i64 %2) -> i32
;>   call at %0()
;>   return 65535
  %r = call i32 (i32, ...) @outer(i32 1, double 2.0, ptr %p)
  %n = call signext i8 @narrow(i8 zeroext %a, i16 signext -1)
  %i = call i32 %f(i8 signext %n)
  call void @maybe()
  %j = call i32 @_setjmp(ptr %p)
  call fastcc void %f()
  ret i16 -1
}

define void @passed(ptr byval(%big) %b, ptr sret(%big) %s, ptr nest %n) {
;> function(i64 %0 memory 40 align 8, i64 %1 sret, i64 %2 nest)
;> symbol @memory indirect
;> b0:
;>   call @memory(i64 %0 memory 40 align 16, i64 %1 sret, i64 %2 nest)
;>   call @memory(i64 %0 memory 40 align 32, i64 %1 sret, i64 %2 nest)
;>   return
  call void @memory(ptr byval(%big) align 16 %b, ptr sret(%big) %s, ptr nest %n)
  call void @memory(ptr byval(%big) align 32 %b, ptr %s, ptr %n)
  ret void
}

define { i64, double } @scalars(i128 %a, { i32, float } %x) {
;> function(i64 %0 paired, i64 %1, i32 %2, f32 %3) -> i64, f64
;> symbol @pair indirect
;> b0:
;>   %4, %5 = call @pair(i64 %0 paired, i64 %1, f32 %3) -> i64, f64
;>   return %4, %5
  %f = extractvalue { i32, float } %x, 1
  %r = call { i64, double } @pair(i128 %a, float %f)
  ret { i64, double } %r
}

define i32 @tail(i32 %a, ...) {
;> function(i32 %0, ...) -> i32
;> b0:
;>   %1 = alloca 24 align 16
;>   va_start %1
;>   %2 = va_arg i32 %1
;>   return %2
  %l = alloca [24 x i8], align 16
  call void @llvm.va_start(ptr %l)
  %v = va_arg ptr %l, i32
  call void @llvm.va_end(ptr %l)
  ret i32 %v
}

define i32 @must(i32 %a) {
;> function(i32 %0) -> i32
;> symbol @must indirect
;> b0:
;>   %1 = call musttail @must(i32 %0) -> i32
;>   return %1
  %r = musttail call i32 @must(i32 %a)
  ret i32 %r
}

define void @barrier(ptr %p) {
;> function(i64 %0)
;> b0:
;>   return
  call void asm sideeffect "", "r,~{memory}"(ptr %p)
  ret void
}

define internal i32 @small(i32 %a) alwaysinline {
;> function(i32 %0) -> i32
;> b0:
;>   %1 = add i32 %0, 1
;>   return %1
  %s = add i32 %a, 1
  ret i32 %s
}

define i32 @inlines(i32 %a) {
;> function(i32 %0) -> i32
;> symbol @small indirect
;> b0:
;>   %1 = call @small(i32 %0) -> i32
;>   return %1
  %r = call i32 @small(i32 %a)
  ret i32 %r
}

define i32 @tied(i32 %a, i32 %b, ptr %p) {
;> function(i32 %0, i32 %1, i64 %2) -> i32
;> b0:
;>   return %1
  call void asm sideeffect "nop", "~{flags}"()
  call void asm sideeffect ".p2align 5", "=*m,*m"(ptr elementtype(i32) %p, ptr elementtype(i32) %p)
  %r = call { i32, i32 } asm "", "=r,=r,1,0"(i32 %a, i32 %b)
  %x = extractvalue { i32, i32 } %r, 0
  ret i32 %x
}
