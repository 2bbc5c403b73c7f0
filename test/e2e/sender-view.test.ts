import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { addApp } from '../../src/access/apps.ts';
import { addUser } from '../../src/access/users.ts';
import { dataPaths } from '../../src/config.ts';
import { createRandom } from '../../src/demo/random.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import type { RefusalRecord } from '../../src/refusals/refusal-files.ts';
import { readEvents, type ServerSentEvent } from '../helpers/event-stream.ts';
import { findFilesWith } from '../helpers/find-bytes.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { inWholeRun, oneTestIn } from '../helpers/in-turn.ts';
import { startTestService } from '../helpers/service.ts';
import { addTestApp, addTestUser, startWithUser, type ServiceWithUser } from '../helpers/service-access.ts';
import { noCurl } from '../helpers/shell.ts';
import { waitFor } from '../helpers/wait.ts';

// Whether one account learns of another is tested in each run.
beforeEach(oneTestIn(2, /another account/));

const run = promisify(execFile);
const program = path.join(packageRoot, 'dist/main.js');

/** Starts to listen; the list of events grows as they arrive. */
async function listen(url: string, authorization: string) {
  const asked = request(url, { headers: { authorization }, agent: false });
  onTestFinished(() => void asked.destroy());
  asked.on('error', () => undefined);
  asked.end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  let ended = false;
  answer.once('close', () => (ended = true));
  return { status: answer.statusCode, headers: answer.headers, events: readEvents(answer), hasEnded: () => ended };
}

const basic = ({ user }: ServiceWithUser): string =>
  `Basic ${Buffer.from(`${user.idUser}:${user.secret}`).toString('base64')}`;

async function post({ service, token }: ServiceWithUser, idApp: number, method: string, body: string, by = token) {
  const answer = await fetch(`${service.s2s}/v1/${method}/?idApp=${idApp}`, {
    method: 'POST',
    headers: { authorization: by },
    body,
  });
  return answer.status;
}

const usersIn = (events: readonly ServerSentEvent[]): unknown[] =>
  events
    .filter(({ name }) => name === 'event')
    .map(({ data }) => (JSON.parse(data) as { custom_user_id: unknown }).custom_user_id);

/** Posts valid events until a listener has received one. */
async function postUntilSeen(place: ServiceWithUser, events: readonly ServerSentEvent[], name: string): Promise<void> {
  let n = 0;
  await waitFor(`${name} is seen`, async () => {
    n += 1;
    await post(place, 1, 'login', JSON.stringify({ customUserId: `${name} ${n}` })).catch(() => undefined);
    return usersIn(events).some((user) => String(user).startsWith(name));
  });
}

/** The commands of a section of docs/api.md, for a service that listens elsewhere. */
function exampleOf(section: string, { service }: ServiceWithUser): string {
  const page = readFileSync(path.join(packageRoot, 'docs/api.md'), 'utf8');
  const text = page.slice(page.indexOf(`### ${section}\n`));
  const [, commands = ''] = /^```sh\n(.*?)^```$/ms.exec(text) ?? [];
  return commands.replaceAll('http://127.0.0.1:8080', service.s2s).replaceAll('http://127.0.0.1:8081', service.api);
}

