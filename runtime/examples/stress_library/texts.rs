//! IR of the functions that are called and changed.

/// Numbers of the functions of the overlapping sets, by the letter of their names.
pub const LETTERS: [char; 4] = ['a', 'b', 'c', 'd'];

/// Members of a quiescent set, all of one generation, with what calls two of them: only in a member
/// is a thread in old code.
pub fn quiescent(members: &[char], generation: u64) -> String {
    let each = members
        .iter()
        .map(|it| format!("define i64 @q{it}() {{ ret i64 {generation} }}\n"));
    each.collect::<String>() + PAIR
}

const PAIR: &str = "
declare void @nap(i64)
define i64 @pair(i64 %n) {
  %b = call i64 @qb()
  call void @nap(i64 %n)
  %c = call i64 @qc()
  %d = sub i64 %b, %c
  ret i64 %d
}
";

/// Members of an immediate set: the generation above the function's own number.
pub fn immediate(members: &[char], generation: u64) -> String {
    let number = |letter: char| LETTERS.iter().position(|it| *it == letter).unwrap_or(0) as u64;
    let each = members.iter().map(|&it| {
        let value = generation << 8 | number(it);
        format!("define i64 @i{it}() {{ ret i64 {value} }}\n")
    });
    each.collect()
}

/// One more than `%x`, by another way in each generation.
pub fn step(generation: u64) -> String {
    let body = match generation % 4 {
        0 => "%y = add i64 %x, 1 ret i64 %y",
        1 => "%y = sub i64 %x, -1 ret i64 %y",
        2 => "%z = xor i64 %x, -1 %y = sub i64 0, %z ret i64 %y",
        _ => "%z = add i64 %x, 7 %y = sub i64 %z, 6 ret i64 %y",
    };
    format!("define i64 @step(i64 %x) {{ {body} }}\n")
}

/// The same with its caller, whose loop goes on in the new code.
pub fn step_and_sum(generation: u64) -> String {
    format!("{}{SUM}", step(generation))
}

const SUM: &str = "
define i64 @sum(i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j, %head ]
  %s = phi i64 [ 0, %entry ], [ %t, %head ]
  %t = call i64 @step(i64 %s)
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %head, label %end
end:
  ret i64 %t
}
";

/// A function that comes and goes.
pub fn gone(generation: u64) -> String {
    format!("define i64 @gone() {{ ret i64 {generation} }}")
}

/// Functions that stay, and the first generation of those that change.
pub fn first() -> String {
    format!(
        "declare void @rest()
        define i64 @pair_on_fiber(i64 %x) {{
          %i = call i64 @ia()
          call void @rest()
          %c = call i64 @step(i64 %x)
          ret i64 %c
        }}
        define void @spin() {{ br label %l l: br label %l }}
        define i64 @div(i64 %a, i64 %b) {{ %q = sdiv i64 %a, %b ret i64 %q }}
        define i64 @use_gone() {{ %x = call i64 @gone() ret i64 %x }}
        declare i64 @gone()
        {}{}{}",
        quiescent(&LETTERS, 1),
        immediate(&LETTERS[..3], 1),
        step_and_sum(1),
    )
}
