//! Files that `uruk run` writes and text that it prints beside a program: the program ends as it
//! would without them, other files stay, and terminals get no escapes of others.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Its output is in a buffer until it ends.
const PROGRAM: &str = "
@text = private constant [7 x i8] c\"result\\00\"
declare i32 @puts(ptr)
define i32 @main() {
  %r = call i32 @puts(ptr @text)
  ret i32 3
}";

/// A folder of one test with the program, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("uruk-outputs-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("other")).expect("a folder");
        fs::write(folder.join("p.ll"), PROGRAM).expect("written");
        Folder(folder)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
        command.args(args).current_dir(&self.0);
        command
    }

    fn uruk(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("uruk starts")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("there");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("read"))).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ends_as_without(output: &Output) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"result\n", "{output:?}");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const OUTPUTS: [&str; 5] = ["tuning", "report", "trace", "first-calls", "record"];

#[test]
fn a_limit_of_file_sizes_neither_ends_the_program_nor_harms_old_files() {
    let folder = Folder::new("limit");
    let limited = |args: &[&str]| {
        let mut command = folder.command(args);
        // SAFETY: async-signal-safe calls in the child.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: libc::RLIM_INFINITY,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                Ok(())
            });
        }
        command.output().expect("uruk starts")
    };
    for output in OUTPUTS {
        // A file of names, of which none is called.
        fs::write(folder.0.join(output), "old\n").expect("written");
        let option = format!("--{output}={output}");
        ends_as_without(&limited(&["run", &option, "p.ll"]));
        let kept = fs::read_to_string(folder.0.join(output)).expect("there");
        assert_eq!(kept, "old\n", "{output}");
    }
    let dump = limited(&["run", "--jitdump=.", "p.ll"]);
    assert!(matches!(dump.status.code(), Some(3 | 125)), "{dump:?}");
    let drafts = |name: &String| name.starts_with('.');
    assert!(!folder.names().iter().any(drafts), "{:?}", folder.names());
}

/// A run that does not come to its end writes none of them.
#[test]
fn old_files_survive_runs_without_an_end() {
    let folder = Folder::new("no-end");
    let abort = "declare void @abort() define i32 @main() { call void @abort() ret i32 0 }";
    let exec = "
@file = private constant [8 x i8] c\"/bin/sh\\00\"
@option = private constant [3 x i8] c\"-c\\00\"
@script = private constant [7 x i8] c\"exit 4\\00\"
declare i32 @execl(ptr, ptr, ...)
define i32 @main() {
  %r = call i32 (ptr, ptr, ...) @execl(ptr @file, ptr @file, ptr @option, ptr @script, ptr null)
  ret i32 5
}";
    let missing = "declare void @nowhere() define i32 @main() { call void @nowhere() ret i32 0 }";
    let programs = [
        ("abort.ll", abort, None),
        ("exec.ll", exec, Some(4)),
        ("missing.ll", missing, Some(125)),
        ("broken.ll", "define", Some(125)),
    ];
    for (name, text, _) in programs {
        fs::write(folder.0.join(name), text).expect("written");
    }
    for output in OUTPUTS {
        fs::write(folder.0.join(output), "old\n").expect("written");
        let option = format!("--{output}={output}");
        let programs = programs.map(|(name, _, status)| (name, status));
        for (name, status) in programs.into_iter().chain([("none.bc", Some(125))]) {
            let ended = folder.uruk(&["run", &option, name]);
            assert_eq!(ended.status.code(), status, "{output}: {ended:?}");
            let kept = fs::read_to_string(folder.0.join(output)).expect("there");
            assert_eq!(kept, "old\n", "{output} of {name}");
        }
    }
    assert_eq!(folder.names().len(), OUTPUTS.len() + 2 + 4);
}

#[test]
fn statistics_that_are_not_read_do_not_end_the_program() {
    let folder = Folder::new("closed");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = folder.command(&["run", "--stats", "--report=/dev/full", "p.ll"]);
    command.stderr(writer).stdout(Stdio::piped());
    // SAFETY: an async-signal-safe call in the child.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            Ok(())
        });
    }
    ends_as_without(&command.output().expect("uruk starts"));
}

