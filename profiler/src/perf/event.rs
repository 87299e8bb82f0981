//! One perf event of one thread.
//!
//! `perf-event` fills in the attributes, because it knows the structure's versions. The
//! descriptor is moved away from the low numbers that a program may count on. Samples are
//! of user code only: recompilation saves no kernel time, and `perf_event_paranoid` up to 2
//! allows user samples to every user.
//!
//! Some programs close all descriptors they do not know (daemons, at their start), and later own
//! the same numbers. So a descriptor is asked for the event's id before each use and before it is
//! closed. One that does not answer with that id is not ours any more.

use std::fs::File;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use perf_event::Builder;
use perf_event::events::{Hardware, Software};
use perf_event_open_sys::{bindings, ioctls};

use crate::source::SourceError;

/// Descriptors are moved to this number or above, if the limit is higher. No higher number is used,
/// because the kernel's table of a process is as long as its highest number.
const DESCRIPTOR_BASE: u64 = 768;

/// Makes the process's table of descriptors long enough for those of events, while it has one thread.
///
/// A table that other threads share grows in the time of an RCU grace period, here 10 ms, in which no
/// other thread can make it grow, and which the process cannot end in.
pub(crate) fn reserve_descriptors() {
    if !uruk_files::threads().is_ok_and(|threads| threads.len() == 1) {
        return;
    }
    // SAFETY: plain requests, of descriptors that nothing else owns, in the only thread.
    unsafe {
        let low = libc::eventfd(0, libc::EFD_CLOEXEC);
        if low < 0 {
            return;
        }
        let high = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, descriptor_base());
        libc::close(low);
        if high >= 0 {
            libc::close(high);
        }
    }
}

/// The number that descriptors of events have, or above.
fn descriptor_base() -> i32 {
    DESCRIPTOR_BASE.min(descriptor_limit() * 3 / 4) as i32
}

/// Attempts to open an event whose descriptor the program closes at once.
const TRIES: usize = 3;

/// False once the kernel refused `inherit_thread` (before 5.13).
static INHERIT_THREAD: AtomicBool = AtomicBool::new(true);

/// An open event, disabled at first. Closing it ends the events inherited from it.
#[derive(Debug)]
pub(super) struct Event {
    file: ManuallyDrop<File>,
    /// The kernel's number of the event, unique.
    id: u64,
}

/// The quantity that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Cycles,
    CpuClock,
    /// Nothing: the event is there to own a ring.
    Nothing,
}

/// The attributes of an event to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) counts: Counts,
    /// Nanoseconds or cycles between samples.
    pub(super) period: u64,
    /// Whether threads made by the thread inherit the event.
    pub(super) inherit: bool,
}

