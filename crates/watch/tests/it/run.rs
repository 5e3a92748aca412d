//! Runs as they are seen from outside: growing, resumed, killed, a day long.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lowtide_core::{Bytes, Ending, Event, EventKind, Line, Metrics, MicroBatch, Phase, Record, Step};
use lowtide_watch::{Board, MARKS, POINTS, Run, RunState, WatchError};

fn started(resumed_at: Option<Step>) -> Event {
    Event::RunStarted {
        workload: "gpt".to_owned(),
        device: "cpu".to_owned(),
        seed: 1,
        batch: 32,
        micro_batch: MicroBatch::new(32).unwrap(),
        line: Line::at(Bytes::from_mib(64)).unwrap(),
        host_line: Line::NONE,
        parameters: 805_632,
        resumed_at,
        numerics: None,
    }
}

fn step(step: u64) -> Event {
    Event::StepDone {
        step: Step(step),
        loss: 2.0,
        learning_rate: 0.001,
        samples: 32,
        tokens: None,
        seconds: 0.1,
        allocated: Bytes::from_mib(10),
        peak: Bytes::from_mib(47),
        reserved: Bytes::from_mib(50),
        micro_batch: MicroBatch::new(16).unwrap(),
    }
}

fn out_of_memory(step: u64) -> Event {
    Event::OutOfMemory {
        step: Step(step),
        phase: Phase::Backward,
        requested: Some(Bytes::from_mib(4)),
        limit: None,
        allocated: None,
        message: "no".repeat(5000),
    }
}

fn evaluated(step: u64) -> Event {
    Event::Evaluated {
        step: Step(step),
        loss: 1.5,
        metrics: Metrics::default(),
        batches: 4,
        seconds: 0.2,
        allocated: None,
        reserved: None,
        approximate: false,
    }
}

fn write(to: &mut impl Write, time: f64, event: Event) {
    writeln!(to, "{}", serde_json::to_string(&Record::new(time, event)).unwrap()).unwrap();
}

fn events(folder: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join("events.jsonl")).unwrap()
}

fn look(run: &mut Run, now: SystemTime) {
    while run.look(now).unwrap() {}
}

#[test]
fn a_run_grows_is_killed_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    let now = SystemTime::now();
    look(&mut run, now);
    assert_eq!(*run.state(), RunState::Waiting);

    let mut file = events(folder.path());
    write(&mut file, 0.0, started(None));
    write(&mut file, 0.1, step(1));
    look(&mut run, now);
    assert_eq!((run.state(), run.figures().step), (&RunState::Running, 1));

    write(&mut file, 0.2, out_of_memory(2));
    write!(file, "{{\"schema\":1,\"ti").unwrap();
    look(&mut run, now);
    assert_eq!((run.figures().out_of_memory, run.figures().recovered), (1, 0));

    // Nobody holds the folder and nothing is written: it was killed.
    look(&mut run, now + Duration::from_secs(300));
    assert!(matches!(run.state(), RunState::Gone { quiet: 299.. }), "{:?}", run.state());
    assert_eq!(run.process(), None);

    // As long as a process holds it, silence means nothing.
    file.lock().unwrap();
    look(&mut run, now + Duration::from_secs(300));
    assert_eq!((run.state(), run.process()), (&RunState::Running, Some(std::process::id())));

    // A resumed run drops the torn line, and its clock starts anew.
    let text = fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    file.set_len(text.rfind('\n').unwrap() as u64 + 1).unwrap();
    write(&mut file, 0.0, started(Some(Step(1))));
    write(&mut file, 0.3, step(2));
    write(&mut file, 0.4, Event::Stopped { step: Step(2), ending: Ending::Finished });
    look(&mut run, now + Duration::from_secs(900));
    assert_eq!(*run.state(), RunState::Ended { how: "finished" });
    assert_eq!((run.figures().step, run.figures().recovered, run.unread()), (2, 1, 0));
    let times: Vec<f64> = run.timeline().points().iter().map(|point| point.time).collect();
    assert_eq!(times, [0.1, 0.5]);
}

