//! The code that the stress runs: functions that stay, modules that go, sets that are replaced.

/// Functions that stay.
pub const STAYING: u64 = 32;

/// The value of function `i` for `x`, as [`staying`] has it.
pub fn right(i: u64, x: u64) -> u64 {
    match i % 4 {
        0 => (1..=x & 31).fold(i, |sum, depth| sum.wrapping_mul(31) ^ depth),
        1 => {
            let mut values: Vec<u64> = (0..16)
                .map(|k| (x ^ i).wrapping_mul(2 * k + 1) >> 8)
                .collect();
            values.sort_unstable();
            (0..16).fold(0, |sum: u64, k| {
                sum.wrapping_add(values[k as usize].wrapping_mul(k + 1))
            })
        }
        2 => ((x & 0xffff) + i) * 3,
        _ => right(i - 3, x).wrapping_add(1),
    }
}

fn staying(i: u64) -> String {
    match i % 4 {
        0 => format!(
            "define i64 @f{i}(i64 %x) {{
  %n = and i64 %x, 31
  %r = call i64 @deep{i}(i64 %n)
  ret i64 %r
}}
define i64 @deep{i}(i64 %n) {{
  %end = icmp eq i64 %n, 0
  br i1 %end, label %last, label %more
last:
  ret i64 {i}
more:
  %m = sub i64 %n, 1
  %y = call i64 @deep{i}(i64 %m)
  %z = mul i64 %y, 31
  %r = xor i64 %z, %n
  ret i64 %r
}}\n"
        ),
        1 => format!(
            "define i64 @f{i}(i64 %x) {{
entry:
  %a = alloca [16 x i64]
  %seed = xor i64 %x, {i}
  br label %fill
fill:
  %k = phi i64 [ 0, %entry ], [ %k1, %fill ]
  %k2 = shl i64 %k, 1
  %odd = add i64 %k2, 1
  %v = mul i64 %seed, %odd
  %w = lshr i64 %v, 8
  %p = getelementptr i64, ptr %a, i64 %k
  store i64 %w, ptr %p
  %k1 = add i64 %k, 1
  %c = icmp ult i64 %k1, 16
  br i1 %c, label %fill, label %sort
sort:
  call void @qsort(ptr %a, i64 16, i64 8, ptr @compare{i})
  br label %sum
sum:
  %j = phi i64 [ 0, %sort ], [ %j1, %sum ]
  %s = phi i64 [ 0, %sort ], [ %s1, %sum ]
  %q = getelementptr i64, ptr %a, i64 %j
  %u = load i64, ptr %q
  %j1 = add i64 %j, 1
  %t = mul i64 %u, %j1
  %s1 = add i64 %s, %t
  %d = icmp ult i64 %j1, 16
  br i1 %d, label %sum, label %done
done:
  ret i64 %s1
}}
define i32 @compare{i}(ptr %p, ptr %q) {{
  %a = load i64, ptr %p
  %b = load i64, ptr %q
  %less = icmp ult i64 %a, %b
  %more = icmp ugt i64 %a, %b
  %l = zext i1 %less to i32
  %m = zext i1 %more to i32
  %r = sub i32 %m, %l
  ret i32 %r
}}\n"
        ),
        2 => format!(
            "define i64 @f{i}(i64 %x) uwtable personality ptr @__gxx_personality_v0 {{
  %n = and i64 %x, 7
  invoke void @thrower{i}(i64 %n, i64 %x) to label %normal unwind label %pad
normal:
  ret i64 0
pad:
  %landed = landingpad {{ ptr, i32 }} catch ptr null
  %pointer = extractvalue {{ ptr, i32 }} %landed, 0
  %object = call ptr @__cxa_begin_catch(ptr %pointer)
  %value = load i64, ptr %object
  call void @__cxa_end_catch()
  %r = mul i64 %value, 3
  ret i64 %r
}}
define void @thrower{i}(i64 %n, i64 %x) uwtable personality ptr @__gxx_personality_v0 {{
  %end = icmp eq i64 %n, 0
  br i1 %end, label %throw, label %more
throw:
  %exception = call ptr @__cxa_allocate_exception(i64 8)
  %low = and i64 %x, 65535
  %value = add i64 %low, {i}
  store i64 %value, ptr %exception
  call void @__cxa_throw(ptr %exception, ptr @_ZTIm, ptr null)
  unreachable
more:
  %m = sub i64 %n, 1
  invoke void @thrower{i}(i64 %m, i64 %x) to label %normal unwind label %pad
normal:
  ret void
pad:
  %landed = landingpad {{ ptr, i32 }} cleanup
  %t = call i32 @usleep(i32 1)
  resume {{ ptr, i32 }} %landed
}}\n"
        ),
        _ => format!(
            "define i64 @f{i}(i64 %x) {{
  %n = and i64 %x, 8191
  %t = trunc i64 %n to i32
  %e = call i32 @usleep(i32 %t)
  %y = call i64 @f{}(i64 %x)
  %r = add i64 %y, 1
  ret i64 %r
}}\n",
            i - 3
        ),
    }
}

/// All that stays.
pub fn text() -> String {
    let mut text = String::from(
        "@_ZTIm = external constant ptr
declare void @qsort(ptr, i64, i64, ptr)
declare i32 @usleep(i32)
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_allocate_exception(i64)
declare void @__cxa_throw(ptr, ptr, ptr)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()\n",
    );
    text.extend((0..STAYING).map(staying));
    text
}

/// A module that goes: tells that it was entered, sleeps, reads its own data.
pub fn going(place: u64, generation: u64) -> String {
    format!(
        "@data{place} = global i64 {generation}
declare i32 @usleep(i32)
define i64 @g{place}(i64 %x, i64 %entering) {{
  %p = inttoptr i64 %entering to ptr
  %o = atomicrmw sub ptr %p, i64 1 seq_cst
  %n = and i64 %x, 4095
  %t = trunc i64 %n to i32
  %e = call i32 @usleep(i32 %t)
  %d = load volatile i64, ptr @data{place}
  %y = mul i64 %x, {}
  %r = add i64 %y, %d
  ret i64 %r
}}\n",
        generation * 2 + 1
    )
}

/// A set of generation `generation`: `r` calls `s` three times, once through the C library,
/// and tells whether all were of its own generation. What `s` does between is what old code
/// is on stacks for.
pub fn replaced(place: u64, generation: u64) -> String {
    format!(
        "declare i32 @usleep(i32)
declare ptr @bsearch(ptr, ptr, i64, i64, ptr)
define i64 @r{place}(i64 %x) {{
  %a = call i64 @s{place}(i64 %x)
  %word = alloca i64
  store i64 %x, ptr %word
  %found = call ptr @bsearch(ptr %word, ptr %word, i64 1, i64 8, ptr @t{place})
  %y = lshr i64 %x, 8
  %b = call i64 @s{place}(i64 %y)
  %first = icmp eq i64 %a, {generation}
  %second = icmp eq i64 %b, {generation}
  %both = and i1 %first, %second
  %r = select i1 %both, i64 {generation}, i64 -1
  ret i64 %r
}}
define i64 @s{place}(i64 %x) {{
  %n = and i64 %x, 255
  %t = trunc i64 %n to i32
  %long = icmp ugt i64 %n, 200
  br i1 %long, label %sleep, label %done
sleep:
  %e = call i32 @usleep(i32 %t)
  br label %done
done:
  ret i64 {generation}
}}
define i32 @t{place}(ptr %p, ptr %q) {{
  %a = load i64, ptr %p
  %s = call i64 @s{place}(i64 %a)
  ret i32 0
}}\n"
    )
}
