//! Parses settings by name, and sizes.

use uruk::{Baseline, PolicyConfig, ReclaimConfig};

/// Prefix of settings of reclaim; others are the tiering policy's.
const RECLAIM: &str = "reclaim.";

/// Prints all settings with their meaning.
pub(super) fn print(policy: &PolicyConfig, reclaim: &ReclaimConfig) {
    print!("{policy}");
    for line in reclaim.to_string().lines() {
        match line.starts_with('#') {
            true => println!("{line}"),
            false => println!("{RECLAIM}{line}"),
        }
    }
}

/// Applies one `NAME=VALUE`.
pub(super) fn set(
    policy: &mut PolicyConfig,
    reclaim: &mut ReclaimConfig,
    setting: &str,
) -> Result<(), String> {
    let Some((name, value)) = setting.split_once('=') else {
        return Err(format!("`{setting}` is not NAME=VALUE"));
    };
    if ["jobs", "cpus"].contains(&name.trim()) {
        return Err(format!(
            "`{}` follows from --jobs and this machine",
            name.trim()
        ));
    }
    match name.trim().strip_prefix(RECLAIM) {
        Some(name) => reclaim
            .set(name, value)
            .map_err(|e| format!("reclaim: {e}")),
        None => policy.set(name.trim(), value).map_err(|e| e.to_string()),
    }
}

/// Bytes, as a number with K, M or G for powers of 1,024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        unit => return Err(format!("`{unit}` is none of K, M and G")),
    };
    let number: u64 = digits.parse().map_err(|e| format!("{e}"))?;
    let bytes = number.checked_mul(unit);
    bytes.ok_or_else(|| String::from("that many bytes there are not"))
}

/// Parses the functions for the baseline compiler: none, all, or a half that a number seeds.
pub(super) fn baseline(text: &str) -> Result<Baseline, String> {
    match text {
        "off" => Ok(Baseline::Off),
        "on" => Ok(Baseline::On),
        seed => match seed.parse() {
            Ok(seed) => Ok(Baseline::Half(seed)),
            Err(_) => Err(String::from("neither `off` nor `on` nor a number")),
        },
    }
}

#[cfg(test)]
mod tests {
    use uruk::Baseline;

    use super::{baseline, size};

    #[test]
    fn the_baseline_compiler_is_off_or_on_or_compiles_a_half() {
        assert_eq!(baseline("off"), Ok(Baseline::Off));
        assert_eq!(baseline("on"), Ok(Baseline::On));
        assert_eq!(baseline("17"), Ok(Baseline::Half(17)));
        assert!(baseline("half").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("3G"), Ok(3 << 30));
        for wrong in ["", "K", "-1", "1.5M", "1T", "99999999999G", "1 K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
