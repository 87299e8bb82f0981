//! Converts events for the report package.

use std::time::Duration;

use uruk_base::{Level, Nanos, VersionId};
use uruk_report::{self as report, Drain, Recorder};

use super::{Event, Hit};
use crate::host::clock::nanos;

/// The kernel's name of the processor.
pub(crate) fn kernels_processor() -> String {
    let text = uruk_files::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    model.map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

/// The result of a trial of the tuner, in words.
fn tuned(event: &Event) -> Option<String> {
    let Event::Tuned {
        candidate,
        tier,
        variant,
        verdict,
        ratio,
        pairs,
        version,
        ..
    } = event
    else {
        return None;
    };
    let stays = if candidate == version {
        "it stays"
    } else {
        "it goes"
    };
    Some(format!(
        "version {candidate} ({tier} {variant}): {verdict}, {ratio} times as fast in {pairs} pairs; {stays}"
    ))
}

/// The result of a trial of the tuner, as data.
fn variant(event: &Event) -> Option<report::Variant> {
    let Event::Tuned {
        candidate,
        tier,
        variant,
        verdict,
        ratio,
        pairs,
        version,
        ..
    } = event
    else {
        return None;
    };
    Some(report::Variant {
        tier: *tier,
        words: variant.to_string(),
        verdict: verdict.to_string(),
        ratio: [ratio.low, ratio.point, ratio.high],
        pairs: *pairs,
        stays: candidate == version,
    })
}

/// Hands an event to the recorder.
pub(super) fn take_down(recorder: &Recorder, event: &Event) {
    match event {
        Event::Compiled { .. } => take_compile(recorder, event),
        Event::Adopted {
            id,
            function,
            version,
            bytes,
            ..
        } => recorder.adopted(function, *id, VersionId(*version), *bytes),
        Event::Published {
            id,
            version,
            tier,
            at,
            ..
        } => recorder.published(nanos(*at), *id, VersionId(*version), *tier),
        Event::Reverted {
            id,
            version,
            tier,
            at,
            ..
        } => {
            recorder.noted(nanos(*at), Some(*id), "went back to the version before");
            recorder.published(nanos(*at), *id, VersionId(*version), *tier);
        }
        Event::Replaced { at, .. } | Event::RolledBack { at, .. } => {
            take_exchange(recorder, event, nanos(*at));
        }
        Event::Tuned { id, at, .. } => {
            let text = tuned(event).unwrap_or_default();
            recorder.noted(nanos(*at), Some(*id), &text);
            if let Some(variant) = variant(event) {
                recorder.tried(*id, &variant);
            }
        }
        Event::Failed {
            id,
            function,
            tier,
            message,
            at,
        } => recorder.failed(nanos(*at), function, *id, *tier, message),
        Event::Dropped {
            id, version, at, ..
        } => recorder.dropped(nanos(*at), *id, VersionId(*version), "too late"),
        Event::Cancelled {
            id, version, at, ..
        } => recorder.dropped(nanos(*at), *id, VersionId(*version), "cancelled"),
        Event::Answered { .. } => take_first_call(recorder, event),
        Event::Sampling {
            source, rejected, ..
        } => recorder.sampling(&report::Sampling {
            source: source.clone(),
            rejected: rejected.clone(),
        }),
        Event::Samples { .. } => take_samples(recorder, event),
        Event::Drifted { .. }
        | Event::Evicted { .. }
        | Event::StacksSearched { .. }
        | Event::CodeStays { .. }
        | Event::WorkerLost { .. } => take_note(recorder, event),
    }
}

/// Records an event that is a note in the timeline.
fn take_note(recorder: &Recorder, event: &Event) {
    let (at, id, text) = match event {
        Event::Drifted { id, at, .. } => {
            let text = String::from("its load changed: it is tuned again");
            (at, Some(*id), text)
        }
        Event::Evicted { id, at, .. } => {
            let text = String::from("was not used: its code is evicted");
            (at, Some(*id), text)
        }
        Event::StacksSearched { cause, at } => {
            (at, None, format!("memory is searched for stacks: {cause}"))
        }
        Event::CodeStays { cause, at } => (at, None, format!("no code is freed: {cause}")),
        Event::WorkerLost { message, at } => {
            (at, None, format!("LLVM took a worker down: {message}"))
        }
        _ => return,
    };
    recorder.noted(nanos(*at), id, &text);
}

/// Records a replacement, or its rollback.
fn take_exchange(recorder: &Recorder, event: &Event, at: Nanos) {
    match event {
        Event::Replaced {
            number,
            functions,
            added,
            dependents,
            level,
            took,
            closed,
            ..
        } => {
            let exchange = report::Exchange {
                number: *number,
                functions: functions.clone(),
                added: added.clone(),
                dependents: dependents.clone(),
                unnamed: 0,
                level: in_words(*level),
                took: nanos(*took),
                closed: nanos(*closed),
            };
            recorder.replaced(at, &exchange);
        }
        Event::RolledBack {
            number,
            functions,
            dependents,
            took,
            closed,
            ..
        } => {
            let exchange = report::Exchange {
                number: *number,
                functions: functions.clone(),
                added: Vec::new(),
                dependents: dependents.clone(),
                unnamed: 0,
                level: in_words(Level::Immediate),
                took: nanos(*took),
                closed: nanos(*closed),
            };
            recorder.rolled_back(at, &exchange);
        }
        _ => {}
    }
}

/// The level of a replacement, in words.
fn in_words(level: Level) -> String {
    match level.wait() {
        None => String::from("calls under way finished old code"),
        Some(wait) => format!("while no thread ran old code, waited for {wait:?} at most"),
    }
}

/// Records a version as two bars on the track of its worker: compiled, linked.
fn take_compile(recorder: &Recorder, event: &Event) {
    let Event::Compiled {
        id,
        function,
        version,
        tier,
        continues,
        worker,
        queued,
        started,
        compiling,
        linking,
        instructions,
        bytes,
        ..
    } = event
    else {
        return;
    };
    let place = place(worker);
    let emitted = nanos(*started + *compiling);
    let end = nanos(*started + *compiling + *linking);
    let compile = report::Compile {
        function: *id,
        version: VersionId(*version),
        tier: *tier,
        continues: *continues,
        place,
        waited: nanos(queued.map_or(Duration::ZERO, |at| started.saturating_sub(at))),
        start: nanos(*started),
        end,
        instructions: *instructions,
        code_bytes: *bytes,
    };
    recorder.compiled(function, &compile);
    recorder.linked(&report::Link {
        function: Some(*id),
        place,
        start: emitted,
        end,
    });
}

/// Records an answered first call as a lookup on the track of its worker.
fn take_first_call(recorder: &Recorder, event: &Event) {
    let Event::Answered {
        function,
        worker,
        taken,
        at,
        ..
    } = event
    else {
        return;
    };
    recorder.looked_up(&report::Lookup {
        name: (*function).to_owned(),
        kind: report::LookupKind::FirstCall,
        place: place(worker),
        start: nanos(*taken),
        end: nanos(*at),
    });
}

/// Records samples under their versions, which the recorder knows by number.
fn take_samples(recorder: &Recorder, event: &Event) {
    let Event::Samples {
        at,
        hits,
        lost,
        uncovered,
        rate,
        overhead,
        queue,
    } = event
    else {
        return;
    };
    let hit = |hit: &Hit| report::Hit {
        time: nanos(hit.at),
        code: hit.code.map(|(version, tier)| (VersionId(version), tier)),
        count: hit.count,
    };
    let hits: Vec<report::Hit> = hits.iter().map(hit).collect();
    recorder.drained(&Drain {
        time: nanos(*at),
        hits: &hits,
        lost: *lost,
        uncovered: *uncovered as u64,
        rate_hz: f64::from(*rate),
        overhead: *overhead,
        queue: *queue as u64,
    });
}

/// The track of a thread: workers are numbered in their names.
fn place(thread: &str) -> report::Place {
    let number = |prefix: &str| thread.strip_prefix(prefix)?.parse::<u32>().ok();
    if let Some(index) = number("uruk-opt-") {
        return report::Place::Worker(BACKGROUND + index);
    }
    match number("uruk-") {
        Some(index) => report::Place::Worker(index),
        None => report::Place::Thread(0),
    }
}

/// First track of the background workers.
const BACKGROUND: u32 = 100;
