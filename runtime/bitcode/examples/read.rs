//! `cargo run --release -p uruk-bitcode --example read -- FILE...`: reads all bodies of bitcode
//! files, and prints how many, how long it took, and what was not read.

use std::collections::BTreeMap;
use std::time::Instant;

use uruk_bitcode::Source;
use uruk_bitcode::ir::Body;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let start = Instant::now();
        let source = match Source::read(&bytes) {
            Ok(source) => source,
            Err(cause) => {
                println!("{path}: {cause}");
                continue;
            }
        };
        let module = start.elapsed();
        let mut body = Body::default();
        let (mut bodies, mut instructions) = (0, 0);
        let mut refused: BTreeMap<String, u32> = BTreeMap::new();
        let globals = 0..source.module.globals.len() as u32;
        let start = Instant::now();
        for number in globals.filter_map(|it| source.body_of(it)) {
            bodies += 1;
            match source.read_body(&bytes, number, &mut body) {
                Ok(()) => instructions += body.instructions.len(),
                Err(cause) => *refused.entry(cause.to_string()).or_default() += 1,
            }
        }
        let took = start.elapsed();
        println!(
            "{path}: module {module:.1?}, {bodies} bodies {took:.1?}, {:.2?} each, {instructions} \
             instructions, {:.0} ns each; refused: {refused:?}",
            took / bodies.max(1),
            took.as_nanos() as f64 / instructions.max(1) as f64,
        );
    }
    Ok(())
}
