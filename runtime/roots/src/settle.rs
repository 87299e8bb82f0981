//! Asks running threads by a signal, with many requests in progress at once; each thread is interrupted
//! individually.
//!
//! A thread that was asked may still fall asleep where signals do not wake it, end, or never answer.
//! Late threads are looked at again from outside, at growing intervals. A request that is unanswered
//! then is withdrawn; one that was claimed keeps its slot until it is answered.

use std::time::{Duration, Instant};

use crate::asking::Asking;
use crate::handler::{ANSWERS, BUFFER, REQUESTS, Work};
use crate::hits::Hits;
use crate::look::{Look, Looker, why};
use crate::mask::{self, Mask, Seen};
use crate::report::{How, Why};
use crate::scratch::Scratch;
use crate::shadow;
use crate::slot::{Ticket, Withdrawn};
use crate::sync::Ordering;
use crate::sys;
use crate::task;

/// Answers that say "the snapshot is old" before a stack counts as unknown.
const STALE_ANSWERS: u32 = 4;

/// Delay before a late thread is looked at again, at first and at most.
const LOOK_AFTER: Duration = Duration::from_millis(1);
const LOOK_AFTER_MOST: Duration = Duration::from_millis(64);

/// A thread that has not been scanned yet.
#[derive(Debug)]
pub(crate) struct Asked {
    tid: i32,
    since: Instant,
    look_at: Instant,
    interval: Duration,
    request: Option<Request>,
    why: Why,
    seen: Seen,
    /// Time of the next request, if its mask was not known.
    ask_at: Option<Instant>,
    room: usize,
    stale: u32,
}

#[derive(Debug)]
struct Request {
    slot: usize,
    ticket: Ticket,
    posted_ns: u64,
}

impl Asked {
    pub(crate) fn new(tid: i32, look: Look) -> Self {
        let now = Instant::now();
        Self {
            tid,
            since: now,
            look_at: now + LOOK_AFTER,
            interval: LOOK_AFTER,
            request: None,
            why: if look == Look::Vfork {
                Why::VforkChild
            } else {
                Why::NoTime
            },
            seen: Seen::default(),
            ask_at: None,
            room: Hits::FIRST,
            stale: 0,
        }
    }
}

/// The requester's side of all handshakes of a scan.
#[derive(Debug)]
pub(crate) struct Settling<'a, 'b> {
    pub(crate) looker: &'a mut Looker<'b>,
    /// Longest time that a thread may block the signal, or wait for a child of `vfork`.
    pub(crate) patience: Duration,
    pub(crate) deadline: Instant,
    /// Slots with requests of this scan.
    pub(crate) busy: [bool; REQUESTS.len()],
}

