import {
  JetStreamApiError,
  jetstreamManager,
  type JetStreamManager,
  type StreamInfo,
  DiscardPolicy,
  PersistMode,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from '@nats-io/jetstream';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';
import { wrapErrors } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { eventSubject, maxMessageBytes, streamName } from './stream.ts';
import { nanos } from '@nats-io/transport-node';

export interface StreamRequirements {
  readonly subject: string;
  /** Most bytes of the stream; beyond it, publishes fail with `stream_full`. */
  readonly maxBytes: number;
}

/** A setting of the stream. `vital`: with another value it can lose or mix messages, so that no 200 depends on it. */
interface Setting {
  readonly name: keyof StreamConfig;
  readonly wanted: unknown;
  readonly vital: boolean;
  /** Whether the server cannot change it on an existing stream. */
  readonly fixed?: boolean;
  readonly accepts?: (value: unknown) => boolean;
}

export interface Deviation {
  readonly setting: keyof StreamConfig;
  readonly text: string;
  readonly vital: boolean;
  readonly fixed: boolean;
}

function isAbsent(value: unknown): boolean {
  return value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);
}

/** Window in which the broker drops a repeated message id; nothing relies on it. */
const duplicateWindowMs = 120_000;

/**
 * Returns every setting of a stream of nats-server 2.15 that can drop, hide or fail to keep an acknowledged message.
 * The operator may set the others: description, num_replicas, placement, compression, republish, allow_direct,
 * mirror_direct, deny_delete, max_consumers, and those that need a header that the service never sends (allow_msg_ttl
 * with subject_delete_marker_ttl, allow_msg_counter, allow_msg_schedules, allow_atomic).
 */
function settingsOf({ subject, maxBytes }: StreamRequirements): readonly Setting[] {
  return [
    { name: 'subjects', wanted: [subject], vital: true },
    // The default, `old`, would drop acknowledged events to make space for new ones.
    { name: 'discard', wanted: DiscardPolicy.New, vital: true },
    { name: 'discard_new_per_subject', wanted: false, vital: true },
    { name: 'max_msgs', wanted: -1, vital: true },
    { name: 'max_msgs_per_subject', wanted: -1, vital: true },
    { name: 'max_age', wanted: 0, vital: true },
    { name: 'no_ack', wanted: false, vital: true },
    // `interest` drops what no consumer waits for, `workqueue` what one has acknowledged.
    { name: 'retention', wanted: RetentionPolicy.Limits, vital: true },
    // Lets any publisher replace all messages by one.
    { name: 'allow_rollup_hdrs', wanted: false, vital: true },
    // Events of other streams would get into the lake, or own ones get another subject.
    { name: 'sources', wanted: undefined, vital: true, accepts: isAbsent },
    { name: 'subject_transform', wanted: undefined, vital: true, accepts: isAbsent },
    { name: 'storage', wanted: StorageType.File, vital: true, fixed: true },
    // `async` acknowledges before the fsync.
    {
      name: 'persist_mode',
      wanted: undefined,
      vital: true,
      fixed: true,
      accepts: (value) => value !== PersistMode.Async,
    },
    { name: 'mirror', wanted: undefined, vital: true, fixed: true, accepts: isAbsent },
    { name: 'sealed', wanted: false, vital: true, fixed: true },
    // Without purges it only fills up.
    { name: 'deny_purge', wanted: false, vital: true, fixed: true },
    { name: 'max_bytes', wanted: maxBytes, vital: false },
    // Headers count too.
    { name: 'max_msg_size', wanted: maxMessageBytes + 4096, vital: false },
    { name: 'duplicate_window', wanted: nanos(duplicateWindowMs), vital: false },
    // Could refuse the compactor's consumer.
    { name: 'consumer_limits', wanted: undefined, vital: false, accepts: isAbsent },
  ];
}

/** Returns the settings that can be changed on an existing stream, as the server takes them. */
export function wantedSettings(demands: StreamRequirements): Partial<StreamConfig> {
  return Object.fromEntries(
    settingsOf(demands)
      .filter(({ fixed }) => fixed !== true)
      .map(({ name, wanted }) => [name, wanted]),
  );
}

function newStreamSettings(demands: StreamRequirements): Partial<StreamConfig> {
  return { ...wantedSettings(demands), storage: StorageType.File };
}

function isAsWanted({ name, wanted, accepts }: Setting, config: StreamConfig): boolean {
  const found: unknown = config[name];
  if (accepts !== undefined) return accepts(found);
  // The server omits what is false.
  return JSON.stringify(found ?? false) === JSON.stringify(wanted);
}

