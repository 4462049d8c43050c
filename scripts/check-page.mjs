// Opens the page of the admin listener in Chromium and checks it. Midspan needs a client with a session.
// npm install playwright-core axe-core; node scripts/check-page.mjs http://127.0.0.1:9464/ [PID OF THE RELAY, which is killed] [FOLDER FOR SCREENSHOTS]
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [url, relay, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const fail = (why) => { console.error(`FAILED: ${why}`); process.exitCode = 1; };
for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 1280]) {
    const page = await browser.newPage({ colorScheme, viewport: { width, height: 800 } });
    page.on("console", (line) => ["error", "warning"].includes(line.type()) && fail(`console: ${line.text()}`));
    page.on("pageerror", (error) => fail(`script: ${error}`));
    page.on("request", (request) => request.url().startsWith(url) || request.url().startsWith("data:") || fail(`asks ${request.url()}`));
    const answer = await page.goto(url);
    if (!answer.headers()["content-security-policy"]?.startsWith("default-src 'self'")) fail("no policy");
    await page.waitForFunction(() => document.getElementById("state").textContent === "running");
    await page.waitForSelector("button[data-client]");
    await page.waitForFunction(() => document.querySelector("#down-chart polyline").getAttribute("points").split(" ").length >= 2);
    await page.click("button[data-client]");
    await page.waitForSelector("#session-rows tr");
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    if (wide) fail(`wider than ${width} px`);
    if (await page.evaluate(() => window.hacked)) fail("a name from the network was run");
    if (await page.evaluate(() => document.querySelectorAll("td img, td script").length)) fail("a name became an element");
    // By the debugger, which the policy of the page does not concern.
    await page.evaluate(axe);
    const { violations, passes } = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa"] }));
    for (const { id, nodes } of violations) fail(`${id}: ${nodes.map((node) => node.html).join(" ")}`);
    console.log(`${colorScheme}, ${width} px: ${passes.length} rules of axe passed, ${violations.length} violated`);
    if (folder) await page.screenshot({ path: `${folder}/${colorScheme}-${width}.png`, fullPage: true });
    await page.close();
  }
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