describe('the view of a client and an account on their imports', () => {
  it('Rejected requests are recorded by app, across workers, a kill and a stop, until they are erased', async () => {
    const dataDir = path.join(testFolder(), 'data');
    const place = await startWithUser({ dataDir, settings: { TRIBUTARY_INGEST_WORKERS: '2' } });
    const { service, token } = place;
    const foreign = await addApp(dataPaths(dataDir), { idApp: 2, platform: 'web', idAccount: 2 }, Date.now());
    const read = async (idApp = 1, by = token) => {
      const answer = await fetch(`${service.s2s}/v1/refusals?idApp=${idApp}`, { headers: { authorization: by } });
      const { refusals = [] } = (await answer.json()) as { readonly refusals?: readonly RefusalRecord[] };
      return { status: answer.status, refusals };
    };
    const count = async (): Promise<number> => (await read()).refusals.reduce((sum, one) => sum + one.requests, 0);

    for (let n = 0; n < 8; n += 1)
      expect(await post(place, 1, 'login', '{"customUserId":"a secret user","age":"x"}')).toBe(400);
    expect(await post(place, 1, 'login', '{}', 'no token')).toBe(403);
    await waitFor('all are recorded', async () => (await count()) === 8);
    const { refusals } = await read();
    const metrics = await (await fetch(`${service.ops}/metrics`)).text();
    expect(metrics).toContain('tributary_ingest_app_requests_refused_total{id_app="1"} 8\n');
    expect(refusals.at(0)).toMatchObject({ method: 'login', status: 400, detail: '/age must be integer' });
    expect(await findFilesWith(dataPaths(dataDir).refusals, 'a secret user')).toEqual([]);

    await waitFor('app 2 is known', async () => (await read(2, foreign.token)).status === 200);
    expect((await read(2, foreign.token)).refusals).toEqual([]);
    const misspelt = await fetch(`${service.s2s}/v1/refusals?idApp=1&Limit=1`, {
      headers: { authorization: token },
    });
    expect(misspelt.headers.get('x-error-detail')).toBe('unknown parameter Limit; did you mean limit?');
    expect([(await read(1, foreign.token)).status, (await read(2)).status]).toEqual([403, 403]);
    const ask = async (idApp: number) =>
      fetch(`${service.api}/api/app/v1/refusals.json?idApp=${idApp}`, { headers: { authorization: basic(place) } });
    expect([(await ask(1)).status, (await ask(2)).status, (await ask(3)).status]).toEqual([200, 404, 404]);
    const { data } = (await (await ask(1)).json()) as { readonly data: { readonly refusals: readonly unknown[] } };
    expect(data.refusals).toEqual(refusals);

    await service.kill9('ingest', createRandom(7));
    await waitFor('they are readable again', async () => (await count().catch(() => 0)) === 8);
    const left = path.join(dataDir, 'spool/query/left');
    mkdirSync(left, { recursive: true });
    writeFileSync(path.join(left, 'rows'), 'of a query that was killed');
    await service.command('erase', '--user', 'another user', '--yes');
    expect(existsSync(left)).toBe(false);
    expect((await read()).refusals).toEqual([]);
    expect(await post(place, 1, 'login', '{}')).toBe(400);
    await waitFor('later ones are recorded', async () => (await count()) === 1);
    await service.stop();
    expect(await service.command('refusals', '1')).toMatchObject({ detail: '/customUserId is required', requests: 1 });
  });

  it('Both ports show arrivals at any worker, through kills of workers and broker, until the service stops', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const place = await startWithUser({
      dataDir: path.join(testFolder(), 'data'),
      settings: { TRIBUTARY_INGEST_WORKERS: '2' },
    });
    const { service, token } = place;
    const user = await listen(`${service.api}/api/app/v1/live?idApp=1`, basic(place));
    expect([user.status, user.headers['content-type'], user.headers['x-accel-buffering']]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
      'no',
    ]);
    const sender = await listen(`${service.s2s}/v1/live?idApp=1`, token);
    await postUntilSeen(place, user.events, 'first');
    await waitFor('the client has it', () => usersIn(sender.events).length > 0);
    await post(place, 1, 'login', '{"age":"x"}');
    const tail = spawn(process.execPath, [program, 'tail', '1', '--data', service.dataDir]);
    const ended = once(tail, 'exit');
    onTestFinished(() => void tail.kill('SIGKILL'));
    let printed = '';
    tail.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text));
    await waitFor('the command shows events', async () => {
      await post(place, 1, 'login', '{"customUserId":"for the command"}');
      return printed.includes('"custom_user_id":"for the command"');
    });
    // The rejected request may come first: it reaches listeners a moment after its response.
    const lines = printed.split('\n').filter((line) => line.endsWith('}'));
    const shown: unknown[] = lines.map((line) => JSON.parse(line));
    expect(shown).toContainEqual({ event: expect.objectContaining({ id_app: 1 }) });
    tail.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
    const cut = spawn('bash', [
      '-c',
      'set -o pipefail; "$0" "$1" tail 1 --data "$2" | head -1',
      process.execPath,
      program,
      service.dataDir,
    ]);
    onTestFinished(() => void cut.kill('SIGKILL'));
    const over = once(cut, 'exit');
    await waitFor('the command ends with its reader', async () => {
      await post(place, 1, 'login', '{"customUserId":"for the pipe"}');
      return cut.exitCode !== null;
    });
    expect(await over).toEqual([0, null]);
    for (const { events } of [user, sender])
      await waitFor('the rejected request is shown', () => events.some(({ name }) => name === 'refusal'));

    await service.kill9('ingest', createRandom(3));
    await postUntilSeen(place, user.events, 'after a worker');
    await service.kill9('nats-server', createRandom(3));
    await postUntilSeen(place, user.events, 'after the broker');

    const again = await listen(`${service.s2s}/v1/live?idApp=1`, token);
    await service.stop();
    await waitFor('all have ended', () => user.hasEnded() && sender.hasEnded() && again.hasEnded());
    expect(again.status).toBe(200);
  });
});

