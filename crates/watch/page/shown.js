// The page as a whole: which run is shown, and its state.

function show() {
  const run = view.runs[view.chosen];
  if (!run) { showWaiting(); return; }
  const data = view.data[view.chosen];
  document.title = `${run.name} · Lowtide`;
  document.body.classList.toggle("process", Boolean(run.isProcess));
  document.body.classList.toggle("bare", Boolean(run.isBare));
  byId("memory-part").hidden = Boolean(run.isBare) && cards(data).length === 0;
  byId("memory-head").textContent = run.isBare ? "Memory of the card" : "Memory";
  byId("host-part").hidden = !hasHost(data);
  view.isByStep = isByStep();
  showChips();
  showAxis(data);
  showState(run);
  if (run.isProcess) {
    showProcessFigures(run);
  } else if (run.command) {
    showCommandFigures(run);
  } else {
    showRunFigures(run);
    showHolding(run);
    showRanks(run);
  }
  showLive();
  showCompare();
  showPlan(data);
  showSummary(run, data);
  showOutput(data);
  showStory(data);
  showLegend(data);
  draw();
}

/** The run has not begun: a page that was opened with it. */
function showWaiting() {
  const pill = byId("state");
  [pill.className, pill.textContent] = ["pill waiting", "waiting"];
  byId("figures").replaceChildren();
  byId("story").replaceChildren(element("li", { className: "none" }, "The run has not begun yet."));
  showLive();
}

function showChips() {
  if (view.runs.length < 2) {
    byId("chips").replaceChildren(element("span", {}, view.runs[0].name));
    return;
  }
  byId("chips").replaceChildren(...view.runs.map((run) => {
    const dot = element("i", { style: `background:${runColour(run.id)}` });
    const button = element("button", { title: run.state_text }, dot, run.name);
    button.setAttribute("aria-pressed", String(run.id === view.chosen));
    button.onclick = () => choose(run.id);
    return button;
  }));
}

const STATES = {
  over: "ended", gone: "killed", line: "stopped at the memory limit", error: "ended with an error",
};
function stateKind(run) { return run.state === "ended" ? run.how : run.state; }
function stateWords(run) { return STATES[stateKind(run)] || stateKind(run); }

function showState(run) {
  const kind = stateKind(run);
  const pill = byId("state");
  pill.className = `pill ${kind}`;
  pill.textContent = stateWords(run);
  pill.title = run.state_text;
  if (view.lost) return;
  const trouble = ["gone", "over", "error", "line"].includes(kind) ? run.state_text : "";
  const unread = run.unread > 0 ? `${run.unread} lines of its events could not be read.` : "";
  say([trouble, unread].filter(Boolean).join(" "));
}
function say(text) {
  byId("banner").hidden = text === "";
  byId("banner").textContent = text;
}
