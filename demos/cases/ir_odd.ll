; Constructs of the IR that splitting must respect: prefix and prologue data, aliases of
; aliases and into the middle of a variable, an available_externally body that must not
; be used, linkonce, block addresses in a table, i129 arithmetic, musttail with a
; different callee, a constant expression between two symbols, llvm.used.
; levels: O0
; vary: --tiers 2
; vary: --tiers 3
; gate: D
target triple = "x86_64-unknown-linux-gnu"

@format = private constant [10 x i8] c"%s: %lld\0A\00"
@n_prefix = private constant [7 x i8] c"prefix\00"
@n_alias = private constant [6 x i8] c"alias\00"
@n_middle = private constant [7 x i8] c"middle\00"
@n_extern = private constant [7 x i8] c"extern\00"
@n_once = private constant [5 x i8] c"once\00"
@n_block = private constant [6 x i8] c"block\00"
@n_wide = private constant [5 x i8] c"wide\00"
@n_tail = private constant [5 x i8] c"tail\00"
@n_distance = private constant [9 x i8] c"distance\00"
@n_switch = private constant [7 x i8] c"switch\00"

@table = global [4 x i32] [i32 1, i32 22, i32 333, i32 4444]
@table_end = alias i32, getelementptr ([4 x i32], ptr @table, i64 0, i64 3)
@one_alias = alias i64 (i64), ptr @with_prefix
@two_aliases = alias i64 (i64), ptr @one_alias
@blocks = internal constant [2 x ptr] [ptr blockaddress(@jumps, %first), ptr blockaddress(@jumps, %second)]
@distance = constant i64 sub (i64 ptrtoint (ptr @table_end to i64), i64 ptrtoint (ptr @table to i64))
@llvm.used = appending global [1 x ptr] [ptr @kept], section "llvm.metadata"

declare i32 @printf(ptr, ...)

define internal void @kept() {
  ret void
}

define i64 @with_prefix(i64 %x) prefix i64 123456789 {
  %r = mul i64 %x, 3
  ret i64 %r
}

define available_externally i32 @abs(i32 %x) {
  ret i32 -1
}

define linkonce_odr i64 @once(i64 %x) noinline {
  %r = add i64 %x, 100
  ret i64 %r
}

define internal i64 @jumps(i64 %which) noinline {
entry:
  %slot = getelementptr [2 x ptr], ptr @blocks, i64 0, i64 %which
  %target = load ptr, ptr %slot
  indirectbr ptr %target, [label %first, label %second]
first:
  ret i64 1000
second:
  ret i64 2000
}

define i64 @wide(i64 %x) noinline {
  %a = zext i64 %x to i129
  %b = shl i129 %a, 70
  %c = mul i129 %b, 1000003
  %d = lshr i129 %c, 60
  %r = trunc i129 %d to i64
  ret i64 %r
}

define internal i64 @tail_target(i64 %x, ptr %unused) noinline {
  %r = add i64 %x, 5
  ret i64 %r
}

define i64 @tail(i64 %x, ptr %p) noinline {
  %r = musttail call i64 @tail_target(i64 %x, ptr %p)
  ret i64 %r
}

define i64 @switches(i64 %x) noinline {
  switch i64 %x, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
    i64 5, label %f
  ]
a:
  ret i64 10
b:
  ret i64 21
c:
  ret i64 32
d:
  ret i64 43
e:
  ret i64 54
f:
  ret i64 65
other:
  ret i64 -1
}

define internal void @print(ptr %name, i64 %value) noinline {
  call i32 (ptr, ...) @printf(ptr @format, ptr %name, i64 %value)
  ret void
}

define i32 @main() {
  %before = getelementptr i8, ptr @with_prefix, i64 -8
  %prefix = load i64, ptr %before
  call void @print(ptr @n_prefix, i64 %prefix)
  %aliased = call i64 @two_aliases(i64 14)
  call void @print(ptr @n_alias, i64 %aliased)
  %middle = load i32, ptr @table_end
  %middle.wide = sext i32 %middle to i64
  call void @print(ptr @n_middle, i64 %middle.wide)
  %abs = call i32 @abs(i32 -9)
  %abs.wide = sext i32 %abs to i64
  call void @print(ptr @n_extern, i64 %abs.wide)
  %once = call i64 @once(i64 1)
  call void @print(ptr @n_once, i64 %once)
  %j0 = call i64 @jumps(i64 0)
  %j1 = call i64 @jumps(i64 1)
  %j = sub i64 %j1, %j0
  call void @print(ptr @n_block, i64 %j)
  %wide = call i64 @wide(i64 123456789)
  call void @print(ptr @n_wide, i64 %wide)
  %tail = call i64 @tail(i64 37, ptr null)
  call void @print(ptr @n_tail, i64 %tail)
  %distance = load i64, ptr @distance
  call void @print(ptr @n_distance, i64 %distance)
  %s = call i64 @switches(i64 4)
  call void @print(ptr @n_switch, i64 %s)
  ret i32 0
}
