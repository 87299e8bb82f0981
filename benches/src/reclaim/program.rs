//! Sessions with a hot function, and others around it.

use std::fmt::Write;

use anyhow::Result;
use uruk::{Jit, Tier, Tiers};

/// The hot function: a loop of about 20 ns that answers 7.
pub const HOT: &str = "hot";

/// A session at tier 1 that only changes what it is told to: `HOT`, not compiled yet, and
/// `others` functions that are; 2,000 take about a mebibyte.
///
/// # Errors
/// A compile fails.
pub fn program(others: usize) -> Result<Jit> {
    let jit = Jit::builder()
        .jobs(1)
        .tiers(Tiers::Fixed(Tier::Baseline))
        .build()?;
    jit.add_ir(
        "hot",
        "define i32 @hot() {
         entry:
           br label %again
         again:
           %i = phi i32 [ 16, %entry ], [ %next, %again ]
           %next = sub i32 %i, 1
           %more = icmp ne i32 %next, 0
           br i1 %more, label %again, label %done
         done:
           ret i32 7
         }",
    )?;
    if others > 0 {
        jit.add_ir("others", &others_ir(others))?;
        for number in 0..others {
            jit.compile(&format!("f{number}"))?;
        }
    }
    Ok(jit)
}

/// Functions that count one word up, `TURNS` times each, without a loop.
fn others_ir(count: usize) -> String {
    const TURNS: usize = 27;
    let mut text = String::from("@word = global i64 0\n");
    for number in 0..count {
        let _ = writeln!(text, "define void @f{number}(i64 %by) {{");
        for turn in 0..TURNS {
            let _ = writeln!(
                text,
                "  %old{turn} = load volatile i64, ptr @word
  %sum{turn} = add i64 %old{turn}, %by
  store volatile i64 %sum{turn}, ptr @word"
            );
        }
        text.push_str("  ret void\n}\n");
    }
    text
}
