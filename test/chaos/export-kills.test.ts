import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRandom, type Random } from '../../src/cli/demo/random.ts';
import { basic, send, targetOf, type Answer, type AnswerData, type Call, type Credentials } from '../helpers/export-area.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { testFolder } from '../helpers/folder.ts';
import { countLake, createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { isAlive, type ProcessRole } from '../helpers/processes.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const kills = chaosFigure('TRIBUTARY_TEST_EXPORT_KILLS', { short: 20, long: 500 });
const seed = chaosSeed();
const events = 50_000;
/** Attempts after which a request ends in its documented error. */
const mostAttempts = 8;
const endMs = 120_000;

const create = '/api/raw/v1/export/create.json';
const selectors = 'eventId,eventName,customUserId,lvid,params.name,params.value,dtEvent,tsEvent,tsInsert,idApp';
const victims = ['job', 'export', 'nats-server'] as const satisfies readonly ProcessRole[];
type Victim = (typeof victims)[number];

const say = (text: string): void => void process.stderr.write(`export kills: ${text}\n`);

/** Every victim in random order, again and again, so that a short run kills each of them too. */
function* killOrder(random: Random): Generator<Victim, never, void> {
  for (;;) {
    const round = [...victims];
    while (round.length > 0) yield round.splice(random.integer(0, round.length - 1), 1)[0] as Victim;
  }
}

/** What a result is made of, whatever its request is called. */
function content({ files }: AnswerData): unknown {
  return files?.map(({ rows, bytes, sha256 }) => ({ rows, bytes, sha256 }));
}

/** A client of the service's export area, which may be away at any moment: then it has no answer. */
function createClient(service: TestService, user: Credentials) {
  const ask = async (target: string, call: Call = {}): Promise<Answer | undefined> => {
    const headers = target.startsWith('/files/') ? {} : { authorization: basic(user) };
    return send(Number(new URL(service.api).port), target, { ...call, headers }).catch(() => undefined);
  };
  const answered = async (what: string, target: string): Promise<Answer> => {
    let answer: Answer | undefined;
    await waitFor(what, async () => (answer = await ask(target)) !== undefined, endMs);
    if (answer === undefined) throw new Error('unreachable');
    return answer;
  };
  return {
    /** Creates a request when the service is there to answer; undefined without an answer: it may exist or not. */
    async create(query: string): Promise<string | undefined> {
      const answer = await ask(create, { method: 'POST', body: query });
      if (answer !== undefined && answer.status !== 200) throw new Error(`create answered ${answer.status}: ${answer.body.toString()}`);
      return answer?.json?.data?.idRawExport;
    },
    /** Every request of the user, newest first. */
    async list(): Promise<readonly Readonly<Record<string, unknown>>[]> {
      return (await answered('the requests are listed', '/api/report/v1/file/list.json')).json?.data?.reports ?? [];
    },
    async waitForEnd(id: string): Promise<AnswerData> {
      let data: AnswerData = {};
      await waitFor(
        `export ${id} ends`,
        async () => {
          const answer = await answered(`export ${id} is answered`, `/api/report/v1/file/get.json?idReportFile=${id}`);
          if (answer.status !== 200) throw new Error(`export ${id} answered ${answer.status}: ${answer.body.toString()}`);
          data = answer.json?.data ?? {};
          return data.status !== 'In progress';
        },
        endMs,
      );
      return data;
    },
    /** The SHA-256 of each file as it is downloaded. */
    async download(data: AnswerData): Promise<string[]> {
      const sums: string[] = [];
      for (const file of data.files ?? []) {
        const answer = await answered('a file is downloaded', targetOf(file.link));
        sums.push(createHash('sha256').update(answer.body).digest('hex'));
      }
      return sums;
    },
  };
}

type ExportClient = ReturnType<typeof createClient>;

/** Starts a service with events in its lake that nothing will change any more. */
async function startFilledService(random: Random): Promise<{ service: TestService; user: Credentials }> {
  const dataDir = path.join(testFolder(), 'data');
  const app = await runCommand(['app', 'add', '1', '--platform', 'web', '--data', dataDir]);
  const user = (await runCommand(['user', 'add', 'analyst', '--account', '1', '--data', dataDir])) as unknown as Credentials;
  const service = await startTestService({
    dataDir,
    settings: {
      TRIBUTARY_QUOTA_USER: 'off',
      TRIBUTARY_QUOTA_IP: 'off',
      TRIBUTARY_MAX_EXPORTS: '1000',
      TRIBUTARY_SINGLE_FILE_MAX_BYTES: '0',
      TRIBUTARY_PART_MAX_BYTES: String(4 * 1024 * 1024),
      TRIBUTARY_FLUSH_AGE_MS: '2000',
      TRIBUTARY_LOG_LEVEL: 'warn',
    },
  });
  onTestFinished(() => service.destroy());
  const ledger = createLedger('event');
  await sendLoad(ledger, events, { s2s: () => service.s2s, idApp: 1, token: String(app['token']), random, clients: 8, batchShare: 1 });
  expect(ledger.totals().acknowledged).toBe(events);
  await waitFor('the lake has every event', async () => (await countLake(dataDir)).length === events, endMs);
  return { service, user };
}

/** Kills one process of a role, at a moment somewhere in the export that runs. Says whether one was there to kill. */
async function killOne(service: TestService, victim: Victim, random: Random, untilMs: number, seen: Set<number>): Promise<boolean> {
  const moment = performance.now() + random.integer(0, untilMs);
  const jobs = (): number[] => service.processes().flatMap(({ role, pid }) => (role === 'job' ? [pid] : []));
  await waitFor('an export runs', () => jobs().length > 0, endMs).catch(() => undefined);
  await waitFor('the moment has come', () => performance.now() >= moment || jobs().length === 0);
  for (const pid of jobs()) seen.add(pid);
  return (await service.kill9(victim, random)) !== undefined;
}

/** Kills again and again while requests are made; returns the ids that were answered with a 200, and the ends seen on the way. */
async function killAll(service: TestService, client: ExportClient, query: string, random: Random, attemptMs: number) {
  const ids: string[] = [];
  const ends = new Map<string, unknown>();
  const jobs = new Set<number>();
  const killed = new Map<Victim, number>();
  const order = killOrder(random);
  for (let done = 0; done < kills; ) {
    const reports = await client.list();
    for (const { idReportFile, status, timestampExpires } of reports) if (status !== 'In progress') ends.set(String(idReportFile), timestampExpires);
    // Now and then two at once, and now and then one that was killed before goes on alone.
    for (let count = reports.some(({ status }) => status === 'In progress') ? random.integer(0, 1) : random.integer(1, 2); count > 0; count -= 1) {
      const id = await client.create(query);
      if (id !== undefined) ids.push(id);
    }
    const victim = order.next().value;
    if (!(await killOne(service, victim, random, attemptMs, jobs))) continue;
    done += 1;
    killed.set(victim, (killed.get(victim) ?? 0) + 1);
  }
  say(`killed ${[...killed].map(([victim, times]) => `${victim} ${times}`).join(', ')} over ${ids.length} requests`);
  return { ids, ends, jobs };
}

/** The end of a request: its files as they are told and as they are downloaded, or how it failed. */
async function readOutcome(service: TestService, client: ExportClient, id: string): Promise<{ files: unknown; sums: string[] } | { error: unknown }> {
  const data = await client.waitForEnd(id);
  if (data.status === 'Success!') return { files: content(data), sums: await client.download(data) };
  const { state, attempts } = JSON.parse(readFileSync(path.join(service.dataDir, 'reports', id, 'job.json'), 'utf8')) as { state: string; attempts: number };
  return { error: { status: data.status, state, attempts } };
}

/** Lists what should not be there: temporary files, folders of attempts, anything beside a request and its files. */
function findLeftovers(dataDir: string): string[] {
  const names = readdirSync(dataDir, { recursive: true, encoding: 'utf8' }).filter((name) => !name.startsWith('nats/'));
  const reportFiles = /^reports(\/(\d+(\/(job\.json|parts(\/[\w.]+\.csv\.gz)?))?|lock|highest-id))?$/;
  return names.filter((name) => name.endsWith('.tmp') || (name.startsWith('reports') && !reportFiles.test(name)));
}

describe('kill -9 during exports', () => {
  it(
    `of workers, the export role and nats-server, ${kills} times, ends each request in one result with the right bytes`,
    async () => {
      say(`seed ${seed}; again: TRIBUTARY_TEST_EXPORT_KILLS=${kills} TRIBUTARY_TEST_SEED=${seed}`);
      const random = createRandom(seed);
      const { service, user } = await startFilledService(random);
      const client = createClient(service, user);
      const today = new Date().toISOString().slice(0, 10);
      const query = `event=customEvents&selectors=${selectors}&dateFrom=1970-01-01&dateTo=${today}&timezone=UTC`;

      const begun = performance.now();
      const first = await client.create(query);
      const undisturbed = await client.waitForEnd(first ?? '');
      const attemptMs = Math.ceil(performance.now() - begun);
      expect(undisturbed.files?.reduce((sum, file) => sum + file.rows, 0)).toBe(events);
      const sums = undisturbed.files?.map((file) => file.sha256);
      expect(await client.download(undisturbed)).toEqual(sums);
      say(`undisturbed: ${events} rows, ${undisturbed.files?.length ?? 0} parts, ${attemptMs} ms`);

      const { ids, ends, jobs } = await killAll(service, client, query, random, attemptMs);
      for (const id of ids) await client.waitForEnd(id);
      // A create without an answer may have made a request, which has to end like the others.
      const all = (await client.list()).map((report) => String(report['idReportFile']));
      expect(all).toEqual(expect.arrayContaining(ids));
      const outcomes = [];
      for (const id of all) outcomes.push(await readOutcome(service, client, id));
      const results = outcomes.filter((outcome) => 'files' in outcome);
      const refusals = outcomes.filter((outcome) => 'error' in outcome);
      say(`${results.length} requests have their result, ${refusals.length} ended in an error after ${mostAttempts} attempts`);
      for (const result of results) expect(result).toEqual({ files: content(undisturbed), sums });
      for (const refusal of refusals) expect(refusal).toEqual({ error: { status: 'Error occurred', state: 'failed', attempts: mostAttempts } });
      expect(results.length).toBeGreaterThan(refusals.length);
      // The end that a client saw between two kills is the one that stayed.
      for (const report of await client.list()) expect(ends.get(String(report['idReportFile'])) ?? report['timestampExpires']).toBe(report['timestampExpires']);

      await service.stop();
      expect([...jobs].filter(isAlive)).toEqual([]);
      expect(findLeftovers(service.dataDir)).toEqual([]);
    },
    120_000 + kills * 20_000,
  );
});
