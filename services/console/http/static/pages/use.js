// What a ClusterQueue had reserved over time.
import { amount, asking, element, note } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { again, chart } from "/chart.js";
import { plain } from "/pages/quota.js";

const CHARTS_MAX = 3;

// At the end of each point of time, from the log: the resources that came nearest to their nominal quota.
export function used(row, span) {
  const path = `/api/v1/clusterqueues/${encodeURIComponent(row.name)}/use?cluster=${encodeURIComponent(row.cluster)}&span=${span}`;
  const said = asked(path);
  const { answer, problem: why } = said;
  if (answer && !answer.complete) again(path);
  const places = row.flavors.flatMap((each) => each.resources.map((resource) => ({ flavor: each.name, ...resource })))
    .map((each) => ({ ...each, values: (answer?.points || []).map((point) => reservedIn(point, each)) }))
    .map((each) => ({ ...each, most: Math.max(0, ...each.values) / (amount(each.nominal) || 1) }))
    .filter((each) => each.most > 0).sort((a, b) => b.most - a.most);
  const charts = places.slice(0, CHARTS_MAX).map((each) => [element("h3", {}, `${each.name} in ${each.flavor}: ${Math.round(100 * each.most)} % of ${each.nominal ?? "nothing"} at most`),
    chart(`${each.name} in ${each.flavor}, reserved`, answer.points.map((point, at) => ({ ...point, value: each.values[at] })), (point) => point.value, "used", plain)]);
  return [doubt("Quota in use over time", said), answer ? (charts.length ? charts : note("Nothing was reserved.")) : why ? null : asking()].flat(Infinity).filter(Boolean);
}

const reservedIn = (point, place) => amount((point.reserved || []).find((each) => each.flavor === place.flavor && each.resource === place.name)?.reserved);
