import { statSync } from 'node:fs';
import path from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { addApp } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import { parseDemoEvent, type DemoEvent, importEvents } from '../../src/demo/demo-client.ts';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { findChromium, launchChromium, windowOf } from '../helpers/browser.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

/**
 * Takes the screenshots of docs/images with the generated sessions of the demo: `TRIBUTARY_TEST_PICTURES=docs/images`
 * writes them.
 */
const executable = findChromium();
const pictures = process.env['TRIBUTARY_TEST_PICTURES'];
const isAsked = pictures !== undefined || process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
const events = 150_000;
const days = 30;
const now = (): number => Math.floor(Date.now() / 1000);
const maxPictureBytes = 150_000;

/** Sessions of a month, more of them at weekends and from week to week. */
function* sessionsOfMonth(): Generator<DemoEvent> {
  const until = now() - 60;
  for (const body of generateGameSessions({ seed: 11, events, until, days })) {
    const day = Math.floor(body.eventTimestamp / 86_400);
    const share = 0.45 + 0.01 * (day - until / 86_400 + days) + ([2, 3].includes(day % 7) ? 0.25 : 0);
    const session = Number.parseInt(body.customEventParams['session'] ?? '0', 16);
    if (session / 2 ** 32 < share) yield parseDemoEvent(JSON.stringify(body));
  }
}

