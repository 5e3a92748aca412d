// Samples of the machine.

function has(values) { return Boolean(values) && values.some((value) => value !== null); }
function hasHost(data) { return Boolean(data && data.host && data.host.time && data.host.time.length > 0); }
/** The names of the curves of cards. */
function cards(data) {
  return hasHost(data) ? Object.keys(data.host).filter((name) => /^gpu\d+_used$/.test(name)) : [];
}
/**
 * The cards that are drawn: with a process all, with a run those that it is on. CUDA numbers cards in its own way, so
 * the name of a run's device does not tell which.
 */
function runCards(data) {
  const run = view.runs[view.chosen];
  const all = cards(data);
  if (run.isBare) return all;
  if (!run.header || !run.header.device.startsWith("cuda")) return [];
  if (has(data.host.device_used)) return ["device_used"];
  const own = new Set(view.live.on_cards.filter((holder) => holder.watched).map((holder) => `gpu${holder.card}_used`));
  return all.length === 1 ? all : all.filter((name) => own.has(name));
}
function together(data) {
  const { process_resident: own = [], children_resident: below = [] } = data.host;
  return own.map((value, at) => (value === null ? null : value + (below[at] || 0)));
}
function hostMost(data) {
  return Math.max(1024, ...(data.host.host_used || []).map(Number), ...together(data).map(Number));
}
/** The most memory of the host that there is: as the run noted it, or as it is now. */
function hostLimit() {
  const { figures } = view.runs[view.chosen];
  return (figures && figures.host_total) || (view.live && view.live.host_limit);
}
function hostLimitIsNear(data) { return Boolean(hostLimit()) && hostLimit() < 2.5 * hostMost(data); }
/** Places and values of a figure where it is known: a run notes some less often than others are sampled. */
function known(data, name) {
  const { host } = data;
  const at = (host[name] || []).flatMap((value, index) => (value === null ? [] : [index]));
  return [places(data, at.map((index) => host.time[index])), at.map((index) => host[name][index])];
}
