//! Looks at emitted code without running it.

use uruk_baseline::Code;
use uruk_baseline::ir::Function;

/// Checks what holds of all code.
pub fn check(_function: &Function, code: &Code) -> Result<(), String> {
    if code.size as usize > code.bytes.len() {
        return Err("a function that is longer than its code".to_string());
    }
    Ok(())
}
