//! Numbers in pieces, of every width and length, at every place in a byte, against a writer.

use uruk_bitcode::stream::{Cursor, What};

/// Bits, the first one lowest.
#[derive(Default)]
struct Writer(Vec<bool>);

impl Writer {
    fn fixed(&mut self, value: u64, width: u32) {
        self.0.extend((0..width).map(|bit| value >> bit & 1 == 1));
    }

    fn vbr(&mut self, mut value: u64, width: u32) {
        let more = 1 << (width - 1);
        while value >= more {
            self.fixed(value & (more - 1) | more, width);
            value >>= width - 1;
        }
        self.fixed(value, width);
    }

    /// Filled up with ones, which are not to be read.
    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| {
            (0..8).fold(0, |byte, at| {
                byte | u8::from(*bits.get(at).unwrap_or(&true)) << at
            })
        };
        self.0.chunks(8).map(byte).collect()
    }
}

fn values() -> impl Iterator<Item = u64> {
    let near = (0..64).flat_map(|bit| {
        let power = 1u64 << bit;
        [power - 1, power, power | power >> 1 | 1]
    });
    near.chain([u64::MAX, u64::MAX - 1, 0x0123_4567_89ab_cdef])
}

#[test]
fn numbers_are_what_was_written() {
    for width in 2..=32 {
        for skipped in 0..8 {
            for value in values() {
                let mut writer = Writer::default();
                writer.fixed(0, skipped);
                writer.vbr(value, width);
                let end = writer.0.len() as u64;
                // As the last thing of the bytes, and with more behind it.
                for behind in [0, 100] {
                    let mut bytes = writer.bytes();
                    bytes.resize(bytes.len() + behind, 0xff);
                    let mut cursor = Cursor::new(&bytes);
                    cursor.bit = u64::from(skipped);
                    assert_eq!(cursor.vbr(width), Ok(value), "{width} {skipped}");
                    assert_eq!(cursor.bit, end, "{width} {skipped} {value:#x}");
                    // In a block that ends before it does, it is cut off.
                    for short in 1..=2 {
                        let mut cursor = Cursor::new(&bytes);
                        cursor.bit = u64::from(skipped);
                        cursor.end = end - short;
                        let cut = cursor.vbr(width).map_err(|cause| cause.what);
                        assert_eq!(cut, Err(What::End), "{width} {skipped} {value:#x}");
                    }
                }
            }
        }
    }
}

#[test]
fn numbers_of_more_than_64_bits_are_refused() {
    for width in 2..=32u32 {
        // All ones, which never end.
        let bytes = [0xff; 64];
        let mut cursor = Cursor::new(&bytes);
        let endless = cursor.vbr(width).map_err(|cause| cause.what);
        assert_eq!(endless, Err(What::Number), "{width}");
        // One bit too many.
        let mut writer = Writer::default();
        let pieces = 64 / (width - 1);
        (0..pieces).for_each(|_| writer.fixed(1 << (width - 1), width));
        let rest = 64 - pieces * (width - 1);
        writer.fixed(1 << rest, width);
        let bytes = writer.bytes();
        let above = Cursor::new(&bytes).vbr(width).map_err(|cause| cause.what);
        assert_eq!(above, Err(What::Number), "{width}");
    }
}
