import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { changeAccessFile } from '../../src/access/access-file.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { signLink, openSigningKeys } from '../../src/reports/signed-links.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { createLogger } from '../../src/runtime/logger.ts';
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
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { writePastRequests } from '../helpers/past-requests.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { noCurl } from '../helpers/shell.ts';
import { waitFor } from '../helpers/wait.ts';
import { describeOperations } from './console-operations.ts';

/** The built console of a real service in a real browser. */

const executable = findChromium();
/** `all`: every width in every scheme, ten thousand requests, and slow tests. */
const isWhole = process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
/** A folder for screenshots. */
const pictures = process.env['TRIBUTARY_TEST_PICTURES'];
const apps = 1000;
const pastRequests = isWhole ? 10_000 : 60;
const names = ['level "up", at last', 'start', "it's"];

const dataDir = path.join(temporaryFolder(), 'data');
let service: TestService;
let browser: Browser;
/** Ann has past requests, Ben none, and Cem is locked out. */
let ann: Credentials;
let ben: Credentials;
let cem: Credentials;
let operator: Credentials;
/** A user of an account without apps. */
let stranger: Credentials;
let token: string;

beforeEach(({ skip }) => {
  if (executable === undefined) skip(noChromium);
});

/** Skips a test that only the whole form has. */
function inWholeForm(skip: (note: string) => void): void {
  if (!isWhole) skip('in the longer form, TRIBUTARY_TEST_CONSOLE=all');
}

/** Adds many apps at once. */
async function addCrowd(): Promise<void> {
  await changeAccessFile(dataPaths(dataDir), (access) => {
    const [first] = access.apps;
    if (first === undefined) throw new Error('the first app is there');
    const crowd = Array.from({ length: apps - 1 }, (_, index) => ({
      ...first,
      idApp: index + 2,
      sdkKey: `crowd ${index}`,
      title: index === 0 ? '<img src=x onerror=alert(1)>' : `App of the crowd ${index + 2}`,
    }));
    return { access: { ...access, apps: [first, ...crowd] }, result: undefined };
  });
}

beforeAll(async () => {
  if (executable === undefined) return;
  token = await addTestApp(dataDir);
  await addCrowd();
  ann = await addTestUser(dataDir);
  ben = await addUser(dataPaths(dataDir), { name: 'Ben', idAccount: 1, canExport: true });
  cem = await addUser(dataPaths(dataDir), { name: 'Cem', idAccount: 1, canExport: true });
  operator = await addUser(dataPaths(dataDir), { name: 'olga', idAccount: 1, canExport: true, operator: true });
  stranger = await addUser(dataPaths(dataDir), { name: 'nobody', idAccount: 9, canExport: true });
  await writePastRequests(dataDir, ann.idUser, pastRequests);
  [service, browser] = await Promise.all([
    startTestService({ dataDir, settings: { TRIBUTARY_SEAL_AGE_MS: '1000', TRIBUTARY_FLUSH_AGE_MS: '200' } }),
    launchChromium(executable),
  ]);
  const events = Array.from({ length: 20 }, (_, place) => ({
    customUserId: `u-${place}`,
    customEventName: names[place % names.length],
    customEventParams: { level: String(place) },
  }));
  const body = JSON.stringify(events);
  const url = `${service.s2s}/v1/customEventBatch/?idApp=1`;
  const answer = await fetch(url, { method: 'POST', headers: { authorization: token }, body });
  if (!answer.ok) throw new Error(`the events were answered ${answer.status}`);
});

afterAll(async () => {
  await browser?.close();
  await service?.destroy();
});

/** Opens a page of the console in a new window without a session. */
async function openPage(width = 1280, scheme: 'light' | 'dark' = 'light', place = ''): Promise<Page> {
  const context = await browser.newContext(windowOf(width, scheme));
  onTestFinished(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(isWhole ? 60_000 : 20_000);
  page.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) throw new Error(message.text());
  });
  page.on('pageerror', (error) => expect.fail(`a page failed: ${error.message}`));
  await page.goto(`${service.api}/console/${place}`);
  return page;
}

