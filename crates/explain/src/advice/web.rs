//! Processes of a web server, each of which holds a copy of the model.

use lowtide_oom::Source;

use super::case::Case;
use super::list::{ALL, List, NOT_MODEL};
use super::reduction::Dial;
use crate::Lever;
use crate::log::Flag;

impl Case<'_> {
    /// Whether a process of a web server was ended.
    pub(super) fn loses_a_web_worker(&self) -> bool {
        let is_kill = !matches!(self.oom.source, Source::Allocator | Source::Heap | Source::SharedMemory);
        let is_named = self.message.contains("was sent SIGKILL! Perhaps out of memory");
        is_kill && !self.trains() && (is_named || self.facts.flags.is_on(Flag::WebServer))
    }

    /// How many processes serve, as set or as they were started.
    fn web_workers(&self) -> Option<u64> {
        self.shown(Flag::WebWorkers)
    }
}

impl List<'_> {
    /// Fewer copies of the model, or one that is shared.
    pub(super) fn fewer_web_workers(&mut self) {
        let shown = self.case.web_workers();
        let usual = shown.is_none().then_some(1);
        if let Some(fewer) = (Dial { name: "--workers", usual, shown, least: 1 }).lowered() {
            let text = format!(
                "Fewer worker processes: {fewer} (or WEB_CONCURRENCY), and threads for more requests at once; each process holds a \
                 copy of the model"
            );
            self.add(Lever::FewerWorkers, text, ALL);
            let words = "; or gunicorn's --preload, by which they share the one that was loaded before them (on the CPU; for \
                         uvicorn, -k uvicorn.workers.UvicornWorker)";
            self.join(Lever::FewerWorkers, &[Lever::LoadInPieces], words);
        }
        self.more_memory();
        self.web_model();
    }

    /// What a process holds is less with a smaller model.
    fn web_model(&mut self) {
        let text = "A smaller model, or its weights in fewer bits; where memory grows from request to request, smaller requests, and \
                    new processes after so many of them (--max-requests 500, --limit-max-requests for uvicorn)";
        self.add(Lever::SmallerModel, text, NOT_MODEL);
        self.join(Lever::SmallerModel, &[Lever::Quantize, Lever::SmallerInput], "");
    }
}