describe.skipIf(executable === undefined || !isAsked)('the pictures of the console', () => {
  const dataDir = path.join(temporaryFolder(), 'data');
  const folder = pictures ?? temporaryFolder();
  const ending = new AbortController();
  let service: TestService;
  let browser: Browser;
  let token: string;
  let ann: Credentials;

  const send = (of: Iterable<DemoEvent>, keyPrefix: string) =>
    importEvents(of, {
      s2s: service.s2s,
      idApp: 1,
      token,
      keyPrefix,
      signal: ending.signal,
      onProgress: () => undefined,
    });

  /** Sends a few events at a time. */
  async function trickle(signal: AbortSignal): Promise<void> {
    for (let turn = 1; !signal.aborted; turn += 1) {
      const some = [...generateGameSessions({ seed: turn, events: 60 + (turn % 5) * 25, until: now(), days: 1 })];
      const bodies = some.map((body) => parseDemoEvent(JSON.stringify({ ...body, eventTimestamp: now() })));
      await send(bodies, `now-${turn}`);
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }

  async function call(method: string, given: Readonly<Record<string, string>>): Promise<Record<string, string>> {
    const url = `${service.api}/api/raw/v1/export/${method}.json`;
    const headers = { authorization: basic(ann) };
    const answer = await fetch(url, { method: 'POST', headers, body: new URLSearchParams(given) });
    if (!answer.ok) throw new Error(await answer.text());
    return ((await answer.json()) as { data: Record<string, string> }).data;
  }

  const order = (given: Readonly<Record<string, string>>) =>
    call('create', { event: 'customEvents', timezone: 'UTC', ...given });

  async function take(page: Page, name: string): Promise<void> {
    const file = path.join(folder, `console-${name}.png`);
    await page.screenshot({ path: file, clip: { x: 0, y: 0, width: 1280, height: 800 } });
    expect(statSync(file).size).toBeLessThan(maxPictureBytes);
  }

  beforeAll(async () => {
    const paths = dataPaths(dataDir);
    const app = { idApp: 1, platform: 'web', idAccount: 1, title: 'Lantern Caves' } as const;
    token = (await addApp(paths, app, Date.now())).token;
    await addApp(paths, { idApp: 2, platform: 'game', idAccount: 1, title: 'Paper Fleet' }, Date.now());
    ann = await addUser(paths, { name: 'Ann', idAccount: 1, canExport: true, operator: true });
    [service, browser] = await Promise.all([
      startTestService({
        dataDir,
        settings: { TRIBUTARY_EXPORT_WORKERS: '1', TRIBUTARY_REFUSALS_BODIES: 'on', TRIBUTARY_QUOTA_USER: '1000/s' },
      }),
      launchChromium(executable ?? ''),
    ]);
    const { events: sent } = await send(sessionsOfMonth(), 'month');
    await waitFor('the month is in the lake', async () => {
      const { rows } = (await service.status())['lake'] as { rows: number };
      return rows >= sent;
    });
  }, 240_000);
  afterAll(async () => {
    ending.abort();
    await browser?.close();
    await service?.destroy();
  });

  async function open(place: string): Promise<Page> {
    const context = await browser.newContext(windowOf(1280, 'light'));
    const page = await context.newPage();
    await page.goto(`${service.api}/console/${place}`);
    await page.getByLabel('User id').fill(ann.idUser);
    await page.getByLabel('Secret').fill(ann.secret);
    await page.keyboard.press('Enter');
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    return page;
  }

  it('New export is shown with a draft and its estimate', async () => {
    const page = await open('');
    await page.getByRole('button', { name: 'Last 7 days' }).click();
    await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('eventName');
    await page.getByRole('textbox', { name: 'eventName' }).fill('purchase\nlevel_complete');
    await page.locator('.estimate[aria-busy=false] strong').first().waitFor();
    await page.evaluate('document.activeElement.blur(); scrollTo({ top: 0, behavior: "instant" })');
    await take(page, 'new-export');
    expect(await page.locator('.estimate strong').first().innerText()).toMatch(/\d/);
  });

  it('Exports is shown with a running, a queued and an open export with its files', async () => {
    const [today, week] = [0, 6].map((ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10));
    const small = { selectors: 'tsEvent,eventName,customUserId', dateFrom: week ?? '', dateTo: today ?? '' };
    const made = [await order({ ...small, eventName: 'purchase' }), await order(small)];
    await waitFor('the small ones are made', async () => {
      const states = await Promise.all(made.map(({ idRawExport = '' }) => call('get', { idRawExport })));
      return states.every(({ status }) => status === 'Success!');
    });
    const page = await open(`exports/${made[0]?.['idRawExport']}`);
    await page.getByRole('link', { name: 'Download', exact: true }).waitFor();
    const [from, to] = [days, 0].map((ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10));
    const wide = 'eventId,tsEvent,tsInsert,customUserId,eventName,params.name,params.value,idApp';
    const large = { selectors: wide, dateFrom: from ?? '', dateTo: to ?? '', format: 'jsonl', order: 'time' };
    // It is stopped half-way for the screenshot.
    const stopHalfWay = async (): Promise<boolean> => {
      const { idRawExport = '' } = await order(large);
      for (;;) {
        const { status, progress = '0%' } = await call('get', { idRawExport });
        if (status !== 'In progress') return false;
        const job = service.processes().find(({ role }) => role === 'job');
        if (job === undefined || Number.parseInt(progress, 10) < 15) continue;
        process.kill(job.pid, 'SIGSTOP');
        onTestFinished(() => void process.kill(job.pid, 'SIGCONT'));
        return true;
      }
    };
    await waitFor('one of them is half-way', stopHalfWay, 60_000);
    await order({ ...large, format: 'parquet' });
    await page.locator('.badge.busy', { hasText: /^[1-9]\d? %$/ }).waitFor();
    await page.getByText('Queued or started').first().waitFor();
    await take(page, 'exports');
    expect(await page.locator('.request').count()).toBeGreaterThan(3);
  }, 120_000);

  it('Data, Live and Operations are shown while events arrive', async () => {
    const ended = new AbortController();
    const trickling = trickle(ended.signal);
    const data = await open('data/1');
    await data.locator('table .share').first().waitFor();
    for (const chart of [/^Users a day/, /^New users a day/]) await data.getByRole('img', { name: chart }).waitFor();
    await take(data, 'data');
    const operations = await open('operations');
    const live = await open('live/1');
    await live.locator('.entry.event').nth(5).waitFor();
    const refused = { customUserId: 'player-41', customEventName: 'purchase', customEventParams: { price: 0.99 } };
    const url = `${service.s2s}/v1/customEvent/?idApp=1`;
    await fetch(url, { method: 'POST', headers: { authorization: token }, body: JSON.stringify(refused) });
    await live.locator('.entry.refusal').first().waitFor();
    await live.getByRole('button', { name: 'Pause' }).click();
    await live.locator('.entry.refusal summary').first().click();
    await live.locator('mark').first().waitFor();
    await live.evaluate('document.activeElement.blur(); scrollTo({ top: 0, behavior: "instant" })');
    await take(live, 'live');
    await new Promise((resolve) => setTimeout(resolve, 20_000));
    ended.abort();
    await take(operations, 'operations');
    await trickling;
    expect(await operations.locator('.chart svg').count()).toBe(1);
  }, 120_000);
});
