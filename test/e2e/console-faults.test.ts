import type { Browser, BrowserContext, Page, Route } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { operationsExamples } from '../../src/export/api/openapi-examples.ts';
import { findAxeFaults, findChromium, launchChromium, noChromium, overflowOf, windowOf } from '../helpers/browser.ts';
import { echo, startConsoleServer, type ConsoleServer } from '../helpers/console-server.ts';
import type { Credentials } from '../helpers/export-area.ts';

/**
 * Error messages and focus of the console. The session code is the service's own; each test mocks the responses of the
 * API methods.
 */
const executable = findChromium();
const isWhole = process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
const api = '/api/raw/v1/export';
const none = { exports: [], total: 0 };
const line = { event: 'logins', status: 'Success!', timestampCreated: '1746057600', arguments: { timezone: 'UTC' } };

/** The data of a response, or a function that sends it. */
type Given = object | ((route: Route, url: URL) => unknown);

let browser: Browser;
let server: ConsoleServer;
let context: BrowserContext;

beforeAll(async () => {
  if (executable !== undefined && isWhole) browser = await launchChromium(executable);
});
afterAll(() => browser?.close());
beforeEach(async ({ skip }) => {
  if (executable === undefined) skip(noChromium);
  if (!isWhole) skip('in the longer form, TRIBUTARY_TEST_CONSOLE=all');
  server = await startConsoleServer();
  context = await browser.newContext(windowOf(1280, 'light'));
  onTestFinished(() => context.close());
});

const at = (place: string): string => `http://127.0.0.1:${server.port}/console/${place}`;

/** Mocks API methods for signed-in users, as checked by the service; others get 404. */
async function answer(methods: Readonly<Record<string, Given>>): Promise<void> {
  await context.route('**/api/**', async (route) => {
    const url = new URL(route.request().url());
    const allowed = await route.fetch({ url: `${url.origin}${echo}`, method: 'GET' });
    const given = methods[url.pathname];
    if (!allowed.ok()) await route.fulfill({ response: allowed });
    else if (typeof given === 'function') await given(route, url);
    else await route.fulfill(given === undefined ? { status: 404, json: {} } : { json: { data: given } });
  });
}

async function fillSignIn(page: Page, { idUser, secret }: Credentials): Promise<void> {
  await page.getByLabel('Name or user id', { exact: true }).fill(idUser);
  await page.getByLabel('Secret').fill(secret);
  await page.getByLabel('Secret').press('Enter');
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

async function open(place: string, user: Credentials = server.users.ann): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(at(place));
  await fillSignIn(page, user);
  return page;
}

