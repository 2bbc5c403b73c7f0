import path from 'node:path';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { describe, expect, it, onTestFinished } from 'vitest';
import { noAccount } from '../../src/access/access.ts';
import { listApps } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import { findAxeFaults, overflowOf, windowOf } from '../helpers/browser.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import type { TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

/** The service with a thousand apps, the browser and the users, which console.test.ts starts once. */
export interface ConsolePlace {
  readonly service: TestService;
  readonly browser: Browser;
  /** Token of app 1. */
  readonly token: string;
  readonly operator: Credentials;
  /** A user of the apps' account. */
  readonly analyst: Credentials;
  /** A user of an account without apps. */
  readonly stranger: Credentials;
}

/** `all`: every page in every width and scheme. */
const isWhole = process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
/** A folder for screenshots. */
const pictures = process.env['TRIBUTARY_TEST_PICTURES'];
const narrow = windowOf(390, 'dark');

/** Tests the pages Data, Live and Operations. */
export function describeOperations(place: () => ConsolePlace): void {
  /** Signs in in a new window; `faults`: its errors, and its requests to other hosts. */
  async function open(
    { idUser, secret }: Credentials,
    options: BrowserContextOptions = windowOf(1280, 'light'),
  ): Promise<{ readonly page: Page; readonly faults: readonly string[] }> {
    const { browser, service } = place();
    const context = await browser.newContext(options);
    onTestFinished(() => context.close());
    const page = await context.newPage();
    const faults: string[] = [];
    page.on('pageerror', ({ message }) => faults.push(message));
    page.on('request', (request) => {
      if (!request.url().startsWith(service.api)) faults.push(`asks ${request.url()}`);
    });
    await page.goto(`${service.api}/console/`);
    await page.getByLabel('User id').fill(idUser);
    await page.getByLabel('Secret').fill(secret);
    await page.keyboard.press('Enter');
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    return { page, faults };
  }
  const post = async (method: string, body: unknown, by = place().token): Promise<number> => {
    const head = { method: 'POST', headers: { authorization: by }, body: JSON.stringify(body) };
    return (await fetch(`${place().service.s2s}/v1/${method}/?idApp=1`, head)).status;
  };

  /** Posts events of a month for the chart. */
  async function fillDays(): Promise<void> {
    const nowSeconds = Math.floor(Date.now() / 1000);
    for (let day = 0; day < 30; day += 1) {
      const times = Array.from({ length: 20 }, (_, n) => nowSeconds - day * 86_400 - n * 60);
      for (let n = 0; n <= (day * 7) % 5; n += 1)
        await post(
          'customEventBatch',
          times.map((eventTimestamp) => ({ eventTimestamp, customUserId: `u-${n}`, customEventName: 'level_up' })),
        );
      await post(
        'loginBatch',
        times.slice(0, 5 + (day % 7)).map((eventTimestamp) => ({ eventTimestamp, customUserId: 'u-1', age: 30 })),
      );
    }
  }

  /** Sends events and a rejected request to a page, and opens the latter. */
  async function showArrivals(page: Page): Promise<void> {
    await page.getByText('Listening', { exact: true }).waitFor();
    for (const name of ['ann', 'ben', 'cem'])
      await post('customEvent', {
        customUserId: name,
        customEventName: 'level_up',
        customEventParams: { level: '3' },
      });
    await post('login', { customUserId: 'dan', age: 'thirty' });
    await page.locator('.entry', { hasText: 'cem' }).first().waitFor();
    await page.locator('.entry.refusal summary').first().click();
  }

  describe('the pages Data, Live and Operations', () => {
    it('Live shows a bounded number of events and rejected requests as they arrive, with reasons and marked fields', async () => {
      const { service, analyst } = place();
      const { page, faults } = await open(analyst);
      await page.goto(`${service.api}/console/live/1`);
      await page.getByText('Listening', { exact: true }).waitFor();
      expect(await post('login', { customUserId: 'u-1' })).toBe(200);
      await page.locator('.entry.event', { hasText: 'u-1' }).waitFor();
      expect(await post('login', { customUserId: 'u-2', age: 'old' })).toBe(400);
      const refusal = page.locator('.entry.refusal', { hasText: '/age must be integer' });
      await refusal.locator('summary').click();
      expect(await refusal.locator('.faults').innerText()).toContain('/age must be integer');
      expect(await refusal.locator('mark').innerText()).toContain('"age"');

      await page.getByRole('button', { name: 'Pause' }).click();
      expect(await post('login', { customUserId: 'u-3' })).toBe(200);
      await page.getByText('1 received while paused').waitFor();
      expect(await page.locator('.entry', { hasText: 'u-3' }).count()).toBe(0);
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.locator('.entry', { hasText: 'u-3' }).waitFor();
      await page.getByLabel('Filter by text').fill('u-3');
      await waitFor('the others are hidden', async () => (await page.locator('.entry').count()) === 1);
      expect([...(await findAxeFaults(page)), ...faults]).toEqual([]);
      await page.getByLabel('Filter by text').fill('');
      // More than a page keeps.
      let posted = 0;
      await waitFor('dropped events are counted', async () => {
        const batch = Array.from({ length: 20 }, (_, n) => ({ customUserId: `crowd ${posted + n}` }));
        posted += batch.length;
        expect(await post('loginBatch', batch)).toBe(200);
        return await page.getByText('more events and').isVisible();
      });
      expect(await page.locator('.entry').count()).toBeLessThanOrEqual(300);
    });

    it('A sign-out or the end of the session in another window ends the live stream', async () => {
      const { service, analyst } = place();
      const answer = await fetch(`${service.api}/console/session`, { method: 'POST', body: JSON.stringify(analyst) });
      const { data } = (await answer.json()) as { readonly data: { readonly csrfToken: string } };
      const headers = {
        cookie: String(answer.headers.get('set-cookie')).split(';')[0] ?? '',
        'x-csrf-token': data.csrfToken,
      };
      const live = await fetch(`${service.api}/api/app/v1/live?idApp=1`, { headers });
      expect(live.status).toBe(200);
      const ended = live.text();
      expect((await fetch(`${service.api}/console/session`, { method: 'DELETE', headers })).status).toBe(200);
      expect(await ended).toContain('retry:');
      expect((await fetch(`${service.api}/api/app/v1/live?idApp=1`, { headers })).status).toBe(403);
    });

    it('An operator adds and revokes a token of an app, which the browser does not store', async () => {
      const { service, operator } = place();
      const { page, faults } = await open(operator);
      await page.getByRole('link', { name: 'Operations' }).click();
      await page.getByText('Healthy').waitFor();
      await page.getByRole('link', { name: 'Apps', exact: true }).click();
      await page.getByRole('button', { name: 'Add token to app 1', exact: true }).press('Enter');
      await page.getByRole('button', { name: 'Add token', exact: true }).last().click();
      const given = await page.getByLabel('Copy this now').inputValue();
      expect(await findAxeFaults(page)).toEqual([]);
      await waitFor('the token is known', async () => (await post('login', { customUserId: 'u-4' }, given)) === 200);
      const kept = 'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])';
      expect(await page.evaluate(kept)).not.toContain(given);
      await page.keyboard.press('Escape');
      expect(await page.content()).not.toContain(given);

      await page.getByRole('button', { name: `Revoke token ${given.slice(0, 8)} of app 1` }).click();
      await page.getByRole('button', { name: 'Revoke', exact: true }).click();
      await waitFor('the token has ended', async () => (await post('login', { customUserId: 'u-5' }, given)) === 403);
      expect((await listApps(dataPaths(service.dataDir)))[0]?.tokens).toHaveLength(1);
      expect(await post('login', { customUserId: 'u-6' })).toBe(200);
      expect(faults).toEqual([]);
    });

    it('An operator adds, changes and removes a user by keyboard, and the secret works meanwhile', async () => {
      const { service, operator } = place();
      const { page } = await open(operator);
      await page.goto(`${service.api}/console/operations/users`);
      await page.getByRole('button', { name: 'Add user' }).press('Enter');
      await page.keyboard.type('bob');
      await page.getByLabel('Account', { exact: true }).fill('1');
      await page.keyboard.press('Enter');
      const secret = await page.getByLabel('Copy this now').inputValue();
      const idUser = await page.locator('dialog dl dd').innerText();
      await page.keyboard.press('Escape');
      const statusOf = async (by: string): Promise<number> =>
        (
          await fetch(`${service.api}/api/data/v1/apps.json?limit=1`, {
            headers: { authorization: basic({ idUser, secret: by }) },
          })
        ).status;
      await waitFor('bob is known', async () => (await statusOf(secret)) === 200);
      await page.getByRole('button', { name: `Change user ${idUser}`, exact: true }).press('Enter');
      await page.getByLabel('Max concurrent exports').fill('3');
      expect(await findAxeFaults(page)).toEqual([]);
      await page.keyboard.press('Enter');
      await page.getByText('3 concurrent exports').waitFor();
      await page.getByRole('button', { name: `Remove user ${idUser}`, exact: true }).press('Enter');
      await page.getByRole('button', { name: 'Remove', exact: true }).last().press('Enter');
      await waitFor('bob is removed', async () => (await statusOf(secret)) === 403);
      expect(await page.getByRole('button', { name: `Remove user ${operator.idUser}`, exact: true }).count()).toBe(0);
    });

    it('Data shows events by day and field fill rates, with a thousand apps, narrow and dark', async ({ skip }) => {
      if (process.env['TRIBUTARY_TEST_CONSOLE'] !== 'all') skip('in the longer form, TRIBUTARY_TEST_CONSOLE=all');
      const { service, analyst } = place();
      expect(await post('registration', { customUserId: 'u-7', age: 30 })).toBe(200);
      const params = { level: '3', 'it"s': '<b>bold</b>' };
      for (const customUserId of ['u-7', 'u-8'])
        expect(
          await post('customEvent', { customUserId, customEventName: 'level "up"', customEventParams: params }),
        ).toBe(200);
      const { page, faults } = await open(analyst, narrow);
      await page.goto(`${service.api}/console/data`);
      await page.getByText('1 to 50 of 1,000').waitFor();
      expect(await overflowOf(page)).toBe(0);
      await page.getByLabel('Find an app by title or id').fill('onerror');
      await page.getByRole('link', { name: 'onerror' }).waitFor();
      const ask = async (target: string): Promise<string> =>
        (await fetch(`${service.api}/api/${target}`, { headers: { authorization: basic(analyst) } })).text();
      const catalogue = `catalogue/v1/get.json?idApp=1&customEventName=${encodeURIComponent('level "up"')}`;
      await waitFor('both events are in the lake and its catalogue', async () => {
        const found = await Promise.all([ask('data/v1/volume.json?idApp=1'), ask(catalogue)]);
        return found[0].includes('"registration"') && found[1].includes('"looked":2');
      });
      await page.goto(`${service.api}/console/data/1`);
      await page.getByLabel('Event type').selectOption('registration');
      await page.locator('tr', { hasText: 'age' }).getByText('100 %').first().waitFor();
      await page.getByLabel('Find a custom event').fill('UP');
      await page.getByRole('button', { name: 'level "up"', exact: true }).press('Enter');
      const parameter = page.locator('tr', { hasText: 'it"s' });
      await parameter.getByText('<b>bold</b>').waitFor();
      expect(await parameter.innerText()).toContain('100 %');
      await page.getByText('Show as table').first().click();
      expect(await page.getByRole('columnheader', { name: 'registration' }).count()).toBe(1);
      expect([...(await findAxeFaults(page)), await overflowOf(page), ...faults]).toEqual([0]);
    });

    it('Operations shows a thousand apps, narrow and dark; an account without apps and users without the role see no error', async ({
      skip,
    }) => {
      if (process.env['TRIBUTARY_TEST_CONSOLE'] !== 'all') skip('in the longer form, TRIBUTARY_TEST_CONSOLE=all');
      const { service, operator, stranger } = place();
      const { page } = await open(operator, narrow);
      for (const target of ['operations', 'operations/apps']) {
        await page.goto(`${service.api}/console/${target}`);
        await page
          .locator(target === 'operations' ? '.tile' : 'li a, .items li')
          .first()
          .waitFor();
        expect([target, ...(await findAxeFaults(page)), await overflowOf(page)]).toEqual([target, 0]);
      }
      const other = await open(stranger);
      await other.page.goto(`${service.api}/console/data`);
      await other.page.getByText('No apps yet').waitFor();
      await other.page.getByText('No events in this period').waitFor();
      expect(other.faults).toEqual([]);
      expect(await other.page.getByRole('link', { name: 'Operations' }).count()).toBe(0);
      await other.page.goto(`${service.api}/console/operations`);
      await other.page.getByText('Page not found').waitFor();
      await other.page.goto(`${service.api}/console/live/1`);
      await other.page.getByText('The app is not found').first().waitFor();
    });

    it('An operator without an account starts at Operations, and sees no page of accounts', async () => {
      const { service } = place();
      const root = { name: 'root', idAccount: noAccount, canExport: false, operator: true } as const;
      const { page, faults } = await open(await addUser(dataPaths(service.dataDir), root));
      await page.getByRole('heading', { name: 'Operations', level: 1 }).waitFor();
      expect(await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allInnerTexts()).toEqual([
        'Operations',
      ]);
      expect(faults).toEqual([]);
    });

    it('No page has a fault in any width and scheme, and screenshots are taken', async ({ skip }) => {
      const { service, operator } = place();
      if (!isWhole) skip('in the longer form, TRIBUTARY_TEST_CONSOLE=all');
      await fillDays();
      for (const [width, scheme] of [
        [1280, 'light'],
        [1280, 'dark'],
        [390, 'light'],
        [390, 'dark'],
      ] as const) {
        const { page, faults } = await open(operator, windowOf(width, scheme));
        const look = async (target: string, shown: string, name: string): Promise<void> => {
          await page.goto(`${service.api}/console/${target}`);
          await page.locator(shown).first().waitFor();
          if (name === 'live') await showArrivals(page);
          if (pictures !== undefined)
            await page.screenshot({ path: path.join(pictures, `${name}-${width}-${scheme}.png`) });
          expect([name, width, scheme, ...(await findAxeFaults(page)), await overflowOf(page), ...faults]).toEqual([
            name,
            width,
            scheme,
            0,
          ]);
        };
        await look('data/1', 'table .share', 'data');
        await look('live/1', '.entry', 'live');
        await look('operations', '.chart svg', 'operations');
        await look('operations/apps', '.items li', 'apps');
        await look('operations/users', '.items li', 'users');
      }
    }, 300_000);
  });
}
