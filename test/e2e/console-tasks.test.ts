import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { addApp } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
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
import { handsOf, type Hands } from '../helpers/hands.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { writePastRequests } from '../helpers/past-requests.ts';
import { readSheet } from '../helpers/read-sheet.ts';
import { startMemoryServer } from '../helpers/s3-servers.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { startReceiver } from '../helpers/webhook-receiver.ts';

/** The tasks of analysts and operators in the console: by mouse and by keyboard, at both widths, in both schemes. */

const executable = findChromium();
/** A folder for screenshots. */
const pictures = process.env['TRIBUTARY_TEST_PICTURES'];

interface Way {
  readonly hands: keyof typeof handsOf;
  readonly width: number;
  readonly scheme: 'light' | 'dark';
}

const ways = (['mouse', 'keyboard'] as const).flatMap((hands) =>
  [1280, 390].flatMap((width) =>
    (['light', 'dark'] as const).map((scheme): readonly [string, Way] => [
      `by ${hands} at ${width} pixels, ${scheme}`,
      { hands, width, scheme },
    ]),
  ),
);

const names = ['level_up', 'purchase', 'start'];
const persons = 5;
/** The most of one request. */
const events = 20;
const historyDay = Date.parse('2023-02-26T12:00:00Z') / 1000;

const dataDir = path.join(temporaryFolder(), 'data');
let service: TestService;
let browser: Browser;
let ann: Credentials;
/** A user of the account with history. */
let hana: Credentials;
let operator: Credentials;
/** A user whose secret is the last one that a test has set. */
let pia: Credentials;

beforeEach(({ skip }) => {
  if (executable === undefined) skip(noChromium);
});
beforeEach(oneTestIn(4));

async function send(idApp: number, token: string, bodies: readonly object[]): Promise<void> {
  const url = `${service.s2s}/v1/customEventBatch/?idApp=${idApp}`;
  const head = { method: 'POST', headers: { authorization: token } };
  const answer = await fetch(url, { ...head, body: JSON.stringify(bodies) });
  expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([200, null]);
}

beforeAll(async () => {
  if (executable === undefined) return;
  const paths = dataPaths(dataDir);
  const addTitled = (idApp: number, idAccount: number, title: string) =>
    addApp(paths, { idApp, platform: 'web', idAccount, title }, Date.now());
  const { token } = await addTitled(1, 1, 'Lantern Caves');
  const { token: ofHistory } = await addTitled(2, 2, 'Old Harbour');
  await addTitled(3, 2, 'Empty Pier');
  const user = { canExport: true, idAccount: 1 };
  ann = await addUser(paths, { ...user, name: 'ann' });
  hana = await addUser(paths, { ...user, name: 'hana', idAccount: 2 });
  pia = await addUser(paths, { ...user, name: 'pia' });
  operator = await addUser(paths, { ...user, name: 'olga', operator: true });
  await writePastRequests(dataDir, ann.idUser, 3);
  const settings = {
    TRIBUTARY_WEBHOOKS_ALLOW: '127.0.0.0/8',
    TRIBUTARY_DELIVERY_ALLOW: '127.0.0.0/8',
    TRIBUTARY_QUOTA_USER: '1000/s',
    TRIBUTARY_SEAL_AGE_MS: '1000',
    TRIBUTARY_FLUSH_AGE_MS: '200',
  };
  [service, browser] = await Promise.all([startTestService({ dataDir, settings }), launchChromium(executable)]);
  const nowSeconds = Math.floor(Date.now() / 1000);
  const bodies = Array.from({ length: events }, (_, n) => ({
    eventTimestamp: nowSeconds - n * 7200,
    customUserId: `u-${n % persons}`,
    customEventName: names[n % names.length],
    customEventParams: { level: String(n), note: '=1+1' },
  }));
  await send(1, token, bodies);
  await send(
    2,
    ofHistory,
    bodies.map((body, n) => ({ ...body, eventTimestamp: historyDay - n * 86_400 })),
  );
  await waitFor('the events are in the lake', async () => {
    const { rows } = (await service.status())['lake'] as { readonly rows?: number };
    return rows === 2 * events;
  });
});
afterAll(async () => {
  await browser?.close();
  await service?.destroy();
});