async function signOut(page: Page, name: string): Promise<void> {
  await page.getByText(name, { exact: true }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
}

const focused = (page: Page): Promise<string> =>
  page.evaluate('document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent');

describe('a session', () => {
  it('A page continues with the session that its user has started in another window, and shows nothing of it to another user', async () => {
    await answer({
      [`${api}/list.json`]: none,
      '/api/schedule/v1/list.json': { schedules: [] },
      '/api/webhook/v1/list.json': { webhooks: [] },
    });
    const page = await open('exports');
    const other = await context.newPage();
    await other.goto(at('exports'));
    await signOut(other, 'Ann');
    await fillSignIn(other, server.users.ann);
    await page.getByRole('link', { name: 'Schedules' }).click();
    await page.getByText('No schedules yet').waitFor();
    expect(await page.getByText('Your session has ended').count()).toBe(0);
    await signOut(other, 'Ann');
    await fillSignIn(other, server.users.ben);
    await page.getByRole('link', { name: 'Webhooks' }).click();
    await page.getByText('Ben', { exact: true }).waitFor();
  });

  it('A dialog asks for the secret until it is correct, and then restores the focus', async () => {
    await answer({ [`${api}/list.json`]: none, '/api/schedule/v1/list.json': { schedules: [] } });
    const page = await open('exports');
    await page.getByText('No exports yet').waitFor();
    await context.clearCookies();
    await page.getByRole('link', { name: 'Schedules' }).press('Enter');
    const dialog = page.getByRole('dialog', { name: 'Your session has ended' });
    await dialog.waitFor();
    await page.keyboard.type('wr');
    expect(await page.getByLabel('Secret').inputValue()).toBe('wr');
    for (let turn = 0; turn < 3; turn += 1) await page.keyboard.press('Escape');
    await dialog.waitFor();
    await page.keyboard.type('ong');
    expect(await page.getByLabel('Secret').inputValue()).toBe('wrong');
    await page.getByLabel('Secret').fill(server.users.ann.secret);
    await page.keyboard.press('Enter');
    await page.getByText('No schedules yet').waitFor();
    expect(await focused(page)).toBe('Schedules');
  });

  it('A rotated secret of the signed-in operator stays visible until the dialog is closed, although the session has ended', async () => {
    const { olga } = server.users;
    await answer({
      '/api/operations/v1/users.json': {
        users: [{ idUser: olga.idUser, name: 'Olga', canExport: true, operator: true }],
        total: 1,
      },
      '/api/operations/v1/user/secret.json': async (route) => {
        await context.clearCookies();
        await route.fulfill({ json: { data: { idUser: olga.idUser, secret: 'the new one' } } });
      },
    });
    const page = await open('operations/users', olga);
    await page.getByRole('button', { name: `Rotate secret of user ${olga.idUser}` }).press('Enter');
    await page.getByRole('button', { name: 'Rotate secret', exact: true }).press('Enter');
    await page.getByText('Your session has ended.').first().waitFor();
    expect(await page.getByLabel('Copy this now').inputValue()).toBe('the new one');
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('dialog', { name: 'Your session has ended' }).waitFor();
  });

  it('A failed sign-out is reported, and a failed check of the session is retried', async () => {
    await answer({ [`${api}/list.json`]: none });
    const page = await open('exports');
    await page.getByText('No exports yet').waitFor();
    await context.setOffline(true);
    await signOut(page, 'Ann');
    await page.getByText("You are still signed in. Can't reach the service.").waitFor();
    await context.setOffline(false);
    // The response of a proxy while the service starts.
    await context.route('**/console/session', (route) => route.fulfill({ status: 502, body: '<h1>Bad Gateway</h1>' }));
    await page.reload();
    await page.getByText('The service is unavailable.').waitFor();
    await context.unroute('**/console/session');
    await page.getByText('No exports yet').waitFor();
    expect(await page.getByText('The service is unavailable.').count()).toBe(0);
  });
});

describe('an answer', () => {
  it('A late response to an earlier request does not replace the current one', async () => {
    const days = { 7: 'slow', 30: 30, 90: 90, 365: undefined } as const;
    await answer({
      '/api/data/v1/activity.json': { apps: [], total: 0, events: 1, kinds: [], isComplete: true },
      '/api/data/v1/volume.json': async (route, { searchParams }) => {
        const [dateFrom = '', dateTo = ''] = ['dateFrom', 'dateTo'].map((name) => searchParams.get(name) ?? '');
        const span = ((Date.parse(dateTo) - Date.parse(dateFrom)) / 86_400_000 + 1) as keyof typeof days;
        if (days[span] === 'slow') await new Promise((resolve) => setTimeout(resolve, 400));
        const counted = { dateFrom, dateTo, days: [{ date: dateFrom, kind: 'login', events: span * 1000 }] };
        await route
          .fulfill(days[span] === undefined ? { status: 404, json: {} } : { json: { data: counted } })
          .catch(() => undefined);
      },
    });
    const page = await open('data');
    await page.getByRole('heading', { name: 'Events by day (UTC) 30,000' }).waitFor();
    await page.getByRole('radio', { name: '7', exact: true }).check();
    await page.getByRole('radio', { name: '90', exact: true }).check();
    await page.getByRole('heading', { name: 'Events by day (UTC) 90,000' }).waitFor();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await page.getByRole('heading', { level: 2 }).first().innerText()).toContain('90,000');
    await page.getByRole('radio', { name: '365', exact: true }).check();
    await page.getByText('Not found.').waitFor();
    expect(await page.getByRole('heading', { level: 2 }).first().innerText()).not.toContain('000');
  });

  it('A page that fails on a response reports it, and the other pages work', async () => {
    await answer({ '/api/data/v1/apps.json': { total: 3 }, [`${api}/list.json`]: none });
    const page = await open('data');
    await page.getByRole('heading', { name: 'This page has failed' }).waitFor();
    expect(await findAxeFaults(page)).toEqual([]);
    await page.getByRole('link', { name: 'Exports', exact: true }).click();
    await page.getByText('No exports yet').waitFor();
  });

  it('The end of an export is announced to screen readers, and an older export is found on its page of the list', async () => {
    let asked = 0;
    await answer({
      [`${api}/get.json`]: { status: 'Success!' },
      [`${api}/list.json`]: (route, { searchParams }) => {
        asked += 1;
        const isNewest = searchParams.get('before') === null;
        const runs = { status: asked > 3 ? 'Success!' : 'In progress', progress: '40%' };
        const exports = isNewest ? [{ ...line, idRawExport: '90', ...runs }] : [{ ...line, idRawExport: '12' }];
        return route.fulfill({ json: { data: { exports, total: 90, before: '12' } } });
      },
    });
    const page = await open('exports/12');
    await page.getByRole('link', { name: '#12 logins', expanded: true }).waitFor();
    await page.getByRole('button', { name: 'Newest' }).click();
    await page.getByText('40 %').waitFor();
    await page.getByText('Export 90: Ready.').waitFor({ state: 'attached' });
    expect(await page.getByText('Export 90: Ready.').getAttribute('role')).toBe('status');
  });

  it('Operations shows an unreachable service neither as healthy nor with running processes', async () => {
    let [isAway, isHung] = [false, false];
    const { answer: good } = operationsExamples['/api/operations/v1/status.json'] ?? {};
    const status = { ...(good as { data: object }).data, ready: true, problems: [] };
    await answer({
      '/api/operations/v1/status.json': (route) => {
        if (isAway) return route.abort();
        return isHung ? undefined : route.fulfill({ json: { data: status } });
      },
    });
    const page = await open('operations', server.users.olga);
    await page.locator('.badge.good', { hasText: 'Healthy' }).waitFor();
    isAway = true;
    await page.getByText('may be outdated').waitFor();
    const isGrey = 'getComputedStyle(document.querySelector(".tiles")).filter';
    expect([await page.locator('.badge.good').count(), await page.evaluate(isGrey)]).toEqual([0, 'grayscale(1)']);
    expect(await findAxeFaults(page)).toEqual([]);
    isAway = false;
    await page.locator('.badge.good', { hasText: 'Healthy' }).waitFor();
    // A service that accepts the request and does not respond.
    isHung = true;
    await page.getByText('The service does not respond.').waitFor();
    expect(await page.locator('.badge.good').count()).toBe(0);
  });

  it('A list of one page has no paging buttons, and a file reads as a card on a narrow page', async () => {
    const file = {
      link: `${at('')}files/1.customEvents.5d8b2572a132ba56df31aabb.csv`,
      rows: 342,
      bytes: 6800,
      sha256: 'ab'.repeat(32),
      timestampExpires: '1795132803',
    };
    const exports = [{ ...line, idRawExport: '1' }];
    await answer({
      [`${api}/list.json`]: { exports, total: 1 },
      [`${api}/get.json`]: { ...exports[0], files: [file] },
    });
    const page = await open('exports/1');
    await page.setViewportSize({ width: 390, height: 900 });
    const files = page.getByRole('region', { name: 'Files' });
    await files.waitFor();
    expect(await files.getByRole('cell').count()).toBe(4);
    expect(await files.evaluate((each) => each.scrollWidth - each.clientWidth)).toBe(0);
    const label = 'getComputedStyle(document.querySelector("td:nth-child(2)"), "::before").content';
    expect(await page.evaluate(label)).toBe('"Rows"');
    expect([...(await findAxeFaults(page)), await overflowOf(page)]).toEqual([0]);
    const pieces = page.getByRole('navigation', { name: 'Pagination' });
    await pieces.getByText('1 export').waitFor();
    expect(await pieces.getByRole('button').count()).toBe(0);
  });
});

