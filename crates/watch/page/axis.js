// Time or steps along the charts.

/** Times with the steps that were done by then: of a run, or of a command by what its output said. */
function trackOf(points, host) {
  if (points.time.length > 0) return { time: points.time, step: points.step };
  const at = (host.step || []).flatMap((step, index) => (step === null ? [] : [index]));
  return { time: at.map((index) => host.time[index]), step: at.map((index) => host.step[index]) };
}
function hasSteps(data) { return Boolean(data) && data.track.step.some((step) => step > 0); }
function isByStep() { return view.axis === "step" && hasSteps(view.data[view.chosen]); }

/** Where a moment of a run lies along the charts; between two steps in proportion. */
function place(data, time) {
  if (!view.isByStep) return time;
  const { time: times, step: steps } = data.track;
  if (times.length === 0) return 0;
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  if (low === times.length) return steps[low - 1];
  const [beforeTime, beforeStep] = low === 0 ? [0, 0] : [times[low - 1], steps[low - 1]];
  if (times[low] === time || times[low] <= beforeTime) return steps[low];
  // A run that was resumed from an earlier step does not pass through those between.
  if (steps[low] < beforeStep) return beforeStep;
  return beforeStep + (steps[low] - beforeStep) * (time - beforeTime) / (times[low] - beforeTime);
}
function places(data, times) { return view.isByStep ? times.map((time) => place(data, time)) : times; }
function pointPlaces(data) { return view.isByStep ? data.points.step : data.points.time; }
/** What happened in a step or after it lies at that step, however long it took. */
function markPlace(mark) { return view.isByStep ? mark.step : mark.time; }

/** The number of the last of the places that are nearest to one; steps may go back where a run was resumed. */
function nearest(all, wanted) {
  let found = all.length - 1;
  for (let index = found - 1; index >= 0; index -= 1) {
    if (Math.abs(all[index] - wanted) < Math.abs(all[found] - wanted)) found = index;
  }
  return found;
}
/** The time that is pointed at. */
function hoverTime(data) {
  const { time, step } = data.track;
  return view.isByStep ? time[nearest(step, view.hover)] : view.hover;
}

function axisRange(data) {
  if (view.zoom) return view.zoom;
  const last = (values) => (values.length > 0 ? values.reduce((most, value) => Math.max(most, value)) : 0);
  const shown = view.runs.length > 1 ? view.data.filter((other) => other) : [data];
  const ends = shown.map((other) => last(view.isByStep ? other.track.step : other.points.time));
  if (view.isByStep) return [0, Math.max(1, ...ends)];
  const marks = data.marks.length ? data.marks[data.marks.length - 1].time : 0;
  const sampled = hasHost(data) ? data.host.time[data.host.time.length - 1] : 0;
  return [0, Math.max(1, marks, sampled, ...ends)];
}
function axisTicks(low, high, wanted) {
  if (!view.isByStep) return timeTicks(low, high, wanted);
  return ticks(low, high, wanted).filter((value) => Number.isInteger(value));
}
function axisWords(value) { return view.isByStep ? whole(value) : span(value); }

function showAxis(data) {
  byId("axis").hidden = !hasSteps(data);
  for (const button of byId("axis").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.axis === (view.isByStep ? "step" : "time")));
  }
}
for (const button of byId("axis").querySelectorAll("button")) {
  button.onclick = () => {
    view.axis = button.dataset.axis;
    session.set("axis", view.axis);
    [view.zoom, view.hover] = [null, null];
    show();
  };
}
