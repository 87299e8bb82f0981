//! Lines of what an earlier run of the tuner learned.

/// A line of what a run learned.
pub fn checksummed(line: &str) -> String {
    let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let sum = line.bytes().fold(0x811c_9dc5, mix);
    format!("{line} #{sum:08x}\n")
}
