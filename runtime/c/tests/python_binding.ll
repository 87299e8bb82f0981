; Written by llvmlite: see python_binding.py.
; ModuleID = "kernel"
target triple = "unknown-unknown-unknown"
target datalayout = ""

define double @"dot"(ptr %".1", ptr %".2", i64 %".3")
{
entry:
  br label %"loop"
loop:
  %".6" = phi  i64 [0, %"entry"], [%".14", %"loop"]
  %".7" = phi  double [             0x0, %"entry"], [%".13", %"loop"]
  %".8" = getelementptr double, ptr %".1", i64 %".6"
  %".9" = load double, ptr %".8"
  %".10" = getelementptr double, ptr %".2", i64 %".6"
  %".11" = load double, ptr %".10"
  %".12" = fmul double %".9", %".11"
  %".13" = fadd double %".7", %".12"
  %".14" = add i64 %".6", 1
  %".15" = icmp slt i64 %".14", %".3"
  br i1 %".15", label %"loop", label %"end"
end:
  ret double %".13"
}
