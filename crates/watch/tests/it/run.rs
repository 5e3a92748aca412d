//! Runs as they are seen from outside: growing, resumed, killed, a day long.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lowtide_core::{
    Bytes, CardMemory, CommandOutcome, Ending, Event, EventKind, Line, Metrics, MicroBatch, Phase, Record, Step,
};
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
        peak: None,
        reserved: None,
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

fn events_file(folder: &Path) -> File {
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

    let mut file = events_file(folder.path());
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
fn every_rank_has_its_own_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events_file(folder.path());
    let memory = |mebibytes: u64, worked: f64| Event::Memory {
        step: Step(1),
        allocated: Bytes::from_mib(mebibytes / 2),
        reserved: Bytes::from_mib(mebibytes),
        retries: 0,
        device_used: None,
        device_total: None,
        resident: Bytes::from_mib(300),
        host_used: None,
        host_total: None,
        reserve: None,
        worked: Some(worked),
        waited: Some(0.5 - worked),
    };
    let mut write = |rank, event| {
        let record = Record::new(0.1, event).on_rank(rank);
        writeln!(file, "{}", serde_json::to_string(&record).unwrap()).unwrap();
    };
    write(None, started(None));
    for (rank, mebibytes, worked) in [(0, 40, 0.25), (2, 60, 0.5), (1, 50, 0.375), (2, 44, 0.5)] {
        write(Some(rank), memory(mebibytes, worked));
    }
    write(Some(1), out_of_memory(2));
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    let figures = run.figures();
    let mebibytes = |bytes: Bytes| bytes.get() >> 20;
    let ranks = figures
        .ranks
        .iter()
        .map(|rank| (rank.rank, mebibytes(rank.reserved), mebibytes(rank.highest_reserved), rank.out_of_memory));
    assert_eq!(ranks.collect::<Vec<_>>(), [(0, 40, 40, 0), (1, 50, 50, 1), (2, 44, 60, 0)]);
    let pace = figures.ranks.iter().map(|rank| (rank.worked, rank.waited));
    assert_eq!(
        pace.collect::<Vec<_>>(),
        [(Some(0.25), Some(0.25)), (Some(0.375), Some(0.125)), (Some(0.5), Some(0.0))]
    );
    let last = run.marks().all().last().map(|mark| mark.text.as_str());
    assert!(last.is_some_and(|text| text.starts_with("Rank 1: Memory ran out in the backward pass")), "{last:?}");
    // What the page says of the run as a whole is the first rank's.
    assert_eq!((figures.resident, figures.out_of_memory), (Some(Bytes::from_mib(300)), 1));
}

#[test]
fn what_cannot_be_read_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events_file(folder.path());
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
    let mut file = std::io::BufWriter::new(events_file(folder.path()));
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
        write(&mut events_file(&folder.path().join(name)), 0.0, started(None));
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
    let mut file = events_file(folder.path());
    write(&mut file, 0.0, started(None));
    write(&mut file, 0.2, out_of_memory(2));
    write(&mut file, 0.3, Event::Cleaned { step: Step(2), freed: Bytes::from_mib(3), seconds: 0.01 });
    write(&mut file, 0.4, evaluated(2));
    write(&mut file, 0.5, Event::Stopped { step: Step(2), ending: Ending::Interrupted });
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    let told: Vec<String> = run.marks().all().iter().map(lowtide_watch::Mark::sentence).collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    Training began: gpt with 805,632 parameters on cpu, 32 samples a step, under a memory limit of 64.00 MiB.
    Memory ran out in the backward pass of step 2: 4.00 MiB were asked for.
    Cached blocks were released at step 2; 3.00 MiB came back.
    The evaluation after step 2 gave a loss of 1.5000.
    The run was asked to end and stopped after step 2.
    ");
}

fn failed_try(at: u64, reserved: Option<Bytes>) -> Event {
    let Event::OutOfMemory { phase, requested, limit, message, .. } = out_of_memory(at) else { unreachable!() };
    let (step, allocated, peak) = (Step(at), Some(Bytes::from_mib(61)), reserved.map(|_| Bytes::from_mib(62)));
    Event::OutOfMemory { step, phase, requested, limit, allocated, peak, reserved, message }
}

fn bigger_step(number: u64) -> Event {
    let Event::StepDone { loss, learning_rate, samples, tokens, seconds, allocated, micro_batch, .. } = step(number)
    else {
        unreachable!()
    };
    let (step, peak, reserved) = (Step(number), Bytes::from_mib(60), Bytes::from_mib(63));
    Event::StepDone { step, loss, learning_rate, samples, tokens, seconds, allocated, peak, reserved, micro_batch }
}

