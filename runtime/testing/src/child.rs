//! Tests in processes of their own: a test binary starts itself again to run one test, which finds
//! in its environment that it is to do its part.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Child as Process, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The longest run of a child, unless a test sets another limit.
const LIMIT: Duration = Duration::from_secs(300);

/// The interval between two checks whether a child has ended.
const INTERVAL: Duration = Duration::from_millis(2);

/// Names the test that a process was started for.
const OWN: &str = "URUK_TESTING_OWN";

/// Whether this process was started for the test `name` of `module`, which is the caller's
/// `module_path!()`. If it was not, another process is started for it, and the test passes there.
///
/// A test that counts or limits something of its process returns at once if this is false: other
/// tests may run in the same process.
#[track_caller]
pub fn in_own_process(module: &str, name: &str) -> bool {
    let child = Child::of(module, name);
    if std::env::var(OWN).is_ok_and(|test| test == child.test) {
        return true;
    }
    let test = child.test.clone();
    let output = child.env(OWN, test).passes();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    false
}

/// A process that runs one test of this binary.
#[derive(Debug)]
pub struct Child {
    test: String,
    limit: Duration,
    command: Command,
}

impl Child {
    /// The test `name` of `module`, which is the caller's `module_path!()`. The test may be an
    /// ignored one.
    pub fn of(module: &str, name: &str) -> Self {
        // Without the name of the binary.
        let test = match module.split_once("::") {
            Some((_, module)) => format!("{module}::{name}"),
            None => name.to_owned(),
        };
        let own = std::env::current_exe().expect("the test has a path");
        let mut command = Command::new(own);
        command.args(["--exact", &test, "--nocapture", "--include-ignored"]);
        Self {
            test,
            limit: LIMIT,
            command,
        }
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the test in the first thread of its process.
    #[must_use]
    pub fn in_first_thread(mut self) -> Self {
        self.command.arg("--test-threads=1");
        self
    }

    /// Kills it, and panics, if it takes longer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The command, for settings that this type does not have.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it to its end, in which its output ends, too.
    ///
    /// # Panics
    /// It takes longer than its limit, or the binary has no such test.
    pub fn output(mut self) -> Output {
        self.command.stdin(Stdio::null());
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = self.command.spawn().expect("the test starts again");
        let start = Instant::now();
        let out = Stream::read(process.stdout.take().expect("piped"));
        let errors = Stream::read(process.stderr.take().expect("piped"));
        let ended = self.wait(&mut process, start);
        let rest = || self.limit.saturating_sub(start.elapsed());
        let complete = [&out, &errors].map(|stream| stream.ends_within(rest()));
        let [stdout, stderr] = [out.bytes(), errors.bytes()];
        let said = || {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            format!("{}: {}{}", self.test, text(&stdout), text(&stderr))
        };
        let (Some(status), [true, true]) = (ended, complete) else {
            panic!("not done after {} s: {}", self.limit.as_secs(), said());
        };
        let needle = b"running 1 test\n";
        let ran = stdout.windows(needle.len()).any(|part| part == needle);
        assert!(ran, "there is no such test: {}", said());
        Output {
            status,
            stdout,
            stderr,
        }
    }

    /// As [`Self::output`], and the test passes.
    ///
    /// # Panics
    /// It fails, or as `output` says.
    #[track_caller]
    pub fn passes(self) -> Output {
        let test = self.test.clone();
        let output = self.output();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
        assert!(
            output.status.success(),
            "{test}: {}\n{stdout}\n{stderr}",
            output.status
        );
        output
    }

    /// Waits for the end of the process, and kills it at its limit.
    fn wait(&self, process: &mut Process, start: Instant) -> Option<std::process::ExitStatus> {
        loop {
            if let Some(status) = process.try_wait().expect("a child") {
                return Some(status);
            }
            if start.elapsed() > self.limit {
                process.kill().expect("a child");
                process.wait().expect("a child");
                return None;
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// An output that a thread reads.
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: mpsc::Receiver<()>,
}

impl Stream {
    fn read(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (ended, end) = mpsc::channel();
        let to = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut part) {
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                to.extend_from_slice(&part[..length]);
            }
            // The receiver may have given up.
            let _ = ended.send(());
        });
        Self { bytes, end }
    }

    /// Waits for the end of the output, which other processes may hold open.
    fn ends_within(&self, limit: Duration) -> bool {
        self.end.recv_timeout(limit).is_ok()
    }

    /// The output so far.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::{Child, OWN, in_own_process};

    const PART: &str = "URUK_TESTING_PART";

    #[test]
    #[ignore = "the part of another test that runs in a process of its own"]
    fn parts() {
        match std::env::var(PART).as_deref() {
            Ok("says") => println!("hello"),
            Ok("fails") => panic!("as wanted"),
            _ => std::thread::sleep(Duration::from_secs(600)),
        }
    }

    fn child(part: &str) -> Child {
        Child::of(module_path!(), "parts").env(PART, part)
    }

    #[test]
    fn a_test_runs_in_a_process_of_its_own() {
        let output = child("says").in_first_thread().passes();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("hello"), "{said}");
        assert!(!child("fails").output().status.success());
        assert!(catch_unwind(|| child("fails").passes()).is_err());
    }

    #[test]
    fn a_test_runs_again_without_others() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        RUNS.fetch_add(1, Ordering::Relaxed);
        let own = in_own_process(module_path!(), "a_test_runs_again_without_others");
        assert_eq!(own, std::env::var_os(OWN).is_some());
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_child_that_hangs_and_one_without_a_test_fail() {
        let hangs = || child("hangs").limit(Duration::from_millis(300)).output();
        assert!(catch_unwind(hangs).is_err());
        assert!(catch_unwind(|| Child::of(module_path!(), "none").output()).is_err());
    }
}
