import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import {
  createOperationsMachine,
  readOperatorPages,
  type Block,
  type OperationsMachine,
} from '../helpers/operator-pages.ts';
import { isAlive, listTree } from '../helpers/processes.ts';
import { findProgram, noCurl } from '../helpers/shell.ts';
import { waitFor } from '../helpers/wait.ts';

const [nginx, openssl, systemdAnalyze] = ['nginx', 'openssl', 'systemd-analyze'].map(findProgram);
const hasNginx = nginx !== undefined && openssl !== undefined && noCurl === false;
const notHere = `${['nginx', 'openssl'].filter((name) => findProgram(name) === undefined).join(' and ')} missing on this machine`;
if (noCurl !== false) process.stderr.write(`operator-pages.test.ts: the pages for operators are not run: ${noCurl}\n`);

const blocks = readOperatorPages();
const commandsOf = (section: string): Block[] =>
  blocks.filter((block) => block.section === section && block.language === 'sh');
const ran = new Set<Block>();
/** `make nightly` runs every block; `make test` leaves out what begins the service once more. */
const isEveryBlockRun = process.env['TRIBUTARY_TEST_OPERATIONS'] === 'all';
const notNow = 'in the nightly run (TRIBUTARY_TEST_OPERATIONS=all)';

const root = temporaryFolder();
let machine: OperationsMachine;
/** Rows of the lake, counted after the last event. */
let rows = 0;

async function runBlocks(section: string, ...indexes: readonly number[]): Promise<string> {
  let output = '';
  for (const index of indexes) {
    const block = commandsOf(section)[index];
    if (block === undefined) throw new Error(`'${section}' has no block ${index}`);
    ran.add(block);
    output += await machine.run(block);
  }
  return output;
}

/** Sends a request to nginx; returns the body and, after a space, the status. */
const ask = (words: string): Promise<string> =>
  machine.sh(
    `curl --silent --cacert /etc/nginx/tributary.crt --connect-to ::127.0.0.1: --write-out ' %{http_code}' ${words}`,
  );

interface Status {
  readonly running: boolean;
  readonly lake: { readonly rows: number };
  readonly problems: readonly unknown[];
}

/** The last line of a block that ends with `tributary status`. */
function statusOf(output: string): Status {
  return JSON.parse(output.trim().split('\n').at(-1) ?? '') as Status;
}

beforeAll(async () => {
  machine = await createOperationsMachine(root, nginx);
});

afterAll(() => machine.destroy());

