//! Reads what `uruk run --trace` writes: when a function was first called, when its
//! compile at tier 2 ran, and when that code was published. Pure.
//!
//! A function that was compiled ahead has no first call in a trace: it could be called when it was
//! published. The first code at tier 2 counts, of the function or of one of its loops.

use anyhow::{Context, Result};
use serde_json::Value;

/// A function's way to tier 2, in microseconds since the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// The function.
    pub name: String,
    /// IR instructions before optimization.
    pub instructions: u64,
    /// When it was first called.
    pub called: f64,
    /// When the compile began.
    pub began: f64,
    /// When the code was published.
    pub published: f64,
}

impl Promotion {
    /// Whether it is the function's, or one of its loops'.
    pub fn is_of(&self, function: &str) -> bool {
        let rest = self.name.strip_prefix(function);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(LOOP))
    }
}

/// The text between the name of a function and the number of a loop that was left.
const LOOP: &str = "@loop";

/// The functions, and loops, that reached tier 2, the soonest first.
///
/// # Errors
/// The text is no trace.
pub fn promotions(text: &str) -> Result<Vec<Promotion>> {
    let value: Value = serde_json::from_str(text).context("a trace is JSON")?;
    let events = value["traceEvents"].as_array();
    let events = events.context("a trace has events")?;
    let find = |category: &str, name: &str| {
        events
            .iter()
            .find(|event| event["cat"] == category && event["name"] == name)
    };
    let mut found: Vec<Promotion> = events
        .iter()
        .filter(|event| event["cat"] == "publication" && event["args"]["to"] == 2)
        .filter_map(|event| {
            let name = event["name"].as_str()?.strip_suffix(" to tier 2")?;
            let function = name.split_once(LOOP).map_or(name, |(function, _)| function);
            let called = find("lookup", &format!("first call of {function}"))
                .or_else(|| find("publication", &format!("{function} to tier 1")))?;
            let compile = find("compile", &format!("{name} (tier 2)"))?;
            Some(Promotion {
                name: name.to_owned(),
                instructions: compile["args"]["instructions"].as_u64()?,
                called: called["ts"].as_f64()?,
                began: compile["ts"].as_f64()?,
                published: event["ts"].as_f64()?,
            })
        })
        .collect();
    found.sort_by(|a, b| a.published.total_cmp(&b.published));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::promotions;

    #[test]
    fn a_loop_that_is_left_counts_from_the_first_code_of_its_function() {
        let text = r#"{"traceEvents":[
            {"name":"f to tier 1","cat":"publication","ph":"i","ts":15,"args":{"from":0,"to":1}},
            {"name":"f@loop1 (tier 2)","cat":"compile","ph":"X","ts":20,"args":{"instructions":7}},
            {"name":"f@loop1 to tier 2","cat":"publication","ph":"i","ts":30,"args":{"from":0,"to":2}}
        ]}"#;
        let found = promotions(text).expect("a trace");
        assert!(found[0].is_of("f") && !found[0].is_of("f@loop") && !found[0].is_of(""));
        assert_eq!((found[0].called, found[0].published), (15.0, 30.0));
    }

    #[test]
    fn a_promotion_is_put_together_from_its_events() {
        let text = r#"{"traceEvents":[
            {"name":"first call of f","cat":"lookup","ph":"X","ts":10.5,"dur":5,"args":{}},
            {"name":"f (tier 1)","cat":"compile","ph":"X","ts":11,"args":{"instructions":7}},
            {"name":"f (tier 2)","cat":"compile","ph":"X","ts":20,"args":{"instructions":7}},
            {"name":"f to tier 1","cat":"publication","ph":"i","ts":15,"args":{"from":0,"to":1}},
            {"name":"f to tier 2","cat":"publication","ph":"i","ts":30,"args":{"from":1,"to":2}}
        ]}"#;
        let found = promotions(text).expect("a trace");
        assert_eq!(found.len(), 1);
        let one = &found[0];
        assert_eq!((one.name.as_str(), one.instructions), ("f", 7));
        assert_eq!((one.called, one.began, one.published), (10.5, 20.0, 30.0));
        assert!(one.is_of("f") && !one.is_of("g"));
        assert!(promotions("{}").is_err());
        assert!(promotions("no").is_err());
    }
}