describe('the view of a client and an account without kills', () => {
  const folder = temporaryFolder();
  let place: ServiceWithUser;
  beforeAll(async () => {
    const dataDir = path.join(folder, 'data');
    const [token, user] = [await addTestApp(dataDir), await addTestUser(dataDir)];
    place = { service: await startTestService({ dataDir }), token, user };
  });
  afterAll(() => place.service.destroy());

  it('The examples of docs/api.md show validation errors, rejected requests and arrivals', async (ctx) => {
    if (noCurl !== false) ctx.skip(noCurl);
    const env = { ...process.env, TOKEN: place.token };
    const checking = exampleOf('Validation and error details', place);
    const checked = await run('bash', ['-c', checking], { env });
    expect(`# ${checked.stdout}`).toBe(checking.split('\n')[1]);
    expect(await post(place, 1, 'login', '{"customUserId":"u-1","age":200}')).toBe(400);
    const refusals = exampleOf('Rejected requests', place);
    await waitFor('the rejected request is shown', async () => {
      const { stdout } = await run('bash', ['-c', refusals], { env });
      return stdout.startsWith('{"refusals":[{"time":"') && stdout.includes('"detail":"/age must be <= 128"');
    });
    const live = spawn('bash', ['-c', `exec ${exampleOf('Live', place)}`], {
      env,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onTestFinished(() => void live.kill('SIGKILL'));
    let shown = '';
    live.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text));
    await waitFor('an event is shown', async () => {
      await post(place, 1, 'login', '{"customUserId":"u-1"}');
      return /^event: event\nid: \d+\ndata: \{"event_id":"[^"]+","kind":"login","id_app":1,/m.test(shown);
    });
    expect(shown).toContain('retry: 2000\n');
  });

  it('The command tail resumes after a restart of the service, and reports the interruption', async () => {
    const { service } = place;
    const tail = spawn(process.execPath, [program, 'tail', '1', '--data', service.dataDir]);
    const ended = once(tail, 'exit');
    onTestFinished(() => void tail.kill('SIGKILL'));
    let [printed, noted] = ['', ''];
    tail.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text));
    tail.stderr.setEncoding('utf8').on('data', (text: string) => (noted += text));
    const see = (name: string): Promise<void> =>
      waitFor(`${name} is shown`, async () => {
        await post(place, 1, 'login', JSON.stringify({ customUserId: name })).catch(() => undefined);
        return printed.includes(`"custom_user_id":"${name}"`);
      });
    await see('before');
    await service.stop();
    await waitFor('it says that the service is away', () => noted.includes('service unreachable'));
    await service.startAgain();
    await see('after');
    await waitFor('it says that the service is back', () => noted.includes('service reachable again'));
    expect(noted.trimEnd().split('\n')).toHaveLength(2);
    tail.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
  });

  it('No client listens to an app of another account, or with revoked credentials', async () => {
    const { service, token } = place;
    const paths = dataPaths(service.dataDir);
    const other = await addApp(paths, { idApp: 2, platform: 'web', idAccount: 2 }, Date.now());
    const noExport = await addUser(paths, { name: 'n', idAccount: 1, canExport: false });
    await waitFor('both are effective', async () => {
      const url = `${service.s2s}/v1/test-app-access/?idApp=2`;
      return (await fetch(url, { method: 'POST', headers: { authorization: other.token } })).ok;
    });
    const statusOf = async (url: string, by: string) => (await listen(url, by)).status;
    expect(await statusOf(`${service.s2s}/v1/live?idApp=2`, token)).toBe(403);
    expect(await statusOf(`${service.s2s}/v1/live`, token)).toBe(403);
    expect(await statusOf(`${service.api}/api/app/v1/live?idApp=2`, basic(place))).toBe(404);
    expect(await statusOf(`${service.api}/api/app/v1/live`, basic(place))).toBe(400);
    expect(await statusOf(`${service.api}/api/app/v1/live?idApp=1`, 'Basic MTp4')).toBe(403);
    expect(await statusOf(`${service.api}/api/app/v1/live?idApp=1`, basic({ ...place, user: noExport }))).toBe(400);

    const own = await listen(`${service.s2s}/v1/live?idApp=1`, token);
    const foreign = await listen(`${service.s2s}/v1/live?idApp=2`, other.token);
    const user = await listen(`${service.api}/api/app/v1/live?idApp=1`, basic(place));
    await postUntilSeen(place, own.events, 'mine');
    expect(await post(place, 2, 'login', '{"customUserId":"theirs"}', other.token)).toBe(200);
    await waitFor('the other has their own', () => usersIn(foreign.events).length > 0);
    expect(usersIn(foreign.events)).toEqual(['theirs']);
    expect(usersIn(own.events)).not.toContain('theirs');

    await service.command('app', 'token', '1', '--revoke', token.slice(0, 8));
    await waitFor('the listener with the revoked token is ended', () => own.hasEnded());
    expect([foreign.hasEnded(), user.hasEnded()]).toEqual([false, false]);
    await service.command('user', 'secret', place.user.idUser);
    await waitFor('the listener with the old secret is ended', () => user.hasEnded());
    expect(await statusOf(`${service.s2s}/v1/live?idApp=1`, token)).toBe(403);
  });
});
