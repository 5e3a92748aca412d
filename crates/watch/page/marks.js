// What happened, drawn into the charts.

/** Evaluations, checkpoints and the search for a micro-batch as bands behind the chart. */
function shade(pen, data, scale) {
  const bands = { evaluated: "--eval", saved: "--save", probed: "--sized" };
  for (const mark of data.marks) {
    const name = bands[mark.kind];
    if (!name || mark.count > 1) continue;
    const [from, to] = [scale.x(mark.time - mark.seconds), scale.x(mark.time)];
    pen.globalAlpha = mark.kind === "evaluated" ? 0.22 : 0.16;
    pen.fillStyle = colour(name);
    pen.fillRect(from, scale.top, Math.max(1.5, to - from), scale.bottom - scale.top);
  }
  pen.globalAlpha = 1;
}

function rail(pen, data, scale) {
  for (const kind of RAIL) {
    for (const mark of data.marks) {
      if (mark.kind !== kind) continue;
      const x = scale.x(mark.time);
      pen.fillStyle = colour(MARK_COLOUR[kind]);
      const failed = kind === "out_of_memory" || kind === "evaluation_failed";
      if (failed || kind === "rung" || kind === "cleaned") {
        pen.globalAlpha = 0.55;
        pen.fillRect(x - 0.6, scale.top - 8, 1.2, scale.bottom - scale.top + 8);
        pen.globalAlpha = 1;
      }
      pen.beginPath();
      if (failed) {
        pen.moveTo(x, scale.top - 3);
        pen.lineTo(x - 6, scale.top - 14);
        pen.lineTo(x + 6, scale.top - 14);
        pen.closePath();
      } else {
        pen.arc(x, scale.top - 8, kind === "saved" || kind === "evaluated" ? 2.5 : 4, 0, 7);
      }
      pen.fill();
    }
  }
}
