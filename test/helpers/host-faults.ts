import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { signalProcess } from './processes.ts';
import { errorAnswer, type S3Fault } from './s3-proxy.ts';
import type { TestHost, TestHosts } from './several-hosts.ts';
import { waitFor } from './wait.ts';

/** The S3 server of several hosts, which can be killed. */
export interface KilledStore {
  /** Kills the server, and starts it again on the same folder and port after `ms`. */
  kill(ms: number): Promise<void>;
  /** Reports whether the server was killed or away at any time since `at` (`performance.now()`). */
  readonly wasAwaySince: (at: number) => boolean;
}

/** What the faults happen to. */
export interface FaultPlace {
  readonly hosts: TestHosts;
  readonly store: KilledStore;
  readonly random: Random;
  readonly leaseMs: number;
  /** Folder of the S3 server that has the log of the events. */
  readonly logDir: string;
  /** Receives the time from the loss of the compactor to the first commit of another one, ms. */
  readonly onTakeOver: (ms: number) => void;
  /** Receives the time from the loss of the stream's leader to an answer of the next one, ms. */
  readonly onElection: (ms: number) => void;
}

/** Name of the stream by default. */
const streamName = 'TRIBUTARY_EVENTS';
/** Maximum time until another compactor commits; the test asserts less. */
const takeOverMs = 120_000;

/** Wraps an S3 server, so that the times of its kills are known. */
export function watchKills(server: { stop(): Promise<void>; startAgain(): Promise<void> }): KilledStore {
  /** Clients may notice only later that their connections are closed. */
  const closedConnectionsMs = 2000;
  let awayUntil = -Infinity;
  return {
    async kill(ms) {
      awayUntil = Infinity;
      await server.stop();
      await pass(ms);
      await server.startAgain();
      awayUntil = performance.now() + closedConnectionsMs;
    },
    wasAwaySince: (at) => awayUntil >= at,
  };
}

/** Returns the compactor that wrote the newest commit. */
function findWriter(logDir: string): string | undefined {
  const newest = readdirSync(logDir)
    .filter((name) => /^\d{20}\.json$/.test(name))
    .toSorted()
    .at(-1);
  return /"writer":"([0-9a-f-]+)"/.exec(readFileSync(path.join(logDir, newest ?? ''), 'utf8'))?.[1];
}

/** Returns a host and its process that has just compacted: it has committed since the process was first seen. */
async function findCompactor(hosts: TestHosts): Promise<readonly [TestHost, number]> {
  const seen = new Map<TestHost, { readonly pid: number | undefined; readonly at: number }>();
  const find = (): readonly [TestHost, number] | undefined => {
    for (const host of hosts.of('compact')) {
      const pid = host.service.processes().find(({ role }) => role === 'compact')?.pid;
      const before = seen.get(host);
      if (before?.pid !== pid) seen.set(host, { pid, at: performance.now() });
      else if (before !== undefined && pid !== undefined && host.committedAt() > before.at) return [host, pid];
    }
    return undefined;
  };
  let found: readonly [TestHost, number] | undefined;
  await waitFor('a host compacts', () => (found = find()) !== undefined, takeOverMs);
  if (found === undefined) throw new Error('unreachable');
  return found;
}

/** Takes the compactor away by `lose`, and waits until another one has committed. */
async function replaceCompactor(
  { hosts, logDir, onTakeOver }: FaultPlace,
  lose: (host: TestHost, pid: number) => unknown,
): Promise<readonly [TestHost, number]> {
  const found = await findCompactor(hosts);
  const writer = findWriter(logDir);
  const lostAt = performance.now();
  await lose(...found);
  const isReplaced = (): boolean => ![undefined, writer].includes(findWriter(logDir));
  await waitFor('another compactor commits', isReplaced, takeOverMs);
  onTakeOver(performance.now() - lostAt);
  return found;
}

/** Applies a fault to the requests of some hosts for a while. */
async function withFault(hosts: readonly TestHost[], ms: number, faultOf: TestHost['s3']['faultOf']): Promise<void> {
  for (const { s3 } of hosts) s3.faultOf = faultOf;
  await pass(ms);
  for (const { s3 } of hosts) s3.faultOf = () => undefined;
}

