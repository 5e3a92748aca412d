//! `lowtide top`: a run, or any process, in the terminal.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use lowtide_args::TopArgs;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::{cells, screen};
use crate::output::{Failure, report};
use crate::stop_flag::stop_flag;
use crate::watch::{Sampling, open_board};

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(250);

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
    ratatui::restore();
    shown.map_err(refused)
}

/// Waits a moment for a key.
fn wish() -> io::Result<Option<Wish>> {
    match event::poll(TICK) {
        Ok(false) => return Ok(None),
        // A signal, after which the flag is looked at.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        ready => ready?,
    };
    let Event::Key(key) = event::read()? else { return Ok(None) };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    Ok(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::End),
        KeyCode::Right | KeyCode::Down | KeyCode::Tab => Some(Wish::Next),
        KeyCode::Left | KeyCode::Up | KeyCode::BackTab => Some(Wish::Previous),
        _ => None,
    })
}
