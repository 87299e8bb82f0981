//! Why functions have no code.

use crate::error::Error;
use std::collections::HashMap;
use std::sync::Arc;
use uruk_base::FunctionId;
use uruk_base::locks::Mutex;

/// Causes by function without code.
pub(super) type Causes = Mutex<HashMap<FunctionId, Arc<Error>>>;
