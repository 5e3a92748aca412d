// The cards below the charts: what holds memory, the machine, runs side by side, the summary.

function showOutput(data) {
  const lines = (data && data.output) || [];
  byId("output-card").hidden = lines.length === 0;
  const box = byId("output");
  const text = lines.join("\n");
  if (box.textContent === text) return;
  // Whoever scrolled up to read something stays there.
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  box.textContent = text;
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function showHolding(run) {
  const { allocated, peak, reserved } = run.figures;
  const line = run.header && run.header.line;
  byId("holding-card").hidden = peak === 0;
  const parts = [
    ["--rest", "allocated between steps (weights, optimizer state)", allocated],
    ["--peak", "more during a step (activations, gradients)", Math.max(0, peak - allocated)],
    ["--reserved", "reserved by the allocator and not in use", Math.max(0, reserved - peak)],
  ];
  if (line) parts.push(["--free", "free under the limit", Math.max(0, line - reserved)]);
  const all = parts.reduce((sum, part) => sum + part[2], 0) || 1;
  byId("holding").replaceChildren(...parts.map(([name, , size]) =>
    element("i", { style: `background:var(${name});width:${(100 * size / all).toFixed(3)}%` })));
  byId("holding-words").replaceChildren(...parts.map(([name, words, size]) =>
    element("li", {}, element("i", { style: `background:var(${name})` }), element("b", {}, bytes(size)), ` ${words}`)));
}

// The fullest first: the one that the others will wait for when it runs out.
function showRanks(run) {
  const { ranks } = run.figures;
  byId("ranks-card").hidden = ranks.length < 2;
  if (ranks.length < 2) return;
  const line = run.header && run.header.line;
  const all = line || Math.max(...ranks.map((rank) => rank.highest_reserved), 1);
  const fullest = ranks.toSorted((a, b) => b.reserved - a.reserved || a.rank - b.rank);
  const [first, last] = [fullest[0], fullest[fullest.length - 1]];
  const room = line ? `, ${bytes(Math.max(0, line - first.reserved))} below the limit` : "";
  const words = first.reserved === last.reserved ? `Each holds ${bytes(first.reserved)}${room}.`
    : `Rank ${first.rank} holds most: ${bytes(first.reserved)}${room}. Rank ${last.rank} holds least: ${bytes(last.reserved)}.`;
  byId("ranks-words").textContent = `${whole(ranks.length)} ranks, between steps. ${words} ${waitingWords(ranks)}`;
  byId("ranks").replaceChildren(...fullest.slice(0, 64).map((rank) => {
    const times = rank.out_of_memory === 1 ? "once" : `${whole(rank.out_of_memory)} times`;
    const errors = rank.out_of_memory ? `, out of memory ${times}` : "";
    const share = (part) => Math.min(100, 100 * part / all).toFixed(2);
    return element("div", { className: line && rank.reserved > 0.9 * line ? "gauge near" : "gauge" },
      element("b", {}, `rank ${rank.rank}`), ` ${bytes(rank.reserved)}, at most ${bytes(rank.highest_reserved)}`,
      element("span", {}, `${errors} · host ${bytes(rank.resident)}${paceWords(rank)}`),
      element("div", { className: "stack" }, element("i", { style: `width:${share(rank.reserved)}%` })));
  }));
}

function isPaced(rank) { return rank.worked !== null && rank.waited !== null; }
function paceWords(rank) {
  return isPaced(rank) ? ` · works ${brief(rank.worked)} of a step, waits ${brief(rank.waited)}` : "";
}
/** Who waits for whom: the slowest is the one that all others wait for. */
function waitingWords(ranks) {
  const paced = ranks.filter(isPaced).toSorted((a, b) => b.worked - a.worked || a.rank - b.rank);
  if (paced.length < 2) return "";
  const [slowest, quickest] = [paced[0], paced[paced.length - 1]];
  // Less than a twentieth of a step is noise.
  if (slowest.worked - quickest.worked < 0.05 * (slowest.worked + slowest.waited)) return "None waits for another for long.";
  return `The others wait for rank ${slowest.rank}: it works ${brief(slowest.worked)} of a step, `
    + `rank ${quickest.rank} ${brief(quickest.worked)} and then waits ${brief(quickest.waited)}.`;
}

function showLive() {
  const live = view.live || { gauges: [], on_cards: [], holders: [], notes: [], unlisted: 0 };
  byId("live-card").hidden = live.gauges.length === 0;
  byId("gauges").replaceChildren(...live.gauges.map((gauge) => {
    const of = gauge.of ? ` of ${bytes(gauge.of)}` : "";
    const share = gauge.of ? gauge.used / gauge.of : 0;
    const box = element("div", { className: share > 0.9 ? "gauge near" : "gauge" },
      element("b", {}, gauge.name), ` ${bytes(gauge.used)}${of} `, element("span", {}, gauge.note || ""));
    if (gauge.of) {
      const width = Math.min(100, 100 * share).toFixed(2);
      box.append(element("div", { className: "stack" }, element("i", { style: `width:${width}%` })));
    }
    return box;
  }));
  const more = live.unlisted > 0 ? [`${whole(live.unlisted)} more processes are not listed.`] : [];
  byId("notes").textContent = live.notes.concat(more).join(" ");
  // Of several live runs the newest is looked at this closely.
  const runs = live.gauges.filter((gauge) => view.runs.some((run) => run.name === gauge.name));
  byId("holders-head").textContent = runs.length > 1 ? `Memory of the host: ${runs[0].name}` : "Memory of the host";
  const severalCards = new Set(live.on_cards.map((holder) => holder.card)).size > 1;
  showHolders("on-cards", live.on_cards, severalCards);
  showHolders("holders", live.holders, false);
}
function showHolders(id, holders, withCard) {
  byId(`${id}-part`).hidden = holders.length === 0;
  byId(id).replaceChildren(...holders.map((holder) => {
    const place = withCard ? `, GPU ${holder.card}` : "";
    const name = element("td", { title: holder.name }, holder.name || "another container's",
      element("small", {}, ` ${holder.pid}${place}`));
    const made = element("tr", {}, name, element("td", {}, bytes(holder.used)));
    made.classList.toggle("watched", holder.watched && id === "on-cards");
    return made;
  }));
}

function showCompare() {
  byId("compare-card").hidden = view.runs.length < 2;
  if (view.runs.length < 2) return;
  const names = ["run", "state", "steps", "loss", "evaluation", "memory now", "peak memory", "limit", "out of memory", "time", "left"];
  const row = (run) => {
    const { figures, header: head, time_left: left } = run;
    const name = element("td", {}, element("i", { style: `background:${runColour(run.id)}` }), run.name);
    const [now, peak] = run.command ? [figures.resident, figures.highest_resident]
      : [figures.reserved, figures.highest_reserved];
    const cells = [stateWords(run), whole(figures.step), short(figures.loss), short(figures.eval_loss), bytes(now),
      bytes(peak), head && head.line ? bytes(head.line) : "none", whole(figures.out_of_memory), span(figures.time),
      left ? left.text : ""];
    const made = element("tr", { className: run.id === view.chosen ? "chosen" : "" }, name,
      ...cells.map((cell) => element("td", {}, cell)));
    made.onclick = () => choose(run.id);
    return made;
  };
  byId("compare").replaceChildren(
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", {}, name)))),
    element("tbody", {}, ...view.runs.map(row)));
}

const SUMMARY = [
  ["stopped", "ended", String], ["steps", "steps", whole], ["effective_batch", "effective batch", whole],
  ["micro_batch_final", "micro-batch at the end", whole], ["precision", "precision", String],
  ["parameters", "parameters", whole], ["line_bytes", "memory limit (the line)", bytes],
  ["host_line_bytes", "limit on host memory", bytes],
  ["training_peak", "peak reserved by a training step", bytes],
  ["failed_peak", "reserved by a try that ran out of memory", bytes],
  ["peak_reserved_bytes", "peak reserved, evaluations and all tries included", bytes],
  ["peak_allocated_bytes", "peak allocated, evaluations and all tries included", bytes],
  ["peak_rss_bytes", "peak memory of the process on the host", bytes], ["oom_errors", "out of memory", whole],
  ["oom_recovered", "recovered from", whole], ["samples_seen", "samples trained on", whole],
  ["samples_lost", "samples lost", whole], ["final_loss", "loss of the last steps", short],
  ["eval_loss", "loss of the last evaluation", short], ["loss_floor", "least loss possible", short],
  ["wall_seconds", "time", span], ["ending", "ended", String], ["restarts", "restarts", whole],
  ["command_peak", "peak memory in RAM", bytes],
  ["command_failed", "peak memory in RAM of a start that ran out of memory", bytes],
  ["exit_code", "exit code", whole], ["seconds", "time", span], ["left", "time left", String],
  ["weights_sha256", "weights (SHA-256)", String],
];
/** What the run wrote at its end, and what its events tell apart: the peak of training and that of a failed try. */
function showSummary(run, data) {
  const written = data && data.summary;
  byId("summary-card").hidden = !written;
  if (!written) return;
  const { figures } = run;
  const told = run.command
    ? { command_peak: figures.highest_resident, command_failed: figures.failed_resident }
    : { training_peak: figures.highest_reserved, failed_peak: figures.failed_reserved };
  const summary = { ...written, ...told, left: run.time_left && run.time_left.text };
  const known = SUMMARY.filter(([key]) => summary[key] !== null && summary[key] !== undefined);
  const rows = known.map(([key, words, inWords]) => [words, inWords(summary[key])]);
  rows.push(...Object.entries(summary.metrics || {}).map(([name, value]) => [name, short(value)]));
  byId("summary").replaceChildren(...rows.map(([words, value]) =>
    element("tr", {}, element("td", {}, words), element("td", {}, value))));
}

function showPlan(data) {
  const rows = (data && data.forecasts) || [];
  byId("plan-card").hidden = rows.length === 0;
  const small = (text) => (text ? [element("small", {}, text)] : []);
  const percent = (row) => `${Math.round(100 * row.measured / row.foreseen)} %`;
  const share = (row) => (row.foreseen && row.measured !== null ? percent(row) : "");
  const cells = (row) => [
    element("td", {}, row.what),
    element("td", {}, row.foreseen ? bytes(row.foreseen) : "–", ...small(row.by)),
    element("td", {}, row.measured === null ? "out of memory" : bytes(row.measured), ...small(share(row))),
  ];
  byId("plan").replaceChildren(
    element("thead", {}, element("tr", {}, ...["", "foreseen", "measured"].map((name) => element("th", {}, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))));
}