#[test]
fn what_cannot_be_read_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events(folder.path());
    write(&mut file, 0.0, started(None));
    writeln!(file, "{{\"schema\":1,\"time\":1,\"event\":\"of another age\"}}\nno json\n{{\"schema\":99}}").unwrap();
    write(&mut file, 0.1, step(1));
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    assert_eq!((run.unread(), run.figures().step), (3, 1));
}

#[test]
fn a_day_of_steps_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::io::BufWriter::new(events(folder.path()));
    let steps: u64 = 24 * 3600 * 4;
    write(&mut file, 0.0, started(None));
    for number in 1..=steps {
        let time = number as f64 * 0.25;
        if number % 10_000 == 0 {
            write(&mut file, time, out_of_memory(number));
        }
        write(&mut file, time, step(number));
        if number % 100 == 0 {
            write(&mut file, time, evaluated(number));
            let path = format!("checkpoints/{number:08}");
            write(&mut file, time, Event::Saved { step: Step(number), path, bytes: Bytes(9), seconds: 0.1 });
        }
    }
    file.flush().unwrap();
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());

    assert_eq!(run.figures().step, steps);
    let points = run.timeline().points();
    assert!(points.len() <= POINTS && points.len() >= POINTS / 2, "{}", points.len());
    assert_eq!(points.iter().map(|point| point.steps).sum::<u64>(), steps);
    let marks = run.marks().all();
    assert!(marks.len() <= MARKS);
    let count = |kind| marks.iter().filter(|mark| mark.kind == kind).map(|mark| mark.count).sum::<u64>();
    assert_eq!((count(EventKind::Evaluated), count(EventKind::Saved)), (steps / 100, steps / 100));
    let failures = || marks.iter().filter(|mark| mark.kind == EventKind::OutOfMemory);
    assert_eq!((failures().count() as u64, count(EventKind::OutOfMemory)), (steps / 10_000, steps / 10_000));
    let text: usize = marks.iter().map(|mark| mark.text.len() + mark.detail.as_ref().map_or(0, String::len)).sum();
    assert!(text < 1 << 20, "{text} bytes of text");
}

#[test]
fn a_series_is_its_runs_and_new_ones_join() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        write(&mut events(&folder.path().join(name)), 0.0, started(None));
    };
    let open = || Board::open(&[folder.path().to_owned()]);
    assert!(matches!(open(), Err(WatchError::NoRun { .. })));
    fs::write(folder.path().join(".series"), "").unwrap();
    let mut board = open().unwrap();
    let names = |board: &Board| board.runs().iter().map(|run| run.name().to_owned()).collect::<Vec<String>>();
    assert!(names(&board).is_empty());
    make("lstm");
    let now = SystemTime::now();
    board.catch_up(now).unwrap();
    assert_eq!(names(&board), ["lstm"]);
    make("gvae");
    board.catch_up(now + Duration::from_secs(1)).unwrap();
    assert_eq!(names(&board), ["lstm", "gvae"]);
    assert!(board.runs().iter().all(|run| run.header().is_some()));
}

#[test]
fn the_story_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events(folder.path());
    write(&mut file, 0.0, started(None));
    write(&mut file, 0.2, out_of_memory(2));
    write(&mut file, 0.3, Event::Cleaned { step: Step(2), freed: Bytes::from_mib(3), seconds: 0.01 });
    write(&mut file, 0.4, evaluated(2));
    write(&mut file, 0.5, Event::Stopped { step: Step(2), ending: Ending::Interrupted });
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    let told: Vec<String> = run.marks().all().iter().map(lowtide_watch::Mark::sentence).collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    Training began: gpt with 805,632 parameters on cpu, 32 samples a step, under a line of 64.00 MiB.
    Memory ran out in the backward pass of step 2: 4.00 MiB were asked for.
    Cached blocks were released at step 2; 3.00 MiB came back.
    The evaluation after step 2 gave a loss of 1.5000.
    The run was asked to end and stopped after step 2.
    ");
}
