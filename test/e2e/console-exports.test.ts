import path from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  findAxeFaults,
  findChromium,
  launchChromium,
  noChromium,
  overflowOf,
  tabTo,
  windowOf,
} from '../helpers/browser.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { writePastRequests } from '../helpers/past-requests.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startReceiver } from '../helpers/webhook-receiver.ts';

/** The pages of exports and schedules, at both widths and in both schemes. */

const executable = findChromium();
const isWhole = process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
/** A folder for screenshots. */
const pictures = process.env['TRIBUTARY_TEST_PICTURES'];
const noWhole = 'in the longer form, TRIBUTARY_TEST_CONSOLE=all';
const windows = [
  [1280, 'light'],
  [1280, 'dark'],
  [390, 'light'],
  [390, 'dark'],
] as const;

async function look(page: Page, name: string): Promise<void> {
  await page.evaluate('scrollTo({ top: 0, behavior: "instant" })');
  if (pictures !== undefined) await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
  expect([name, ...(await findAxeFaults(page))]).toEqual([name]);
  expect([name, await overflowOf(page)]).toEqual([name, 0]);
}

describe.skipIf(executable === undefined || !isWhole)(
  `the pages of exports${executable === undefined ? ` (${noChromium})` : isWhole ? '' : ` (${noWhole})`}`,
  () => {
    const dataDir = path.join(temporaryFolder(), 'data');
    let service: TestService;
    let browser: Browser;
    let ann: Credentials;

    beforeAll(async () => {
      await addTestApp(dataDir);
      ann = await addTestUser(dataDir);
      await writePastRequests(dataDir, ann.idUser, 3);
      [service, browser] = await Promise.all([
        startTestService({ dataDir, settings: { TRIBUTARY_WEBHOOKS_ALLOW: '127.0.0.0/8' } }),
        launchChromium(executable ?? ''),
      ]);
    });
    afterAll(async () => {
      await browser?.close();
      await service?.destroy();
    });

    const call = async (url: string): Promise<unknown> =>
      (await fetch(`${service.api}${url}`, { method: 'POST', headers: { authorization: basic(ann) } })).json();

    async function openSignedIn(width: number, scheme: 'light' | 'dark', place: string): Promise<Page> {
      const context = await browser.newContext(windowOf(width, scheme));
      onTestFinished(() => context.close());
      const page = await context.newPage();
      page.setDefaultTimeout(20_000);
      page.on('pageerror', (error) => expect.fail(`a page failed: ${error.message}`));
      await page.goto(`${service.api}/console/${place}`);
      await page.getByLabel('User id').fill(ann.idUser);
      await page.getByLabel('Secret').fill(ann.secret);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('navigation', { name: 'Pages' }).waitFor();
      return page;
    }

    it.each(windows)('Exports have names and are searched at %i pixels, %s', async (width, scheme) => {
      const query = 'event=customEvents&selectors=eventId,tsEvent,eventName,idApp,customUserId&timezone=UTC';
      const period = 'dateFrom=2026-01-01&dateTo=2026-01-31&idApp=1&eventName=checkout';
      await call(`/api/raw/v1/export/create.json?${query}&${period}&name=Checkouts of January`);
      const page = await openSignedIn(width, scheme, 'exports');
      await page.getByText('Checkouts of January').first().waitFor();
      await look(page, `exports-list-${width}-${scheme}`);
      await tabTo(page, page.getByRole('searchbox'));
      await page.keyboard.type('checkouts OF');
      await page.getByText(/\d exports? found/).waitFor();
      expect(await page.getByRole('heading', { name: 'customEvents', exact: true }).count()).toBe(0);
      await page
        .getByRole('link', { name: /Checkouts of January/ })
        .first()
        .click();
      await page
        .getByText(/Custom events where app is .*, and event name is checkout/)
        .first()
        .waitFor();
      await page.getByRole('button', { name: 'Schedule…' }).click();
      await look(page, `exports-details-${width}-${scheme}`);
      const name = `Every day ${width} ${scheme}`;
      await page.getByLabel('Name (optional)').fill(name);
      await page.getByRole('button', { name: 'Create schedule' }).click();
      const card = page.getByRole('listitem').filter({ hasText: name });
      await tabTo(page, card.getByRole('button', { name: 'Run now' }));
      await page.keyboard.press('Enter');
      await card.getByText('run on demand').waitFor();
      await card.getByText('Ready', { exact: true }).waitFor();
      await look(page, `schedules-${width}-${scheme}`);
      await card.getByRole('button', { name: 'Pause' }).click();
      await card.getByText('Paused').waitFor();
    });

    it.each(windows)('Webhooks are added, tested, rotated and resent at %i pixels, %s', async (width, scheme) => {
      const { url, received } = await startReceiver(200, 503, 200);
      const page = await openSignedIn(width, scheme, 'exports/webhooks');
      await page.getByLabel('URL').fill(url);
      await page.keyboard.press('Enter');
      await page.getByLabel('Copy this now').waitFor();
      expect(await page.getByLabel('Copy this now').inputValue()).toMatch(/^whsec_/);
      await look(page, `webhook-secret-${width}-${scheme}`);
      await page.getByRole('button', { name: 'Done' }).click();
      const card = page.getByRole('listitem').filter({ hasText: url });
      await tabTo(page, card.getByRole('button', { name: 'Send test message' }));
      await page.keyboard.press('Enter');
      await card.getByText('Test message: delivered').waitFor();
      await card.getByRole('button', { name: 'Send test message' }).click();
      await card.getByText('Test message: the receiver returned HTTP 503').waitFor();
      await card.getByRole('button', { name: 'Last messages' }).click();
      await card
        .getByRole('listitem')
        .filter({ hasText: 'HTTP 503' })
        .getByRole('button', { name: /Resend/ })
        .click();
      await card.getByText(/2 attempts/).waitFor();
      expect(received).toHaveLength(3);
      await card.getByRole('button', { name: 'Rotate secret…' }).click();
      await look(page, `webhooks-${width}-${scheme}`);
      await card.getByRole('button', { name: 'Rotate secret', exact: true }).click();
      await page.getByRole('button', { name: 'Done' }).click();
      await card.getByText(/Both secrets sign until/).waitFor();
      await card.getByRole('button', { name: 'Delete…' }).click();
      await card.getByRole('button', { name: 'Delete webhook' }).click();
      await card.waitFor({ state: 'detached' });
    });
  },
);
