//! Settings of a run: what is read, and what is refused with which words.

mod loads;
mod reference;
mod refuses;
