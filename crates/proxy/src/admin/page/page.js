// The page of the admin listener. It only reads: GET /summary, every 2 seconds. Everything from the
// network is put into the page as text (textContent), never as HTML.
"use strict";

const PERIOD = 2000; // milliseconds between two questions
const LIMIT = 4000; // an answer that takes longer counts as none
const KEPT = 150; // points of a chart: five minutes

const get = (id) => document.getElementById(id);
const rates = { down: [], up: [] };
let opened = null; // the client whose sessions are shown
let timer = null;
let generation = 0;

// Numbers with units.
const none = "–";
const is = (value) => typeof value === "number" && Number.isFinite(value);

function scaled(value, unit, step, prefixes) {
  if (!is(value)) return none;
  let place = 0;
  while (value >= step && place < prefixes.length - 1) {
    value /= step;
    place += 1;
  }
  const digits = value >= 100 || (place === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${prefixes[place]}${unit}`;
}
const rate = (value) => scaled(value, "bit/s", 1000, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, "B", 1024, ["", "Ki", "Mi", "Gi", "Ti"]);
const time = (value) => (is(value) ? `${(value * 1000).toFixed(value < 0.01 ? 2 : 0)} ms` : none);
const share = (value) => (is(value) ? `${(value * 100).toFixed(value < 0.1 ? 2 : 0)} %` : none);
const count = (value) => (is(value) ? value.toLocaleString("en") : none);
const text = (value) => (value === null || value === undefined ? none : String(value));

function duration(seconds) {
  if (!is(seconds)) return none;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const HELD = {
  link: "link",
  loss: "loss",
  window: "receiver's window",
  source: "sender has no data",
  buffer: "our buffer",
};

function held(row) {
  const name = HELD[row.held] ?? (row.held === null ? none : text(row.held));
  if (row.held === "link" && is(row.client_leg?.queue_seconds)) return `${name} (queue ${time(row.client_leg.queue_seconds)})`;
  return name;
}

function roundTrip(row) {
  const leg = row.client_leg ?? {};
  return is(leg.rtt_seconds) ? `${time(leg.rtt_seconds)} (${time(leg.min_rtt_seconds)})` : none;
}

// Replaces the rows of a table. A cell is a text, or an element.
function fill(id, rows) {
  const made = rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const place = document.createElement("td");
      place.append(cell);
      row.append(place);
    }
    return row;
  });
  get(id).replaceChildren(...made);
}

function opener(client) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = client;
  button.dataset.client = client;
  button.addEventListener("click", () => {
    opened = client;
    ask();
  });
  return button;
}

function chart(name, value) {
  const points = rates[name];
  points.push(is(value) ? value : null);
  if (points.length > KEPT) points.shift();
  const most = Math.max(1, ...points);
  const line = points
    .map((point, place) => [point, ((place + KEPT - points.length) * 300) / (KEPT - 1)])
    .filter(([point]) => point !== null)
    .map(([point, x]) => `${x.toFixed(1)},${(58 - (point / most) * 56).toFixed(1)}`);
  get(`${name}-chart`).firstElementChild.setAttribute("points", line.join(" "));
  get(name).textContent = rate(value);
  get(`${name}-chart`).setAttribute("aria-label", `${name === "down" ? "Rate to clients" : "Rate to servers"}: ${rate(value)}, at most ${rate(most)}`);
}

function showState(state, isGood) {
  const place = get("state");
  if (place.textContent !== state) place.textContent = state;
  place.className = isGood ? "good" : "bad";
}

function show(now) {
  const { state, totals, legs } = now;
  const why = (state.passing ?? []).join(", ");
  const name = state.state === "passing" ? "new connections pass untouched" : text(state.state);
  showState(why ? `${name}: ${why}` : name, state.state === "running");
  const notes = [...(state.late_threads ?? [])];
  if (state.firewall_obstacles > 0) notes.push("The firewall would stop intercepted connections: midspan check prints the rule.");
  if (state.bypassed_prefixes > 0) notes.push(`Bypassed prefixes: ${count(state.bypassed_prefixes)}`);
  for (const row of now.drained_clients ?? []) notes.push(`Drained at ${text(row.listener)}: clients ${text(row.clients)}, sessions left: ${count(row.sessions)}`);
  if (now.complete === false) notes.push("A thread of the relay does not answer: the numbers are incomplete.");
  get("notes").textContent = notes.join("\n");
  const untouched = Object.entries(totals.untouched ?? {}).filter(([, number]) => number > 0);
  const facts = [
    ["version", text(now.version)],
    ["up", duration(state.uptime_seconds)],
    ["sessions", count(totals.sessions)],
    ["opened", count(totals.opened)],
    ["refused", count(totals.refused)],
    ["no room", count(totals.shed)],
    ["passed untouched", untouched.map(([reason, number]) => `${reason} ${count(number)}`).join(", ") || "0"],
    ["memory", is(totals.memory_budget_bytes) ? `${bytes(totals.memory_used_bytes)} of ${bytes(totals.memory_budget_bytes)}` : bytes(totals.memory_used_bytes)],
    ["reloads", `${count(state.reloads)}, failed ${count(state.reloads_failed)}`],
  ];
  get("totals").replaceChildren(...facts.map(([title, value]) => {
    const fact = document.createElement("div");
    const [term, description] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = title;
    description.textContent = value;
    fact.append(term, description);
    return fact;
  }));
  chart("down", totals.rate_to_client_bits_per_second);
  chart("up", totals.rate_to_server_bits_per_second);
  fill("leg-rows", ["client", "server"].map((leg) => [
    leg,
    time(legs?.[leg]?.rtt_median_seconds),
    time(legs?.[leg]?.rtt_95_seconds),
    share(legs?.[leg]?.retransmitted_ratio),
  ]));
  const gains = (now.gain ?? []).filter((gain) => is(gain.ratio));
  get("gains").textContent = gains.map((gain) => `${text(gain.size)}: ×${gain.ratio.toFixed(2)}`).join(", ")
    || "not measured: it needs policy = \"auto\", and five flows of a size in the control group";
  const focus = document.activeElement?.dataset?.client;
  fill("client-rows", (now.clients ?? []).map((row) => [
    opener(text(row.client)),
    count(row.sessions),
    rate(row.rate_to_client_bits_per_second),
    rate(row.rate_to_server_bits_per_second),
    roundTrip(row),
    share(row.client_leg?.retransmitted_ratio),
    held(row),
    text(row.start),
  ]));
  if (focus !== undefined) {
    [...document.querySelectorAll("button[data-client]")].find((button) => button.dataset.client === focus)?.focus();
  }
  get("matched").textContent = `${count(now.clients?.length)} of ${count(now.matched?.clients)} clients, ${count(now.matched?.sessions)} sessions`;
}

function showSessions(client, now) {
  get("of-client").hidden = false;
  get("sessions").textContent = `Sessions of ${client}`;
  fill("session-rows", (now.sessions ?? []).map((row) => [
    text(row.id),
    text(row.destination ?? row.server),
    text(row.listener),
    duration(row.age_seconds),
    rate(row.rate_to_client_bits_per_second),
    rate(row.rate_to_server_bits_per_second),
    roundTrip(row),
    held(row),
  ]));
}

async function question(parameters) {
  const answer = await fetch(`/summary?${new URLSearchParams(parameters)}`, {
    signal: AbortSignal.timeout(LIMIT),
    cache: "no-store",
  });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}

async function ask() {
  clearTimeout(timer);
  const own = ++generation;
  const filter = get("filter").value.trim();
  const client = opened;
  try {
    const parameters = { by: "client", sort: get("sort").value };
    if (filter) parameters.client = filter;
    const now = await question(parameters);
    if (own !== generation) return;
    show(now);
    if (client !== null) {
      const sessions = await question({ by: "session", client });
      if (own !== generation) return;
      if (client === opened) showSessions(client, sessions);
    }
  } catch (error) {
    if (own !== generation) return;
    showState(error instanceof TypeError || error.name === "TimeoutError" ? "Midspan does not answer" : error.message, false);
  }
  timer = setTimeout(ask, PERIOD);
}

get("filter").addEventListener("change", ask);
get("sort").addEventListener("change", ask);
get("close").addEventListener("click", () => {
  opened = null;
  get("of-client").hidden = true;
});
ask();
