// What happened, drawn into the charts.

/** Marks that begin nearer to each other than this, in pixels, are one. */
const NEAR = 17;

/** Evaluations, checkpoints and the search for a micro-batch as bands behind the chart. */
function shade(pen, data, scale) {
  const bands = { evaluated: "--eval", saved: "--save", probed: "--sized" };
  for (const mark of data.marks) {
    const name = bands[mark.kind];
    if (!name || mark.count > 1) continue;
    const [from, to] = [scale.x(place(data, mark.time - mark.seconds)), scale.x(place(data, mark.time))];
    pen.globalAlpha = mark.kind === "evaluated" ? 0.22 : 0.16;
    pen.fillStyle = colour(name);
    pen.fillRect(from, scale.top, Math.max(1.5, to - from), scale.bottom - scale.top);
  }
  pen.globalAlpha = 1;
}

/** What is beyond the edges is zoomed away; a mark at the edge itself is drawn whole. */
function isWithin(x, scale) { return x >= scale.left - 1 && x <= scale.right + 1; }

/** What each try that ran out of memory had reserved by then. */
function failedTries(data) { return data.marks.filter((mark) => mark.reserved !== null && mark.reserved !== undefined); }
function drawFailedTries(pen, data, scale) {
  pen.beginPath();
  for (const mark of failedTries(data)) {
    const [x, y] = [scale.x(markPlace(mark)), scale.y(mark.reserved)];
    if (!isWithin(x, scale)) continue;
    pen.moveTo(x - 3.5, y - 3.5); pen.lineTo(x + 3.5, y + 3.5);
    pen.moveTo(x - 3.5, y + 3.5); pen.lineTo(x + 3.5, y - 3.5);
  }
  stroke(pen, "--oom", 1.6);
}

/**
 * The marks above the chart; those that pile up are one, of the most important kind among them, with a count of that kind.
 */
function piles(data, scale) {
  const found = [];
  const marks = data.marks.filter((mark) => RAIL.includes(mark.kind))
    .map((mark) => ({ mark, x: scale.x(markPlace(mark)) })).sort((one, other) => one.x - other.x);
  for (const { mark, x } of marks) {
    const last = found[found.length - 1];
    if (last && x - last.from < NEAR) {
      last.marks.push(mark);
      last.to = x;
    } else {
      found.push({ from: x, to: x, marks: [mark] });
    }
  }
  for (const pile of found) {
    pile.counts = RAIL.map((kind) => [kind, pile.marks.filter((mark) => mark.kind === kind)
      .reduce((sum, mark) => sum + mark.count, 0)]).filter(([, count]) => count > 0).reverse();
    [[pile.kind, pile.count]] = pile.counts;
    pile.x = (pile.from + pile.to) / 2;
  }
  return found;
}

/** A pile in words: how much of each kind, and the last ones. */
function pileWords(pile) {
  const last = pile.marks.slice(-2).map((mark) => mark.text);
  if (pile.marks.length <= 2) return last;
  const counted = ([kind, count]) => `${whole(count)} ${MARK_WORDS[kind][count === 1 ? 0 : 1]}`;
  const steps = pile.marks.flatMap((mark) => [mark.first_step, mark.step]);
  const [from, to] = [Math.min(...steps), Math.max(...steps)];
  const where = from === to ? `at step ${whole(from)}` : `from step ${whole(from)} to ${whole(to)}`;
  return [`${pile.counts.map(counted).join(", ")} ${where}`, ...last];
}

function rail(pen, data, scale) {
  const all = piles(data, scale).filter((pile) => isWithin(pile.x, scale));
  const rank = (pile) => RAIL.indexOf(pile.kind);
  for (const pile of all.sort((one, other) => rank(one) - rank(other))) drawPile(pen, pile, scale);
}

function drawPile(pen, { x, kind, count }, scale) {
  pen.fillStyle = colour(MARK_COLOUR[kind]);
  const failed = kind === "out_of_memory" || kind === "evaluation_failed";
  if (failed || kind === "rung" || kind === "overflowed" || kind === "cleaned") {
    pen.globalAlpha = 0.55;
    pen.fillRect(x - 0.6, scale.top - 8, 1.2, scale.bottom - scale.top + 8);
    pen.globalAlpha = 1;
  }
  pen.beginPath();
  if (count > 1) {
    const text = count < 1000 ? String(count) : `${Math.floor(count / 1000)}k`;
    const half = Math.max(7, 3.5 * text.length + 2);
    pen.roundRect(x - half, scale.top - 18, 2 * half, 14, 7);
    pen.fill();
    pen.fillStyle = colour("--card");
    [pen.textAlign, pen.textBaseline] = ["center", "middle"];
    pen.fillText(text, x, scale.top - 10.5);
    return;
  }
  if (failed) {
    pen.moveTo(x, scale.top - 3);
    pen.lineTo(x - 6, scale.top - 14);
    pen.lineTo(x + 6, scale.top - 14);
    pen.closePath();
  } else {
    pen.arc(x, scale.top - 9, kind === "saved" || kind === "evaluated" ? 2.5 : 4, 0, 7);
  }
  pen.fill();
}
