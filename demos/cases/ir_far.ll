; Addresses far beyond their symbol, as constants and as instructions, which are only computed.
@d = internal global [8 x i32] zeroinitializer
@a = global i32 0
define i32 @main() {
  %x = load volatile i32, ptr @a
  %c = icmp ne i32 %x, 0
  br i1 %c, label %y, label %n
y:
  %p = getelementptr [8 x i32], ptr @d, i64 300000000000000000
  %v = load i32, ptr %p
  %w = load i32, ptr getelementptr ([8 x i32], ptr @d, i64 300000000000000000)
  %u = add i32 %v, %w
  ret i32 %u
n:
  %q = getelementptr [8 x i32], ptr @d, i64 30000000000000
  %i = ptrtoint ptr %q to i64
  %j = ptrtoint ptr @d to i64
  %k = sub i64 %i, %j
  %l = icmp ne i64 %k, 960000000000000
  %r = zext i1 %l to i32
  ret i32 %r
}
