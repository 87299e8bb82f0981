//! The threads of this process, as the kernel lists them, and their clocks.
//!
//! Files of `/proc` are read through `uruk_files`, because the program may close descriptors that
//! it did not open.
//!
//! Unsafe: three system calls without pointers of lasting meaning.

use std::os::unix::fs::MetadataExt;

/// Kernel id of the calling thread.
#[must_use]
pub fn current_tid() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}

/// Id of this process; differs in the child of a fork.
pub(crate) fn process_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getpid() }
}

/// Ids of all threads, the main thread first. Without `/proc`, the calling thread
/// and the main thread.
pub(crate) fn list() -> Vec<i32> {
    let main = process_id();
    let mut tids = uruk_files::threads().unwrap_or_else(|_| vec![main, current_tid()]);
    tids.sort_unstable();
    tids.dedup();
    if let Some(place) = tids.iter().position(|&tid| tid == main) {
        tids[..=place].rotate_right(1);
    }
    tids
}

/// The number of threads, without listing them: the links of the directory less `.` and `..`.
/// `None` without `/proc`.
pub(crate) fn count() -> Option<u64> {
    let links = std::fs::metadata("/proc/self/task").ok()?.nlink();
    links.checked_sub(2)
}

/// Whether a thread blocks a signal; `None` if the thread ended or the kernel does not tell.
pub(crate) fn blocks(tid: i32, signal: i32) -> Option<bool> {
    let status = uruk_files::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}

/// The clock of one thread's CPU time, by the kernel's encoding (`CPUCLOCK_SCHED` of
/// one thread: the complement of the id above three bits of 6).
pub(crate) fn cpu_clock(tid: i32) -> libc::clockid_t {
    (!tid << 3) | 6
}

/// A clock's time in nanoseconds; `None` if its thread ended.
pub(crate) fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid out pointer.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Processor time of a thread of this process so far, in nanoseconds; `None` if it ended.
#[must_use]
pub fn time_of_thread(tid: i32) -> Option<u64> {
    read_clock(cpu_clock(tid))
}

/// `CLOCK_MONOTONIC`, nanoseconds: the time of samples, births and deaths.
#[must_use]
pub fn now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CPUs that are online; their numbers may have gaps.
pub(crate) fn cpus() -> Vec<usize> {
    let listed = uruk_files::read_to_string("/sys/devices/system/cpu/online");
    if let Some(cpus) = listed.ok().and_then(|text| parse_cpus(&text)) {
        return cpus;
    }
    // SAFETY: takes a number, cannot fail in a way that matters here.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    (0..usize::try_from(count).unwrap_or(1).max(1)).collect()
}

/// Parses `0-3,8,10-11`.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More than any kernel supports is no list of CPUs.
        cpus.extend(first..=last.min(first.checked_add(1 << 16)?));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus(""), None);
        assert_eq!(parse_cpus("0-x"), None);
        assert!(!cpus().is_empty());
    }

    #[test]
    fn the_list_begins_with_the_main_thread_and_has_the_caller() {
        let tids = list();
        assert_eq!(tids[0], process_id());
        assert!(tids.contains(&current_tid()));
        assert!(count().is_some_and(|count| count >= 1));
    }

    #[test]
    fn a_thread_clock_is_the_threads_own() {
        let before = time_of_thread(current_tid()).unwrap();
        let own = read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap();
        assert!(before <= own && own - before < 1_000_000_000);
        assert_eq!(time_of_thread(i32::MAX >> 4), None);
    }

    #[test]
    fn blocked_signals_are_seen() {
        let blocked = std::thread::spawn(|| {
            // SAFETY: a set made by the call before it is used; only this thread is
            // affected, and it ends.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            let tid = current_tid();
            (blocks(tid, libc::SIGUSR2), blocks(tid, libc::SIGUSR1))
        });
        assert_eq!(blocked.join().unwrap(), (Some(true), Some(false)));
    }
}
