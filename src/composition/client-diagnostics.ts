import { createRefusalRecorder } from '../ingest/refusal-recorder.ts';
import type { ClientDiagnosticsView } from '../ingest/diagnostics-routes.ts';
import { createLiveHub } from '../live/live-hub.ts';
import { createLiveSource } from '../live/live-source.ts';
import {
  createRefusalWriter,
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
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';

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

export function openRefusalReader({
  config,
  clock,
}: CompositionContext): (idApp: number, most: number) => Promise<readonly RefusalRecord[]> {
  const folder = refusalFolder(config);
  return (idApp, most) => readRefusals(folder, idApp, { nowMs: clock.nowMs(), most });
}

/** Interval of sweeping expired refusals, ms. A sweep lists one folder per app. */
const sweepEveryMs = 300_000;

/** Opens rejected requests and live events of an ingest process, to debug clients. Failures never delay imports. */
export function openRefusalsAndLive(compositionContext: CompositionContext, isDiskLow: () => boolean) {
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
  const clientDiagnosticsView: ClientDiagnosticsView = {
    readRefusals: openRefusalReader(compositionContext),
    hub: createLiveHub(channel),
  };
  return { refusals, live, clientDiagnosticsView };
}
