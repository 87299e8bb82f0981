//! Files that are written beside a program: other files stay, old text survives, no signal and no
//! wait reaches the program.
//!
//! Limits, `umask` and the current folder are the process's, so each test that changes one runs in
//! a process of its own.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use uruk_files::{Messages, OutputPath, OwnFile};
use uruk_testing::Child;

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("uruk-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("there");
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|it| it.file_name());
        let names = entries.map(|entry| name(entry).expect("read").into_string());
        let mut names: Vec<_> = names.map(|name| name.expect("plain")).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("there")
}

/// Runs `act` in a process of its own, which runs the test `name` only.
fn apart(name: &str, act: impl FnOnce()) {
    const CHILD: &str = "URUK_FILES_TEST";
    if std::env::var_os(CHILD).is_some() {
        return act();
    }
    let child = Child::of(module_path!(), name).env(CHILD, "1");
    let out = child.in_first_thread().passes();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("1 passed"), "{said}");
}

/// From now on files have `bytes` at most.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
}

#[test]
fn a_full_disk_leaves_the_old_text_and_no_draft() {
    apart("a_full_disk_leaves_the_old_text_and_no_draft", || {
        let folder = Folder::new("full");
        let file = folder.0.join("file");
        let link = folder.0.join("link");
        fs::write(&file, "old").expect("written");
        symlink("file", &link).expect("a link");
        limit_files(4);
        for path in [&file, &link] {
            let refused = uruk_files::write(path, "a new text");
            let refused = refused.expect_err("longer than the limit");
            assert_eq!(refused.raw_os_error(), Some(libc::EFBIG));
            assert_eq!(text(&file), "old");
        }
        assert!(uruk_files::write(folder.0.join("fresh"), "a new text").is_err());
        assert_eq!(folder.names(), ["file", "link"]);
    });
}

#[test]
fn signals_of_writes_are_taken_and_those_of_the_program_stay() {
    apart(
        "signals_of_writes_are_taken_and_those_of_the_program_stay",
        || {
            // SAFETY: the defaults, which the test harness has changed, of this process alone.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            }
            let (reader, writer) = io::pipe().expect("a pipe");
            drop(reader);
            let mut writer = OwnFile::of(writer).expect("open");
            let refused = writer.write_all(b"text").expect_err("no reader");
            assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
            let errors = {
                let (reader, writer) = io::pipe().expect("a pipe");
                drop(reader);
                writer
            };
            // SAFETY: standard error is this test's alone.
            unsafe {
                let kept = libc::dup(2);
                libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&errors), 2);
                Messages.text("not read\n");
                uruk_files::say!("not {}", "read");
                libc::dup2(kept, 2);
            }
            // A signal of the program that was pending stays so.
            // SAFETY: plain calls on this thread's mask.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGPIPE);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                libc::raise(libc::SIGPIPE);
                assert!(writer.write_all(b"text").is_err());
                libc::sigpending(&raw mut set);
                assert_eq!(libc::sigismember(&raw const set, libc::SIGPIPE), 1);
            }
        },
    );
}

#[test]
fn mode_and_owner_stay_whatever_the_program_masks() {
    apart("mode_and_owner_stay_whatever_the_program_masks", || {
        let folder = Folder::new("mode");
        let (old, new) = (folder.0.join("old"), folder.0.join("new"));
        fs::write(&old, "old").expect("written");
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).expect("ours");
        // SAFETY: plain calls.
        let root = unsafe { libc::geteuid() } == 0;
        if root {
            std::os::unix::fs::chown(&old, Some(1234), Some(2345)).expect("root");
        }
        // SAFETY: a plain call.
        unsafe { libc::umask(0o027) };
        let fresh = OutputPath::new(&new).expect("a folder");
        // SAFETY: a plain call.
        unsafe { libc::umask(0) };
        fresh.write(b"new").expect("written");
        uruk_files::write(&old, "new").expect("written");
        let mode = |file| fs::metadata(file).expect("there").mode() & 0o777;
        assert_eq!((mode(&old), mode(&new)), (0o640, 0o640));
        let about = fs::metadata(&old).expect("there");
        if root {
            assert_eq!((about.uid(), about.gid()), (1234, 2345));
        }
        assert_eq!(text(&old), "new");
    });
}

#[test]
fn a_name_means_what_it_meant_at_the_start() {
    apart("a_name_means_what_it_meant_at_the_start", || {
        let folder = Folder::new("chdir");
        let other = folder.0.join("other");
        fs::create_dir(&other).expect("a folder");
        std::env::set_current_dir(&folder.0).expect("ours");
        let path = OutputPath::new("file").expect("a folder");
        std::env::set_current_dir(&other).expect("ours");
        path.write(b"one").expect("written");
        assert_eq!(text(&folder.0.join("file")), "one");
        // As a daemon does.
        for number in 3..200 {
            // SAFETY: what programs do; the test has no other files.
            unsafe { libc::close(number) };
        }
        path.write(b"two").expect("written");
        assert_eq!(text(&folder.0.join("file")), "two");
        assert_eq!(folder.names(), ["file", "other"]);
        assert!(!other.join("file").exists());
    });
}

