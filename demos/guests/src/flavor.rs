//! Flavors: at which level and with which options a program is compiled.
//!
//! A flavor is written `LEVEL[+g][+pic|+nopic]`, for example `O0`,
//! `O1-no-passes` or `O2+g+pic`. That form is used in file names, in the
//! directives of end-to-end cases and on command lines.

use std::fmt;
use std::str::FromStr;

use crate::error::GuestError;

/// The optimization level of the bitcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// `-O0`: every function is `optnone noinline`.
    O0,
    /// `-O0 -Xclang -disable-O0-optnone`: unoptimized, but may be optimized later.
    O0NoOptnone,
    /// `-O1 -Xclang -disable-llvm-passes`: annotated for optimization, no pass
    /// has run. The native executable is made of it with the -O1 passes.
    O1NoPasses,
    /// `-O2`: the whole middle end has run.
    O2,
    /// `-O3 -Xclang -disable-llvm-passes`: annotated for optimization, no pass has
    /// run. The native executable is made of it with the -O3 passes.
    O3NoPasses,
}

/// Which relocation model the front end assumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pic {
    /// The compiler's default (position-independent executables).
    #[default]
    Default,
    /// `-fPIC`: everything visible may be interposed.
    Pic,
    /// `-fno-pic`, linked with `-no-pie`.
    NoPic,
}

/// Level and options together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flavor {
    /// The optimization level.
    pub level: Level,
    /// Whether debug information is generated (`-g`).
    pub debug: bool,
    /// The relocation model.
    pub pic: Pic,
}

impl Level {
    /// Every level, cheapest first.
    pub const ALL: [Self; 5] = [
        Self::O0,
        Self::O0NoOptnone,
        Self::O1NoPasses,
        Self::O2,
        Self::O3NoPasses,
    ];

    /// The level's name, as in a flavor.
    pub fn name(self) -> &'static str {
        match self {
            Self::O0 => "O0",
            Self::O0NoOptnone => "O0-no-optnone",
            Self::O1NoPasses => "O1-no-passes",
            Self::O2 => "O2",
            Self::O3NoPasses => "O3-no-passes",
        }
    }

    /// Arguments for clang when it compiles sources to bitcode.
    pub fn bitcode_flags(self) -> &'static [&'static str] {
        match self {
            Self::O0 => &["-O0"],
            Self::O0NoOptnone => &["-O0", "-Xclang", "-disable-O0-optnone"],
            Self::O1NoPasses => &["-O1", "-Xclang", "-disable-llvm-passes"],
            Self::O2 => &["-O2"],
            Self::O3NoPasses => &["-O3", "-Xclang", "-disable-llvm-passes"],
        }
    }

    /// Arguments for clang when it makes machine code of that bitcode. Passes
    /// run only if they have not run before.
    pub fn native_flags(self) -> &'static [&'static str] {
        match self {
            Self::O0 | Self::O0NoOptnone => &["-O0"],
            Self::O1NoPasses => &["-O1"],
            Self::O2 => &["-O2", "-Xclang", "-disable-llvm-passes"],
            Self::O3NoPasses => &["-O3"],
        }
    }

    /// Arguments for rustc when it makes the bitcode of a whole program. Fat LTO
    /// pulls std's bodies in, but only with optimization. Without passes, std's
    /// bodies are as they were shipped, optimized; only those the program
    /// instantiates are as the front end made them.
    pub fn rustc_flags(self) -> &'static [&'static str] {
        match self {
            Self::O0 | Self::O0NoOptnone | Self::O1NoPasses => &["-C", "opt-level=1"],
            Self::O2 => &["-C", "opt-level=2"],
            Self::O3NoPasses => &["-C", "opt-level=3", "-C", "no-prepopulate-passes"],
        }
    }

    /// The same for the executable, where the passes run.
    pub fn rustc_native_flags(self) -> &'static [&'static str] {
        match self {
            Self::O3NoPasses => &["-C", "opt-level=3"],
            other => other.rustc_flags(),
        }
    }
}

impl Pic {
    /// Arguments for compiling.
    pub fn compile_flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Pic => &["-fPIC"],
            Self::NoPic => &["-fno-pic"],
        }
    }

    /// Arguments for linking an executable.
    pub fn link_flags(self) -> &'static [&'static str] {
        match self {
            Self::NoPic => &["-no-pie"],
            Self::Default | Self::Pic => &[],
        }
    }
}

impl Flavor {
    /// A level without options.
    pub fn plain(level: Level) -> Self {
        Self {
            level,
            debug: false,
            pic: Pic::Default,
        }
    }

    /// Arguments for clang when it compiles sources to bitcode.
    pub fn bitcode_flags(self) -> Vec<&'static str> {
        let mut flags = self.level.bitcode_flags().to_vec();
        flags.extend(self.debug.then_some("-g"));
        flags.extend(self.pic.compile_flags());
        flags
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.name())?;
        if self.debug {
            f.write_str("+g")?;
        }
        f.write_str(match self.pic {
            Pic::Default => "",
            Pic::Pic => "+pic",
            Pic::NoPic => "+nopic",
        })
    }
}

impl FromStr for Flavor {
    type Err = GuestError;

    fn from_str(text: &str) -> Result<Self, GuestError> {
        let unknown = || GuestError::Flavor {
            text: text.to_owned(),
            expected: "LEVEL[+g][+pic|+nopic], LEVEL being O0, O0-no-optnone, O1-no-passes, O2 or \
                       O3-no-passes",
        };
        let mut words = text.split('+');
        let name = words.next().unwrap_or_default();
        let level = Level::ALL.into_iter().find(|level| level.name() == name);
        let mut flavor = Self::plain(level.ok_or_else(unknown)?);
        for word in words {
            match word {
                "g" => flavor.debug = true,
                "pic" => flavor.pic = Pic::Pic,
                "nopic" => flavor.pic = Pic::NoPic,
                _ => return Err(unknown()),
            }
        }
        Ok(flavor)
    }
}

#[cfg(test)]
mod tests {
    use super::Flavor;

    #[test]
    fn names_survive_a_round_trip() {
        for text in [
            "O0",
            "O0-no-optnone",
            "O1-no-passes+pic",
            "O2+g+nopic",
            "O3-no-passes",
        ] {
            let flavor: Flavor = text.parse().expect("a known flavor");
            assert_eq!(flavor.to_string(), text);
        }
        assert!("O9".parse::<Flavor>().is_err());
        assert!("O2+x".parse::<Flavor>().is_err());
    }
}