export function findDeviations(config: StreamConfig, demands: StreamRequirements): readonly Deviation[] {
  return settingsOf(demands)
    .filter((setting) => !isAsWanted(setting, config))
    .map(({ name, wanted, vital, fixed }) => ({
      setting: name,
      text: `${name} is ${JSON.stringify(config[name] ?? false)}, not ${JSON.stringify(wanted) ?? 'unset'}`,
      vital,
      fixed: fixed === true || config[name] === RetentionPolicy.Workqueue,
    }));
}

export function describeDeviations(deviations: readonly Deviation[]): string {
  return deviations.map(({ text }) => text).join(', ');
}

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

export async function hasStream(connection: StreamConnection, name: string): Promise<boolean> {
  const find = async () => findStream(await jetstreamManager(connection.nats), name);
  return (await wrapErrors('find the stream', find)) !== undefined;
}

export async function openManager({ nats }: StreamConnection): Promise<JetStreamManager> {
  return await wrapErrors('open the stream', () => jetstreamManager(nats));
}

/** Replies of a server outside a cluster, and of a cluster with too few servers, to more replicas. */
const tooManyReplicas: ReadonlySet<number> = new Set([10_074, 10_005]);
/** Copies of a stream if the settings name no number. */
export const usualReplicas = 3;

/** Runs a change with `most` copies, or fewer if the cluster has too few servers for them. */
async function withReplicas<T>(most: number, least: number, change: (copies: number) => Promise<T>): Promise<T> {
  try {
    return await change(most);
  } catch (error) {
    const isTooMany = error instanceof JetStreamApiError && tooManyReplicas.has(error.code);
    if (!isTooMany || most <= least) throw error;
    return await withReplicas(most - 1, least, change);
  }
}

/**
 * Creates a stream with safe settings and those given, with `replicas` copies or as many as the cluster has servers.
 * Undefined if another process has just created it.
 */
export async function createStream(
  manager: JetStreamManager,
  name: string,
  demands: StreamRequirements,
  others: Partial<StreamInfo['config']>,
  replicas = 1,
): Promise<StreamInfo | undefined> {
  const settings = { ...others, ...newStreamSettings(demands), name };
  try {
    return await withReplicas(Math.max(replicas, others.num_replicas ?? 1), 1, (copies) =>
      manager.streams.add({ ...settings, num_replicas: copies }),
    );
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === nameInUse) return undefined;
    throw error;
  }
}

/** Time in which new copies get the messages of the stream before a start continues, ms. */
const copyMs = 30_000;
const copyCheckMs = 200;

/**
 * Raises the copies of a stream, or as far as the cluster has servers, and never lowers them. Waits until the new ones
 * are complete: until then a message may have one copy. Returns the stream afterwards.
 */
export async function raiseReplicas(
  manager: JetStreamManager,
  info: StreamInfo,
  replicas: number,
): Promise<StreamInfo> {
  const { name, num_replicas: copies } = info.config;
  if (replicas <= copies) return info;
  const raised = await withReplicas(replicas, copies, (wanted) =>
    wanted === copies ? Promise.resolve(info) : manager.streams.update(name, { ...info.config, num_replicas: wanted }),
  );
  const deadline = performance.now() + copyMs;
  for (let now = raised; ; now = await manager.streams.info(name)) {
    const others = now.cluster?.replicas ?? [];
    const isComplete = others.length + 1 >= raised.config.num_replicas && others.every(({ current }) => current);
    if (isComplete || performance.now() >= deadline) return now;
    await pause(copyCheckMs);
  }
}

/** Throws `broker_unsafe` if a stream has a setting that loses events and cannot be changed. */
export function assertRepairable(info: StreamInfo, demands: StreamRequirements): void {
  const fixed = findDeviations(info.config, demands).filter((deviation) => deviation.vital && deviation.fixed);
  if (fixed.length === 0) return;
  const text = `the stream ${info.config.name} cannot keep events: ${describeDeviations(fixed)}`;
  throw new AppError('broker_unsafe', text, {
    hint: 'Set another TRIBUTARY_STREAM, or remove this stream when the lake has all of its messages.',
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
    throw new AppError('broker_unsafe', `the broker accepts messages of at most ${info.max_payload} bytes`, {
      hint: 'Set its max_payload to 1MB.',
    });
}

/** Ensures an unclaimed stream with safe settings. Error: `broker_unsafe` for one that cannot be changed. */
export async function ensureStream(
  connection: StreamConnection,
  { maxBytes }: Pick<StreamRequirements, 'maxBytes'>,
): Promise<void> {
  assertBroker(connection);
  const demands = { subject: eventSubject, maxBytes };
  await wrapErrors('create the stream', async () => {
    const manager = await jetstreamManager(connection.nats);
    const info =
      (await findStream(manager, streamName)) ??
      (await createStream(manager, streamName, demands, {})) ??
      (await manager.streams.info(streamName));
    assertRepairable(info, demands);
    if (findDeviations(info.config, demands).length > 0)
      await manager.streams.update(streamName, { ...info.config, ...wantedSettings(demands) });
  });
}
