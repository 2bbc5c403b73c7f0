import { hostname } from 'node:os';
import { dataPaths } from '../config.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { HostName } from '../runtime/processes/role-process.ts';
import { openHosts, type Host } from '../runtime/store/hosts.ts';
import type { LeaseState } from '../runtime/store/leases.ts';
import { findLeases, openStore } from '../runtime/store/open-store.ts';
import type { ServiceStart } from './service-options.ts';

/** The hosts that share the buckets of a service, as one of them sees the others. */
export interface SharedHosts {
  /** Id of this host. */
  readonly id: string;
  /** Records the stream of this host. Error: `start_failed` if another host uses another stream. */
  useStream(stream: string): Promise<void>;
  /** Values of `tributary status`. */
  facts(): { readonly hosts: readonly Host[]; readonly leases: readonly LeaseState[] };
  /** Lists the running hosts that keep rejected requests. */
  keepers(): readonly HostName[];
}

/** Interval between reads of the other hosts' records, ms: these change as often. */
const readEveryMs = 5000;

/**
 * Adds this host to those that share its buckets, until the closers close; undefined without buckets. Error:
 * `start_failed` if another host runs a version that must not run at the same time.
 */
export async function startHosts(
  { options, closers }: ServiceStart,
  startedAt: string,
): Promise<SharedHosts | undefined> {
  const { config, roles, logger } = options;
  const { run } = dataPaths(config.dataDir);
  const leases = findLeases(config.dataDir);
  if (leases === undefined) return undefined;
  const self = { name: hostname(), roles, program: findBuild().version, startedAt };
  const hosts = openHosts(openStore(config.dataDir), self, { runFolder: run, logger });
  await hosts.start();
  closers.add('host record', () => hosts.stop());
  let known: ReturnType<SharedHosts['facts']> = { hosts: [], leases: [] };
  const read = async (): Promise<void> => {
    known = { hosts: await hosts.list(), leases: await leases.list() };
  };
  const loop = startPollLoop(read, {
    everyMs: readEveryMs,
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot list the hosts, will retry'),
  });
  closers.add('hosts watch', () => loop.stop());
  return {
    id: hosts.id(),
    useStream: (stream) => hosts.useStream(stream),
    facts: () => known,
    keepers: () =>
      known.hosts
        .filter(({ isAlive, roles: their }) => isAlive !== false && their.some((role) => role !== 'export'))
        .map(({ id, name }) => ({ id, name })),
  };
}
