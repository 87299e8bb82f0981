//! Reads the table of handlers as a personality does (Itanium C++ ABI, "Exception Handling
//! Tables").

use std::ops::Range;

use uruk_baseline::Code;

use super::rows::Reader;

/// Calls in a range of code, and their landing pad: 0 for none.
#[derive(Debug)]
pub struct Site {
    pub range: Range<u64>,
    pub landing: u64,
}

/// The table's ranges, by rising address.
pub fn sites(code: &Code) -> Result<Vec<Site>, String> {
    let Some(handlers) = &code.handlers else {
        return Ok(Vec::new());
    };
    let mut reader = Reader {
        bytes: &handlers.bytes,
        at: 0,
    };
    // Without a start of landing pads, they count from the function's. Types, if any, are indirect
    // distances.
    if reader.byte()? != 0xff {
        return Err("landing pads that count from elsewhere".to_string());
    }
    let types = match reader.byte()? {
        0xff => None,
        0x9b => {
            let distance = reader.uleb()? as usize;
            Some(reader.at + distance)
        }
        other => return Err(format!("types encoded as {other:#x}")),
    };
    if reader.byte()? != 1 {
        return Err("a table of calls in another encoding".to_string());
    }
    let length = reader.uleb()? as usize;
    let end = reader.at + length;
    let (mut all, mut behind) = (Vec::new(), 0);
    let mut largest = 0;
    while reader.at < end {
        let (start, length) = (reader.uleb()?, reader.uleb()?);
        let (landing, action) = (reader.uleb()?, reader.uleb()?);
        if start < behind || start + length > u64::from(code.size) {
            return Err(format!(
                "a range of calls at {start:#x} that is out of order"
            ));
        }
        if landing == 0 && action != 0 {
            return Err(format!("an action at {start:#x} that lands nowhere"));
        }
        behind = start + length;
        largest = largest.max(action);
        all.push(Site {
            range: start..behind,
            landing,
        });
    }
    if reader.at != end {
        return Err("a table of calls that ends within an entry".to_string());
    }
    let actions = types.unwrap_or(handlers.bytes.len());
    if largest > 0 && end + largest as usize > actions {
        return Err("an action outside of the table".to_string());
    }
    match handlers
        .types
        .iter()
        .all(|(at, _)| *at as usize + 4 <= handlers.bytes.len())
    {
        true => Ok(all),
        false => Err("a type outside of the table".to_string()),
    }
}
