//! Tables of settings, each made from one list ([`settings!`]): fields with docs, defaults, ranges,
//! printed text, and setting a field by name. Most values are times ([`Nanos`](crate::Nanos)).
//!
//! Invariant: a table's `set` reads back the text that it prints.
//!
//! ```
//! use uruk_base::{Nanos, settings};
//!
//! settings! {
//!     /// Settings of a kettle.
//!     pub struct Config;
//!
//!     cups: u32 = 2, 1 => 8, " Cups of water.";
//!     wait: Nanos = Nanos::from_ms(90_000), Nanos::ZERO => Nanos::from_ms(600_000),
//!         " Longest time it may take.";
//! }
//!
//! let mut config = Config::default();
//! config.set("wait", "2500ms")?;
//! let printed = config.to_string();
//! assert!(printed.starts_with("# Cups of water.\ncups = 2\n"));
//! assert!(printed.ends_with("wait = 2500ms\n"));
//! let error = config.set("cups", "9").unwrap_err();
//! assert_eq!(error.to_string(), "cups lies between 1 and 8, which 9 does not");
//! # Ok::<(), uruk_base::settings::SettingError>(())
//! ```
//!
//! Reading order: `value` (kinds of values, errors), here the table.

mod value;

pub use value::{SettingError, Value, clamped, read};

/// Defines a struct of settings: for each its name, type ([`Value`]), default, least and
/// greatest value, and meaning. Settings are printed as one `name = value` line each, with
/// a comment.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])* $vis:vis struct $config:ident;
        $($name:ident: $kind:ty = $default:expr, $low:expr => $high:expr, $doc:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $config {
            $(#[doc = $doc] pub $name: $kind,)*
        }

        impl Default for $config {
            fn default() -> $config {
                $config { $($name: $default,)* }
            }
        }

        impl $config {
            /// A copy with every value in its range: a value outside becomes the nearest one
            /// inside.
            pub fn clamped(&self) -> $config {
                $config { $($name: $crate::settings::clamped(self.$name, $low, $high),)* }
            }

            /// Sets one setting by name.
            ///
            /// # Errors
            /// Unknown name, unreadable value, or out of range; nothing changed then.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::settings::SettingError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = $crate::settings::read(stringify!($name), value, $low, $high)?;
                    })*
                    _ => return Err($crate::settings::SettingError::Unknown(name.to_owned())),
                }
                Ok(())
            }

            /// Name, value and meaning of each setting, in the order of the fields.
            pub fn entries(&self) -> Vec<(&'static str, String, &'static str)> {
                vec![$((stringify!($name), self.$name.to_string(), $doc.trim()),)*]
            }
        }

        impl std::fmt::Display for $config {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                for (name, value, meaning) in self.entries() {
                    writeln!(f, "# {meaning}\n{name} = {value}")?;
                }
                Ok(())
            }
        }
    };
}
