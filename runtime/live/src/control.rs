//! `uruk swap`: what others may ask of a program that is live.
use crate::session::Live;
/// Serves.
pub fn serve(_live: &'static Live) {}
