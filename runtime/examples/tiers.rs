//! A function is compiled at each tier, and kept at one.
//!
//! ```text
//! tier 1: 332833500
//! tier 2: 332833500
//! tier 3: 332833500
//! pinned at tier 2
//! ```

use uruk::{Jit, Tier};

const SQUARES: &str = "define i64 @squares(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %more, %loop ]
  %square = mul i64 %i, %i
  %more = add i64 %sum, %square
  %next = add i64 %i, 1
  %going = icmp slt i64 %next, %n
  br i1 %going, label %loop, label %end
end:
  ret i64 %more
}";

pub fn main() -> Result<(), uruk::Error> {
    let jit = Jit::new()?;
    jit.add_ir("m", SQUARES)?;
    // SAFETY: the function above.
    let squares = unsafe { jit.function::<extern "C" fn(i64) -> i64>("squares")? };
    for tier in [Tier::Baseline, Tier::Optimized, Tier::Guided] {
        jit.compile_at("squares", tier)?;
        println!("tier {}: {}", tier.number(), squares.call(1000));
    }
    jit.compile_at("squares", Tier::Optimized)?;
    jit.main().pin("squares", Some(Tier::Optimized))?;
    let tier = jit.tier("squares")?.expect("it has code");
    println!("pinned at tier {}", tier.number());
    Ok(())
}
