import { dataPaths } from '../config.ts';
import { readRefusals } from '../refusals/refusal-files.ts';
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

/** Opens how the newest refusals of an app are read. */
export function openRefusalReader({
  config,
  clock,
}: Parts): (idApp: number, most: number) => Promise<readonly RefusalRecord[]> {
  const { refusalsBodies: bodies, refusalsAgeMs: ageMs } = config;
  const kept = { folder: dataPaths(config.dataDir).refusals, bodies, ageMs };
  return (idApp, most) => readRefusals(kept, idApp, { nowMs: clock.nowMs(), most });
}
