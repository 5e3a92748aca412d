//! `lowtide watch`, `lowtide top` and `lowtide report`: runs as people see them.

mod browser;
mod kit;
mod look;
mod machine;
mod page;
mod report;
mod top;
mod watch;

pub(crate) use browser::Browser;
