//! Generated modules: many functions of which few are called.
//!
//! Each function looks like what `clang -O0` makes of a short C function with a
//! loop: variables on the stack, a global, a call that never happens.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bench::Bench;

/// A file of bitcode: `functions` functions and a `main` that calls `called` of
/// them, evenly spaced.
///
/// # Errors
/// The file cannot be written.
pub fn bitcode_file(bench: &Bench, functions: usize, called: usize) -> Result<PathBuf> {
    let path = bench
        .directory
        .join(format!("generated-{functions}-{called}.bc"));
    std::fs::write(&path, bitcode(functions, called)?)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn bitcode(functions: usize, called: usize) -> Result<Vec<u8>> {
    let module = uruk_codegen::Bitcode::from_ir_text("generated", &ir(functions, called))?;
    Ok(module.bytes().to_vec())
}

fn ir(functions: usize, called: usize) -> String {
    let mut text = String::from(
        "target triple = \"x86_64-unknown-linux-gnu\"\n\
         @total = global i64 0\n@table = internal global [64 x i32] zeroinitializer\n",
    );
    for n in 0..functions {
        let _ = write!(
            text,
            "define i32 @f{n}(i32 %n) #0 {{
  %i = alloca i32
  %sum = alloca i32
  %arg = alloca i32
  store i32 %n, ptr %arg
  store i32 0, ptr %i
  store i32 {n}, ptr %sum
  br label %head
head:
  %i1 = load i32, ptr %i
  %n1 = load i32, ptr %arg
  %more = icmp slt i32 %i1, %n1
  br i1 %more, label %body, label %done
body:
  %s1 = load i32, ptr %sum
  %k = and i32 %i1, 63
  %k64 = sext i32 %k to i64
  %at = getelementptr [64 x i32], ptr @table, i64 0, i64 %k64
  %v = load i32, ptr %at
  %p = mul i32 %s1, 31
  %q = add i32 %p, %v
  store i32 %q, ptr %sum
  %odd = icmp eq i32 %q, 123456789
  br i1 %odd, label %rare, label %next
rare:
  %r = call i32 @f{other}(i32 %q)
  store i32 %r, ptr %sum
  br label %next
next:
  %i2 = add i32 %i1, 1
  store i32 %i2, ptr %i
  br label %head
done:
  %s2 = load i32, ptr %sum
  %s64 = sext i32 %s2 to i64
  %t = load i64, ptr @total
  %t1 = add i64 %t, %s64
  store i64 %t1, ptr @total
  ret i32 %s2
}}
",
            other = (n + 1) % functions,
        );
    }
    text.push_str("define i32 @main() #0 {\n");
    for n in 0..called {
        let _ = writeln!(
            text,
            "  %c{n} = call i32 @f{}(i32 3)",
            n * (functions / called)
        );
    }
    text.push_str("  ret i32 0\n}\nattributes #0 = { noinline nounwind optnone uwtable }\n");
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_ir_is_accepted() {
        let bytes = super::bitcode(3, 2).expect("valid IR");
        assert!(bytes.starts_with(b"BC"));
    }
}
