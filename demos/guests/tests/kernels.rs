//! The kernels do what they claim: the same result however they are compiled, and a
//! line of times for each iteration, if asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use uruk_guests::workload::TIMES;
use uruk_guests::{Cache, Flavor, Kernel, Level, Native, Tongue, Toolchain};

/// The output of an executable for two iterations of a small size.
fn output(program: &Path, size: usize, times: Option<&Path>) -> String {
    let mut command = Command::new(program);
    command.args(["2", &size.to_string()]);
    if let Some(path) = times {
        command.env(TIMES, path);
    }
    let output = command.output().expect("the kernel starts");
    assert!(output.status.success(), "{}: {output:?}", program.display());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn c_kernels_give_the_same_result_at_every_level() {
    let tools = Toolchain::find().expect("the tools");
    let cache = Cache::in_target();
    let directory = std::env::temp_dir().join(format!("uruk-kernels-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let times = directory.join("times");
    for kernel in Kernel::ALL {
        let program = kernel.program(Tongue::C);
        let size = match kernel {
            Kernel::Fannkuch => 6,
            _ => kernel.size() / 20,
        };
        let best = program.build_native(&tools, &cache, Native::BEST);
        let expected = output(&best.expect("compiles"), size, Some(&times));
        assert!(expected.starts_with(&format!("{kernel}: 2 iterations, ")));
        let lines = fs::read_to_string(&times).expect("times were written");
        assert_eq!(lines.lines().count(), 2, "{kernel}");
        for line in lines.lines() {
            let numbers = line.split(' ').map(str::parse::<u64>);
            assert_eq!(numbers.filter(Result::is_ok).count(), 4, "{line}");
        }
        for level in [Level::O0, Level::O3NoPasses] {
            let built = program.build(&tools, &cache, Flavor::plain(level), 1, &|_, _| {});
            let native = built.expect("compiles").native;
            assert_eq!(
                output(&native, size, None),
                expected,
                "{kernel} {}",
                level.name()
            );
        }
    }
    fs::remove_dir_all(directory).expect("removed");
}