#[test]
fn drafts_follow_no_links_and_devices_and_links_stay() {
    let folder = Folder::new("links");
    let (victim, file) = (folder.0.join("victim"), folder.0.join("file"));
    fs::write(&victim, "precious").expect("written");
    // The name that drafts had.
    let draft = format!("file.{}", std::process::id());
    symlink(&victim, folder.0.join(&draft)).expect("a link");
    uruk_files::write(&file, "text").expect("written");
    assert_eq!(
        (text(&victim), text(&file)),
        ("precious".into(), "text".into())
    );
    assert_eq!(folder.names(), ["file", draft.as_str(), "victim"]);

    let link = folder.0.join("link");
    symlink("victim", &link).expect("a link");
    uruk_files::write(&link, "short").expect("written");
    assert!(link.is_symlink());
    assert_eq!(text(&victim), "short");
    let dangling = folder.0.join("dangling");
    symlink("made", &dangling).expect("a link");
    OutputPath::new(&dangling)
        .and_then(|it| it.check())
        .expect("can be made");
    uruk_files::write(&dangling, "made").expect("written");
    assert_eq!(text(&folder.0.join("made")), "made");

    let null = folder.0.join("null");
    symlink("/dev/null", &null).expect("a link");
    uruk_files::write(&null, "text").expect("written");
    uruk_files::write("/dev/null", "text").expect("written");
    let kind = fs::symlink_metadata("/dev/null").expect("there").mode() & libc::S_IFMT;
    assert_eq!(kind, libc::S_IFCHR);
}

#[test]
fn a_fifo_without_a_reader_is_an_error_and_one_with_a_reader_gets_all() {
    let folder = Folder::new("fifo");
    let fifo = folder.0.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("run");
    assert!(made.success());
    let path = OutputPath::new(&fifo).expect("a folder");
    path.check().expect("a FIFO");
    let refused = path.write(b"text").expect_err("no reader");
    assert_eq!(refused.to_string(), "it has no reader");
    // More than a pipe holds at once.
    let long = "line\n".repeat(100_000);
    let reader = {
        let mut options = fs::OpenOptions::new();
        // Opened for writing as well, so that it does not wait for us.
        options.read(true).write(true).open(&fifo).expect("open")
    };
    let wanted = long.len();
    let read = std::thread::spawn(move || {
        let mut got = vec![0; wanted];
        io::Read::read_exact(&mut &reader, &mut got).map(|()| got)
    });
    path.check().expect("a FIFO");
    path.write(long.as_bytes()).expect("read");
    let got = read.join().expect("no panic").expect("all");
    assert!(got == long.as_bytes());
    let kind = fs::symlink_metadata(&fifo).expect("there").mode() & libc::S_IFMT;
    assert_eq!(kind, libc::S_IFIFO);
}

#[test]
fn one_file_is_known_by_all_its_names() {
    let folder = Folder::new("same");
    let (file, link) = (folder.0.join("file"), folder.0.join("link"));
    let there = |path: &Path| OutputPath::new(path).expect("a folder");
    assert!(there(&file).is_same(&there(&folder.0.join(".").join("file"))));
    assert!(!there(&file).is_file(&file));
    fs::write(&file, "text").expect("written");
    fs::hard_link(&file, &link).expect("a link");
    assert!(there(&link).is_file(&file) && there(&link).is_same(&there(&file)));
    assert!(!there(&folder.0.join("new")).is_same(&there(&file)));
    let null = Path::new("/dev/null");
    assert!(!there(null).is_file(null) && !there(null).is_same(&there(null)));
    for none in ["", "/", "folder/", ".", "..", "/nowhere/file"] {
        assert!(OutputPath::new(none).is_err(), "{none}");
    }
    let directory = there(&folder.0).check().expect_err("a folder");
    assert_eq!(directory.raw_os_error(), Some(libc::EISDIR));
}

/// In a folder of another user there can be no draft: the file is written in place, and only
/// once there is room for all of it.
#[test]
fn a_file_in_a_folder_of_others_is_written_in_place() {
    apart("a_file_in_a_folder_of_others_is_written_in_place", || {
        let folder = Folder::new("theirs");
        let file = folder.0.join("file");
        fs::write(&file, "an old text").expect("written");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        };
        mode(&file, 0o666);
        mode(&folder.0, 0o555);
        // SAFETY: plain calls, in a process of this test.
        let root = unsafe { libc::geteuid() } == 0;
        // SAFETY: as above. Root may write anywhere.
        unsafe { libc::seteuid(if root { 65_534 } else { libc::geteuid() }) };
        let owner = fs::metadata(&file).expect("there").uid();
        uruk_files::write(&file, "new").expect("written");
        assert_eq!(text(&file), "new");
        assert_eq!(fs::metadata(&file).expect("there").uid(), owner);
        limit_files(4);
        assert!(uruk_files::write(&file, "longer").is_err());
        assert_eq!(text(&file), "new");
        let fresh = OutputPath::new(folder.0.join("fresh")).expect("a folder");
        assert!(fresh.check().is_err() && fresh.write(b"").is_err());
        // SAFETY: as above.
        unsafe { libc::seteuid(if root { 0 } else { libc::geteuid() }) };
        mode(&folder.0, 0o755);
    });
}
