//! Reads a trace as strictly as the strictest of Perfetto's importers of Chrome's format.
//!
//! Perfetto's tokenizer does not parse JSON: it searches for keys and braces, byte by byte, and had
//! its own rules over the years (`importers/json/json_trace_tokenizer.cc`,
//! `json_trace_parser_impl.cc`). The rules of all versions together:
//!
//! 1. Top level: an object whose keys are `otherData` (an object, whole in the first
//!    megabyte) and `traceEvents`; after an unknown key everything is skipped, and
//!    `displayTimeUnit` once changed what `ts` means.
//! 2. No control character in a string, DEL included, and none outside but newlines.
//! 3. An event is an object without arrays among its own values; `ts` and `dur` are plain
//!    decimal numbers of microseconds, not negative, and exact to the nanosecond.
//! 4. `pid` and `tid` are 32 bits wide.
//! 5. `ph` is one of those that Perfetto draws; an `X` has a `dur`, an `i` a scope, a `C` only
//!    numbers in `args`, an `M` a known name, with its one argument.
//! 6. Of the spans of one thread, in the order of `ts`, longer first, none ends in another.

use std::collections::HashMap;

use serde_json::Value;

/// The contents of a trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub spans: usize,
    pub instants: usize,
    pub counters: usize,
    pub metadata: usize,
}

/// Reads a trace: its contents, or the rule that it breaks.
pub fn read(bytes: &[u8]) -> Result<Seen, String> {
    let fail = |rule: u32, what: &str| Err(format!("rule {rule}: {what}"));
    if let Some(at) = bytes
        .iter()
        .position(|b| b.is_ascii_control() && *b != b'\n')
    {
        return fail(2, &format!("byte {:#x} at {at}", bytes[at]));
    }
    let trace: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let keys: Vec<&String> = trace
        .as_object()
        .map_or(Vec::new(), |map| map.keys().collect());
    if keys != ["otherData", "traceEvents"] || !trace["otherData"].is_object() {
        return fail(1, &format!("{keys:?}"));
    }
    let begin = bytes
        .windows(13)
        .position(|window| window == b"\"traceEvents\"");
    if begin.is_none_or(|begin| begin > 1 << 20) {
        return fail(1, "otherData is too long");
    }
    let Some(events) = trace["traceEvents"].as_array() else {
        return fail(1, "no list of events");
    };
    let mut seen = Seen::default();
    let mut spans: HashMap<(u64, u64), Vec<(u64, u64)>> = HashMap::new();
    for event in events {
        let Some(map) = event.as_object() else {
            return fail(3, "an event is no object");
        };
        if map.values().any(Value::is_array) {
            return fail(3, &format!("an array in {event}"));
        }
        let wide = |key: &str| {
            map.get(key)
                .and_then(Value::as_u64)
                .filter(|n| *n <= u32::MAX.into())
        };
        let (Some(pid), Some(tid)) = (wide("pid"), wide("tid")) else {
            return fail(4, &event.to_string());
        };
        let Some(start) = nanos(&event["ts"]) else {
            return fail(3, &event.to_string());
        };
        let args = event["args"].as_object();
        let name = event["name"].as_str().unwrap_or_default();
        match event["ph"].as_str() {
            Some("X") => {
                let Some(length) = nanos(&event["dur"]) else {
                    return fail(5, &event.to_string());
                };
                spans
                    .entry((pid, tid))
                    .or_default()
                    .push((start, start + length));
                seen.spans += 1;
            }
            Some("i") if ["g", "p", "t"].contains(&event["s"].as_str().unwrap_or_default()) => {
                seen.instants += 1;
            }
            Some("C") if args.is_some_and(|args| args.values().all(Value::is_number)) => {
                seen.counters += 1;
            }
            Some("M") if is_known(name, &event["args"]) => seen.metadata += 1,
            _ => return fail(5, &event.to_string()),
        }
    }
    for (track, mut spans) in spans {
        spans.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
        let mut open: Vec<u64> = Vec::new();
        for (start, end) in spans {
            while open.pop_if(|outer| *outer <= start).is_some() {}
            if open.last().is_some_and(|outer| *outer < end) {
                return fail(6, &format!("{start}..{end} ns on {track:?}"));
            }
            open.push(end);
        }
    }
    Ok(seen)
}

/// A number of microseconds, written in decimal, in nanoseconds.
fn nanos(value: &Value) -> Option<u64> {
    let text = value.as_number()?.to_string();
    let (whole, rest) = text.split_once('.').unwrap_or((&text, "0"));
    let is_decimal = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(rest) || rest.len() > 3 {
        return None;
    }
    let rest: u64 = format!("{rest:0<3}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(rest)
}

fn is_known(name: &str, args: &Value) -> bool {
    match name {
        "process_name" | "thread_name" => args["name"].is_string(),
        "thread_sort_index" | "process_sort_index" => args["sort_index"].is_i64(),
        _ => false,
    }
}
