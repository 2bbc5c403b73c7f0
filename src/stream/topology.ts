import { JetStreamApiError, jetstreamManager, type JetStreamManager, type StreamInfo } from '@nats-io/jetstream';
import { AppError } from '../runtime/errors.ts';
import { wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { eventSubject, maxMessageBytes, streamName } from './stream.ts';
import {
  describeDeviations,
  findDeviations,
  newStreamSettings,
  wantedSettings,
  type StreamDemands,
} from './stream-settings.ts';

/** Oldest nats-server without a known loss of acknowledged messages: a kill during a purge could empty a stream. */
const minServerVersion = [2, 14] as const;
const streamNotFound = 10_059;
const nameInUse = 10_058;

export async function findStream(manager: JetStreamManager, name: string): Promise<StreamInfo | undefined> {
  try {
    return await manager.streams.info(name);
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === streamNotFound) return undefined;
    throw error;
  }
}

/** Reports whether the broker has a stream. Error: `broker_away`. */
export async function hasStream(connection: StreamConnection, name: string): Promise<boolean> {
  try {
    return (await findStream(await jetstreamManager(connection.nats), name)) !== undefined;
  } catch (error) {
    throw wrapBrokerError(error, 'look for the stream');
  }
}

/** Creates a stream with safe settings and those given; undefined if another process has just created it. */
export async function createStream(
  manager: JetStreamManager,
  name: string,
  demands: StreamDemands,
  others: Partial<StreamInfo['config']>,
): Promise<StreamInfo | undefined> {
  try {
    return await manager.streams.add({ num_replicas: 1, ...others, ...newStreamSettings(demands), name });
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === nameInUse) return undefined;
    throw error;
  }
}

/** Throws `broker_unsafe` if a stream has a setting that loses events and cannot be changed. */
export function assertMendable(info: StreamInfo, demands: StreamDemands): void {
  const fixed = findDeviations(info.config, demands).filter((deviation) => deviation.vital && deviation.fixed);
  if (fixed.length === 0) return;
  const text = `the stream ${info.config.name} cannot keep events: ${describeDeviations(fixed)}`;
  throw new AppError('broker_unsafe', text, {
    hint: 'Name another stream by TRIBUTARY_STREAM, or remove this one once the lake has what is in it.',
  });
}

/** Throws `broker_unsafe` if the version, JetStream or the message size of the broker are insufficient. */
export function assertBroker(connection: StreamConnection): void {
  const info = connection.nats.info;
  const [major = 0, minor = 0] = (info?.version ?? '').split('.').map(Number);
  const [minMajor, minMinor] = minServerVersion;
  if (major < minMajor || (major === minMajor && minor < minMinor))
    throw new AppError('broker_unsafe', `nats-server ${info?.version} can lose acknowledged events`, {
      hint: `Use ${minMajor}.${minMinor} or newer.`,
    });
  if (info?.jetstream !== true)
    throw new AppError('broker_unsafe', 'the broker has no JetStream', { hint: 'Enable JetStream on it.' });
  if ((info.max_payload ?? 0) < maxMessageBytes + 4096)
    throw new AppError('broker_unsafe', `the broker takes messages of ${info.max_payload} bytes at most`, {
      hint: 'Set its max_payload to 1MB.',
    });
}

/**
 * Ensures that an unclaimed stream exists with safe settings. Error: `broker_unsafe` for a setting that cannot be
 * changed. The service's own stream is claimed as well (owner.ts).
 */
export async function ensureStream(
  connection: StreamConnection,
  { maxBytes }: Pick<StreamDemands, 'maxBytes'>,
): Promise<void> {
  assertBroker(connection);
  const demands = { subject: eventSubject, maxBytes };
  try {
    const manager = await jetstreamManager(connection.nats);
    const info =
      (await findStream(manager, streamName)) ??
      (await createStream(manager, streamName, demands, {})) ??
      (await manager.streams.info(streamName));
    assertMendable(info, demands);
    if (findDeviations(info.config, demands).length > 0)
      await manager.streams.update(streamName, { ...info.config, ...wantedSettings(demands) });
  } catch (error) {
    throw wrapBrokerError(error, 'create the stream');
  }
}
