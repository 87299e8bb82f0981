//! Sessions with a hot function, and others around it.

use anyhow::Result;
use uruk::{Jit, Tier, Tiers};

use crate::generated;

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
        jit.add_bitcode("others", generated::bitcode(others, 1)?)?;
        for number in 0..others {
            jit.compile(&format!("f{number}"))?;
        }
    }
    Ok(jit)
}
