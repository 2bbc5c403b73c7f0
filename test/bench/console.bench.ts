import path from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { findChromium, launchChromium, noChromium, windowOf } from '../helpers/browser.ts';
import { testFolder } from '../helpers/folder.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startTestService } from '../helpers/service.ts';
import { median, reportBench } from './bench-report.ts';
import { inQuick } from './bench-size.ts';

/*
 * How soon a page of the console shows its content, from the start of the navigation. Service and browser have just
 * started, and the cache is empty. Then the same page again, in a signed-in browser.
 */
const executable = findChromium();
const rounds = inQuick(1, 5);
const longestMs = 600_000;

interface Opening {
  /** Milliseconds from the navigation to the first text or picture, and to the page's content. */
  readonly paintedMs: number;
  readonly usableMs: number;
}

/** Opens a page; `what` is the element that a user waits for. */
async function open(page: Page, url: string, what: Locator): Promise<Opening> {
  await page.goto(url, { waitUntil: 'commit' });
  await what.waitFor();
  const usableMs = await page.evaluate<number>('performance.now()');
  const paintedMs = await page.evaluate<number>(
    `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()`,
  );
  return { paintedMs, usableMs };
}

async function openOnce(browserPath: string): Promise<readonly Opening[]> {
  const dataDir = path.join(testFolder(), 'data');
  await addTestApp(dataDir);
  const { idUser, secret } = await addTestUser(dataDir);
  const service = await startTestService({ dataDir });
  try {
    const browser = await launchChromium(browserPath);
    try {
      const page = await (await browser.newContext(windowOf(1280, 'light'))).newPage();
      const url = `${service.api}/console/`;
      const first = await open(page, url, page.getByLabel('User id'));
      await page.getByLabel('User id').fill(idUser);
      await page.getByLabel('Secret').fill(secret);
      await page.getByRole('button', { name: 'Sign in' }).click();
      const heading = page.getByRole('heading', { name: 'New export' });
      await heading.waitFor();
      return [first, await open(page, url, heading)];
    } finally {
      await browser.close();
    }
  } finally {
    await service.destroy();
  }
}

describe('console', () => {
  it(
    'The console opens in a browser with an empty cache, and again in a signed-in browser',
    async ({ skip }) => {
      if (executable === undefined) {
        skip(noChromium);
        return;
      }
      const runs: (readonly Opening[])[] = [];
      for (let round = 0; round < rounds; round += 1) runs.push(await openOnce(executable));
      const rows = ['sign in, first visit', 'New export, signed in'].map((name, place) => {
        const openings = runs.flatMap((run) => run[place] ?? []);
        const usable = openings.map(({ usableMs }) => usableMs);
        return [
          name,
          median(openings.map(({ paintedMs }) => paintedMs)).toFixed(0),
          median(usable).toFixed(0),
          Math.max(...usable).toFixed(0),
        ];
      });
      reportBench('console', ['page', 'first paint, ms', 'usable after, ms', 'slowest'], rows, runs);
      expect(runs).toHaveLength(rounds);
    },
    longestMs,
  );
});
