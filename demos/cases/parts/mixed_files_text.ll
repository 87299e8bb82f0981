; The IR text of mixed_files.c.
target triple = "x86_64-unknown-linux-gnu"

@text_data = constant i32 99
@shared = external global i32

declare i32 @back(i32)

define i32 @from_text(i32 %x) {
  %value = load i32, ptr @shared
  %called = call i32 @back(i32 %x)
  %sum = add i32 %value, %called
  ret i32 %sum
}
