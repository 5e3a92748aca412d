//! Made-up runs, and the program as it is started.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lowtide_core::{Bytes, Ending, Event, Line, MicroBatch, Phase, Reason, Rung, Step};
use lowtide_core::{Measures, Metrics};
use lowtide_testkit::{FakeRun, Sandbox};
use serde_json::Value;

/// A run that is written by the test.
pub(crate) struct Written {
    events: FakeRun,
    time: f64,
    step: u64,
}

impl Written {
    pub(crate) fn begin(folder: &Path) -> Written {
        let mut run = Written { events: FakeRun::open(folder), time: 0.0, step: 0 };
        fs::write(folder.join("config.yaml"), "workload: gpt\ntrain:\n  steps: 40\n").unwrap();
        run.start(None);
        run
    }

    fn start(&mut self, resumed_at: Option<Step>) {
        self.event(Event::RunStarted {
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
        });
    }

    /// As an engine holds its run. A process that does so is seen as the one that trains, so such tests take turns.
    pub(crate) fn lock(&self) {
        self.events.lock();
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.event(self.time, event);
    }

    pub(crate) fn steps(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step += 1;
            self.time += 0.5;
            self.event(Event::StepDone {
                step: Step(self.step),
                loss: 3.0 / self.step as f64,
                learning_rate: 0.001,
                samples: 32,
                tokens: Some(2048),
                seconds: 0.5,
                allocated: Bytes::from_mib(10),
                peak: Bytes::from_mib(40 + self.step % 3),
                reserved: Bytes::from_mib(50),
                micro_batch: MicroBatch::new(16).unwrap(),
            });
        }
    }

    /// Nothing happens for so many seconds.
    pub(crate) fn wait(&mut self, seconds: f64) {
        self.time += seconds;
    }

    /// Goes on from the checkpoint of a step, with a clock that begins anew.
    pub(crate) fn resume_at(&mut self, step: u64) {
        (self.time, self.step) = (0.0, step);
        self.start(Some(Step(step)));
    }

    /// Memory runs out in the next step, and the guard answers.
    pub(crate) fn run_out(&mut self) {
        let (step, phase) = (Step(self.step + 1), Phase::Backward);
        let message = "<script>document.title = 'taken over'</script> out of memory".to_owned();
        let requested = Some(Bytes::from_mib(4));
        let (limit, allocated) = (None, None);
        let (peak, reserved) = (Some(Bytes::from_mib(60)), Some(Bytes::from_mib(63)));
        self.event(Event::OutOfMemory { step, phase, requested, limit, allocated, peak, reserved, message });
        let half = MicroBatch::new(8).unwrap();
        let (measures, reason) = (Measures::new(half, half), Reason::StillFailing { phase });
        self.event(Event::RungTaken { step, rung: Rung::Split, measures, reason });
        self.event(Event::Cleaned { step, freed: Bytes::from_mib(3), seconds: 0.01 });
    }

    pub(crate) fn evaluate(&mut self) {
        let (step, metrics) = (Step(self.step), Metrics::default());
        let (allocated, reserved) = (None, None);
        self.event(Event::Evaluated {
            step,
            loss: 0.75,
            metrics,
            batches: 4,
            seconds: 0.2,
            allocated,
            reserved,
            approximate: false,
        });
    }

    pub(crate) fn finish(&mut self) {
        self.event(Event::Stopped { step: Step(self.step), ending: Ending::Finished });
    }
}

/// What a page answers, without its head.
pub(crate) fn get(url: &str, target: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    lowtide_testkit::get(address, &format!("/{target}")).unwrap().1
}

/// `lowtide watch` under way; ended by its id when this goes.
pub(crate) struct Watching {
    pub(crate) child: Child,
    pub(crate) told: Value,
}

impl Watching {
    pub(crate) fn start(place: &Sandbox, words: &str) -> Watching {
        Watching::of(place.command(&format!("watch --json {words}"))).unwrap()
    }

    /// Starts a command that says where its page is; `None` where it does not.
    pub(crate) fn of(mut command: Command) -> Option<Watching> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told = serde_json::from_str(&line);
        if told.is_err() {
            child.wait().unwrap();
        }
        Some(Watching { child, told: told.ok()? })
    }

    pub(crate) fn url(&self) -> &str {
        self.told["url"].as_str().unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
