//! The memory that a process holds, and whether it grows. The fit is pure.

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

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Growth for each step of the first coordinate.
    pub slope: f64,
    /// The slope's standard error.
    pub error: f64,
}

/// The line through at least three points.
pub fn trend(points: &[(f64, f64)]) -> Trend {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let slope = common / spread;
    let rest = points.iter().map(|p| p.1 - y - slope * (p.0 - x));
    let variance = rest.map(|r| r * r).sum::<f64>() / (count - 2.0);
    Trend {
        slope,
        error: (variance / spread).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::{held_bytes, trend};

    #[test]
    fn a_line_is_found_and_noise_is_told() {
        let line: Vec<(f64, f64)> = (0..10).map(|n| (f64::from(n), f64::from(3 * n))).collect();
        let found = trend(&line);
        assert!((found.slope - 3.0).abs() < 1e-9 && found.error < 1e-9);
        let noise = [5.0, 1.0, 4.0, 2.0, 5.0, 1.0, 4.0, 2.0];
        let points: Vec<(f64, f64)> = (0..8).map(f64::from).zip(noise).collect();
        let found = trend(&points);
        assert!(found.slope.abs() < found.error, "{found:?}");
    }

    #[test]
    fn memory_is_read_and_grows_with_what_is_touched() {
        let before = held_bytes();
        let block = vec![1u8; 8 << 20];
        assert!(std::hint::black_box(&block).iter().all(|byte| *byte == 1));
        let grown = held_bytes() - before;
        assert!(grown > 7e6, "{before} {grown}");
    }
}