impl<'b> Settling<'_, 'b> {
    /// Asks all threads, waits for answers, and calls `done` once for each thread. The hits are empty
    /// for a thread that was not scanned.
    pub(crate) fn run(
        &mut self,
        mut asked: Vec<Asked>,
        mut done: impl FnMut(i32, How, Option<&Hits>),
    ) {
        while !asked.is_empty() {
            // Acquire: pairs with the release in the handler.
            let seen = ANSWERS.load(Ordering::Acquire);
            asked.retain_mut(|thread| match self.step(thread) {
                Some((how, hits)) => {
                    let own = how_is_own(&how).then_some(&self.looker.hits);
                    done(thread.tid, how, hits.as_ref().or(own));
                    false
                }
                None => true,
            });
            let now = Instant::now();
            if now >= self.deadline {
                break;
            }
            let next = |thread: &Asked| {
                thread
                    .ask_at
                    .map_or(thread.look_at, |at| at.min(thread.look_at))
            };
            let Some(next) = asked.iter().map(next).min() else {
                break;
            };
            let until = next.min(self.deadline).saturating_duration_since(now);
            sys::futex_wait(ANSWERS.as_ptr(), seen, until.as_nanos() as u64);
        }
        for thread in asked {
            let (how, hits) = self.give_up(thread.tid, thread.request, thread.why);
            done(thread.tid, how, hits.as_ref());
        }
    }

    /// Advances one thread; returns its result if it is settled.
    fn step(&mut self, thread: &mut Asked) -> Option<(How, Option<Hits>)> {
        if let Some(request) = &thread.request {
            if let Some(work) = REQUESTS[request.slot].collect() {
                self.busy[request.slot] = false;
                let posted_ns = request.posted_ns;
                thread.request = None;
                if let Some(settled) = self.answered(thread, *work, posted_ns) {
                    return Some(settled);
                }
            }
        } else if thread.why != Why::VforkChild && !self.ask(thread) {
            return Some((How::Gone, None));
        }
        let now = Instant::now();
        if now < thread.look_at {
            return None;
        }
        thread.interval = (thread.interval * 4).min(LOOK_AFTER_MOST);
        thread.look_at = now + thread.interval;
        self.look_again(thread, now)
    }

    fn answered(
        &mut self,
        thread: &mut Asked,
        work: Work,
        posted_ns: u64,
    ) -> Option<(How, Option<Hits>)> {
        let unanswered = |why| Some((How::Unanswered { why }, None));
        match work.outcome {
            Some(Ok(scanned)) => {
                let how = How::Running {
                    delivered_in: Duration::from_nanos(work.began_ns.saturating_sub(posted_ns)),
                    answered_in: Duration::from_nanos(work.handler_ns),
                    worked_for: work.worked_ns.map(Duration::from_nanos),
                    scanned,
                };
                Some((how, Some(work.hits)))
            }
            Some(Err(trouble)) => {
                thread.stale += 1;
                if thread.stale > STALE_ANSWERS {
                    return unanswered(why(trouble));
                }
                match work.hits.overflowed() {
                    true if thread.room >= Hits::LARGEST => return unanswered(Why::ManyHits),
                    true => thread.room *= 4,
                    false => {
                        if let Err(why) = self.looker.cure(trouble) {
                            return unanswered(why);
                        }
                    }
                }
                self.ask(thread);
                None
            }
            None => unanswered(Why::NoAnswer),
        }
    }

    /// Sends the signal if it will be handled and is harmless. False: no such thread.
    fn ask(&mut self, thread: &mut Asked) -> bool {
        let Some(signal) = shadow::choose() else {
            thread.why = Why::HandlerReplaced;
            return true;
        };
        thread.ask_at = None;
        let asking = Asking::begin(thread.tid);
        match mask::look(thread.tid, signal, &mut thread.seen) {
            Ok(Mask::Open) => {}
            Ok(Mask::Blocked) => {
                thread.why = Why::SignalBlocked;
                return true;
            }
            // Checked again, and asked then.
            Ok(Mask::Unsure) => {
                thread.why = Why::NoTime;
                thread.ask_at = Some(Instant::now() + LOOK_AFTER);
                return true;
            }
            Err(task::Unread::Gone) => return false,
            Err(task::Unread::Forbidden(errno)) => {
                thread.why = Why::Hidden(errno);
                return true;
            }
        }
        if asking.has_small_stack() {
            thread.why = Why::SmallStack;
            return true;
        }
        let Some(slot) = self.free_slot() else {
            thread.why = Why::NoTime;
            return true;
        };
        let work = Box::new(Work {
            pid: self.looker.pid,
            maps: self.looker.maps.clone(),
            tcb: sys::robust_list(thread.tid),
            limit: self.looker.limit,
            hits: Hits::new(self.looker.range(), thread.room),
            buffer: Scratch::new(BUFFER),
            outcome: None,
            handler_ns: 0,
            worked_ns: None,
            timed: self.looker.timed,
            began_ns: 0,
        });
        let posted_ns = sys::now_ns();
        let Ok(ticket) = REQUESTS[slot].post(thread.tid as u32, work) else {
            return true;
        };
        self.busy[slot] = true;
        thread.request = Some(Request {
            slot,
            ticket,
            posted_ns,
        });
        thread.why = Why::NoAnswer;
        if asking.send(self.looker.pid, signal) {
            return true;
        }
        let request = thread.request.take();
        self.give_up(thread.tid, request, Why::NoAnswer);
        // The queue of signals may be full: then the thread exists, and is asked later.
        task::exists(thread.tid)
    }

    /// A slot without a request of this scan; leftovers of late handlers are dropped.
    fn free_slot(&self) -> Option<usize> {
        (0..REQUESTS.len()).find(|&slot| {
            !self.busy[slot] && {
                drop(REQUESTS[slot].collect());
                REQUESTS[slot].is_free()
            }
        })
    }

    /// Looks again at a late thread, which may sleep or have ended by now.
    fn look_again(&mut self, thread: &mut Asked, now: Instant) -> Option<(How, Option<Hits>)> {
        let look = self.looker.look(thread.tid);
        let patient = now.saturating_duration_since(thread.since) < self.patience;
        match look {
            Look::Scanned { tries, bytes } => {
                let how = How::Blocked {
                    tries,
                    scanned: bytes,
                };
                match self.withdraw(thread.request.take()) {
                    Ok(_) => Some((how, None)),
                    // A handler runs: its result is newer.
                    Err(request) => {
                        thread.request = Some(request);
                        None
                    }
                }
            }
            Look::Gone => {
                // A request that was taken has its answer already.
                Some(self.give_up(thread.tid, thread.request.take(), Why::NoAnswer))
            }
            // The signal may have been taken away, by `sigwait` or a change of the handler.
            Look::Running if thread.request.is_some() => {
                match self.withdraw(thread.request.take()) {
                    Ok(_) => {
                        // It may block the signal by now; its patience begins anew.
                        thread.since = now;
                        let there = self.ask(thread);
                        (!there).then_some((How::Gone, None))
                    }
                    Err(request) => {
                        thread.request = Some(request);
                        None
                    }
                }
            }
            Look::Vfork | Look::Failed(_) if thread.request.is_some() => None,
            Look::Running if thread.why == Why::VforkChild => {
                thread.why = Why::NoTime;
                self.ask(thread);
                None
            }
            Look::Running if patient || thread.why == Why::NoTime => None,
            Look::Vfork if patient => None,
            Look::Failed(why) => Some((How::Unanswered { why }, None)),
            Look::Running => Some((How::Unanswered { why: thread.why }, None)),
            Look::Vfork => Some((
                How::Unanswered {
                    why: Why::VforkChild,
                },
                None,
            )),
        }
    }

    fn withdraw(&mut self, request: Option<Request>) -> Result<Option<Box<Work>>, Request> {
        let Some(request) = request else {
            return Ok(None);
        };
        match REQUESTS[request.slot].withdraw(request.ticket) {
            Withdrawn::Back(work) => {
                self.busy[request.slot] = false;
                Ok(Some(work))
            }
            Withdrawn::Taken => Err(request),
        }
    }

    /// The final result of a thread: its answer, or the reason why there is none.
    fn give_up(&mut self, tid: i32, request: Option<Request>, why: Why) -> (How, Option<Hits>) {
        let why = match self.withdraw(request) {
            Ok(_) if !task::exists(tid) => return (How::Gone, None),
            Ok(_) if why == Why::NoAnswer && shadow::choose().is_none() => Why::HandlerReplaced,
            Ok(_) => why,
            Err(request) => {
                let work = REQUESTS[request.slot].collect();
                self.busy[request.slot] = false;
                match work {
                    Some(work) if work.outcome.is_some_and(|outcome| outcome.is_ok()) => {
                        let scanned = work.outcome.and_then(Result::ok).unwrap_or(0);
                        let delivered = work.began_ns.saturating_sub(request.posted_ns);
                        let how = How::Running {
                            delivered_in: Duration::from_nanos(delivered),
                            answered_in: Duration::from_nanos(work.handler_ns),
                            worked_for: work.worked_ns.map(Duration::from_nanos),
                            scanned,
                        };
                        return (how, Some(work.hits));
                    }
                    _ if !task::exists(tid) => return (How::Gone, None),
                    _ => Why::StillScanning,
                }
            }
        };
        (How::Unanswered { why }, None)
    }
}

/// Whether the hits of a scanned thread are in the looker.
fn how_is_own(how: &How) -> bool {
    matches!(how, How::Blocked { .. })
}
