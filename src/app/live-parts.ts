import { dataPaths, type Config } from '../config.ts';
import { readRefusals, type RefusalFolder } from '../refusals/refusal-files.ts';
import type { RefusalRecord } from '../refusals/refusal-record.ts';
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';
import type { Parts } from './stage-parts.ts';

/** Opens the channel on which the service's processes show each other what arrives; undefined where no broker is named. */
export function openLiveChannel({ config, logger, closers }: Parts, name: string): LiveChannel | undefined {
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

/** Returns where the refusals of apps are kept. */
export function refusalFolder({ dataDir, refusalsBodies: bodies, refusalsAgeMs: ageMs }: Config): RefusalFolder {
  return { folder: dataPaths(dataDir).refusals, bodies, ageMs };
}

/** Opens how the newest refusals of an app are read. */
export function openRefusalReader({
  config,
  clock,
}: Parts): (idApp: number, most: number) => Promise<readonly RefusalRecord[]> {
  const kept = refusalFolder(config);
  return (idApp, most) => readRefusals(kept, idApp, { nowMs: clock.nowMs(), most });
}