describe('imported history', () => {
  const old = {
    events: 4200,
    lastDate: '2023-02-26',
    kinds: [{ kind: 'custom_event', events: 4200, lastDate: '2023-02-26' }],
  };
  const app = {
    idApp: '1',
    title: 'First',
    platform: 'web',
    ...old,
    days: Array.from({ length: 30 }, (_, day) => day),
  };
  const counted = { ...old, apps: [app], total: 1, isComplete: true };

  it('New export and Data open on the newest days with data, and lead to the last days and back', async () => {
    const spans: string[] = [];
    await answer({
      '/api/data/v1/activity.json': counted,
      '/api/data/v1/volume.json': (route, url) => {
        const [dateFrom, dateTo] = ['dateFrom', 'dateTo'].map((name) => url.searchParams.get(name) ?? '');
        spans.push(`${dateFrom} ${dateTo}`);
        return route.fulfill({ json: { data: { dateFrom, dateTo, days: [] } } });
      },
    });
    const page = await open('');
    await page.getByText('Newest event: 26 Feb 2023.').waitFor();
    await expect.poll(() => page.getByLabel('First day').inputValue()).toBe('2023-02-20');
    expect(await page.getByLabel('Last day').inputValue()).toBe('2023-02-26');
    expect(await page.getByRole('option', { name: 'customEvents · 4,200' }).count()).toBe(1);
    expect(await page.getByRole('option', { name: 'payments' }).count()).toBe(0);
    await page.getByLabel('Show events without data').check();
    expect(await page.getByRole('option', { name: 'payments · 0', exact: true }).count()).toBe(1);
    await page.getByRole('button', { name: 'Today' }).click();
    await page.getByRole('button', { name: 'Show these days' }).click();
    expect(await page.getByLabel('First day').inputValue()).toBe('2023-02-20');

    await page.getByRole('link', { name: 'Data' }).click();
    await page.getByText('The page shows the 30 days up to it.').waitFor();
    await expect.poll(() => spans.at(-1)).toBe('2023-01-28 2023-02-26');
    expect(await page.getByRole('link', { name: 'First' }).innerText()).toMatch(/4,200 events · last 26 Feb 2023/);
    await page.getByRole('button', { name: 'Show the last 30 days' }).press('Enter');
    await expect.poll(() => spans.at(-1)).toContain(new Date().toISOString().slice(0, 10));
    await page.getByRole('button', { name: 'Show these days' }).click();
    await expect.poll(() => spans.at(-1)).toBe('2023-01-28 2023-02-26');
  });

  it('An app without events shows a command that sends one, and apps are listed if their events are not counted', async () => {
    const { lastDate: _, ...none_ } = { ...counted, events: 0, kinds: [] };
    const apps = { apps: [{ idApp: '1', title: 'First', platform: 'web' }], total: 1 };
    let isCounted = true;
    await answer({
      '/api/data/v1/activity.json': (route) =>
        isCounted
          ? route.fulfill({ json: { data: none_ } })
          : route.fulfill({ status: 400, json: { data: { error: { detail: 'too long' } } } }),
      '/api/data/v1/apps.json': apps,
    });
    const page = await open('data/1');
    expect(await page.getByRole('region', { name: 'Command that sends an event' }).innerText()).toContain('idApp=1');
    expect(await findAxeFaults(page)).toEqual([]);
    isCounted = false;
    await page.getByRole('link', { name: 'Data: all apps' }).click();
    await page.getByText('Events are not counted: too long').waitFor();
    expect(await page.getByRole('link', { name: 'First' }).count()).toBe(1);
  });
});

