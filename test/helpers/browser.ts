import { readFileSync, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium, type Browser, type BrowserContextOptions, type Locator, type Page } from 'playwright-core';

/** Where Debian and others put it. */
const usualPlaces = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** The browser that the pages are tried in; undefined where there is none. */
export function findChromium(): string | undefined {
  const named = process.env['TRIBUTARY_TEST_CHROMIUM'];
  return [...(named === undefined ? [] : [named]), ...usualPlaces].find((place) => existsSync(place));
}

/** Said of a test that was skipped for the want of it. */
export const noChromium =
  'there is no Chromium: install it (apt install chromium), or name it by TRIBUTARY_TEST_CHROMIUM';

/** Starts the browser, which asks nobody but the service. */
export function launchChromium(executablePath: string): Promise<Browser> {
  const quiet = ['quic', 'background-networking', 'component-update', 'sync'].map((what) => `--disable-${what}`);
  // Its sandbox does not run as root, as in a container.
  const asRoot = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath, args: ['--disable-gpu', '--no-first-run', ...quiet, ...asRoot] });
}

/** A window of a width, in a scheme of colours. */
export function windowOf(width: number, colorScheme: 'light' | 'dark'): BrowserContextOptions {
  return { viewport: { width, height: 900 }, colorScheme, locale: 'en-GB', timezoneId: 'UTC' };
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe-core finds wrong with a page as it stands: rule and places. */
export async function findAxeFaults(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe);
  const runOnly = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  // What is right with a page takes most of the time to write up.
  const options = JSON.stringify({ runOnly, resultTypes: ['violations'] });
  return await page.evaluate<string[]>(
    `axe.run(document, ${options})
       .then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 150)).join(' | ')))`,
  );
}

/** How far a page is wider than its window, pixels. */
export async function overflowOf(page: Page): Promise<number> {
  return await page.evaluate<number>('document.documentElement.scrollWidth - document.documentElement.clientWidth');
}

const mostTabs = 200;

/** Goes on by the tab key until a place has the focus. */
export async function tabTo(page: Page, place: Locator): Promise<void> {
  for (let tabs = 0; tabs < mostTabs; tabs += 1) {
    if (await place.evaluate((element) => element.matches(':focus'))) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`the tab key does not lead to ${String(place)}`);
}
