//! Which system this is, and how LLVM 22 is installed there.
//!
//! Only apt is ever called; for other systems the commands are printed, because
//! how and when their packages change is their owner's business.

use std::fs;

/// How to get the packages.
#[derive(Debug, PartialEq, Eq)]
pub enum Recipe {
    /// By apt, which may be called.
    Apt,
    /// By commands for the user to run.
    Commands {
        /// The name that the system gives itself.
        system: &'static str,
        /// The commands, one a line.
        commands: &'static str,
    },
}

/// Packages without which nothing builds or runs.
pub const APT_NEEDED: [&str; 3] = ["llvm-22-dev", "clang-22", "libpolly-22-dev"];

/// Packages without which some tests are skipped or fail: each, and the program or file that shows
/// that it is there.
pub const APT_FOR_TESTS: [(&str, &str); 8] = [
    ("csmith", "csmith"),
    ("libcsmith-dev", "/usr/include/csmith/csmith.h"),
    ("clang-14", "clang-14"),
    ("clang-19", "clang-19"),
    ("valgrind", "valgrind"),
    ("libgc-dev", "/usr/include/gc.h"),
    // An LLVM plugin of binutils that is older than the bitcode.
    ("llvm-14-linker-tools", "/usr/lib/llvm-14/lib/LLVMgold.so"),
    // The runtime of profiles and sanitizers.
    (
        "libclang-rt-22-dev",
        "/usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.profile-x86_64.a",
    ),
];

/// For Debian and Ubuntu releases that do not carry LLVM 22.
pub const APT_ARCHIVE: &str = "\
wget https://apt.llvm.org/llvm.sh
sudo bash llvm.sh 22
sudo apt-get install -y llvm-22-dev clang-22 libpolly-22-dev";

const FEDORA: &str = "\
sudo dnf install llvm22-devel clang22 || sudo dnf install llvm-devel clang polly-devel";

const ARCH: &str = "\
sudo pacman -S --needed llvm22 clang22 || sudo pacman -S --needed llvm clang polly";

const SUSE: &str = "sudo zypper install llvm22-devel clang22";

const ALPINE: &str = "sudo apk add llvm22-dev llvm22-static clang22 g++";

const NIXOS: &str = "\
nix-shell -p llvmPackages_22.llvm llvmPackages_22.clang llvmPackages_22.libllvm.dev csmith
export LLVM_SYS_221_PREFIX=$(llvm-config --prefix)";

const UNKNOWN: &str = "\
Install LLVM 22 (library, headers, llvm-config) and clang 22 from your system's packages
or from https://github.com/llvm/llvm-project/releases, then:
export LLVM_SYS_221_PREFIX=<the directory that holds its bin, include and lib>";

/// The recipe for the machine this runs on.
pub fn recipe() -> Recipe {
    let text = fs::read_to_string("/etc/os-release")
        .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    recipe_for(&text)
}

/// The recipe for a system, from its os-release file: its own name first, then
/// those of the systems it says it is like.
fn recipe_for(os_release: &str) -> Recipe {
    let names = [value(os_release, "ID"), value(os_release, "ID_LIKE")].join(" ");
    for name in names.split_whitespace() {
        let (system, commands) = match name {
            "debian" | "ubuntu" => return Recipe::Apt,
            "fedora" | "rhel" | "centos" => ("Fedora", FEDORA),
            "arch" => ("Arch Linux", ARCH),
            "opensuse" | "opensuse-tumbleweed" | "opensuse-leap" | "suse" => ("openSUSE", SUSE),
            "alpine" => ("Alpine Linux", ALPINE),
            "nixos" => ("NixOS", NIXOS),
            _ => continue,
        };
        return Recipe::Commands { system, commands };
    }
    Recipe::Commands {
        system: "this system",
        commands: UNKNOWN,
    }
}

/// The value of a variable, without quotes; empty if it is not set.
fn value<'t>(os_release: &'t str, name: &str) -> &'t str {
    let mut lines = os_release.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(key, _)| *key == name);
    found.map_or("", |(_, value)| value.trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::{Recipe, recipe_for};

    fn system(os_release: &str) -> &'static str {
        match recipe_for(os_release) {
            Recipe::Apt => "apt",
            Recipe::Commands { system, .. } => system,
        }
    }

    #[test]
    fn systems_are_known_by_name_or_by_likeness() {
        assert_eq!(system("NAME=x\nID=debian\n"), "apt");
        assert_eq!(system("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), "apt");
        assert_eq!(system("ID=fedora\nVERSION_ID=44\n"), "Fedora");
        assert_eq!(
            system("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n"),
            "openSUSE"
        );
        assert_eq!(system("ID=manjaro\nID_LIKE=arch\n"), "Arch Linux");
        assert_eq!(system("ID=alpine\n"), "Alpine Linux");
        assert_eq!(system("ID=nixos\n"), "NixOS");
        assert_eq!(system("ID=plan9\n"), "this system");
        assert_eq!(system(""), "this system");
    }
}