/** Calls a method of the API and returns its data. */
async function call(user: Credentials, target: string): Promise<unknown> {
  const answer = await fetch(`${service.api}${target}`, { headers: { authorization: basic(user) } });
  return ((await answer.json()) as { readonly data: unknown }).data;
}

interface Visit {
  readonly page: Page;
  readonly hands: Hands;
  /** Name of the way, unique. */
  readonly name: string;
  /** Checks the page as it is, and takes a picture if asked to. */
  readonly look: (what: string) => Promise<void>;
}

/** Opens a page of the console in a new window, and signs in. */
async function visit(user: Credentials, { hands: kind, width, scheme }: Way, place = ''): Promise<Visit> {
  // A list that scrolls closes.
  const context = await browser.newContext({ ...windowOf(width, scheme), reducedMotion: 'reduce' });
  onTestFinished(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('pageerror', (error) => expect.fail(`a page failed: ${error.message}`));
  await page.goto(`${service.api}/console/${place}`);
  const hands = handsOf[kind];
  await hands.type(page.getByLabel('User id'), user.idUser);
  await hands.type(page.getByLabel('Secret'), user.secret);
  await hands.press(page.getByRole('button', { name: 'Sign in', exact: true }));
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
  const name = `${kind} ${width} ${scheme}`;
  return {
    page,
    hands,
    name,
    async look(what) {
      await waitFor('all is loaded', async () => (await page.locator('[aria-busy=true]').count()) === 0);
      // A list that is scrolled covers a part of its entries.
      await page.evaluate(
        'for (const each of [document.scrollingElement, ...document.querySelectorAll(".groups")]) each.scrollTop = 0',
      );
      const file = `${what}-${width}-${scheme}.png`;
      // Both hands see the same.
      if (pictures !== undefined && kind === 'mouse')
        await page.screenshot({ path: path.join(pictures, file), fullPage: true });
      expect([what, ...(await findAxeFaults(page)), await overflowOf(page)]).toEqual([what, 0]);
    },
  };
}

const button = (of: Page | Locator, name: string | RegExp): Locator =>
  of.getByRole('button', { name, ...(typeof name === 'string' ? { exact: true } : {}) });
const cardOf = (page: Page, text: string): Locator => page.getByRole('listitem').filter({ hasText: text });

/** Waits until the summary says how many rows the export will have. */
async function waitForRows(page: Page, rows: number): Promise<void> {
  const summary = page.getByRole('complementary');
  await expect.poll(() => summary.innerText(), { timeout: 20_000 }).toMatch(new RegExp(`Rows\\s+${rows}\\s+exactly`));
}

async function download(page: Page, start: () => Promise<void>): Promise<Buffer> {
  const [begun] = await Promise.all([page.waitForEvent('download'), start()]);
  return readFileSync(await begun.path());
}

async function addDestination({ page, hands }: Visit, kind: string, fields: Readonly<Record<string, string>>) {
  await hands.choose(page.getByRole('combobox', { name: 'Kind' }), kind);
  for (const [label, text] of Object.entries(fields))
    await hands.type(page.locator('input').and(page.getByLabel(label)), text);
  await hands.press(button(page, 'Add destination'));
  await cardOf(page, fields['Name'] ?? '').waitFor();
}

describe('an analyst', { timeout: 240_000 }, () => {
  it.each(inTurn(ways, 8))(
    "A person's rows are exported as CSV for Excel and as XLSX, with a name, and delivered, %s",
    async (_, way) => {
      const { settings } = await startMemoryServer();
      const visited = await visit(ann, way, 'exports/destinations');
      const { page, hands, name, look } = visited;
      await addDestination(visited, 'S3', {
        Name: `Bucket ${name}`,
        Server: settings.endpoint,
        Bucket: settings.bucket,
        'Access key ID': settings.credentials?.accessKeyId ?? '',
        'Secret access key': settings.credentials?.secretAccessKey ?? '',
      });
      await look('destinations');
      await hands.press(page.getByRole('link', { name: 'New export', exact: true }));
      if (way.hands === 'keyboard') await hands.press(button(page, 'Filters'));
      await hands.choose(page.getByRole('combobox', { name: 'Add a filter' }), 'customUserId');
      await hands.type(page.getByRole('textbox', { name: 'customUserId' }), 'u-3');
      await hands.press(page.getByRole('checkbox', { name: /^One column per parameter/ }));
      await hands.press(page.getByRole('checkbox', { name: 'Readable time of the event' }));
      await hands.choose(page.getByLabel('CSV for'), 'Excel');
      await hands.type(page.getByLabel('Name (optional)'), `Case ${name}`);
      await hands.choose(page.getByLabel('Deliver to'), `Bucket ${name}`);
      await waitForRows(page, events / persons);
      await hands.press(button(page, 'Show preview'));
      await page.getByText(`All ${events / persons} rows.`).waitFor();
      await look('new-export-for-people');
      if (way.hands === 'mouse') await hands.press(button(page, /^Create export/));
      else await page.keyboard.press('Control+Enter');

      await page.getByRole('heading', { name: `Case ${name}` }).waitFor();
      await page.getByText('Delivered', { exact: true }).waitFor();
      await page.getByText(/^1 of 1 files delivered/).waitFor();
      await look('export-delivered');
      const link = page.getByRole('link', { name: 'Download', exact: true });
      const [head = '', ...rows] = (await download(page, () => hands.press(link)))
        .toString('utf8')
        .trimEnd()
        .split(/\r?\n/);
      expect(head).toMatch(/^\uFEFFdateTimeEvent,.*customUserId.*,params\.level,params\.note$/);
      expect(rows).toHaveLength(events / persons);
      for (const row of rows) expect(row).toMatch(/^\d{4}-\d\d-\d\dT[^,]*,.*\bu-3\b.*,'=1\+1$/);

      await hands.press(button(page, 'Duplicate…'));
      await page.getByRole('heading', { name: 'New export' }).waitFor();
      expect(await page.getByLabel('Name (optional)').inputValue()).toBe(`Case ${name}`);
      expect(await page.getByRole('textbox', { name: 'customUserId' }).inputValue()).toBe('u-3');
      const chosen = page.getByLabel('Deliver to').locator('option:checked');
      await expect.poll(() => chosen.innerText()).toBe(`Bucket ${name}`);
      await hands.press(page.getByRole('radio', { name: 'Excel', exact: true }));
      await hands.type(page.getByLabel('Name (optional)'), `Sheet ${name}`);
      await waitForRows(page, events / persons);
      await hands.press(button(page, /^Create export/));
      await page.getByRole('heading', { name: `Sheet ${name}` }).waitFor();
      const sheet = readSheet(await download(page, () => hands.press(link)));
      expect(sheet).toHaveLength(1 + events / persons);
      expect(sheet[0]?.map(({ text }) => text)).toEqual(head.slice(1).split(','));
    },
  );

  it.each(inTurn(ways, 8))(
    'A failing delivery states its error, and ends when its destination is removed, %s',
    async (_, way) => {
      const visited = await visit(ann, way, 'exports/destinations');
      const { page, hands, name, look } = visited;
      // Nothing listens on this port.
      await addDestination(visited, 'SFTP', {
        Name: `Folder ${name}`,
        Host: '127.0.0.1',
        'Port (optional)': '9',
        User: 'tester',
        'Fingerprint of the server': `SHA256:${'A'.repeat(43)}`,
        'Password or private key': 'any',
      });
      const card = cardOf(page, `Folder ${name}`);
      await hands.press(button(card, 'Replace secret…'));
      await hands.type(card.getByLabel('New secret'), 'another');
      await look('destination-secret');
      await hands.press(button(card, 'Replace secret'));
      await card.getByLabel('New secret').waitFor({ state: 'detached' });
      const { destinations } = (await call(ann, '/api/destination/v1/list.json')) as {
        readonly destinations: readonly { readonly idDestination: string; readonly name: string }[];
      };
      const id = destinations.find((each) => each.name === `Folder ${name}`)?.idDestination;
      const day = new Date().toISOString().slice(0, 10);
      const query = `event=customEvents&selectors=eventId&timezone=UTC&dateFrom=${day}&dateTo=${day}&deliverTo=${id}`;
      const { idRawExport } = (await call(ann, `/api/raw/v1/export/create.json?${query}`)) as { idRawExport: string };
      await hands.press(page.getByRole('link', { name: 'Requests' }));
      await hands.press(page.getByRole('link', { name: new RegExp(`#${idRawExport} `) }));
      await page.getByText('To be delivered').waitFor();
      await page.getByText(/ECONNREFUSED/).waitFor();
      await look('export-not-delivered');
      await hands.press(page.getByRole('link', { name: 'Destinations' }));
      await hands.press(button(card, 'Delete…'));
      await look('destination-delete');
      await hands.press(button(card, 'Delete destination'));
      await card.waitFor({ state: 'detached' });
      await page.goto(`${service.api}/console/exports/${idRawExport}`);
      await page.getByText('the destination was removed').waitFor({ timeout: 60_000 });
      await page.locator('.details').getByText('Failed', { exact: true }).waitFor();
      await look('export-failed-delivery');
      await hands.press(button(page, 'Duplicate…'));
      await expect
        .poll(() => page.getByLabel('Deliver to').locator('option:checked').innerText())
        .toContain('(removed)');
      await hands.choose(page.getByLabel('Deliver to'), 'Nowhere');
      expect(await page.getByRole('region', { name: 'curl' }).innerText()).not.toContain('deliverTo');
    },
  );

  it.each(inTurn(ways, 8))('Rows are filtered by names and parameters of the catalogue, %s', async (_, way) => {
    const { page, hands, look } = await visit(ann, way);
    const filters = page.getByRole('combobox', { name: 'Add a filter' });
    await hands.choose(page.getByRole('combobox', { name: 'Event', exact: true }), 'customEvents');
    await hands.press(button(page, 'Last 7 days'));
    await hands.type(page.getByRole('searchbox', { name: 'Search columns' }), 'country');
    await page.getByRole('checkbox', { name: /^Country id idCountry/ }).waitFor();
    await hands.choose(filters, 'eventName');
    await hands.press(button(page, /^level_up /));
    await waitForRows(page, 7);
    if (way.hands === 'keyboard') {
      // A key opens the list, and adds no filter.
      await tabTo(page, filters);
      await page.keyboard.press('p');
      await waitFor('the list is open', () => filters.evaluate((list) => list.matches(':open')));
      await page.keyboard.type('params');
      await page.keyboard.press('Enter');
    } else await hands.choose(filters, 'params');
    await hands.press(button(page, /^level /));
    await hands.choose(page.getByLabel('Comparison'), 'is greater than');
    await hands.type(page.getByRole('spinbutton', { name: 'Number' }), '10');
    await waitForRows(page, 3);
    await hands.choose(page.getByLabel('Comparison'), 'contains');
    await hands.type(page.getByLabel('Values, one per line'), '0');
    await waitForRows(page, 1);
    await hands.choose(page.getByLabel('Comparison'), 'is not set');
    await page.getByText('No matching rows.').first().waitFor();
    await look('new-export-filters');
    const request = await page.getByRole('region', { name: 'curl' }).innerText();
    expect(request).toMatch(/eventName=level_up[^]*'paramsSet\[level\]=0'/);
    await hands.press(button(page, /^Remove the filter on level/));
    await waitForRows(page, 7);
  });

  it.each(inTurn(ways, 8))('History is found, and empty pages lead on, %s', async (_, way) => {
    const { page, hands, look } = await visit(hana, way);
    await page.getByText('Newest event: 26 Feb 2023.').waitFor();
    await waitForRows(page, 7);
    await hands.press(button(page, 'Today'));
    await page.getByText('No matching rows. Try another period').waitFor();
    await hands.press(button(page, 'Show these days'));
    await waitForRows(page, 7);
    await look('new-export-history');
    const open = (link: string): Promise<void> => hands.press(page.getByRole('link', { name: link, exact: true }));
    await open('Exports');
    await page.getByText('No exports yet').waitFor();
    await look('exports-empty');
    for (const part of ['Schedules', 'Webhooks', 'Destinations']) {
      await open(part);
      await page.getByText(`No ${part.toLowerCase()} yet`).waitFor();
      await look(`${part.toLowerCase()}-empty`);
    }
    await open('Data');
    await page.getByText('The page shows the 30 days up to it.').waitFor();
    await hands.type(page.getByLabel('Find an app by title or id'), 'pier');
    await hands.press(page.getByRole('link', { name: 'Empty Pier' }));
    expect(await page.getByRole('region', { name: 'Command that sends an event' }).innerText()).toContain('idApp=3');
    await look('data-empty');
    await hands.press(page.getByRole('link', { name: 'Data: all apps' }));
    await page.getByRole('link', { name: 'Old Harbour' }).waitFor();
    await hands.press(button(page, 'Show the last 30 days'));
    await page.getByText('No events in this period.').waitFor();
    await hands.press(button(page, 'Show these days'));
    await page.getByRole('img', { name: /^20 events from 28 Jan 2023/ }).waitFor();
    await look('data-history');
  });

  it.each(inTurn(ways, 8))('Charts of an app lead to exports of their rows, %s', async (_, way) => {
    const { page, hands, look } = await visit(ann, way, 'data/1');
    const users = page.getByRole('region', { name: 'Users a day', exact: true });
    const shown = await users.getByRole('img').getAttribute('aria-label');
    const rows = Number(/: (\d+) in sum$/.exec(shown ?? '')?.[1]);
    expect(rows).toBeGreaterThanOrEqual(persons);
    for (const title of ['New users a day', 'Sessions a day', 'Custom events by name'])
      await page.getByRole('region', { name: title }).getByRole('img').waitFor();
    await hands.press(users.getByText('Show as table'));
    await users.getByRole('columnheader', { name: 'Users a day' }).waitFor();
    await look('data-charts');
    await hands.press(button(page, 'Export these rows of Users a day'));
    await page.getByRole('heading', { name: 'New export' }).waitFor();
    const event = page.getByRole('combobox', { name: 'Event', exact: true });
    await expect.poll(() => event.inputValue()).toBe('userActivities');
    expect(await page.getByRole('checkbox', { name: /^Lantern Caves/ }).isChecked()).toBe(true);
    await waitForRows(page, rows);
    await hands.press(page.getByRole('link', { name: 'Data', exact: true }));
    await hands.press(page.getByRole('link', { name: 'Lantern Caves' }));
    await hands.press(page.getByRole('radio', { name: 'Devices' }));
    await page.getByRole('region', { name: 'New devices a day' }).getByText('None in this period.').waitFor();
    await look('data-devices');
  });

  it.each(inTurn(ways, 8))('Exports are searched, and repeated by a schedule, %s', async (_, way) => {
    const query = 'event=customEvents&selectors=eventId,tsEvent,eventName,idApp,customUserId&timezone=UTC';
    const period = 'dateFrom=2026-01-01&dateTo=2026-01-31&idApp=1&eventName=checkout';
    await call(ann, `/api/raw/v1/export/create.json?${query}&${period}&name=Checkouts of January`);
    const { page, hands, name, look } = await visit(ann, way, 'exports');
    await page.getByText('Checkouts of January').first().waitFor();
    await look('exports');
    await hands.type(page.getByRole('searchbox'), 'checkouts OF');
    await page.getByText(/\d exports? found/).waitFor();
    expect(await page.getByRole('heading', { name: /#1 / }).count()).toBe(0);
    await hands.press(page.getByRole('link', { name: /Checkouts of January/ }).first());
    const summary = /Custom events where app is .*, and event name is checkout/;
    await page.getByText(summary).first().waitFor();
    await hands.press(page.getByText('Parameters', { exact: true }));
    await hands.press(button(page, 'Schedule…'));
    await look('export-schedule');
    await hands.type(page.getByLabel('Name (optional)'), `Every week ${name}`);
    await hands.choose(page.getByRole('combobox', { name: 'Every' }), 'week');
    await hands.choose(page.getByRole('combobox', { name: 'On' }), 'Friday');
    await hands.press(button(page, 'Create schedule'));
    const card = cardOf(page, `Every week ${name}`);
    await card.getByText('Every week on Friday at 04:00 (UTC)').waitFor();
    await hands.press(button(card, 'Run now'));
    await card.getByText('run on demand').waitFor();
    await card.getByText('Ready', { exact: true }).waitFor({ timeout: 60_000 });
    await look('schedules');
    await hands.press(button(card, 'Pause'));
    await card.getByText('Paused').waitFor();
    await hands.press(button(card, 'Resume'));
    await card.getByText('Active').waitFor();
    await hands.press(button(card, 'Delete…'));
    await look('schedule-delete');
    await hands.press(button(card, 'Delete schedule'));
    await card.waitFor({ state: 'detached' });
  });

  it.each(inTurn(ways, 8))('Webhooks are added, tested, rotated and resent, %s', async (_, way) => {
    const { url, received } = await startReceiver(200, 503, 200);
    const { page, hands, look } = await visit(ann, way, 'exports/webhooks');
    await hands.type(page.getByLabel('URL'), url);
    await hands.press(button(page, 'Add webhook'));
    await page.getByLabel('Copy this now').waitFor();
    expect(await page.getByLabel('Copy this now').inputValue()).toMatch(/^whsec_/);
    await look('webhook-secret');
    await hands.press(button(page, 'Done'));
    const card = cardOf(page, url);
    await hands.press(button(card, 'Send test message'));
    await card.getByText('Test message: delivered').waitFor();
    await hands.press(button(card, 'Send test message'));
    await card.getByText('Test message: the receiver returned HTTP 503').waitFor();
    await hands.press(button(card, 'Last messages'));
    await hands.press(button(card.getByRole('listitem').filter({ hasText: 'HTTP 503' }), /^Resend/));
    await card.getByText(/2 attempts/).waitFor();
    expect(received).toHaveLength(3);
    await hands.press(button(card, 'Rotate secret…'));
    await look('webhooks');
    await hands.press(button(card, 'Rotate secret'));
    await hands.press(button(page, 'Done'));
    await card.getByText(/Both secrets sign until/).waitFor();
    await hands.press(button(card, 'Delete…'));
    await hands.press(button(card, 'Delete webhook'));
    await card.waitFor({ state: 'detached' });
  });
});

describe('a user', { timeout: 240_000 }, () => {
  it.each(inTurn(ways, 8))('A password is set, and signs in by name, %s', async (_, way) => {
    const { page, hands, name, look } = await visit(pia, way);
    await hands.press(page.getByText('pia', { exact: true }));
    await hands.press(button(page, 'Change password'));
    const dialog = page.getByRole('dialog', { name: 'Change password' });
    const next = `long enough ${name}`;
    await hands.type(dialog.getByLabel('Current password or secret'), pia.secret);
    await hands.type(dialog.getByLabel('New password (12 characters or more)'), next);
    await hands.type(dialog.getByLabel('Repeat new password'), 'another');
    await hands.press(button(dialog, 'Change password'));
    await dialog.getByText('The two new passwords differ.').waitFor();
    await look('password');
    await hands.type(dialog.getByLabel('Repeat new password'), next);
    await hands.press(button(dialog, 'Change password'));
    await dialog.getByText('Your password was changed.').waitFor();
    pia = { ...pia, secret: next };
    await hands.press(button(dialog, 'Done'));
    await dialog.waitFor({ state: 'detached' });
    if (!(await button(page, 'Sign out').isVisible())) await hands.press(page.getByText('pia', { exact: true }));
    await look('menu');
    await hands.press(button(page, 'Sign out'));
    await hands.type(page.getByLabel('Name or user id'), 'pia');
    await hands.type(page.getByLabel('Secret'), next);
    await hands.press(button(page, 'Sign in'));
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    expect(await page.getByText('pia', { exact: true }).count()).toBe(1);
  });
});

describe('an operator', { timeout: 240_000 }, () => {
  it.each(inTurn(ways, 8))(
    'The audit log is listed, and Operations shows an unreachable service as unknown, %s',
    async (_, way) => {
      const { page, hands, look } = await visit(operator, way, 'operations/audit');
      const entry = cardOf(page, 'sign in').filter({ hasText: `olga (${operator.idUser})` });
      await entry.first().waitFor();
      await look('audit');
      await hands.press(page.getByRole('link', { name: 'Service', exact: true }));
      await page.getByText(/^(Healthy|Problems: )/).waitFor();
      await page.context().setOffline(true);
      await page.getByText('Unknown', { exact: true }).waitFor();
      expect(await page.getByText(/^Healthy/).count()).toBe(0);
      await page.getByText('may be outdated').waitFor();
      await look('operations-unreachable');
      await page.context().setOffline(false);
      await page.getByText(/^(Healthy|Problems: )/).waitFor();
      await look('operations-service');
    },
  );
});