impl Event {
    /// Opens an event for a thread of this process, on one CPU or wherever it runs.
    pub(super) fn open(plan: Plan, tid: i32, cpu: Option<usize>) -> Result<Event, SourceError> {
        let only_threads = INHERIT_THREAD.load(Ordering::Relaxed);
        let opened = match build(plan, tid, cpu, only_threads) {
            // Without it, children of a fork are sampled as well; the reader of the
            // ring drops those by their process id.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && only_threads => {
                let opened = build(plan, tid, cpu, false);
                if opened.is_ok() {
                    INHERIT_THREAD.store(false, Ordering::Relaxed);
                }
                opened
            }
            result => result,
        };
        opened.map_err(|error| SourceError::Open {
            tid,
            cpu: cpu.map_or(-1, |cpu| cpu as i32),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }

    /// Whether the descriptor still is this event's.
    pub(super) fn is_open(&self) -> bool {
        id(self.file.as_raw_fd()) == Some(self.id)
    }

    /// Makes this event write to the ring of `other`, an event of the same CPU.
    pub(super) fn write_to(&self, other: &Event) -> Result<(), SourceError> {
        let target = other.file.as_raw_fd();
        // SAFETY: two open perf events; the kernel checks that they fit.
        let result = unsafe { ioctls::SET_OUTPUT(self.file.as_raw_fd(), target) };
        if result == 0 {
            return Ok(());
        }
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Err(SourceError::Ring { bytes: 0, errno })
    }

    /// Enables or disables the event and those inherited from it.
    pub(super) fn set_enabled(&self, enabled: bool) {
        if !self.is_open() {
            return;
        }
        let fd = self.file.as_raw_fd();
        // SAFETY: an open perf event. It fails only for a thread that is gone.
        unsafe {
            if enabled {
                ioctls::ENABLE(fd, 0);
            } else {
                ioctls::DISABLE(fd, 0);
            }
        }
    }

    /// The event's count: nanoseconds or cycles.
    pub(super) fn read(&self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        // The count, then the times that `perf-event` asks for by default.
        let mut bytes = [0; 24];
        (&*self.file).read_exact(&mut bytes).ok()?;
        let count = bytes[..8].try_into().ok()?;
        Some(u64::from_le_bytes(count))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        close(self.file.as_raw_fd(), self.id);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn build(plan: Plan, tid: i32, cpu: Option<usize>, only_threads: bool) -> std::io::Result<Event> {
    let mut builder = Builder::new().observe_pid(tid);
    builder = match plan.counts {
        Counts::Cycles => builder.kind(Hardware::CPU_CYCLES),
        Counts::CpuClock => builder.kind(Software::CPU_CLOCK),
        Counts::Nothing => builder.kind(Software::DUMMY),
    };
    if let Some(cpu) = cpu {
        builder = builder.one_cpu(cpu);
    }
    builder
        .exclude_kernel(true)
        .exclude_hv(true)
        .inherit(plan.inherit);
    let attrs = builder.attrs_mut();
    attrs.__bindgen_anon_1.sample_period = plan.period;
    attrs.sample_type = u64::from(
        bindings::PERF_SAMPLE_IP
            | bindings::PERF_SAMPLE_TID
            | bindings::PERF_SAMPLE_TIME
            | bindings::PERF_SAMPLE_PERIOD,
    );
    attrs.set_use_clockid(1);
    attrs.clockid = libc::CLOCK_MONOTONIC;
    attrs.set_inherit_thread(u64::from(plan.inherit && only_threads));
    let mut attrs = *attrs;
    let cpu = cpu.map_or(-1, |cpu| cpu as i32);
    let base = descriptor_base();
    for _ in 0..TRIES {
        let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attrs` was filled in above; the kernel checks it.
        let low = unsafe { perf_event_open_sys::perf_event_open(&mut attrs, tid, cpu, -1, flags) };
        if low < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let Some(id) = id(low) else {
            // Closed by the program, which may have put something there.
            continue;
        };
        // SAFETY: a plain request.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, base) };
        let refused = std::io::Error::last_os_error();
        close(low, id);
        if high >= 0 {
            // SAFETY: the descriptor was just made, and nothing else owns it.
            let file = ManuallyDrop::new(unsafe { File::from_raw_fd(high) });
            let event = Event { file, id };
            if event.is_open() {
                return Ok(event);
            }
            if uruk_files::is_same(low, high) {
                // `high` is a duplicate of a file that the program had just opened as `low`.
                // SAFETY: made above.
                unsafe { libc::close(high) };
            }
        } else if refused.raw_os_error() != Some(libc::EBADF) {
            return Err(refused);
        }
    }
    Err(std::io::Error::from_raw_os_error(libc::EBADF))
}

/// The id of the event behind a descriptor; `None` if it is no perf event.
fn id(descriptor: RawFd) -> Option<u64> {
    let mut id = 0;
    // SAFETY: a valid out pointer; other kinds of file refuse the request.
    let result = unsafe { ioctls::ID(descriptor, &mut id) };
    (result == 0).then_some(id)
}

/// Closes a descriptor, if it still belongs to the event.
fn close(descriptor: RawFd, event: u64) {
    if id(descriptor) == Some(event) {
        // SAFETY: the descriptor is ours, and is not used after this.
        unsafe { libc::close(descriptor) };
    }
}

/// The process's limit of open descriptors.
pub(super) fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}