describe('the form of an export', () => {
  it('The summary covers no preview rows, payments have their amount, and a full queue lists its exports', async () => {
    const exports = Array.from({ length: 10 }, (_, place) => ({ idRawExport: String(41 + place) }));
    const detail = 'The maximum number of simultaneous requests is reached: 10. Wait until one ends.';
    await answer({
      [`${api}/estimate.json`]: (route) => route.fulfill({ status: 400, json: { data: { error: { detail: 'no' } } } }),
      [`${api}/create.json`]: (route) =>
        route.fulfill({ status: 400, json: { data: { error: { detail, info: { exports } } } } }),
      [`${api}/preview.json`]: {
        columns: ['tsEvent'],
        rows: Array.from({ length: 20 }, (_, row) => [String(row)]),
        isTruncated: true,
      },
    });
    const page = await open('');
    const events = page.getByRole('region', { name: 'Event', exact: true }).getByRole('combobox');
    const columns = page.getByRole('list', { name: /^Selected columns/ });
    for (const [event, column] of [
      ['payments', 'total'],
      ['adMonetization', 'revenue'],
      ['partnerSKANpostbacks', 'sourceId'],
    ] as const) {
      await events.selectOption(event);
      expect(await columns.getByText(column, { exact: true }).count()).toBe(1);
    }
    await page.getByRole('button', { name: 'Create export' }).click();
    await page.getByRole('link', { name: '#50' }).waitFor();
    expect(await page.getByRole('link', { name: /^#4/ }).count()).toBe(9);
    await page.getByRole('button', { name: 'Show preview' }).click();
    const rows = page.getByRole('region', { name: 'Preview', exact: true });
    await rows.getByText('First 20 rows; there are more.').waitFor();
    const summary = page.getByRole('region', { name: 'Summary', exact: true });
    await expect
      .poll(async () => {
        const [above, below] = [await summary.boundingBox(), await rows.boundingBox()];
        return (above?.y ?? 0) + (above?.height ?? 0) <= (below?.y ?? 0);
      })
      .toBe(true);
  });

  it('Ctrl and Enter create the export, links lead to the parts of the form, and columns have one tab stop', async () => {
    const sent: string[] = [];
    await answer({
      [`${api}/estimate.json`]: (route) => route.fulfill({ status: 400, json: { data: { error: { detail: 'no' } } } }),
      [`${api}/create.json`]: (route) => {
        sent.push(route.request().postData() ?? '');
        return route.fulfill({ json: { data: { idRawExport: '7' } } });
      },
      [`${api}/list.json`]: none,
    });
    const page = await open('');
    await page.getByRole('heading', { name: 'New export' }).focus();
    await page.keyboard.press('Tab');
    for (let turn = 0; turn < 3; turn += 1) await page.keyboard.press('Tab');
    expect(await focused(page)).toBe('Filters');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    expect(await focused(page)).toContain('Add a filter');
    const columns = page.getByRole('list', { name: /^Selected columns/ }).getByRole('button');
    await columns.first().focus();
    await page.keyboard.press('ArrowRight');
    expect(await columns.nth(1).evaluate((each) => each.matches(':focus'))).toBe(true);
    await page.keyboard.press('Tab');
    expect(
      await page.getByRole('searchbox', { name: 'Search columns' }).evaluate((each) => each.matches(':focus')),
    ).toBe(true);
    await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('params');
    await page.getByLabel('Parameter', { exact: true }).fill('level');
    await page.getByLabel('Comparison').selectOption('is greater than');
    await page.getByRole('spinbutton', { name: 'Number' }).fill('3');
    await page.getByRole('combobox', { name: 'Add a filter' }).selectOption('customUserId');
    await page.getByRole('textbox', { name: 'customUserId' }).fill('ann, of Berlin');
    await page.keyboard.press('Control+Enter');
    await page.getByText('No exports yet').waitFor();
    const form = new URLSearchParams(sent[0]);
    expect([form.get('paramsGreater[level]'), form.get('customUserId')]).toEqual(['3', String.raw`ann\, of Berlin`]);
  });

  it('A period of ambiguous local times has both, filters keep their values, and the focus stays', async () => {
    await answer({
      '/api/data/v1/apps.json': { apps: [], total: 0 },
      [`${api}/estimate.json`]: (route) => route.fulfill({ status: 400, json: { data: { error: { detail: 'no' } } } }),
      [`${api}/create.json`]: (route) => route.abort(),
    });
    const page = await open('');
    await page.getByRole('combobox', { name: 'Time zone' }).selectOption('Europe/Berlin');
    await page.getByRole('radio', { name: 'Date and time' }).check();
    await page.getByLabel('First second').fill('2025-10-26T02:00:00');
    await page.getByLabel('Last second').fill('2025-10-26T02:59:59');
    const curl = page.getByRole('region', { name: 'curl' });
    await expect.poll(() => curl.innerText()).toMatch(/tsFrom=1761436800[^]*tsTo=1761443999/);

    const filters = page.getByRole('combobox', { name: 'Add a filter' });
    for (const name of ['level', 'coins']) {
      await filters.selectOption('params');
      await page.getByLabel('Parameter', { exact: true }).last().fill(name);
      await page.getByLabel('Values, one per line').last().fill(`${name} 1\n${name} 2`);
    }
    await page.getByRole('button', { name: 'Remove the filter on level' }).click();
    expect(await page.getByLabel('Values, one per line').inputValue()).toBe('coins 1\ncoins 2');
    await expect.poll(() => curl.innerText()).toMatch(/params\[coins\]=coins 1[^]*params\[coins\]=coins 2/);
    expect(await focused(page)).toBe('Remove the filter on coins');
    await page.keyboard.press('Enter');
    expect(await focused(page)).toBe('Filters');

    const second = page
      .getByRole('list', { name: /^Selected columns/ })
      .getByRole('button')
      .nth(1);
    const name = await second.getAttribute('aria-label');
    await second.focus();
    for (let turn = 0; turn < 2; turn += 1) await page.keyboard.press('Alt+ArrowRight');
    expect(await focused(page)).toBe(name);
    await page.keyboard.press('Enter');
    expect(await focused(page)).toMatch(/^Remove \w/);

    await page.getByRole('button', { name: 'Create export' }).click();
    await page.getByText('The export may have been created anyway').waitFor();
  });

  it('Opening an app by the keyboard moves the focus to its heading', async () => {
    const apps = [{ idApp: '1', title: 'First', platform: 'web' }];
    await answer({
      '/api/data/v1/apps.json': { apps, total: 1 },
      '/api/data/v1/volume.json': { dateFrom: '2025-01-01', dateTo: '2025-01-02', days: [] },
    });
    const page = await open('data');
    await page.getByRole('link', { name: 'First' }).press('Enter');
    await page.getByRole('heading', { name: 'First' }).waitFor();
    expect(await focused(page)).toBe('First');
  });
});
