// Opens the page of the admin listener in Chromium and checks it. Midspan needs a client with a session.
// `make test-page` starts all that is needed. By hand:
//   npm install --prefix target/page playwright-core axe-core
//   node scripts/check-page.mjs http://127.0.0.1:9464/ [PID OF THE RELAY, which is killed] [FOLDER FOR SCREENSHOTS]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const packages = createRequire(new URL("../target/page/", import.meta.url));
const { chromium } = packages("playwright-core");
const axe = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");
const [url, relay, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const fail = (why) => { console.error(`FAILED: ${why}`); process.exitCode = 1; };

// A page whose errors, and requests to other places, are failures.
async function open(options) {
  const page = await browser.newPage(options);
  page.on("console", (line) => ["error", "warning"].includes(line.type()) && fail(`console: ${line.text()}`));
  page.on("pageerror", (error) => fail(`script: ${error}`));
  page.on("request", (request) => request.url().startsWith(url) || request.url().startsWith("data:") || fail(`asks ${request.url()}`));
  return page;
}

// Waits until sessions of a client are shown.
async function fill(page) {
  await page.waitForFunction(() => document.getElementById("state").textContent === "running");
  await page.waitForSelector("button[data-client]");
  await page.click("button[data-client]");
  await page.waitForSelector("#session-rows tr");
}

async function requireText(page) {
  if (await page.evaluate(() => window.hacked)) fail("a name from the network was run");
  const elements = "td :is(img, script, svg, iframe), dd *, #state *, #notes *, #sessions *, #gains *, #matched *";
  if (await page.evaluate((those) => document.querySelectorAll(those).length, elements)) fail("a name became an element");
}

for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 1280]) {
    const page = await open({ colorScheme, viewport: { width, height: 800 } });
    const answer = await page.goto(url);
    if (!answer.headers()["content-security-policy"]?.startsWith("default-src 'self'")) fail("no policy");
    await page.waitForFunction(() => document.querySelector("#down-chart polyline").getAttribute("points")?.split(" ").length >= 2);
    await fill(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    if (wide) fail(`wider than ${width} px`);
    await requireText(page);
    // By the debugger, which the policy of the page does not concern.
    await page.evaluate(axe);
    const { violations, passes } = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa"] }));
    for (const { id, nodes } of violations) fail(`${id}: ${nodes.map((node) => node.html).join(" ")}`);
    console.log(`${colorScheme}, ${width} px: ${passes.length} rules of axe passed, ${violations.length} violated`);
    if (folder) await page.screenshot({ path: `${folder}/${colorScheme}-${width}.png`, fullPage: true });
    await page.close();
  }
}

// Midspan accepts no such name from the network. If it did, the page would still show it as text: here, each
// text of the answers is replaced by markup, except the state, for which this script waits.
{
  const markup = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>";
  const hostile = (value, key) => {
    if (typeof value === "string") return key === "state" ? value : markup;
    if (Array.isArray(value)) return value.map((one) => hostile(one, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, hostile(one, name)]));
  };
  const page = await open();
  let replaced = 0;
  await page.route("**/summary?*", async (route) => {
    const answer = await route.fetch();
    replaced += 1;
    await route.fulfill({ response: answer, json: hostile(await answer.json()) });
  });
  await page.goto(url);
  await page.waitForSelector("button[data-client]");
  const shown = await page.textContent("button[data-client]");
  if (shown !== markup) fail(`a client is shown as ${shown}`);
  await requireText(page);
  if (replaced === 0) fail("no answer was replaced");
  console.log("markup in each text of the answers is shown as text");
  await page.close();
}

if (relay) {
  const page = await browser.newPage();
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("state").textContent === "running");
  const start = Date.now();
  process.kill(Number(relay), "SIGKILL");
  await page.waitForFunction(() => document.getElementById("state").textContent === "Midspan does not answer");
  const seconds = (Date.now() - start) / 1000;
  console.log(`the end of the relay is shown after ${seconds} s`);
  if (seconds > 5) fail("late");
}
await browser.close();