async function killServer({ hosts: { cluster }, random }: FaultPlace, name: string): Promise<void> {
  await cluster.kill(name);
  await pass(random.integer(0, 4000));
  await cluster.start(name);
}

async function hangServer({ hosts: { cluster }, random }: FaultPlace, name: string): Promise<void> {
  cluster.pause(name);
  await pass(random.integer(500, 8000));
  cluster.resume(name);
}

/** Takes the leader of the stream away, and waits for the next one. */
async function loseLeader(place: FaultPlace, lose: typeof killServer): Promise<void> {
  const { cluster } = place.hosts;
  const name = await cluster.findLeader(streamName);
  const lostAt = performance.now();
  const lost = lose(place, name);
  await cluster.findLeader(streamName);
  place.onElection(performance.now() - lostAt);
  await lost;
}

const isWrite = (method: string): boolean => method === 'PUT' || method === 'POST' || method === 'DELETE';

/** The faults by name. Each one ends with the servers and networks whole; a host may be left without processes. */
export const hostFaults: Readonly<Record<string, (place: FaultPlace) => Promise<unknown>>> = {
  async killProcess({ hosts, random }) {
    const running = hosts.hosts.flatMap(({ service }) => service.processes().map(({ role }) => ({ service, role })));
    const { service, role } = random.pick(running);
    await service.kill9(role, random);
  },
  killCompactor: (place) => replaceCompactor(place, (_, pid) => signalProcess(pid, 'SIGKILL')),
  async killCompactHost(place) {
    const [host] = await replaceCompactor(place, ({ service }) => service.killAll());
    await host.service.startAgain();
  },
  async stallCompactor(place) {
    const [, pid] = await replaceCompactor(place, (__, compactor) => signalProcess(compactor, 'SIGSTOP'));
    // The old one continues after the end of its lease.
    signalProcess(pid, 'SIGCONT');
  },
  restartHost: ({ hosts, random }) => random.pick(hosts.hosts).restart(false),
  emptyHost: ({ hosts, random }) => random.pick(hosts.hosts).restart(true),
  killBroker: (place) => killServer(place, place.random.pick(place.hosts.cluster.names)),
  killLeader: (place) => loseLeader(place, killServer),
  hangBroker: (place) => hangServer(place, place.random.pick(place.hosts.cluster.names)),
  hangLeader: (place) => loseLeader(place, hangServer),
  killStore: ({ store, random }) => store.kill(random.integer(0, 5000)),
  storeAway: ({ hosts: { hosts }, random }) =>
    withFault(hosts, random.integer(500, 8000), () => ({ isDone: false, answer: 'cut' })),
  async storeBusy({ hosts: { hosts }, random }) {
    const ofRequests = createRandom(random.integer(0, 1e9));
    await withFault(hosts, random.integer(500, 5000), () =>
      ofRequests.chance(0.5) ? { isDone: false, answer: errorAnswer(503, 'SlowDown') } : undefined,
    );
  },
  storeSlow: ({ hosts: { hosts }, random }) =>
    withFault(hosts, random.integer(500, 5000), () => ({ isDone: true, answer: 'late', delayMs: 400 })),
  async answersLost({ hosts: { hosts }, random }) {
    const ofRequests = createRandom(random.integer(0, 1e9));
    await withFault(hosts, random.integer(1000, 5000), ({ method }): S3Fault | undefined =>
      isWrite(method) && ofRequests.chance(0.3) ? { isDone: true, answer: 'cut' } : undefined,
    );
  },
  cutFromStore: ({ hosts: { hosts }, random, leaseMs }) =>
    withFault([random.pick(hosts)], leaseMs + random.integer(0, 6000), () => ({ isDone: false, answer: 'cut' })),
  async cutFromBroker({ hosts: { hosts }, random }) {
    const { gates } = random.pick(hosts);
    for (const gate of gates) gate.cut();
    await pass(random.integer(500, 8000));
    for (const gate of gates) gate.mend();
  },
};
