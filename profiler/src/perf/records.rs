//! The records of a perf ring, as bytes.
//!
//! A record begins with `type: u32, misc: u16, size: u16`. With the sample type used
//! here (`event`), a sample goes on `ip: u64, pid: u32, tid: u32, time: u64,
//! period: u64`; a lost record goes on `id: u64, lost: u64`. All other types are
//! skipped by their size.

use perf_event_open_sys::bindings;

const HEADER: usize = 8;

/// One sample as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) ip: u64,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) time: u64,
    pub(super) period: u64,
}

/// Passes the samples of whole records to `sink`; returns how many samples the kernel reports as
/// lost. A record with an invalid size ends the walk.
pub(super) fn walk(mut bytes: &[u8], sink: &mut dyn FnMut(Raw)) -> u64 {
    let mut lost = 0;
    while let Some(header) = bytes.get(..HEADER) {
        let kind = u32_at(header, 0);
        let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let Some(record) = bytes.get(..size).filter(|_| size >= HEADER) else {
            break;
        };
        let body = &record[HEADER..];
        if kind == bindings::PERF_RECORD_SAMPLE && body.len() >= 32 {
            sink(Raw {
                ip: u64_at(body, 0),
                pid: u32_at(body, 8) as i32,
                tid: u32_at(body, 12) as i32,
                time: u64_at(body, 16),
                period: u64_at(body, 24),
            });
        } else if kind == bindings::PERF_RECORD_LOST && body.len() >= 16 {
            lost += u64_at(body, 8);
        }
        bytes = &bytes[size..];
    }
    lost
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..at + 4].try_into();
    u32::from_le_bytes(bytes.expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 8].try_into();
    u64::from_le_bytes(bytes.expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * body.len()) as u64;
        let mut bytes = (u64::from(kind) | size << 48).to_le_bytes().to_vec();
        bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn samples_and_losses_are_read_and_others_skipped() {
        let mut bytes = record(bindings::PERF_RECORD_SAMPLE, &[1, 3 << 32 | 2, 4, 5]);
        bytes.extend(record(bindings::PERF_RECORD_THROTTLE, &[9, 9, 9]));
        bytes.extend(record(bindings::PERF_RECORD_LOST, &[9, 7]));
        bytes.extend(record(bindings::PERF_RECORD_SAMPLE, &[6, 0, 0, 0]));
        let mut got = Vec::new();
        assert_eq!(walk(&bytes, &mut |raw| got.push(raw)), 7);
        let first = Raw {
            ip: 1,
            pid: 2,
            tid: 3,
            time: 4,
            period: 5,
        };
        assert_eq!(got.len(), 2);
        assert_eq!(got[0], first);
    }

    #[test]
    fn nonsense_ends_the_walk() {
        let whole = record(bindings::PERF_RECORD_SAMPLE, &[1, 2, 3, 4]);
        for cut in 0..whole.len() {
            assert_eq!(walk(&whole[..cut], &mut |_| panic!("not whole")), 0);
        }
        assert_eq!(walk(&[0; 64], &mut |_| panic!("size zero")), 0);
        let short = record(bindings::PERF_RECORD_LOST, &[]);
        assert_eq!(walk(&short, &mut |_| panic!("no sample")), 0);
    }
}
