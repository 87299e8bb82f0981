; Garbage collectors' tables: frames of the shadow stack are in one list for the whole
; program, whatever code they run; maps of stacks say nothing to a program.
declare void @llvm.gcroot(ptr, ptr)
declare void @llvm.experimental.stackmap(i64, i32, ...)
declare i32 @printf(ptr, ...)

@llvm_gc_root_chain = global ptr null
@text = private constant [7 x i8] c"%d %d\0A\00"

define i32 @frames() {
entry:
  br label %next
next:
  %at = phi ptr [ @llvm_gc_root_chain, %entry ], [ %frame, %next ]
  %count = phi i32 [ 0, %entry ], [ %more, %next ]
  %frame = load ptr, ptr %at
  %more = add i32 %count, 1
  %end = icmp eq ptr %frame, null
  br i1 %end, label %out, label %next
out:
  ret i32 %count
}

define i32 @inner() noinline gc "shadow-stack" {
  %root = alloca ptr
  call void @llvm.gcroot(ptr %root, ptr null)
  store ptr null, ptr %root
  %n = notail call i32 @frames()
  ret i32 %n
}

define i32 @outer(i32 %depth) noinline gc "shadow-stack" {
  %root = alloca ptr
  call void @llvm.gcroot(ptr %root, ptr null)
  store ptr null, ptr %root
  %end = icmp eq i32 %depth, 0
  br i1 %end, label %last, label %deeper
last:
  %n = notail call i32 @inner()
  ret i32 %n
deeper:
  %less = sub i32 %depth, 1
  %m = notail call i32 @outer(i32 %less)
  ret i32 %m
}

define i32 @mapped(i32 %x) {
  call void (i64, i32, ...) @llvm.experimental.stackmap(i64 1, i32 8, i32 %x)
  %y = mul i32 %x, 3
  ret i32 %y
}

define i32 @main() {
  %n = call i32 @outer(i32 5)
  %m = call i32 @mapped(i32 %n)
  call i32 (ptr, ...) @printf(ptr @text, i32 %n, i32 %m)
  ret i32 0
}
