//! What is written, as others find it.

mod whole;
