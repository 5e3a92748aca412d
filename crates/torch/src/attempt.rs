//! Engine errors as values, after the failed tensors are gone.
//!
//! `tch` panics when LibTorch throws. [`attempt`] lets that panic unwind, which drops every tensor of the failed work, and
//! hands the engine's message back as a [`TorchError`]. A panic that is not the engine's goes on as a panic.
//!
//! The panic hook is wrapped once, so that an engine error inside an attempt prints nothing; every other panic is
//! printed as before.
//!
//! A failed backward holds memory. The engine leaves ready tasks, with gradients and saved tensors, in its thread's
//! queue until the next backward. `attempt` runs a backward of nothing behind them, which drops them.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::error::{Result, TorchError};
use crate::ffi;
use crate::message::error_of;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs `body`; an engine error inside it comes back as a value.
///
/// The tensors that `body` made are dropped by then. State outside that `body` changed in place stays changed: rolling
/// that back is the caller's work.
pub fn attempt<T>(body: impl FnOnce() -> T) -> Result<T> {
    prepare();
    let result = {
        let _inside = Inside::enter();
        panic::catch_unwind(AssertUnwindSafe(body))
    };
    match result {
        Ok(value) => Ok(value),
        Err(payload) => match engine_error(payload.as_ref()) {
            Some(error) => {
                // SAFETY: runs a backward of nothing.
                unsafe { ffi::lt_drain_backward() };
                Err(error)
            }
            None => panic::resume_unwind(payload),
        },
    }
}

/// Throws an error so that the enclosing [`attempt`] returns it. The counterpart of `tch`'s own panics.
pub(crate) fn raise(error: TorchError) -> ! {
    prepare();
    panic::panic_any(error)
}

/// Ends the enclosing [`attempt`] with [`TorchError::Input`]: for data that turns out to be wrong while a batch is made.
pub fn refuse_input(problem: impl Display) -> ! {
    raise(TorchError::Input(problem.to_string()))
}

/// The engine error inside a panic, if it is one.
pub(crate) fn engine_error(payload: &(dyn Any + Send)) -> Option<TorchError> {
    if let Some(error) = payload.downcast_ref::<TorchError>() {
        return Some(error.clone());
    }
    engine_text(payload).map(|text| error_of(&text))
}

/// The words of a panic, for messages.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// `tch` unwraps a `TchError::Torch(message)`, and the panic carries its debug form.
fn engine_text(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>()?;
    let quoted = text.strip_prefix("called `Result::unwrap()` on an `Err` value: Torch(\"")?.strip_suffix("\")")?;
    Some(unescape(quoted))
}

/// Undoes `str`'s debug form.
fn unescape(quoted: &str) -> String {
    let mut out = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('0') => out.push('\0'),
            Some('u') => out.extend(unicode(&mut rest)),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let digits: String = rest.skip_while(|letter| *letter == '{').take_while(|letter| *letter != '}').collect();
    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
}

struct Inside;

impl Inside {
    fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Counts this thread as inside an attempt: for code that the engine calls back on a thread of its own.
pub(crate) fn inside<T>(body: impl FnOnce() -> T) -> T {
    prepare();
    let _inside = Inside::enter();
    body()
}

/// Once for the process: the quiet panic hook, and errors without a C++ stack.
fn prepare() {
    static WRAPPED: Once = Once::new();
    WRAPPED.call_once(|| {
        // SAFETY: sets a function pointer of the engine's, once.
        unsafe { ffi::lt_leave_out_stacks() };
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let ours = info.payload().is::<TorchError>() || engine_text(info.payload()).is_some();
            if DEPTH.get() == 0 || !ours {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescape_undoes_the_debug_form() {
        for text in ["plain", "a \"quoted\" word", "two\nlines\tand a \\ slash", "bell \u{7} and é and 漢"] {
            let debug = format!("{text:?}");
            assert_eq!(unescape(&debug[1..debug.len() - 1]), text);
        }
    }

    #[test]
    fn a_rust_panic_stays_a_panic() {
        let caught = panic::catch_unwind(|| attempt(|| panic::resume_unwind(Box::new("mine"))));
        let payload = caught.expect_err("the panic goes on");
        assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "mine");
    }

    #[test]
    fn an_engine_error_is_a_value() {
        let error = attempt(|| tch::Tensor::from_slice(&[1i64, 2]).matmul(&tch::Tensor::from_slice(&[1i64, 2, 3])))
            .expect_err("the shapes do not fit");
        assert!(matches!(&error, TorchError::Engine(text) if !text.contains("Exception raised")), "{error:?}");
    }
}
