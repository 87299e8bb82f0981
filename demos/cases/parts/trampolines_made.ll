; A function value with an environment: a trampoline in the frame of the function that passes it on.
target triple = "x86_64-pc-linux-gnu"

declare void @llvm.init.trampoline(ptr, ptr, ptr)
declare ptr @llvm.adjust.trampoline(ptr)

define internal i64 @inner(ptr nest %environment, i64 %x) {
  %value = load i64, ptr %environment
  %next = add i64 %value, 1
  store i64 %next, ptr %environment
  %result = mul i64 %value, %x
  ret i64 %result
}

define i64 @with_trampoline(ptr %apply, i64 %start, i64 %count) {
  %trampoline = alloca [40 x i8], align 16
  %environment = alloca i64
  store i64 %start, ptr %environment
  call void @llvm.init.trampoline(ptr %trampoline, ptr @inner, ptr %environment)
  %function = call ptr @llvm.adjust.trampoline(ptr %trampoline)
  %sum = call i64 %apply(ptr %function, i64 %count)
  %end = load i64, ptr %environment
  %result = add i64 %sum, %end
  ret i64 %result
}
