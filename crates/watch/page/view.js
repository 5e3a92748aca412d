"use strict";
// The page of `lowtide watch` and `lowtide report`: its files are joined in one script, this one first. Texts go into the
// page as text only, never as HTML.

const embedded = JSON.parse(document.getElementById("data").textContent);
const token = new URLSearchParams(location.search).get("token");
const byId = (id) => document.getElementById(id);

/** What was chosen stays for this window's session; where nothing may be kept, until the page is left. */
const session = {
  get(key) { try { return sessionStorage.getItem(`lowtide-${key}`); } catch { return null; } },
  set(key, value) { try { sessionStorage.setItem(`lowtide-${key}`, value); } catch { /* It is only a convenience. */ } },
};

/** Runs as listed, their points and marks by number, and what is looked at. */
const view = {
  runs: [], live: null, data: [], chosen: null, zoom: null, hover: null, filter: "all", drag: null,
  axis: session.get("axis") === "step" ? "step" : "time", isByStep: false,
};

const COLOURS = ["#0e9ab5", "#c2710c", "#7c3aed", "#15803d", "#d6264f", "#64748b", "#b45309", "#2563eb"];
const MEMORY_KINDS = ["out_of_memory", "overflowed", "rung", "climbed", "cleaned", "probed", "sized", "skipped", "evaluation_failed"];
const FILTERS = {
  all: ["All", () => true],
  memory: ["Memory", (mark) => MEMORY_KINDS.includes(mark.kind)],
  evaluations: ["Evaluations", (mark) => mark.kind.startsWith("evaluat")],
  checkpoints: ["Checkpoints", (mark) => mark.kind === "saved"],
};
const MARK_COLOUR = {
  out_of_memory: "--oom", overflowed: "--rung", rung: "--rung", climbed: "--sized", cleaned: "--clean", evaluated: "--eval",
  evaluation_failed: "--oom", saved: "--save", probed: "--sized", sized: "--sized", skipped: "--rung",
  started: "--rest", ended: "--rest",
};
const MARK_WORDS = {
  out_of_memory: ["out of memory", "times out of memory"], overflowed: ["use of the reserve", "uses of the reserve"], rung: ["retry", "retries"],
  climbed: ["larger micro-batch", "larger micro-batches"], cleaned: ["cleaning", "cleanings"],
  evaluated: ["evaluation", "evaluations"], evaluation_failed: ["failed evaluation", "failed evaluations"],
  saved: ["checkpoint", "checkpoints"], skipped: ["skipped update", "skipped updates"],
};
/** The kinds with a place of their own above the chart, the most important one last, so that it is on top. */
const RAIL = ["saved", "evaluated", "climbed", "skipped", "cleaned", "rung", "overflowed", "evaluation_failed", "out_of_memory"];
