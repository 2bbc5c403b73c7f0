import { readFileSync, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium, type Browser, type BrowserContextOptions, type Locator, type Page } from 'playwright-core';

/** Paths where Debian and others install it. */
const usualPlaces = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Returns the path of the browser for page tests; undefined if none is installed. */
export function findChromium(): string | undefined {
  const named = process.env['TRIBUTARY_TEST_CHROMIUM'];
  return [...(named === undefined ? [] : [named]), ...usualPlaces].find((place) => existsSync(place));
}

/** Reason of tests that are skipped without it. */
export const noChromium = 'Chromium is missing: install it (apt install chromium), or set TRIBUTARY_TEST_CHROMIUM';

/** Starts the browser, without access to any host but the service. */
export function launchChromium(executablePath: string): Promise<Browser> {
  const quiet = ['quic', 'background-networking', 'component-update', 'sync'].map((what) => `--disable-${what}`);
  // Its sandbox does not run as root, as in a container.
  const asRoot = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath, args: ['--disable-gpu', '--no-first-run', ...quiet, ...asRoot] });
}

/** Returns options for a window of a width and a colour scheme. */
export function windowOf(width: number, colorScheme: 'light' | 'dark'): BrowserContextOptions {
  return { viewport: { width, height: 900 }, colorScheme, locale: 'en-GB', timezoneId: 'UTC' };
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Returns the findings of axe-core on a page as it is: rule and elements. */
export async function findAxeFaults(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe);
  const runOnly = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  // Passed checks would take most of the time to report.
  const options = JSON.stringify({ runOnly, resultTypes: ['violations'] });
  return await page.evaluate<string[]>(
    `axe.run(document, ${options})
       .then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 150)).join(' | ')))`,
  );
}

/** Returns by how many pixels a page is wider than its window. */
export async function overflowOf(page: Page): Promise<number> {
  return await page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}

const mostTabs = 200;

/** Presses the tab key until an element has the focus. */
export async function tabTo(page: Page, place: Locator): Promise<void> {
  for (let tabs = 0; tabs < mostTabs; tabs += 1) {
    if (await place.evaluate((element) => element.matches(':focus'))) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`the tab key does not lead to ${String(place)}`);
}
