; What LLVM is tried on: a loop with memory, integers, floating point and a call.
define i32 @warm(ptr %a, i32 %n, double %start) "min-legal-vector-width"="0" {
entry:
  %sum.at = alloca double
  store double %start, ptr %sum.at
  br label %head
head:
  %i = phi i32 [ %n, %entry ], [ %told, %head ]
  %sum = load double, ptr %sum.at
  %x = load double, ptr %a
  %square = fmul double %sum, %x
  %added = fadd double %square, 1.0
  store double %added, ptr %sum.at
  %told = call i32 @outside(i32 %i, double %added)
  %more = icmp slt i32 %told, %n
  br i1 %more, label %head, label %then
then:
  ret i32 %told
}

declare i32 @outside(i32, double)
