//! `lowtide top`: a run, or any process, in the terminal.
//!
//! The library that reads keys goes round in circles where the terminal is gone, deaf to signals. So it is asked only while
//! the terminal is there, and a thread ends the process where it is caught in that all the same.

use std::io::{self, IsTerminal};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use lowtide_args::TopArgs;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

use super::{cells, screen};
use crate::output::{Failure, report};
use crate::stop_flag::stop_flag;
use crate::watch::{Sampling, open_board};

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(250);
/// How long the end may take that a signal or the terminal's end asks for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a key asks for.
enum Wish {
    End,
    Next,
    Previous,
}

pub(crate) fn run(args: &TopArgs) -> ExitCode {
    report(top(args))
}

fn top(args: &TopArgs) -> Result<(), Failure> {
    let (mut board, _) = open_board(args.pid, &args.folders)?;
    board.catch_up(SystemTime::now())?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let hint = "`lowtide watch` shows the same in a browser, `lowtide report` writes it to a file";
        return Err(Failure::bad_input("this is no terminal".to_owned(), Some(hint.to_owned())));
    }
    let end = stop_flag()?;
    let refused = |error: io::Error| Failure::bad_input(format!("the terminal: {error}"), None);
    end_in_time(Arc::clone(&end));
    // A panic puts the terminal back as it was, too.
    let mut terminal = ratatui::try_init().map_err(refused)?;
    let shown = (|| {
        let mut at = None;
        let mut sampling = Sampling::new();
        while !end.load(Ordering::Relaxed) {
            // What cannot be read for a moment is tried again.
            let now = SystemTime::now();
            let _ = board.catch_up(now);
            if let Some((sample, detail)) = sampling.take(board.processes()) {
                board.add(now, sample, detail);
            }
            terminal.draw(|frame| {
                screen::draw(frame, &board, at);
                cells::show_plainly(frame.buffer_mut());
            })?;
            match wish()? {
                Some(Wish::End) => break,
                Some(Wish::Next) => {
                    at = Some((screen::shown(&board, at) + 1).min(board.runs().len().saturating_sub(1)));
                }
                Some(Wish::Previous) => at = Some(screen::shown(&board, at).saturating_sub(1)),
                None => {}
            }
        }
        Ok(())
    })();
    if is_gone(Duration::ZERO) {
        // Not by a return: the library would say that the cursor cannot be shown, and fail at that.
        leave();
    }
    ratatui::restore();
    shown.map_err(refused)
}

/// Ends the process a moment after the end was asked for, where it has not ended by itself.
fn end_in_time(end: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !end.load(Ordering::Relaxed) && !is_gone(TICK) {}
        end.store(true, Ordering::Relaxed);
        thread::sleep(PATIENCE);
        let _ = ratatui::try_restore();
        leave();
    });
}

#[expect(clippy::exit, reason = "the library does not come back, and its parting words need a terminal")]
fn leave() -> ! {
    process::exit(0)
}

/// Whether the terminal is gone, or goes within a time.
fn is_gone(time: Duration) -> bool {
    keys(PollFlags::empty(), time).intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// What is to be had of the terminal within a time; nothing where a signal comes first.
fn keys(sought: PollFlags, time: Duration) -> PollFlags {
    let time = Timespec::try_from(time).expect("less than a second");
    let mut terminal = [PollFd::from_borrowed_fd(stdin(), sought)];
    match poll(&mut terminal, Some(&time)) {
        Ok(_) => terminal[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Waits a moment for a key.
fn wish() -> io::Result<Option<Wish>> {
    if is_gone(Duration::ZERO) {
        return Ok(Some(Wish::End));
    }
    // Of several keys that came at once, the library has the others already.
    if !is_typed()? {
        let ready = keys(PollFlags::IN, TICK);
        if is_gone(Duration::ZERO) || !ready.contains(PollFlags::IN) || !is_typed()? {
            return Ok(None);
        }
    }
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    Ok(wish_of(key))
}

/// Whether the library has a key, without a wait for one.
fn is_typed() -> io::Result<bool> {
    match event::poll(Duration::ZERO) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        ready => ready,
    }
}

fn wish_of(key: KeyEvent) -> Option<Wish> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::End),
        KeyCode::Right | KeyCode::Down | KeyCode::Tab => Some(Wish::Next),
        KeyCode::Left | KeyCode::Up | KeyCode::BackTab => Some(Wish::Previous),
        _ => None,
    }
}