#[test]
fn outputs_are_written_where_the_run_was_started() {
    let folder = Folder::new("chdir");
    let program = "
@other = private constant [6 x i8] c\"other\\00\"
declare i32 @chdir(ptr)
declare i32 @umask(i32)
declare i32 @close(i32)
define i32 @main() {
entry:
  %r = call i32 @chdir(ptr @other)
  %u = call i32 @umask(i32 0)
  br label %loop
loop:
  %i = phi i32 [ 3, %entry ], [ %next, %loop ]
  %c = call i32 @close(i32 %i)
  %next = add i32 %i, 1
  %done = icmp eq i32 %next, 100
  br i1 %done, label %exit, label %loop
exit:
  ret i32 3
}";
    fs::write(folder.0.join("p.ll"), program).expect("written");
    let mut args = vec![String::from("run"), String::from("p.ll")];
    args.splice(1..1, OUTPUTS.map(|name| format!("--{name}={name}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = folder.uruk(&args);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for name in OUTPUTS {
        let about = fs::metadata(folder.0.join(name)).expect(name);
        assert!(about.len() > 0, "{name}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
        assert_eq!(mode & 0o022, 0, "{name}: the mask of the start");
        assert!(!folder.0.join("other").join(name).exists(), "{name}");
    }
    assert_eq!(folder.names().len(), OUTPUTS.len() + 2);
}

#[test]
fn a_fifo_without_a_reader_is_said_and_the_run_ends() {
    let folder = Folder::new("fifo");
    let made = Command::new("mkfifo").arg(folder.0.join("fifo")).status();
    assert!(made.expect("run").success());
    for output in OUTPUTS {
        let output = folder.uruk(&["run", &format!("--{output}=fifo"), "p.ll"]);
        ends_as_without(&output);
        assert_eq!(said(&output), "uruk: fifo: it has no reader\n");
    }
}

#[test]
fn inputs_are_no_outputs() {
    let folder = Folder::new("inputs");
    fs::hard_link(folder.0.join("p.ll"), folder.0.join("hard")).expect("a link");
    symlink("p.ll", folder.0.join("soft")).expect("a link");
    for name in ["p.ll", "./other/../p.ll", "hard", "soft"] {
        for output in OUTPUTS {
            let output = folder.uruk(&["run", &format!("--{output}={name}"), "p.ll"]);
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            let expected = format!("uruk: {name} cannot be written: it is the input p.ll\n");
            assert_eq!(said(&output), expected);
        }
    }
    let output = folder.uruk(&["compare", "--html=hard", "p.ll"]);
    let expected = "uruk: hard cannot be written: it is the input p.ll\n";
    assert_eq!(
        (output.status.code(), said(&output).as_str()),
        (Some(125), expected)
    );
    let output = folder.uruk(&["run", "--report=same", "--trace=./same", "p.ll"]);
    let expected = "uruk: same cannot be written: it is the output ./same\n";
    assert_eq!(said(&output), expected);
    assert_eq!(
        fs::read_to_string(folder.0.join("p.ll")).expect("there"),
        PROGRAM
    );
    assert!(!folder.0.join("same").exists());
}

#[test]
fn links_and_devices_stay() {
    let folder = Folder::new("links");
    fs::write(folder.0.join("target"), "old").expect("written");
    symlink("target", folder.0.join("link")).expect("a link");
    symlink("/dev/null", folder.0.join("null")).expect("a link");
    ends_as_without(&folder.uruk(&["run", "--report=link", "--tuning=null", "p.ll"]));
    assert!(folder.0.join("link").is_symlink() && folder.0.join("null").is_symlink());
    let page = fs::read_to_string(folder.0.join("target")).expect("there");
    assert!(page.contains("<html"));
}

/// Escapes of a terminal: to begin with, and as one character.
const ODD: &str = "a\u{1b}[31m\u{9b}31m\u{7}\r";

fn is_plain(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let escape = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    assert!(!text.contains(escape), "{text:?}");
}

#[test]
fn names_send_no_escapes() {
    let folder = Folder::new("escapes");
    let program = "define void @\"a\\1B[31m\\07\\0D\"() noinline { ret void }
define i32 @main() { call void @\"a\\1B[31m\\07\\0D\"() ret i32 3 }";
    let missing = "declare void @\"a\\1B[31m\\07\\0D\"()
define i32 @main() { call void @\"a\\1B[31m\\07\\0D\"() ret i32 3 }";
    let files = [
        (format!("{ODD}.ll"), program),
        (format!("missing{ODD}.ll"), missing),
        (format!("broken{ODD}.ll"), "define \u{1b}[31m"),
    ];
    for (name, text) in &files {
        fs::write(folder.0.join(name), text).expect("written");
    }
    let [good, missing, broken] = files.each_ref().map(|(name, _)| name.as_str());
    let option = |name: &str| format!("--{name}={ODD}/file");
    let (report, odd_set) = (option("report"), format!("--set={ODD}=1"));
    let (dump, none) = ("--dump-asm=a\u{1b}[31m\u{7}\r", format!("--dump-asm={ODD}"));
    let watch = format!("--watch={ODD}.none");
    let lines: [(&[&str], &str); 10] = [
        (&["run", "-vvv", "--tiers=2", good], "bound"),
        (&["run", "--stats", good], "tier"),
        (&["run", dump, good], "\\x1b[31m\\x07\\x0d ["),
        (&["run", &none, good], "\\x1b[31m\\x9b31m"),
        (&["run", missing], "\\x1b[31m"),
        (&["run", broken], "\\x1b[31m"),
        (&["run", &report, good], "\\x1b[31m"),
        (&["run", &odd_set, good], "there is no setting"),
        (&["run", &watch, good], "\\x1b[31m"),
        (&["run", &format!("--{ODD}")], "unexpected argument"),
    ];
    for (line, expected) in lines {
        let output = folder.uruk(line);
        is_plain(&output.stderr);
        assert!(
            said(&output).contains(expected),
            "{line:?}: {}",
            said(&output)
        );
    }
    let output = folder.uruk(&["coverage", good, "none\u{1b}[31m"]);
    is_plain(&output.stdout);
    is_plain(&output.stderr);
}

/// A program answers with names of its functions.
#[test]
fn answers_of_programs_send_no_escapes() {
    let name = format!("uruk-live-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("nobody else's");
    let server = std::thread::spawn(move || {
        for beginning in ["ok", "error"] {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut question = String::new();
            let read = BufReader::new(&stream).read_line(&mut question);
            assert_eq!((read.expect("asked"), question.trim()), (8, "explain"));
            let answer = format!("{beginning}\n{ODD}\tx\n");
            stream.write_all(answer.as_bytes()).expect("read");
        }
    });
    for _ in 0..2 {
        let id = std::process::id().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_uruk"));
        let output = command.args(["swap", &id, "--explain"]).output();
        let output = output.expect("uruk starts");
        is_plain(&output.stdout);
        is_plain(&output.stderr);
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        assert!(all.contains("a\\x1b[31m\\x9b31m\\x07\\x0d\tx\n"), "{all:?}");
    }
    server.join().expect("no panic");
}

/// A link under a name that a draft could have been expected to get leads nowhere.
#[test]
fn drafts_follow_no_links_that_wait_for_them() {
    let folder = Folder::new("drafts");
    fs::write(folder.0.join("victim"), "precious").expect("written");
    let script = "for f in launcher tuning; do ln -s victim $f.$$; done; exec \"$@\"";
    let run = |args: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_uruk"), "run"]);
        shell.args(args).arg("p.ll").current_dir(&folder.0);
        ends_as_without(&shell.output().expect("it starts"));
        let kept = fs::read_to_string(folder.0.join("victim"));
        assert_eq!(kept.expect("there"), "precious");
    };
    run(&["--tuning=tuning"]);
    run(&["--launcher=launcher"]);
    let mut again = Command::new(folder.0.join("launcher"));
    ends_as_without(&again.output().expect("it starts"));
}
