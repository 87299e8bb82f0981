//! Numbers of variable length (LEB128), as in DWARF.

/// Appends an unsigned number.
pub(crate) fn unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// Appends an unsigned number in `length` bytes, at least as many as it needs.
pub(crate) fn padded(bytes: &mut Vec<u8>, value: u64, length: usize) {
    unsigned(bytes, value);
    let missing = length - self::length(value);
    if missing > 0 {
        let last = bytes.len() - 1;
        bytes[last] |= 0x80;
        bytes.resize(bytes.len() + missing, 0x80);
        let last = bytes.len() - 1;
        bytes[last] = 0;
    }
}

/// Appends a signed number.
pub(crate) fn signed(bytes: &mut Vec<u8>, mut value: i64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        let is_sign = low & 0x40 != 0;
        if value == 0 && !is_sign || value == -1 && is_sign {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// The bytes of an unsigned number.
pub(crate) fn length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_numbers() {
        let unsigned = |value| {
            let mut bytes = Vec::new();
            super::unsigned(&mut bytes, value);
            assert_eq!(bytes.len(), super::length(value));
            bytes
        };
        assert_eq!(unsigned(0), [0]);
        assert_eq!(unsigned(127), [0x7f]);
        assert_eq!(unsigned(128), [0x80, 1]);
        assert_eq!(unsigned(624_485), [0xe5, 0x8e, 0x26]);
        let mut bytes = Vec::new();
        super::padded(&mut bytes, 5, 1);
        super::padded(&mut bytes, 5, 3);
        assert_eq!(bytes, [5, 0x85, 0x80, 0]);
        let signed = |value| {
            let mut bytes = Vec::new();
            super::signed(&mut bytes, value);
            bytes
        };
        assert_eq!(signed(0), [0]);
        assert_eq!(signed(63), [0x3f]);
        assert_eq!(signed(64), [0xc0, 0]);
        assert_eq!(signed(-1), [0x7f]);
        assert_eq!(signed(-64), [0x40]);
        assert_eq!(signed(-65), [0xbf, 0x7f]);
        assert_eq!(signed(-123_456), [0xc0, 0xbb, 0x78]);
    }
}
