; What is not covered, and is said to be.

define void @assembly() {
;> assembly is not covered
  call void asm sideeffect "nop; hlt", ""()
  ret void
}

define i32 @output() {
;> assembly is not covered
  %a = call i32 asm "", "=r,r"(i32 1)
  ret i32 %a
}

define void @naked() naked {
;> a naked function is not covered
  unreachable
}

define <8 x i32> @vectors(<8 x i32> %a) {
;> a vector that is passed in parts is not covered
  %s = add <8 x i32> %a, %a
  ret <8 x i32> %s
}

define half @half(half %a) {
;> half is not covered
  ret half %a
}

define i37 @odd(i37 %a) {
;> function(i37 %0) -> i37
;> b0:
;>   return %0
  ret i37 %a
}

define i96 @odder(i96 %a) {
;> an integer of unusual width is not covered
  ret i96 %a
}

define swiftcc void @convention() {
;> a calling convention is not covered
  ret void
}

define void @register(i32 inreg %a) {
;> inreg is not covered
  ret void
}

define void @bundle() {
;> a bundle of operands is not covered
  call void @convention() [ "kcfi"(i32 1) ]
  ret void
}

define double @strict(double %a) strictfp {
;> strict floating point is not covered
  ret double %a
}

define float @unusual(float %a) {
;> llvm.minimum is not covered
  %r = call float @llvm.minimum.f32(float %a, float %a)
  ret float %r
}

define void @collected() gc "statepoint-example" {
;> a collector of garbage, or data at a function is not covered
  ret void
}

define void @hooked() "instrument-function-entry"="__cyg_profile_func_enter" {
;> hooks is not covered
  ret void
}

define void @guarded() ssp {
;> a guarded stack is not covered
  %a = alloca [5000 x i8], align 1
  ret void
}

define void @large([100 x i64] %a) {
;> a large aggregate is not covered
  ret void
}

define internal ptr @where() alwaysinline {
;> function() -> i64
;> b0:
;>   %0 = returnaddress 0
;>   return %0
  %a = call ptr @llvm.returnaddress(i32 0)
  ret ptr %a
}

define internal ptr @within() alwaysinline {
;> a function that is always inlined is not covered
  %a = call ptr @where()
  ret ptr %a
}

define ptr @inlines() {
;> a function that is always inlined is not covered
  %a = call ptr @within()
  ret ptr %a
}
