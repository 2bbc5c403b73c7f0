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
 * How soon a page of the console stands there: a service that has just started, and a browser that has just started and
 * has nothing in its cache, from the beginning of the navigation to what the page is for. Then the same page again, by
 * whoever is signed in.
 */
const executable = findChromium();
const rounds = inQuick(1, 5);
const longestMs = 600_000;

interface Opening {
  /** Milliseconds from the navigation to the first text or picture, and to what the page is for. */
  readonly paintedMs: number;
  readonly usableMs: number;
}

/** Goes to a page; `what` is what a person waits for. */
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
    'The console is opened by a browser that has nothing of it yet, and once more by whoever is signed in',
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
