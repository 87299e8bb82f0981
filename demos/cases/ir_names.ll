; Names that no C compiler writes: unnamed functions and globals, quoted names with
; blanks and non-ASCII letters, a private symbol, a name with a \01 that stands for itself.
; levels: O0
; gate: B
target triple = "x86_64-unknown-linux-gnu"

@0 = private constant [13 x i8] c"%d %d %d %d\0A\00"
@1 = internal global i32 5
@"a global with blanks" = global i32 6
@"\01exact" = global i32 7
@"\C3\BCml\C3\A4ut" = internal constant i32 8

declare i32 @printf(ptr, ...)

define internal i32 @2(i32 %x) {
  %v = load i32, ptr @1
  %r = add i32 %x, %v
  ret i32 %r
}

define i32 @"a function: with $odd name"(i32 %x) {
  %v = load i32, ptr @"a global with blanks"
  %r = mul i32 %x, %v
  ret i32 %r
}

define private i32 @hidden_away(i32 %x) {
  %v = load i32, ptr @"\01exact"
  %r = sub i32 %x, %v
  ret i32 %r
}

define i32 @"\C3\BCber"() {
  %v = load i32, ptr @"\C3\BCml\C3\A4ut"
  ret i32 %v
}

define i32 @main() {
  %a = call i32 @2(i32 1)
  %b = call i32 @"a function: with $odd name"(i32 2)
  %c = call i32 @hidden_away(i32 3)
  %d = call i32 @"\C3\BCber"()
  call i32 (ptr, ...) @printf(ptr @0, i32 %a, i32 %b, i32 %c, i32 %d)
  ret i32 0
}
