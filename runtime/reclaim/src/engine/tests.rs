//! Units of the engine.
