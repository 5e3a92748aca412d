// What the colours of the charts mean.

function entry(name, words, kind = "", title = "") {
  const style = `background:var(${name});border-color:var(${name})`;
  return element("span", { title }, element("i", { className: kind, style }), words);
}
function showLegend(data) {
  showHostLegend(data);
  const ofCards = runCards(data).map((name) => entry("--card-used", `${cardName(name)}, all programs`, "stroke"));
  const own = view.runs[view.chosen].isProcess ? "this process, on all cards" : "the command, on all cards";
  if (view.runs[view.chosen].isBare) {
    const held = has(data && data.host.process_on_cards) ? [entry("--peak", own)] : [];
    byId("legend").replaceChildren(...held, ...ofCards);
    return;
  }
  const kinds = new Set(data ? data.marks.map((mark) => mark.kind) : []);
  const marked = (kind, ...made) => (kinds.has(kind) ? [entry(...made)] : []);
  byId("legend").replaceChildren(
    entry("--peak", "allocated during a step"), entry("--rest", "allocated between steps"),
    entry("--reserved", "reserved", "stroke"), ...ofCards,
    ...(data && data.points.line.some((line) => line !== null) ? [entry("--line", "memory limit", "stroke dash", LIMIT_TITLE)] : []),
    ...marked("out_of_memory", "--oom", "out of memory", "mark"),
    ...(data && failedTries(data).length > 0 ? [entry("--oom", "reserved by the try that failed", "cross")] : []),
    ...marked("overflowed", "--rung", "reserve used", "mark"),
    ...marked("rung", "--rung", "retry", "mark"),
    ...marked("cleaned", "--clean", "cleaned", "mark"), ...marked("evaluated", "--eval", "evaluation", "mark"),
    ...marked("saved", "--save", "checkpoint", "mark"));
}

function cardName(name) { return name === "device_used" ? "the card" : name.replace(/^gpu(\d+)_used$/, "GPU $1"); }
function showHostLegend(data) {
  if (!hasHost(data)) return;
  const run = view.runs[view.chosen];
  const own = run.isProcess ? "this process" : run.command ? "lowtide run" : "this run";
  const below = run.command ? "the command" : "its children";
  const kinds = new Set(run.command ? data.marks.map((mark) => mark.kind) : []);
  byId("host-legend").replaceChildren(
    ...(has(data.host.process_resident) && !run.command ? [entry("--own", own)] : []),
    ...(has(data.host.reserve) ? [entry("--rung", "of it the reserve for a full card")] : []),
    ...((data.host.children_resident || []).some((value) => value > 0) ? [entry("--below", below)] : []),
    ...(kinds.has("out_of_memory") ? [entry("--oom", "out of memory", "mark")] : []),
    ...(kinds.has("rung") ? [entry("--rung", "restart", "mark")] : []),
    ...(has(data.host.host_used) ? [entry("--reserved", "all programs on the host", "stroke")] : []),
    ...(hostLimitIsNear(data) ? [entry("--line", "all there is", "stroke dash")] : []));
}
