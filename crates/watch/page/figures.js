// The figures at the top.

function figure(name, value, of, share, extra = "") {
  const card = element("div", { className: `figure ${extra}` }, element("span", {}, name), element("b", {}, value));
  card.append(element("span", { className: "of", title: of }, of || "\u00a0"));
  if (share !== null && share !== undefined) {
    const bar = element("div", { className: share > 0.9 && name.startsWith("Memory") ? "bar near" : "bar" });
    bar.append(element("i", { style: `width:${Math.min(100, share * 100).toFixed(2)}%` }));
    card.append(bar);
  }
  return card;
}
function showFigures(run) {
  const { figures, header: head } = run;
  const line = head && head.line;
  const speed = figures.tokens_per_second
    ? [whole(figures.tokens_per_second), "tokens a second"] : [whole(figures.samples_per_second), "samples a second"];
  const answers = `${whole(figures.rungs)} ${figures.rungs === 1 ? "answer" : "answers"}`;
  const metrics = Object.entries(figures.metrics || {}).map(([name, value]) => `${name} ${short(value)}`).join(", ");
  byId("figures").replaceChildren(
    figure("Step", whole(figures.step), `${figures.steps ? `of ${whole(figures.steps)}, ` : ""}${span(figures.time)}`,
      figures.steps ? figures.step / figures.steps : null),
    figure("Memory at most", bytes(figures.highest_reserved), line ? `line at ${bytes(line)}` : "no line",
      line ? figures.highest_reserved / line : null),
    figure("Out of memory", whole(figures.out_of_memory),
      figures.out_of_memory ? `${whole(figures.recovered)} recovered, ${answers}` : "never",
      null, figures.out_of_memory > figures.recovered ? "alert" : ""),
    figure("Loss", short(figures.loss), head ? `${head.workload} on ${head.device}` : ""),
    figure("Evaluation", short(figures.eval_loss), metrics || (figures.eval_loss === null ? "none yet" : "loss")),
    figure("Speed", speed[0], `${speed[1]}, ${whole(figures.micro_batch)} at once`),
  );
}

function showProcessFigures({ process }) {
  const limit = view.live.host_limit;
  byId("figures").replaceChildren(
    figure("Memory in RAM", bytes(process.resident), limit ? `of ${bytes(limit)}, children included` : "with children",
      limit ? process.resident / limit : null),
    figure("At most in RAM", bytes(process.peak), "since it started, without children"),
    figure("At most on cards", bytes(process.on_cards),
      cards(view.data[0]).length > 0 ? "since it is watched" : "no card is here"),
    figure("Watched for", span(process.time), process.is_running ? "and running" : "until it ended"),
  );
}

/** A command that is kept alive: what is known of it from outside. */
function showCommandFigures({ figures, command }, data) {
  const limit = figures.host_total;
  const batch = command.micro_batch ? `${whole(command.micro_batch)} x ${whole(command.accumulation || 1)}` : "–";
  const onCards = Math.max(0, ...cards(data).flatMap((name) => data.host[name].map(Number)));
  byId("figures").replaceChildren(
    figure("Step", figures.step ? whole(figures.step) : "–", `${span(figures.time)}, as its output tells`),
    figure("Start", whole(command.start), command.resumed_from ? `from ${command.resumed_from}`
      : command.start > 1 ? `${whole(command.start - 1)} ${command.start === 2 ? "restart" : "restarts"}` : "the first"),
    figure("Out of memory", whole(figures.out_of_memory), figures.out_of_memory ? `${whole(figures.recovered)} recovered`
      : "never", null, figures.out_of_memory > figures.recovered ? "alert" : ""),
    figure("Micro-batch", batch, command.micro_batch ? "x gradient accumulation" : "not known"),
    figure("Memory in RAM", bytes(figures.highest_resident), limit ? `at most, of ${bytes(limit)}` : "at most",
      limit ? figures.highest_resident / limit : null),
    figure("On cards", onCards ? bytes(onCards) : "–", onCards ? "at most, by all programs" : "no card was seen"),
  );
}
