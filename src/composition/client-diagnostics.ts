import { createRefusalRecorder } from '../ingest/refusal-recorder.ts';
import type { ClientDiagnosticsView } from '../ingest/diagnostics-routes.ts';
import { createLiveHub } from '../live/live-hub.ts';
import { createLiveSource } from '../live/live-source.ts';
import {
  createRefusalWriter,
  parseRefusalRecord,
  removeRefusals,
  sweepRefusals,
  readRefusals,
  type RefusalFolder,
  type RefusalRecord,
} from '../refusals/refusal-files.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import { areSameFolders } from '../runtime/files/folder-id.ts';
import type { CompositionContext } from './context.ts';
import { dataPaths, type Config } from '../config.ts';
import type { HostName, ServiceView } from '../runtime/processes/role-process.ts';
import type { StreamConnection } from '../stream/connection.ts';
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';
import { askHosts, serveRefusalQueries } from '../stream/refusal-queries.ts';

/** Opens the channel of live events between the service's processes; undefined without a broker. */
export function openLiveChannel(
  { config, logger, closers }: CompositionContext,
  name: string,
): LiveChannel | undefined {
  if (config.natsUrl === undefined) return undefined;
  const channel = createLiveChannel({
    url: config.natsUrl,
    name: `tributary-${name}-live`,
    logger: logger.child({ connection: 'live' }),
    streamName: config.streamName,
  });
  closers.add('live channel', () => channel.close());
  return channel;
}

export function refusalFolder({ dataDir, refusalsBodies: bodies, refusalsAgeMs: ageMs }: Config): RefusalFolder {
  return { folder: dataPaths(dataDir).refusals, bodies, ageMs };
}

export interface RefusalReader {
  readonly read: ClientDiagnosticsView['readRefusals'];
  /** Receives the hosts that keep rejected requests. */
  readonly onService: (view: ServiceView) => void;
}

/** Opens the rejected requests of this host, or of all hosts that share its buckets. */
export function openRefusalReader(
  { config, clock }: CompositionContext,
  connection: () => StreamConnection | undefined,
): RefusalReader {
  const folder = refusalFolder(config);
  const { ageMs } = folder;
  let hosts: readonly HostName[] | undefined;
  return {
    onService: (view) => void (hosts = view.hosts),
    async read(idApp, most) {
      if (hosts === undefined) return { refusals: await readRefusals(folder, idApp, { nowMs: clock.nowMs(), most }) };
      const asked = connection();
      const answers = asked && (await askHosts(asked, config.streamName, { idApp, most }, hosts.length));
      const answered = new Set(answers?.map(({ host }) => host));
      const silent = hosts.filter(({ id }) => !answered.has(id)).map(({ id, name }) => `${name} (${id})`);
      const records = (answers ?? []).flatMap((answer) => answer.records.map(toRefusalRecord)).flat();
      const since = clock.nowMs() - ageMs;
      const refusals = records
        .filter(({ time }) => Date.parse(time) >= since)
        .toSorted((a, b) => Date.parse(b.time) - Date.parse(a.time))
        .slice(0, most);
      return { refusals, ...(silent.length === 0 ? {} : { hostsWithoutAnswer: silent }) };
    },
  };
}

const toRefusalRecord = (record: object): readonly RefusalRecord[] => {
  const found = parseRefusalRecord(JSON.stringify(record));
  return found === undefined ? [] : [found];
};

/** Answers the queries of other hosts after the rejected requests of this one; no-op on one machine. */
export function serveRefusals(
  { config, clock, closers, hostId }: CompositionContext,
  connection: StreamConnection,
): void {
  if (hostId === undefined) return;
  const folder = refusalFolder(config);
  const served = serveRefusalQueries(connection, config.streamName, hostId, async (query) => {
    if ('idApp' in query)
      return { records: await readRefusals(folder, query.idApp, { nowMs: clock.nowMs(), most: query.most }) };
    const apps = query.removeApps === 'all' ? undefined : query.removeApps;
    return { records: [], removed: await removeRefusals(folder.folder, apps) };
  });
  closers.add('queries of rejected requests', () => served.stop());
}

/** Interval of sweeping expired refusals, ms. A sweep lists one folder per app. */
const sweepEveryMs = 300_000;

/** Opens rejected requests and live events of an ingest process, to debug clients. Failures never delay imports. */
export function openRefusalsAndLive(
  compositionContext: CompositionContext,
  connection: StreamConnection,
  isDiskLow: () => boolean,
) {
  const { config, clock, logger, closers, folders = {} } = compositionContext;
  const folder = refusalFolder(config);
  const { bodies } = folder;
  const channel = openLiveChannel(compositionContext, 'ingest');
  if (channel === undefined) throw new Error('the supervisor names the broker to its children');
  const live = createLiveSource(channel);
  closers.add('live', () => live.stop());
  const writer = createRefusalWriter(folder.folder, bodies);

  async function write(idApp: number, records: readonly RefusalRecord[]): Promise<void> {
    live.refused(idApp, records);
    // Another service's folder may be at this path now.
    if (folder.ageMs > 0 && !isDiskLow() && areSameFolders(folders)) await writer.append(idApp, records, clock.nowMs());
  }
  const refusals = createRefusalRecorder({ clock, logger, bodies, write });
  closers.add('refusals', () => refusals.stop());

  const sweep = startPollLoop(
    async () => {
      if (areSameFolders(folders)) await sweepRefusals(folder, clock.nowMs());
    },
    {
      everyMs: sweepEveryMs,
      onError: (error) => logger.warn({ error: describeError(error) }, 'cannot remove expired refusals'),
    },
  );
  closers.add('sweep of refusals', () => sweep.stop());
  serveRefusals(compositionContext, connection);
  const reader = openRefusalReader(compositionContext, () => connection);
  const clientDiagnosticsView: ClientDiagnosticsView = { readRefusals: reader.read, hub: createLiveHub(channel) };
  return { sender: { refusals, live, clientDiagnosticsView }, onService: reader.onService };
}
