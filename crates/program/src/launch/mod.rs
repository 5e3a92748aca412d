//! How this process was started among others: which rank it is, and where all of them meet.

pub(crate) mod parent;
mod place;
mod slurm;

pub(crate) use place::Launch;