/// The most reserved in training and in a try that failed, in MiB.
fn reserved(events: Vec<Event>) -> (u64, Option<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events_file(folder.path());
    write(&mut file, 0.0, started(None));
    events.into_iter().for_each(|event| write(&mut file, 1.0, event));
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    let mib = |bytes: Bytes| bytes.get() >> 20;
    (mib(run.figures().highest_reserved), run.figures().failed_reserved.map(mib))
}

#[test]
fn the_peak_of_a_failed_try_is_not_that_of_training() {
    let tried = |at| failed_try(at, Some(Bytes::from_mib(63)));
    assert_eq!(reserved(vec![step(1), step(2)]), (50, None));
    assert_eq!(reserved(vec![step(1), tried(2), step(2)]), (50, Some(63)));
    // A later step may need as much, and fit.
    assert_eq!(reserved(vec![tried(1), step(1), bigger_step(2)]), (63, Some(63)));
}

#[test]
fn older_runs_have_a_failed_try_in_the_figures_of_its_step() {
    let tried = |at| failed_try(at, None);
    assert_eq!(reserved(vec![step(1), tried(2), bigger_step(2), step(3)]), (50, Some(63)));
    assert_eq!(reserved(vec![step(1), tried(2), bigger_step(2), bigger_step(3)]), (63, Some(63)));
    // A try of an evaluation is in the figures of no step.
    let Event::OutOfMemory { step: at, requested, limit, allocated, message, .. } = tried(1) else { unreachable!() };
    let (phase, peak, held) = (Phase::Eval, None, None);
    let of_evaluation =
        Event::OutOfMemory { step: at, phase, requested, limit, allocated, peak, reserved: held, message };
    assert_eq!(reserved(vec![step(1), of_evaluation, bigger_step(2)]), (63, None));
}

#[test]
fn a_command_has_the_peak_of_the_starts_that_did_not_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = events_file(folder.path());
    let started = |start| Event::CommandStarted {
        start,
        command: "python3 train.py".to_owned(),
        micro_batch: None,
        accumulation: None,
        resumed_from: None,
    };
    let memory = |step, resident, used| Event::CommandMemory {
        step: Step(step),
        resident: Bytes::from_mib(resident),
        host_used: Some(Bytes::from_mib(900)),
        host_total: Some(Bytes::from_mib(1000)),
        cards: vec![CardMemory { index: 1, used: Bytes::from_mib(used), total: Bytes::from_mib(800) }],
    };
    let ended = |start, outcome| Event::CommandEnded { start, step: Step(5), seconds: 1.0, outcome, cause: None };
    let events = [
        started(1),
        memory(3, 500, 790),
        ended(1, CommandOutcome::OutOfMemory),
        started(2),
        memory(2, 300, 600),
        memory(4, 200, 500),
    ];
    for (at, event) in events.into_iter().enumerate() {
        write(&mut file, at as f64, event);
    }
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    look(&mut run, SystemTime::now());
    let figures = run.figures();
    let mib = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.get() >> 20);
    assert_eq!(
        [figures.resident, figures.highest_resident, figures.failed_resident].map(mib),
        [200, 300, 500].map(Some)
    );
    assert_eq!([figures.card, figures.highest_card, figures.failed_card].map(mib), [500, 600, 790].map(Some));
    let free = run.free().map(|free| (free.bytes.get() >> 20, free.place.as_str()));
    assert_eq!(free, Some((300, "on GPU 1")));
    let steps: Vec<Option<u64>> = run.history().moments().iter().map(|moment| moment.step).collect();
    assert_eq!(steps, [Some(3), Some(2), Some(4)]);
    assert_eq!(run.time_left(), None, "how many steps it is to have is not known");
}

#[test]
fn time_is_left_only_where_it_can_be_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new("mine".to_owned(), folder.path().to_owned());
    let now = SystemTime::now();
    let mut file = events_file(folder.path());
    write(&mut file, 0.0, started(None));
    (1..=10).for_each(|number| write(&mut file, number as f64 * 0.1, step(number)));
    look(&mut run, now);
    assert_eq!(run.time_left(), None, "nobody knows how many steps there are to be");
    fs::write(folder.path().join("config.yaml"), "workload: gpt\ntrain:\n  steps: 1010\n").unwrap();
    write(&mut file, 1.1, step(11));
    look(&mut run, now);
    let left = run.time_left().unwrap();
    assert!((left.seconds - 99.9).abs() < 1e-6 && left.text == "about 2 min", "{left:?}");
    // Killed, and then ended.
    look(&mut run, now + Duration::from_secs(300));
    assert_eq!(run.time_left(), None);
    write(&mut file, 1.2, Event::Stopped { step: Step(11), ending: Ending::Interrupted });
    look(&mut run, now);
    assert_eq!(run.time_left(), None);
}
