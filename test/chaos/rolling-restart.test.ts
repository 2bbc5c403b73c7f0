import { Agent } from 'node:http';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { basic, send, targetOf, type Answer, type Call, type Credentials } from '../helpers/export-area.ts';
import { exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { findFreePorts } from '../helpers/free-ports.ts';
import { isWhole } from '../helpers/in-turn.ts';
import { createLedger, type Ledger } from '../helpers/ledger.ts';
import { startLoad, type LoadOptions } from '../helpers/load.ts';
import { startProxies, type Proxy } from '../helpers/proxies.ts';
import { startGateway, startMemoryServer } from '../helpers/s3-servers.ts';
import { startTestHosts } from '../helpers/several-hosts.ts';

/*
 * Hosts of each role are restarted one after the other, behind nginx and HAProxy with the documented files, under load
 * of new, busy and idle connections. No client notices: each request succeeds, and no connection is closed.
 */
const restarts = chaosFigure('TRIBUTARY_TEST_RESTARTS', { short: isWhole ? 20 : 2, long: 20 });
const isAsked = isWhole || (process.env['TRIBUTARY_TEST_RESTARTS'] ?? '') !== '';
const seed = chaosSeed();
/** Above the proxies' idle time of 2 s, and two checks of one second. */
const drainMs = 4000;
/** Time in which the proxies find a host again: nginx after 2 s, HAProxy by its next check. */
const foundMs = 3000;
/** Pauses of kept connections, ms. A proxy closes one after 65 s. */
const idlePausesMs = [700, 1900, 2100, 3500, 6000, 11_000];
const credentials = { accessKeyId: 'tester', secretAccessKey: 'tester-secret' };
const roles = ['ingest', 'compact', 'export'] as const;
const say = (text: string): void => void process.stderr.write(`rolling-restart: ${text}\n`);

/** Requests of all clients, and what they noticed. */
interface Tally {
  requests: number;
  connections: number;
  readonly problems: string[];
}

/** Starts the import clients of a proxy. Returns their ledgers and what stops them. */
function startImports({ name, s2s }: Proxy, load: Pick<LoadOptions, 'idApp' | 'token' | 'random'>, tally: Tally) {
  const ledgers: Ledger[] = [];
  const startOne = (kind: string, more: Pick<LoadOptions, 'clients' | 'pauseMs' | 'connectsAnew'>) => {
    const ledger = createLedger(`${name}-${kind}`);
    ledgers.push(ledger);
    const isKept = more.connectsAnew !== true;
    let opened = 0;
    return startLoad(ledger, {
      ...load,
      ...more,
      s2s: () => s2s,
      onAnswer: () => void (tally.requests += 1),
      onProblem: (status, text) => void tally.problems.push(`${name} ${kind}: ${status} ${text}`),
      onConnect() {
        opened += 1;
        tally.connections += 1;
        if (isKept && opened > more.clients) tally.problems.push(`${name} ${kind}: a kept connection was closed`);
      },
    });
  };
  const loads = [
    startOne('busy', { clients: 6, pauseMs: 60 }),
    startOne('new', { clients: 2, pauseMs: 100, connectsAnew: true }),
    ...idlePausesMs.map((pauseMs) => startOne(`idle${pauseMs}`, { clients: 1, pauseMs })),
  ];
  return { ledgers, stop: () => Promise.all(loads.map((running) => running.stop())) };
}

/** Starts the export clients of a proxy: exports from creation to download, and lists on new and kept connections. */
function startExports({ name, api }: Proxy, user: Credentials, tally: Tally) {
  const stopping = new AbortController();
  const port = Number(new URL(api).port);
  const counted = { exports: 0 };
  const ask = async (target: string, call: Call = {}): Promise<Answer | undefined> => {
    const headers = target.startsWith('/files/') ? {} : { authorization: basic(user) };
    tally.requests += 1;
    try {
      const answer = await send(port, target, { ...call, headers });
      if (answer.status === 200) return answer;
      tally.problems.push(`${name} ${target}: ${answer.status} ${answer.body.toString().slice(0, 200)}`);
    } catch (error) {
      tally.problems.push(`${name} ${target}: ${String(error)}`);
    }
    return undefined;
  };
  const repeat = async (pauseMs: number, work: () => Promise<unknown>): Promise<void> => {
    while (!stopping.signal.aborted) {
      await work();
      await pass(pauseMs);
    }
  };
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const body = exportQuery('eventName', { idApp: '2' });
  const exportOnce = async (): Promise<void> => {
    const created = await ask('/api/raw/v1/export/create.json', { method: 'POST', body });
    const id = created?.json?.data?.idRawExport;
    if (id === undefined) return;
    for (;;) {
      const data = (await ask(`/api/report/v1/file/get.json?idReportFile=${id}`))?.json?.data;
      for (const { link } of data?.files ?? []) await ask(targetOf(link));
      if (data?.status === 'Success!') counted.exports += 1;
      else if (data?.status === 'In progress') {
        await pass(200);
        continue;
      } else tally.problems.push(`${name}: export ${id} ended as ${data?.status}`);
      return;
    }
  };
  const list = '/api/report/v1/file/list.json?limit=10';
  const clients = [
    repeat(1000, exportOnce),
    repeat(200, () => ask(list)),
    repeat(150, () => ask(list, { agent })),
    repeat(2500, () => ask(list, { agent })),
  ];
  return {
    counted,
    async stop() {
      stopping.abort();
      await Promise.all(clients);
    },
  };
}

test.runIf(isAsked)(
  `Clients of nginx and HAProxy notice none of ${restarts} restarts of each role`,
  { timeout: restarts * 3 * 60_000 + 900_000 },
  async ({ skip }) => {
    say(`seed ${seed}`);
    const server = (await startGateway(testFolder())) ?? (await startMemoryServer());
    onTestFinished(() => server.stop());
    const ports = await findFreePorts(4);
    const [s2sPorts, apiPorts] = [ports.slice(0, 2), ports.slice(2)];
    const proxies = await startProxies({ s2s: s2sPorts, api: apiPorts });
    if (proxies.length === 0) skip('neither nginx nor HAProxy is installed');
    const hosts = await startTestHosts({
      endpoint: server.settings.endpoint,
      credentials,
      portsOf: (role, number) => ({
        s2s: role === 'ingest' ? (s2sPorts[number] ?? 0) : 0,
        api: role === 'export' ? (apiPorts[number] ?? 0) : 0,
      }),
      settings: {
        TRIBUTARY_DRAIN_MS: String(drainMs),
        TRIBUTARY_LEASE_MS: '5000',
        TRIBUTARY_STREAM_MAX_BYTES: String(1024 ** 3),
        TRIBUTARY_QUOTA_USER: 'off',
        TRIBUTARY_QUOTA_IP: 'off',
        TRIBUTARY_MAX_EXPORTS: '1000',
        TRIBUTARY_INGEST_WORKERS: '2',
      },
    });
    const token = String((await hosts.command('app', 'add', '1', '--platform', 'web'))['token']);
    await hosts.command('app', 'add', '2', '--platform', 'web');
    const { idUser, secret } = await hosts.command('user', 'add', 'analyst', '--account', '1');
    const user = { idUser: String(idUser), secret: String(secret) };
    const [compactor] = hosts.of('compact');
    if (compactor === undefined) throw new Error('no compactor');
    // The proxies find the hosts, and access data reaches them.
    await pass(foundMs);

    const tally: Tally = { requests: 0, connections: 0, problems: [] };
    const random = createRandom(seed);
    const imports = proxies.map((proxy) => startImports(proxy, { idApp: 1, token, random }, tally));
    const exporters = proxies.map((proxy) => startExports(proxy, user, tally));
    const noticed: Record<string, number> = {};
    await pass(foundMs);
    for (const role of roles) {
      const before = tally.problems.length;
      for (let restart = 0; restart < restarts; restart += 1) {
        const service = hosts.of(role)[restart % 2]?.service;
        const [askedAt, known] = [performance.now(), tally.problems.length];
        await service?.stop();
        const stopMs = Math.round(performance.now() - askedAt);
        await service?.startAgain();
        await pass(foundMs);
        const found = tally.problems.slice(known);
        say(
          `${role} ${restart + 1} of ${restarts}: stopped in ${stopMs} ms, ${tally.requests} requests${found.map((text) => `\n  ${text}`).join('')}`,
        );
      }
      noticed[`noticed${role}`] = tally.problems.length - before;
    }
    await Promise.all([...imports, ...exporters].map((running) => running.stop()));
    await waitUntilWorkedOff(compactor.service);
    for (const { service } of hosts.hosts) await service.stop();
    // The lake as the compactor's host sees it.
    await compactor.service.status();
    const ledgers = imports.flatMap((running) => running.ledgers);
    const { results } = await balanceAccounts(compactor.service.dataDir, ledgers);
    const sum = (of: (result: (typeof results)[number]) => number): number =>
      results.reduce((total, result) => total + of(result), 0);
    recordFinding({
      promise: 'P17',
      what: 'rolling restarts behind proxies',
      wanted: 'each request succeeds, no kept connection of a client is closed, no event is lost or doubled',
      figures: {
        proxies: proxies.map(({ name }) => name).join(' and '),
        restartsOfEachRole: restarts,
        requests: tally.requests,
        importConnections: tally.connections,
        exports: exporters.reduce((total, { counted }) => total + counted.exports, 0),
        ...noticed,
        acknowledgedEvents: sum(({ acknowledged }) => acknowledged),
        lostEvents: sum(({ lost }) => lost.length),
        doubledEvents: sum(({ doubled }) => doubled.length),
      },
      reached: tally.problems.length === 0,
      ...(tally.problems.length === 0 ? {} : { shortfall: tally.problems.slice(0, 10).join('; ') }),
      seed,
      again: `make chaos PART=rolling-restart SEED=${seed}`,
    });
    expect(tally.problems).toEqual([]);
  },
);
