//! Compiles functions in text form and prints their code: `disassemble FILE`.

#[path = "../tests/ir/mod.rs"]
mod ir;

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use uruk_baseline::{Options, compile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    let text = std::fs::read_to_string(path)?;
    let function = ir::parse(&text)?;
    let code = compile(&function, &Options::default())?;
    let bytes = &code.bytes[..code.size as usize];
    let mut formatter = NasmFormatter::new();
    for instruction in Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE) {
        if let Some((block, _)) = code
            .blocks
            .iter()
            .find(|(_, at)| u64::from(*at) == instruction.ip())
        {
            println!("b{}:", block.0);
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        println!("{:6x}  {line}", instruction.ip());
    }
    Ok(())
}
