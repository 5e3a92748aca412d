// Where the data comes from: out of the page itself, or asked for while a run grows.

function choose(id) {
  view.chosen = id;
  view.zoom = null;
  show();
}

/** The first values; what a figure that came later has not is missing. */
function upTo(values, number) {
  return values.slice(0, number).concat(Array(Math.max(0, number - values.length)).fill(null));
}

/** Takes what is new of a run into what is there. */
function take(id, news) {
  const known = view.data[id];
  const anew = !known || known.generation !== news.generation;
  const kept = anew ? { points: {}, marks: [], host: {} } : known;
  const columns = (old, more, from) => Object.fromEntries(Object.entries(more)
    .map(([name, values]) => [name, upTo(old[name] || [], from).concat(values)]));
  const points = columns(kept.points, news.points, news.points_from);
  const host = columns(kept.host, news.host, news.host_from);
  const marks = kept.marks.slice(0, news.marks_from).concat(news.marks);
  const { generation, summary, forecasts, output } = news;
  view.data[id] = { generation, points, marks, host, summary, forecasts, output, track: trackOf(points, host) };
}

async function ask(path) {
  const joint = path.includes("?") ? "&" : "?";
  const answer = await fetch(token ? `${path}${joint}token=${encodeURIComponent(token)}` : path, { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function askForRun(id) {
  const known = view.data[id];
  const seen = known && { generation: known.generation, points: known.points.time.length, marks: known.marks.length,
    moments: (known.host.time || []).length };
  const query = seen ? `?${new URLSearchParams(seen)}` : "";
  take(id, await ask(`api/${view.runs[id].isProcess ? "process" : `run/${id}`}${query}`));
}

/** The run to look at first: one that is under way, else the last. */
function firstChoice(runs) {
  const running = runs.findLast((run) => run.state === "running");
  return (running || runs[runs.length - 1] || { id: null }).id;
}

/** What is listed: runs, or a process in their place. */
function listed({ runs, process }) {
  // What is seen from outside alone has neither steps of its own nor a loss.
  if (!process) return runs.map((run) => ({ ...run, isBare: Boolean(run.command) }));
  const { name, state_text, is_running } = process;
  return [{ id: 0, name, state_text, process, isProcess: true, isBare: true, state: is_running ? "running" : "over", unread: 0 }];
}

let polls = 0;
async function poll() {
  try {
    const list = await ask("api/runs");
    [view.runs, view.live] = [listed(list), list.live];
    if (view.chosen === null) view.chosen = firstChoice(view.runs);
    // Runs that are only compared change nothing of what is read most, so they are asked for less often.
    const isDue = (run) => polls % 5 === 0 && run.state === "running";
    const isWanted = (run) => run.id === view.chosen || !view.data[run.id] || isDue(run);
    const wanted = view.runs.filter(isWanted);
    await Promise.all(wanted.map((run) => askForRun(run.id)));
    view.lost = false;
  } catch (error) {
    view.lost = true;
    say("lowtide watch does not answer: it has ended, or the connection is lost. This is what was seen last.");
  }
  polls += 1;
  setTimeout(poll, document.hidden ? 5000 : view.lost ? 3000 : 1000);
  if (!view.lost) show();
}

if (embedded) {
  [view.runs, view.live] = [listed(embedded), embedded.live];
  embedded.data.forEach((news, id) => take(id, news));
  view.chosen = firstChoice(view.runs);
  show();
} else {
  poll();
}
