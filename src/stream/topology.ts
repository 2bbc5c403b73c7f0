import { DiscardPolicy, jetstreamManager, PersistMode, RetentionPolicy, StorageType, JetStreamApiError, type StreamConfig, type StreamInfo } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { eventSubject, maxMessageBytes, streamName } from './stream.ts';

export interface StreamLimits {
  /** Most bytes the stream may hold; then publishes are refused with `stream_full`. */
  readonly maxBytes: number;
}

/** Oldest nats-server without a known loss of acknowledged messages: before it, a hard kill in a purge could empty a stream. */
const minServerVersion = [2, 14] as const;
/** The window in which the broker itself drops a repeated message id; nothing here relies on it. */
const duplicateWindowMs = 120_000;
const streamNotFound = 10_059;

/** The settings an acknowledged event depends on; every start puts them right on a stream that is already there. */
function streamSettings(limits: StreamLimits): Partial<StreamConfig> {
  return {
    subjects: [eventSubject],
    // The default, `old`, would drop acknowledged events to make room for new ones.
    discard: DiscardPolicy.New,
    max_bytes: limits.maxBytes,
    // Headers count too.
    max_msg_size: maxMessageBytes + 4096,
    max_msgs: -1,
    max_msgs_per_subject: -1,
    max_age: 0,
    duplicate_window: nanos(duplicateWindowMs),
    no_ack: false,
  };
}

function assertSafe(info: StreamInfo): void {
  const { config } = info;
  const problems = [
    config.storage === StorageType.File ? [] : ['it is not stored in files'],
    config.retention === RetentionPolicy.Limits ? [] : [`its retention is '${config.retention}', not 'limits'`],
    config.persist_mode === PersistMode.Async ? ['it acknowledges before the fsync (persist_mode async)'] : [],
    config.deny_purge ? ['it denies purges'] : [],
    config.sealed ? ['it is sealed'] : [],
    config.mirror === undefined ? [] : ['it is a mirror'],
  ].flat();
  if (problems.length > 0) {
    throw new AppError('broker_unsafe', `the stream ${streamName} cannot keep events: ${problems.join(', ')}`, {
      hint: 'Move that stream to another name and start again.',
    });
  }
}

/** Checks what a client can see of any broker: version, JetStream, room for a message. Throws `broker_unsafe`. */
export function assertBroker(connection: StreamConnection): void {
  const info = connection.nats.info;
  const [major = 0, minor = 0] = (info?.version ?? '').split('.').map(Number);
  const [minMajor, minMinor] = minServerVersion;
  if (major < minMajor || (major === minMajor && minor < minMinor)) {
    throw new AppError('broker_unsafe', `nats-server ${info?.version} can lose acknowledged events`, { hint: `Use ${minMajor}.${minMinor} or newer.` });
  }
  if (info?.jetstream !== true) throw new AppError('broker_unsafe', 'the broker has no JetStream', { hint: 'Enable JetStream on it.' });
  if ((info.max_payload ?? 0) < maxMessageBytes + 4096) {
    throw new AppError('broker_unsafe', `the broker takes messages of ${info.max_payload} bytes at most`, { hint: 'Set its max_payload to 1MB.' });
  }
}

/**
 * Makes sure that the stream is there with safe settings: creates it, or puts right what can be changed, and refuses
 * (`broker_unsafe`) what cannot. Replicas of an existing stream stay as the operator set them.
 *
 * Whether an external cluster fsyncs before it acknowledges cannot be seen by a client; only the embedded server's
 * monitor says so.
 */
export async function ensureStream(connection: StreamConnection, limits: StreamLimits): Promise<void> {
  assertBroker(connection);
  const settings = streamSettings(limits);
  try {
    const manager = await jetstreamManager(connection.nats);
    const existing = await manager.streams.info(streamName).catch((error: unknown) => {
      if (error instanceof JetStreamApiError && error.code === streamNotFound) return undefined;
      throw error;
    });
    if (existing === undefined) {
      assertSafe(await manager.streams.add({ ...settings, name: streamName, storage: StorageType.File, retention: RetentionPolicy.Limits, num_replicas: 1 }));
      return;
    }
    assertSafe(existing);
    const differs = Object.entries(settings).some(([key, value]) => JSON.stringify(existing.config[key as keyof StreamConfig] ?? false) !== JSON.stringify(value));
    if (differs) await manager.streams.update(streamName, { ...existing.config, ...settings });
  } catch (error) {
    throw wrapBrokerError(error, 'create the stream');
  }
}