// One machine, in the order of an operator's tasks: each test continues the previous one.
describe.skipIf(noCurl)('the pages for operators', { timeout: 180_000 }, () => {
  it('The documented installation ends with a service that accepts events, an app, an analyst and an operator, and commands use its folder', async () => {
    const answers = (await runBlocks('Install', 0)).split('\n').filter((line) => line.startsWith('{'));
    expect(answers.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { idApp: '1', token: expect.any(String) as string },
      { idUser: '1', secret: expect.any(String) as string },
      { idUser: '2', secret: expect.any(String) as string },
      { running: true, problems: [] },
    ]);
    const app = JSON.parse(await machine.sh('tributary app add 9 --platform web')) as { token: string };
    const body = JSON.stringify(
      [1, 2, 3].map((level) => ({ customUserId: `u-${level}`, customEventName: 'level_up' })),
    );
    const send = (): Promise<Response> =>
      fetch(`${machine.address(8080)}/v1/customEventBatch/?idApp=9`, {
        method: 'POST',
        headers: { authorization: app.token },
        body,
      });
    await waitFor('the app is known', async () => (await send()).status === 200);
  });

  it('The documented loads bring the rows of the files, and the history has each', async () => {
    await machine.sh(
      `tributary app add 7 --platform web
printf 'idTransaction,total,currency,tsEvent,idApp\\nt1,9.99,EUR,1750000000,9\\n' | gzip > payments.csv.gz
printf '{"tsEvent":1750000000,"idApp":9,"hitType":"click"}\\n' | gzip > rows.ndjson.gz
printf 'when,net,note\\n1750000000,Winter,x\\n' > other.csv
printf '{"when":"tsEvent","net":"idCampaignTitle","note":null}' > map.json`,
    );
    const loaded = (await runBlocks('Files of rows', 0)).trim().split('\n');
    expect(loaded.map((line) => JSON.parse(line) as unknown)).toEqual(
      loaded.map(() => expect.objectContaining({ rows: 1, stored: 1, failed: 0 }) as unknown),
    );
    const listed = (await machine.sh('tributary load list')).trim().split('\n');
    expect(listed.map((line) => (JSON.parse(line) as { dataset: string }).dataset).toSorted()).toEqual([
      'hits',
      'installs',
      'payments',
    ]);
  });

  it('The documented request loads a file over HTTP', async () => {
    const { operatorToken } = JSON.parse(await machine.sh('tributary key rotate operator')) as {
      operatorToken: string;
    };
    await machine.sh(`printf 'idTransaction,total,currency,tsEvent,idApp\\nt2,1.5,EUR,1750000000,9\\n' > more.csv`);
    const [block] = commandsOf('Load over HTTP');
    ran.add(block as Block);
    const answer = await machine.run({ ...(block as Block), text: `OPERATOR_TOKEN=${operatorToken}\n${block?.text}` });
    expect(JSON.parse(answer)).toMatchObject({ dataset: 'payments', rows: 1, stored: 1 });
  });

  it('The documented commands add a segment and titles', async () => {
    await machine.sh("printf 'u-1\\nu-2\\n' > payers.txt");
    const answers = (await runBlocks('Segments and titles', 0)).trim().split('\n');
    expect(answers.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { idSegment: '5', idAccount: '1', members: 2 },
      { titles: 1 },
    ]);
  });

  it('The documented units pass the check of the service manager', (ctx) => {
    ctx.skip(systemdAnalyze === undefined, 'systemd-analyze is not on this machine');
    const units = ['tributary.service', 'tributary-backup.service', 'tributary-backup.timer'].map((name) =>
      machine.place(`/etc/systemd/system/${name}`),
    );
    const verified = spawnSync(systemdAnalyze ?? '', ['verify', '--man=no', ...units], { encoding: 'utf8' });
    const about = verified.stderr.split('\n').filter((line) => line.includes('tributary'));
    expect(about).toEqual([]);
  });

  it('The documented nginx accepts events and serves reports by https, whole and by range', async (ctx) => {
    ctx.skip(!hasNginx, notHere);
    const output = await runBlocks('TLS with nginx', 0, 1);
    const report = readFileSync(path.join(root, 'work/report.csv'), 'utf8');
    expect(report).toMatch(/^eventName,customUserId\n(?:level_up,u-[123]\n)+$/);

    expect(output.endsWith('eventName')).toBe(true);
    expect(readFileSync(path.join(root, 'work/link.txt'), 'utf8')).toMatch(/^https:\/\/api\.example\.com\/files\//);
    // A reader of the log must not be able to download the files.
    const log = readFileSync(machine.place('/var/log/nginx/tributary-api.log'), 'utf8');
    expect(log).toContain('"GET /files/');
    expect(log).not.toContain('signature');
  });

  it('The nginx of the pages sends its own errors in the format of the API', async (ctx) => {
    ctx.skip(!hasNginx, notHere);
    expect(await ask('--data "$(head -c 100000 /dev/zero | tr "\\0" a)" https://s2s.example.com/v1/login/')).toBe(
      '{"error":"Bad Request"} 400',
    );
    expect(await ask('https://api.example.com/?$(head -c 70000 /dev/zero | tr "\\0" a)')).toMatch(
      /^\{"code":400,"message":"Bad Request",.* 400$/,
    );
    expect(await ask('https://api.example.com/metrics')).toMatch(/^\{"code":404,.* 404$/);
  });

  it('Behind the documented nginx people sign in to the console and read the API reference, and metrics stay inside', async (ctx) => {
    ctx.skip(!hasNginx, notHere);
    expect(await ask('--head https://api.example.com/')).toMatch(/^location: \/console\/\r$/im);
    expect(await ask('https://api.example.com/console/')).toMatch(/^<!doctype html>.* 200$/is);
    expect(await ask('https://api.example.com/docs')).toMatch(/https:\/\/s2s\.example\.com\/v1\/.* 200$/s);
    const user = await machine.sh('tributary user add eve --account 1');
    const signIn = `-i --header 'Origin: https://api.example.com' --data '${user.trim()}' https://api.example.com/console/session`;
    const answer = await ask(signIn);
    expect(answer).toMatch(/^set-cookie: __Host-tributary_.*; Secure\r$/im);
    expect(answer).toMatch(/"csrfToken":.* 200$/);
    expect(await ask(signIn.replace('Origin: https://api', 'Origin: https://elsewhere'))).toMatch(/ 403$/);
    expect(await ask('https://s2s.example.com/metrics')).toMatch(/ 404$/);
  });

  it('The documented nginx does not buffer live streams, and keeps idle ones open', async (ctx) => {
    ctx.skip(!hasNginx, notHere);
    // Longer than the interval of heartbeats: an app without events sends nothing else.
    const seconds = isEveryBlockRun ? 25 : 1;
    const live = (words: string): Promise<string> => ask(`--no-buffer --max-time ${seconds} ${words} || echo " $?"`);
    const { token } = JSON.parse(await machine.sh('tributary app token 7')) as { token: string };
    const { idUser, secret } = JSON.parse(await machine.sh('tributary user add live --account 1')) as Readonly<
      Record<string, string>
    >;
    await waitFor('the token is known', async () =>
      (await ask(`https://s2s.example.com/v1/refusals?idApp=7 -H "Authorization: ${token}"`)).endsWith(' 200'),
    );
    const seen = await Promise.all([
      live(`"https://s2s.example.com/v1/live?idApp=7" -H "Authorization: ${token}"`),
      live(`"https://api.example.com/api/app/v1/live?idApp=7" --user ${idUser}:${secret}`),
    ]);
    // 28: curl's own end of its time, not nginx's.
    const beats = isEveryBlockRun ? '(?::\\n+)+' : '(?::\\n+)*';
    for (const text of seen) expect(text).toMatch(new RegExp(`^retry: \\d+\\n+${beats} 200 28\\n$`));
  });

  it('The documented command exports the rows of a person, and the documented erasure removes those of others', async () => {
    const sent = hasNginx ? 4 : 3;
    await waitFor('every event is in the lake', async () =>
      (await machine.sh('tributary lake stats')).includes(`"stored":${sent},`),
    );
    const exportPerson = async (): Promise<string[]> => {
      expect(JSON.parse(await runBlocks('Right of access', 0))).toMatchObject({ rows: sent - 2, failedEvents: 0 });
      const lines = await machine.sh('cat person-u-1/events.jsonl && rm -r person-u-1');
      return lines.trim().split('\n');
    };
    const found = await exportPerson();
    expect(found.map((line) => JSON.parse(line) as unknown)).toEqual(
      Array.from({ length: sent - 2 }, () => expect.objectContaining({ custom_user_id: 'u-1' }) as unknown),
    );
    const answers = (await runBlocks('Erase', 0)).trim().split('\n');
    expect(answers.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { dryRun: true, rows: 2 },
      { rows: 2, segments: 1, finishesAt: expect.any(String) as string, reportsEndBy: expect.any(String) as string },
    ]);
    expect(await exportPerson()).toEqual(found);
    rows = sent - 2;
  });

  it('The documented age limits are set, and their dry run finds nothing to remove', async () => {
    await machine.sh('tributary app add 8 --platform web');
    const answers = (await runBlocks('Age limits', 0)).trim().split('\n');
    expect(JSON.parse(answers.at(-1) ?? '')).toMatchObject({ dryRun: true, rows: 0 });
  });

  it('The documented queries of the audit log find what was done', async () => {
    await runBlocks('Audit log', 0);
    expect(await machine.sh('cat audit.csv')).toMatch(/erase/);
  });

  it('The documented backup works by hand and by its timer', async () => {
    await machine.sh('systemctl start tributary-backup');
    const output = await runBlocks('Back up', 0);
    expect(JSON.parse(output.split('\n')[0] ?? '')).toMatchObject({
      version: expect.any(Number) as number,
      files: expect.any(Number) as number,
    });
  });

  it('The documented test of a backup works while the service runs', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    const output = await runBlocks('Back up', 1);
    expect(output).toMatch(new RegExp(`"ok":true.*"rows":${rows},`));
  });

  it('The documented checks work: readiness, the number of problems, and status', async () => {
    const output = await runBlocks('Check the service', 0);
    expect(output).toContain('{"ready":true,"problems":[]}');
    expect(output).toContain('tributary_service_problems 0');
    expect(statusOf(output)).toMatchObject({ running: true, problems: [] });
  });

  it('The documented restore brings every event back', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    const status = statusOf(await runBlocks('Restore', 0));
    expect(status).toMatchObject({ running: true, problems: [], lake: { rows } });
  });

  it('The documented upgrade loses nothing', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    const status = statusOf(await runBlocks('Upgrade', 0));
    const [, documented] = /ln -sfn (\S+) /.exec(readFileSync(path.join(packageRoot, 'docs/keep.md'), 'utf8')) ?? [];
    expect(execFileSync('readlink', [machine.place('/opt/tributary')], { encoding: 'utf8' }).trim()).toBe(documented);
    expect(status).toMatchObject({ running: true, problems: [], lake: { rows } });
  });

  it('The documented way back from an upgrade loses nothing', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    await runBlocks('Upgrade', 1);
    expect(statusOf(await machine.sh('tributary status'))).toMatchObject({
      running: true,
      problems: [],
      lake: { rows },
    });
  });

  it('The documented move to another path loses nothing', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    expect(statusOf(await runBlocks('Move', 0))).toMatchObject({ running: true, problems: [], lake: { rows } });
  });

  it('The documented last backup of a retired machine is complete, and the documented stop leaves no process', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    const tree = listTree(machine.pid() ?? 0);
    expect(tree.length).toBeGreaterThan(4);
    await runBlocks('Move', 1);
    await waitFor('every process of the service has exited', () => !tree.some(isAlive));
  });

  it('The documented nginx asks clients to retry while the service is stopped', async (ctx) => {
    ctx.skip(!isEveryBlockRun || !hasNginx, hasNginx ? notNow : notHere);
    expect(await ask('--request POST https://s2s.example.com/v1/login/')).toBe('{"error":"Internal Server Error"} 500');
    expect(await ask('--head https://s2s.example.com/v1/login/')).toMatch(/^Retry-After: 5\r$/m);
    expect(await ask('https://api.example.com/api/report/v1/file/get.json')).toBe(
      '{"code":500,"message":"Internal Server Error","data":null} 500',
    );
  });

  it('The documented move to another machine loses nothing', async (ctx) => {
    ctx.skip(!isEveryBlockRun, notNow);
    // The other machine has the documented folder, still without data.
    await machine.sh("rm -r /var/lib/tributary/lake-of-games && sed -i 's|lake-of-games|data|' /etc/tributary.env");
    expect(statusOf(await runBlocks('Move', 2))).toMatchObject({ running: true, problems: [], lake: { rows } });
  });

  it('Every command block of the pages was run', () => {
    const left = [
      // debian-package.test.ts runs it.
      ...commandsOf('Debian package'),
      // It follows the log until it is ended, and that of the journal. unit/cli has tests of the command.
      ...commandsOf('Logs'),
      ...(hasNginx ? [] : commandsOf('TLS with nginx')),
      ...(isEveryBlockRun
        ? []
        : [
            ...commandsOf('Back up').slice(1, 2),
            ...commandsOf('Restore').slice(0, 1),
            ...commandsOf('Upgrade'),
            ...commandsOf('Move').slice(0, 3),
          ]),
    ];
    const all = blocks.filter(({ language }) => language === 'sh');
    expect(all.filter((block) => !ran.has(block) && !left.includes(block))).toEqual([]);
  });
});
