import { execFile } from 'node:child_process';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { noCurl } from '../helpers/shell.ts';
import { findAxeFaults, findChromium, launchChromium, noChromium, overflowOf, windowOf } from '../helpers/browser.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { temporaryFolder } from '../helpers/folder.ts';

const run = promisify(execFile);
const executable = findChromium();
/** `all`: axe-core checks every unfolded operation and schema, otherwise a few: all have the same structure. */
const isWhole = process.env['TRIBUTARY_TEST_CONSOLE'] === 'all';
const leaveFew = 'for (const one of [...document.querySelectorAll("main > section")].slice(4, -3)) one.remove()';
const screenshots = process.env['TRIBUTARY_TEST_PICTURES'];

const characters: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };

/** Decodes HTML entities. */
function unescape(html: string): string {
  return html.replaceAll(/&([#\w]+);/g, (all, name: string) => characters[name] ?? all);
}

/** Returns the status of a command of the page at a new service, for a user without the operator role. */
function wantedStatus(command: string): string {
  if (/\/api\/operations\/|\/files\//.test(command)) return '403';
  return /=17\b|idWebhook=|idSchedule=|idDestination=/.test(command) ? '404' : '200';
}

describe('the API reference as a page', () => {
  const dataDir = path.join(temporaryFolder(), 'data');
  let service: TestService;
  let access: Readonly<Record<'TOKEN' | 'ID:SECRET', string>>;
  let browser: Browser | undefined;

  beforeAll(async () => {
    const token = await addTestApp(dataDir);
    const user = await addTestUser(dataDir);
    access = { TOKEN: token, 'ID:SECRET': `${user.idUser}:${user.secret}` };
    [service, browser] = await Promise.all([
      startTestService({
        dataDir,
        settings: { TRIBUTARY_QUOTA_USER: '1000/s', TRIBUTARY_DELIVERY_ALLOW: '*.amazonaws.com' },
      }),
      executable === undefined ? undefined : launchChromium(executable),
    ]);
  });
  afterAll(async () => {
    await browser?.close();
    await service.destroy();
  });

  /** Opens the page, and collects its requests and errors. */
  async function open(width: number, colorScheme: 'light' | 'dark') {
    if (browser === undefined) throw new Error(noChromium);
    const context = await browser.newContext(windowOf(width, colorScheme));
    onTestFinished(() => context.close());
    const page = await context.newPage();
    const asked: string[] = [];
    const complaints: string[] = [];
    page.on('request', (request) => void asked.push(request.url()));
    page.on('console', (message) => void complaints.push(message.text()));
    page.on('pageerror', (error) => void complaints.push(error.message));
    await page.goto(`${service.api}/docs`);
    return { page, asked, complaints };
  }

  it('The page is small, has a policy that allows only its own content, and shows a command for every operation', async () => {
    const answer = await fetch(`${service.api}/docs`);
    const text = await answer.text();
    const { paths } = (await (await fetch(`${service.api}/openapi.json`)).json()) as { paths: object };
    expect(answer.headers.get('content-encoding')).toBe('gzip');
    expect(answer.headers.get('content-security-policy')).toMatch(/^default-src 'none'; style-src 'sha256-/);
    expect(gzipSync(text).length).toBeLessThan(80_000);
    for (const target of Object.keys(paths)) expect(text).toContain(`<code>${target}</code>`);
    expect(text).toContain(`curl ${service.api}/api/report/v1/file/list.json \\\n  -u ID:SECRET`);
    expect(text).toContain(`${service.s2s}/v1/customEvent/?idApp=1`);
  });

  it('Every command of the page works as written, and one with an unknown id gets 404', async (ctx) => {
    if (noCurl !== false) ctx.skip(noCurl);
    const page = await (await fetch(`${service.api}/docs`)).text();
    const commands = [...page.matchAll(/aria-label="Command for: ([^"]*)">([^<]*)<\/pre>/g)].map(
      ([, what = '', text = '']): readonly [string, string] => [unescape(what), unescape(text)],
    );
    expect(commands.length).toBeGreaterThan(40);
    const answers = await Promise.all(
      commands.map(async ([what, text]) => {
        const command = text.replace('TOKEN', access.TOKEN).replace('ID:SECRET', access['ID:SECRET']);
        // An endless stream has started by then.
        const seconds = text.includes('/live') ? 3 : 60;
        // A lookup gets 503 while the service indexes ids.
        const retry = text.includes('/v1/event') ? '--retry 9' : '';
        const asking = `${command} --silent ${retry} --max-time ${seconds} --output /dev/null --write-out '%{http_code}'`;
        const { stdout } = await run('sh', ['-c', asking]).catch((error: { stdout: string }) => error);
        return [what, stdout.slice(-3), wantedStatus(text)] as const;
      }),
    );
    expect(answers.filter(([, status, wanted]) => status !== wanted)).toEqual([]);
  });

  it.for([...(isWhole ? [[1280, 'light'] as const] : []), [390, 'dark'] as const])(
    'At %i pixels in %s colours the page sends no other request, does not overflow, and has no axe-core finding',
    async ([width, colours], ctx) => {
      ctx.skip(browser === undefined, noChromium);
      const { page, asked, complaints } = await open(width, colours);
      expect(asked).toEqual([`${service.api}/docs`]);
      expect(complaints).toEqual([]);
      expect(await overflowOf(page)).toBe(0);
      if (screenshots !== undefined) await page.screenshot({ path: path.join(screenshots, `docs-${width}.png`) });
      await page.evaluate('for (const one of document.querySelectorAll("details")) one.open = true');
      expect(await overflowOf(page)).toBe(0);
      if (!isWhole) await page.evaluate(leaveFew);
      expect(await findAxeFaults(page)).toEqual([]);
    },
  );

  it('An operation is found, reached and unfolded by keyboard alone', async (ctx) => {
    ctx.skip(browser === undefined, noChromium);
    const { page } = await open(1280, 'light');
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('To the operations');
    await page.keyboard.press('Tab');
    await page.keyboard.type('raw create');
    expect(await page.locator('section[data-call]:visible').count()).toBe(1);
    expect(await page.locator('[role=status]').textContent()).toBe('1 found');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect(new URL(page.url()).hash).toBe('#rawExportCreate');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect(await page.locator('#rawExportCreate details').first().getAttribute('open')).toBe('');
  });
});
