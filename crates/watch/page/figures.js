// The figures at the top.

const LIMIT_TITLE = "The memory limit (the line): the most memory of the device that this run may take. "
  + "A step that would need more is retried with less memory.";
const FREE_TITLE = "Memory that is still to be had, as the driver of the card or the system says.";
const FAILED_TITLE = "The peak counts steps that succeeded. A failed try is one that ran out of memory; "
  + "what it had reserved by then is shown by itself.";

/** A figure: its name, its value, a line about it; `share` of a bar, `title` for who points at it, `extra` for its look. */
function figure(name, value, of, { share = null, title = "", extra = "" } = {}) {
  const card = element("div", { className: `figure ${extra}`, title }, element("span", {}, name), element("b", {}, value));
  card.append(element("span", { className: "of", title: title || of }, of || "\u00a0"));
  if (share !== null) {
    const bar = element("div", { className: share > 0.9 && /memory|RAM/i.test(name) ? "bar near" : "bar" });
    bar.append(element("i", { style: `width:${Math.min(100, share * 100).toFixed(2)}%` }));
    card.append(bar);
  }
  return card;
}
function shareOf(value, whole) { return whole ? (value || 0) / whole : null; }
function nowName(run) { return run.state === "running" ? "now" : "at the end"; }
function failedWords(failed, otherwise) { return failed === null ? otherwise : `failed try: ${bytes(failed)}`; }

function freeFigures(free) {
  return free ? [figure("Free memory", bytes(free.bytes), free.place, { title: FREE_TITLE })] : [];
}
function failureFigure({ out_of_memory: failures, recovered, rungs }, retries) {
  const words = `${failures === recovered ? "all" : whole(recovered)} recovered, ${whole(rungs)} ${retries[rungs === 1 ? 0 : 1]}`;
  return figure("Out of memory", whole(failures), failures ? words : "never", { extra: failures > recovered ? "alert" : "" });
}

function showRunFigures(run) {
  const { figures, header: head, time_left: left, free } = run;
  const limit = head && head.line;
  const speed = figures.tokens_per_second
    ? [whole(figures.tokens_per_second), "tokens/s"] : [whole(figures.samples_per_second), "samples/s"];
  const metrics = Object.entries(figures.metrics || {}).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  const underLimit = { share: shareOf(figures.reserved, limit), title: LIMIT_TITLE };
  byId("figures").replaceChildren(
    figure("Step", whole(figures.step), `${figures.steps ? `of ${whole(figures.steps)}, ` : ""}${span(figures.time)}`,
      { share: shareOf(figures.step, figures.steps) }),
    ...(left ? [figure("Time left", left.text.replace(/^about /, ""), "about, at the recent speed")] : []),
    figure(`Memory ${nowName(run)}`, bytes(figures.reserved), limit ? `limit ${bytes(limit)}` : "no limit", underLimit),
    figure("Peak memory", bytes(figures.highest_reserved), failedWords(figures.failed_reserved, "reserved, in training"),
      { share: shareOf(figures.highest_reserved, limit), title: FAILED_TITLE }),
    ...freeFigures(free),
    failureFigure(figures, ["retry", "retries"]),
    figure("Loss", short(figures.loss), head ? `${head.workload} on ${head.device}` : ""),
    figure("Evaluation", short(figures.eval_loss), metrics || (figures.eval_loss === null ? "none yet" : "loss")),
    figure("Speed", speed[0], `${speed[1]}, micro-batch ${whole(figures.micro_batch)}`),
  );
}

function showProcessFigures({ process }) {
  const limit = view.live.host_limit;
  const onCards = `peak ${bytes(process.on_cards)} since it is watched`;
  byId("figures").replaceChildren(
    figure("RAM now", bytes(process.resident), limit ? `of ${bytes(limit)}, with children` : "with children",
      { share: shareOf(process.resident, limit) }),
    figure("Peak RAM", bytes(process.peak), "since it started, without children"),
    figure("On cards now", bytes(process.on_cards_now), cards(view.data[0]).length > 0 ? onCards : "no card is here"),
    ...freeFigures(process.free),
    figure("Watched for", span(process.time), process.is_running ? "and running" : "until it ended"),
  );
}

/** A command that is kept alive: what is known of it from outside. */
function showCommandFigures(run) {
  const { figures, command, free } = run;
  const limit = figures.host_total;
  const batch = command.micro_batch ? `${whole(command.micro_batch)} x ${whole(command.accumulation || 1)}` : "–";
  const seenCard = figures.card !== null || figures.failed_card !== null;
  byId("figures").replaceChildren(
    figure("Step", figures.step ? whole(figures.step) : "–", `${span(figures.time)}, from its output`),
    figure("Start", whole(command.start), command.resumed_from ? `from ${command.resumed_from}`
      : command.start > 1 ? `${whole(command.start - 1)} ${command.start === 2 ? "restart" : "restarts"}` : "the first"),
    failureFigure(figures, ["restart", "restarts"]),
    figure("Micro-batch", batch, command.micro_batch ? "x gradient accumulation" : "not known"),
    figure(`RAM ${nowName(run)}`, bytes(figures.resident), limit ? `of ${bytes(limit)}` : "all its processes",
      { share: shareOf(figures.resident, limit) }),
    figure("Peak RAM", bytes(figures.highest_resident), failedWords(figures.failed_resident, "all its processes"),
      { share: shareOf(figures.highest_resident, limit), title: FAILED_TITLE }),
    ...(seenCard ? [figure(`Card ${nowName(run)}`, bytes(figures.card), "the fullest, all programs"),
      figure("Peak on card", bytes(figures.highest_card), failedWords(figures.failed_card, "all programs"),
        { title: FAILED_TITLE })] : []),
    ...freeFigures(free),
  );
}
