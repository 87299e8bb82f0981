//! Tests of files that are opened beside a program.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard};

use super::{OwnFile, is_taken, names, read, read_to_string, threads, write};

/// Numbers are the process's: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The steps of a program that closes all files and opens one.
fn put_in_its_place(file: &OwnFile, other: &std::fs::File) {
    // SAFETY: the number of `file`, which is what is tested.
    let number = unsafe { libc::dup2(other.as_raw_fd(), file.as_raw_fd()) };
    assert_eq!(number, file.as_raw_fd());
}

fn is_open(number: i32) -> bool {
    // SAFETY: a plain question.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

#[test]
fn numbers_are_high_and_differ() {
    let _alone = alone();
    let first = OwnFile::open("/proc/self/maps").expect("there").as_raw_fd();
    let second = OwnFile::open("/proc/self/maps").expect("there").as_raw_fd();
    assert!(
        (40..64).contains(&first) && first != second,
        "{first} {second}"
    );
    assert!(!is_open(first) && !is_open(second));
}

#[test]
fn another_file_of_the_number_stays_open_and_unwritten() {
    let _alone = alone();
    let mut other = tempfile();
    let mut file = OwnFile::of(tempfile()).expect("open");
    let number = file.as_raw_fd();
    assert!(file.is_ours());
    file.write_all(b"ours").expect("ours");
    put_in_its_place(&file, &other);
    assert!(!file.is_ours());
    assert!(is_taken(&file.write_all(b"theirs").expect_err("not ours")));
    drop(file);
    assert!(is_open(number));
    // SAFETY: the duplicate of above.
    unsafe { libc::close(number) };
    let mut text = String::new();
    other.read_to_string(&mut text).expect("a file");
    assert_eq!(text, "");
}

#[test]
fn files_in_memory_are_ours_and_as_long_as_asked_for() {
    let _alone = alone();
    for executable in [false, true] {
        let file = OwnFile::in_memory(c"uruk-test", executable).expect("memory");
        file.set_len(5000).expect("room");
        assert_eq!(file.file().metadata().expect("open").len(), 5000);
        let other = tempfile();
        put_in_its_place(&file, &other);
        assert!(is_taken(&file.set_len(1).expect_err("not ours")));
        assert_eq!(other.metadata().expect("open").len(), 0);
        // SAFETY: the duplicate of above.
        unsafe { libc::close(file.as_raw_fd()) };
    }
}

#[test]
fn files_are_written_whole() {
    let _alone = alone();
    let name = format!("uruk-files-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    write(&path, "a longer text").expect("written");
    write(&path, "text").expect("written");
    assert_eq!(read_to_string(&path).expect("there"), "text");
    std::fs::remove_file(&path).expect("ours");
    let folder = std::env::temp_dir();
    assert!(write(&folder, "text").is_err());
}

#[test]
fn a_closed_file_is_an_error_and_nothing_else() {
    let _alone = alone();
    let mut file = OwnFile::open("/proc/self/maps").expect("there");
    // SAFETY: as the program may do.
    unsafe { libc::close(file.as_raw_fd()) };
    assert!(is_taken(&file.read(&mut [0; 8]).expect_err("closed")));
}

#[test]
fn files_are_read_whole_and_folders_listed() {
    let _alone = alone();
    let maps = read_to_string("/proc/self/maps").expect("there");
    assert!(maps.contains("[stack]") && maps.ends_with('\n'));
    assert_eq!(
        read("/nowhere").expect_err("nothing").kind(),
        std::io::ErrorKind::NotFound
    );
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || ended.recv());
    let ids = threads().expect("there");
    // SAFETY: a plain question.
    let own = unsafe { libc::gettid() };
    assert!(ids.contains(&own) && ids.len() >= 2, "{ids:?}");
    drop(end);
    assert!(thread.join().expect("no panic").is_err());
    assert!(names("/proc/self/maps", |_| {}).is_err());
    let mut seen = 0;
    names("/proc/self/fd", |_| seen += 1).expect("there");
    assert!(seen > 3);
}

fn tempfile() -> std::fs::File {
    // SAFETY: a C string and flags.
    let made = unsafe { libc::memfd_create(c"uruk-test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(made >= 0);
    // SAFETY: fresh.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(made) }
}