async function signIn(page: Page, { idUser, secret }: Credentials): Promise<void> {
  await page.getByLabel('User id').fill(idUser);
  await page.getByLabel('Secret').fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

async function openSignedIn(user: Credentials, ...where: Parameters<typeof openPage>): Promise<Page> {
  const page = await openPage(...where);
  await signIn(page, user);
  return page;
}

/** Returns the ids and names of the events in the lake. */
async function rowsOfLake(): Promise<string[]> {
  const lake = await openLakeReader(service.dataDir);
  try {
    const rows = await lake.query('SELECT event_id, custom_event_name FROM events');
    return rows.map((row) => `${String(row['event_id'])} ${String(row['custom_event_name'])}`).toSorted();
  } finally {
    lake.close();
  }
}

/** Returns the same of a downloaded CSV. */
async function rowsOfFile(file: string): Promise<string[]> {
  const lake = await openLakeReader(service.dataDir);
  try {
    const rows = await lake.plain(`SELECT * FROM read_csv('${file}', all_varchar = true)`);
    return rows.map((row) => `${String(row['eventId'])} ${String(row['eventName'])}`).toSorted();
  } finally {
    lake.close();
  }
}

async function waitForLake(): Promise<void> {
  await waitFor(
    'the events are in the lake',
    async () => {
      const { rows } = (await service.status())['lake'] as { readonly rows?: number };
      return rows === 20;
    },
    60_000,
  );
}

/** Downloads a link of the page and returns the path. */
async function download(page: Page, start: () => Promise<void>): Promise<string> {
  const [begun] = await Promise.all([page.waitForEvent('download'), start()]);
  return await begun.path();
}

describe('an analyst', { timeout: isWhole ? 180_000 : 60_000 }, () => {
  it('An export is configured by mouse, estimated, previewed, created, watched and downloaded, and has the rows of the lake', async () => {
    await waitForLake();
    const page = await openSignedIn(ben);
    await page.getByRole('combobox', { name: 'Event', exact: true }).selectOption('customEvents');
    await page.getByRole('button', { name: 'Today' }).click();
    await page.getByRole('button', { name: 'Clear' }).click();
    await expect.poll(() => page.getByText('Choose at least one column.').count()).toBe(1);
    await page.getByRole('searchbox', { name: 'Search columns' }).fill('event id, unique');
    await page.getByRole('checkbox', { name: 'eventId' }).check();
    await page.getByRole('searchbox', { name: 'Search columns' }).fill('eventName');
    await page.getByRole('checkbox', { name: 'eventName' }).check();
    await page.getByText('exactly').first().waitFor();
    expect(await page.getByRole('complementary').innerText()).toMatch(/Rows\s+20\s+exactly/);
    await page.getByRole('button', { name: 'Show preview' }).click();
    await page.getByText('All 20 rows.').waitFor();
    expect(await page.getByRole('region', { name: 'curl' }).innerText()).toContain('selectors=eventId,eventName');
    await page.getByRole('button', { name: 'Create export' }).click();
    await page.getByRole('heading', { name: 'Exports' }).waitFor();
    const file = await download(page, () => page.getByRole('link', { name: 'Download', exact: true }).click());
    expect(await rowsOfFile(file)).toEqual(await rowsOfLake());
    const manifest = await download(page, () => page.getByRole('link', { name: 'Signed manifest' }).click());
    expect(JSON.parse(readFileSync(manifest, 'utf8'))).toMatchObject({ event: 'customEvents', rows: 20 });
  });

  it('An expired link shows what to do, and leads to the export', async () => {
    const keys = await openSigningKeys(dataPaths(dataDir).keys, createClock(0), createLogger('silent'));
    onTestFinished(() => keys.close());
    const expiresSeconds = Math.floor(Date.now() / 1000) - 60;
    const link = signLink(keys, { id: pastRequests, name: 'part.csv', expiresSeconds });
    const page = await openSignedIn(ann);
    const answered = await page.goto(`${service.api}${link}`);
    expect(answered?.status()).toBe(403);
    await page.getByRole('heading', { name: 'This link is invalid or has expired' }).waitFor();
    expect([...(await findAxeFaults(page)), await overflowOf(page)]).toEqual([0]);
    await page.getByRole('link', { name: 'Exports' }).click();
    await page.getByRole('link', { name: `#${pastRequests} ` }).waitFor();
    await page.getByRole('link', { name: 'Download', exact: true }).waitFor();
    expect(await (await fetch(`${service.api}${link}`)).json()).toEqual({
      code: 403,
      message: 'Access denied',
      data: null,
    });
  });

  it('The same works by keyboard alone', async ({ skip }) => {
    inWholeForm(skip);
    await waitForLake();
    const page = await openPage();
    const { keyboard } = page;
    await page.getByLabel('User id').waitFor();
    await keyboard.type(ben.idUser);
    await keyboard.press('Tab');
    await keyboard.type(ben.secret);
    await keyboard.press('Enter');
    await page.getByRole('heading', { name: 'New export' }).waitFor();
    await keyboard.press('Tab');
    expect(await page.getByRole('button', { name: 'Skip to content' }).evaluate((each) => each.matches(':focus'))).toBe(
      true,
    );
    await keyboard.press('Enter');
    await tabTo(page, page.getByRole('combobox', { name: 'Event', exact: true }));
    await keyboard.type('customEvents');
    await tabTo(page, page.getByRole('button', { name: 'Today' }));
    await keyboard.press('Space');
    await tabTo(page, page.getByRole('button', { name: 'Clear' }));
    await keyboard.press('Enter');
    await tabTo(page, page.getByRole('checkbox', { name: 'eventId' }));
    await keyboard.press('Space');
    await tabTo(page, page.getByRole('checkbox', { name: 'eventName' }));
    await keyboard.press('Space');
    const remove = page.getByRole('button', { name: 'Remove eventName' });
    await tabTo(page, page.getByRole('button', { name: 'Create export' }));
    await remove.focus();
    await keyboard.press('Alt+ArrowLeft');
    await expect
      .poll(() => page.getByRole('list', { name: /^Selected columns/ }).innerText())
      .toMatch(/eventName[^]*eventId/);
    await tabTo(page, page.getByRole('button', { name: 'Create export' }));
    await keyboard.press('Enter');
    const link = page.getByRole('link', { name: 'Download', exact: true });
    await link.waitFor();
    await tabTo(page, link);
    const file = await download(page, () => keyboard.press('Enter'));
    expect(readFileSync(file, 'utf8').split('\n')[0]?.trim()).toBe('eventName,eventId');
    expect(await rowsOfFile(file)).toEqual(await rowsOfLake());
  });

  it('A queued export is canceled, a finished one is duplicated with its parameters, and its schedule is paused and deleted', async () => {
    const query =
      'event=customEvents&selectors=eventId&tsFrom=1746057600&tsTo=1746057659&timezone=Europe/Berlin&idApp=1';
    const create = `${service.api}/api/raw/v1/export/create.json?${query}`;
    const headers = { authorization: basic(ben) };
    const ids = [];
    for (let turn = 0; turn < 5; turn += 1) {
      const { data } = (await (await fetch(create, { headers })).json()) as { data: { idRawExport: string } };
      ids.push(data.idRawExport);
    }
    const page = await openSignedIn(ben, 1280, 'light', `exports/${ids.at(-1)}`);
    await page.getByRole('button', { name: 'Cancel export' }).click();
    await page
      .getByRole('listitem')
      .filter({ hasText: `#${ids.at(-1)}` })
      .getByText('Canceled')
      .waitFor();
    await page.getByRole('button', { name: 'Duplicate…' }).click();
    await page.getByRole('heading', { name: 'New export' }).waitFor();
    expect(await page.getByLabel('First second').inputValue()).toMatch(/^2025-05-01T02:00/);
    expect(await page.getByRole('combobox', { name: 'Time zone' }).inputValue()).toBe('Europe/Berlin');
    expect(await page.getByRole('region', { name: 'curl' }).innerText()).toMatch(/tsFrom=1746057600[^]*idApp=1/);
    await page.goto(`${service.api}/console/exports/${ids[0]}`);
    await page.getByRole('button', { name: 'Schedule…' }).click();
    await page.getByRole('button', { name: 'Create schedule' }).click();
    await page.getByText('Every day at 04:00 (Europe/Berlin)').waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Paused').waitFor();
    await page.getByRole('button', { name: 'Delete…' }).click();
    await page.getByRole('button', { name: 'Delete schedule' }).click();
    await page.getByText('No schedules yet').waitFor();
  });

  it('The copied API and CLI examples create the same export', async ({ skip }) => {
    inWholeForm(skip);
    if (noCurl !== false) skip(noCurl);
    await waitForLake();
    const page = await openSignedIn(ben);
    await page.getByRole('combobox', { name: 'Event', exact: true }).selectOption('customEvents');
    await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('eventName');
    await page.getByRole('textbox', { name: 'eventName' }).fill(names.join('\n'));
    const folder = testFolder();
    const environment = { ...process.env, USER_ID: ben.idUser, SECRET: ben.secret };
    const runCopied = async (program: string, command: string, argument: string): Promise<string> => {
      await page.getByRole('radio', { name: program }).check();
      const text = await page.getByRole('region', { name: program }).innerText();
      const { stdout } = await promisify(execFile)(command, [argument, text], { cwd: folder, env: environment });
      return stdout;
    };
    const ordered = JSON.parse(await runCopied('curl', 'bash', '-c')) as { data: { idRawExport: string } };
    await page.goto(`${service.api}/console/exports/${ordered.data.idRawExport}`);
    const link = page.getByRole('link', { name: 'Download', exact: true });
    const file = await download(page, () => link.click());
    expect((await rowsOfFile(file)).length).toBe(20);
    await page.getByRole('button', { name: 'Duplicate…' }).click();
    await page.getByRole('heading', { name: 'New export' }).waitFor();
    expect(await runCopied('Python', 'python3', '-c')).toContain(' 20 rows');
    const [downloaded = ''] = readdirSync(folder);
    expect(await rowsOfFile(path.join(folder, downloaded))).toEqual(await rowsOfFile(file));
  });

  it('An error of the service is shown next to its field, and options of other events are not offered', async ({
    skip,
  }) => {
    inWholeForm(skip);
    const page = await openSignedIn(ben);
    const filters = page.getByRole('combobox', { name: 'Add a filter' });
    await page.getByLabel('Show events without data').check();
    await page.getByRole('combobox', { name: 'Event', exact: true }).selectOption('payments');
    expect(await filters.innerText()).toContain('isVerified');
    expect(await filters.innerText()).not.toContain('eventName');
    await page.getByRole('combobox', { name: 'Event', exact: true }).selectOption('customEvents');
    expect(await filters.innerText()).not.toContain('isVerified');
    await filters.selectOption('idCampaign');
    await page.getByRole('textbox', { name: 'idCampaign' }).fill('winter');
    await page.getByText('Argument idCampaign is invalid: "winter"; allowed: whole numbers').first().waitFor();
  });

  it(`${pastRequests} requests are paged, and the page of a user without any shows what to do`, async ({ skip }) => {
    inWholeForm(skip);
    const page = await openSignedIn(ann, 1280, 'light', 'exports');
    await page.getByText(`#${pastRequests} `).waitFor();
    await page.getByText(`${new Intl.NumberFormat('en-GB').format(pastRequests)} exports`).waitFor();
    expect(await page.getByRole('list').filter({ hasText: '#' }).getByRole('heading').count()).toBe(25);
    await page.getByRole('button', { name: 'Older' }).click();
    await page.getByText(`#${pastRequests - 25} `).waitFor();
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.getByText(`#${pastRequests} `).waitFor();
    const other = await openSignedIn(cem, 1280, 'light', 'exports');
    await other.getByText('No exports yet').waitFor();
  });
});

describe('the session of an analyst', () => {
  it('The first visit and the sign-in log no error in the browser', async () => {
    const page = await openPage();
    const errors: string[] = [];
    page.on('console', (message) => void (message.type() === 'error' && errors.push(message.text())));
    await page.reload();
    await signIn(page, cem);
    expect(errors).toEqual([]);
  });

  it('A dialog reports the end of the session, and the page keeps its input and continues after a new sign-in', async () => {
    const page = await openSignedIn(cem);
    const search = page.getByRole('searchbox', { name: 'Search columns' });
    await search.fill('country');
    // No request in progress finds the end of the session before the click.
    await page.getByRole('complementary').getByText('Files').waitFor();
    await page.context().clearCookies();
    await page.getByRole('button', { name: 'Show preview' }).click();
    const dialog = page.getByRole('dialog', { name: 'Your session has ended' });
    await dialog.waitFor();
    expect(isWhole ? await findAxeFaults(page) : []).toEqual([]);
    for (let turn = 0; turn < 2; turn += 1) await page.keyboard.press('Escape');
    await dialog.waitFor();
    expect(await page.getByLabel('Secret').evaluate((each) => each.matches(':focus'))).toBe(true);
    await page.getByLabel('Secret').fill(cem.secret);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await dialog.waitFor({ state: 'detached' });
    expect(await search.inputValue()).toBe('country');
    await page.getByText('Cem', { exact: true }).click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Name or user id').waitFor();
    const left = (await page.context().cookies()).map(({ name }) => name);
    expect(left.filter((name) => !name.startsWith('tributary_browser_'))).toEqual([]);
  });

  it('A lost connection is reported, and the page reconnects automatically', async ({ skip }) => {
    inWholeForm(skip);
    const page = await openSignedIn(ben);
    await page.getByRole('complementary').getByText('Files').waitFor();
    await page.context().setOffline(true);
    await page.getByRole('button', { name: 'Show preview' }).click();
    await page.getByText('The connection to the service is lost.').waitFor();
    await page.context().setOffline(false);
    expect(await page.getByRole('button', { name: 'Create export' }).count()).toBe(1);
    await page.getByText('The connection to the service is lost.').waitFor({ state: 'detached' });
  });

  it('A wrong secret is reported, and after five of them the correct one has to wait too', async () => {
    const page = await openPage();
    await page.getByLabel('User id').fill(cem.idUser);
    await page.getByLabel('Secret').fill('wrong');
    for (let turn = 0; turn < 6; turn += 1) {
      const [answer] = await Promise.all([
        page.waitForResponse((response) => response.url().endsWith('/console/session')),
        page.getByRole('button', { name: 'Sign in' }).click(),
      ]);
      expect(answer.status()).toBe(turn < 5 ? 401 : 429);
      await page.getByText(turn < 5 ? 'The user or the secret is wrong' : 'Too many wrong secrets: wait 5 s').waitFor();
      await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    }
    await page.getByLabel('Secret').fill(cem.secret);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Too many wrong secrets').waitFor();
  });
});

const widths = [1280, 390] as const;
const schemes = ['light', 'dark'] as const;
const windows = widths.flatMap((width) => schemes.map((scheme) => [width, scheme] as const));

describe('the pages', () => {
  it.each(isWhole ? windows : [[390, 'dark'] as const])(
    'A page of %i pixels in %s has no axe-core finding, and does not overflow',
    async (width, scheme) => {
      const page = await openPage(width, scheme);
      // The first pages have all components; the others are checked in the long form.
      const look = async (name: string, isFirst = false): Promise<void> => {
        await page.evaluate('scrollTo({ top: 0, behavior: "instant" })');
        if (pictures !== undefined)
          await page.screenshot({ path: path.join(pictures, `${name}-${width}-${scheme}.png`), fullPage: true });
        expect([name, ...(isWhole || isFirst ? await findAxeFaults(page) : [])]).toEqual([name]);
        expect([name, await overflowOf(page)]).toEqual([name, 0]);
      };
      await page.getByRole('button', { name: 'Sign in' }).waitFor();
      await look('sign-in');
      await signIn(page, ann);
      await page.getByRole('complementary').getByText('Files').waitFor();
      await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('idCountry');
      await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('params');
      await page.getByRole('button', { name: 'Show preview' }).click();
      await page.getByText(/All 20 rows|No matching rows/).waitFor();
      await page.getByRole('complementary').getByText('Files').waitFor();
      await look('new-export', true);
      await page.getByRole('link', { name: 'Exports', exact: true }).click();
      await page.getByRole('link', { name: `#${pastRequests} ` }).click();
      await page.getByRole('button', { name: 'Schedule…' }).click();
      await page.getByText('Parameters', { exact: true }).click();
      await page.getByRole('link', { name: 'Download', exact: true }).waitFor();
      await look('exports', true);
      for (const part of ['Schedules', 'Webhooks']) {
        await page.getByRole('link', { name: part }).click();
        await page.getByText(`No ${part.toLowerCase()} yet`).waitFor();
        await look(part.toLowerCase());
      }
      await page.getByText('analyst').click();
      await look('menu');
      const other = scheme === 'light' ? 'dark' : 'light';
      await page.getByRole('radio', { name: other }).check();
      await page.reload();
      await page.getByRole('heading', { name: 'Exports' }).waitFor();
      expect(await page.evaluate('getComputedStyle(document.documentElement).colorScheme')).toBe(other);
    },
  );
});

// Last, since it sends events.
describeOperations(() => ({ service, browser, token, operator, analyst: ann, stranger }));
