; LLVM names globals of external linkage without a name `__unnamed_1` and so on.
@0 = global i32 3
@1 = global i32 4
@2 = constant [2 x ptr] [ptr @0, ptr @4]
@3 = alias i32, ptr @1
@fmt = private constant [10 x i8] c"%d %d %d\0A\00"
declare i32 @printf(ptr, ...)
define i32 @4() {
  ret i32 5
}
define i32 @5(ptr %f) noinline {
  %r = call i32 %f()
  ret i32 %r
}
define i32 @main() {
  %p = load ptr, ptr @2
  %f = load ptr, ptr getelementptr (ptr, ptr @2, i64 1)
  %a = load i32, ptr %p
  %b = load i32, ptr @3
  %c = call i32 @5(ptr %f)
  %n = call i32 (ptr, ...) @printf(ptr @fmt, i32 %a, i32 %b, i32 %c)
  ret i32 0
}
