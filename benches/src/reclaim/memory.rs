//! The memory that a process holds.

/// Bytes of memory of this process, each page counted once however often it is mapped:
/// code is mapped twice. Pages shared with other processes count in part. What the
/// allocator keeps for later is given back first.
pub fn held_bytes() -> f64 {
    // SAFETY: takes no pointer; glibc locks its arenas by itself.
    unsafe { libc::malloc_trim(0) };
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}

#[cfg(test)]
mod tests {
    use super::held_bytes;

    #[test]
    fn memory_is_read_and_grows_with_what_is_touched() {
        let before = held_bytes();
        let block = vec![1u8; 8 << 20];
        assert!(std::hint::black_box(&block).iter().all(|byte| *byte == 1));
        let grown = held_bytes() - before;
        assert!(grown > 7e6, "{before} {grown}");
    }
}
