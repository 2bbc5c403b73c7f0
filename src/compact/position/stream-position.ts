/**
 * Decides where the stream is read from, and whether it is still the stream that the lake has followed.
 *
 * In: position and anchor hash from the lake's log; the state of the stream. Out: the epoch to read, a new one after a
 * fault, and an alarm.
 * Invariant: no message is skipped silently: a stream that was recreated, shortened, reused or has a gap begins a new
 * epoch, in which every event that the lake may have is looked up by its id.
 * Crash: the position is in commits only; the file of last-sequence.ts is written atomically and ignored if damaged.
 */
import { AppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { type SecondaryTable, findAhead } from '../batch/secondary-table.ts';
import type { IdleWatermark } from './idle-watermark.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { type StreamReader, type StreamState, hashMessage } from '../../stream/stream.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Batch } from '../batch/pull-batch.ts';

export type StreamFault = 'recreated' | 'restored' | 'shortened' | 'replaced' | 'anchor_gone' | 'gap' | 'tail_lost';

export const faultExplanations: Readonly<Record<StreamFault, string>> = {
  restored:
    'the lake was restored from a backup and reads another stream than the one in the backup: events acknowledged after the backup are missing',
  recreated: 'the stream was recreated: messages that were not in the lake yet are lost',
  shortened: 'the stream ends before the position of the lake: the broker has lost messages',
  replaced:
    'the message at the position of the lake has changed: the broker has lost messages and reused their sequences',
  anchor_gone:
    'the message at the position of the lake is missing: another client purges the stream, or the broker has lost messages',
  gap: 'messages after the position of the lake are missing: another client purges the stream, or the broker has lost messages',
  tail_lost:
    'the stream ends before its last known sequence: the broker has lost acknowledged messages that were not in the lake yet',
};

/** Compares the stream with the lake's position, and the anchor: a damaged broker reuses sequences. */
async function findStreamFault(reader: StreamReader, epoch: Epoch): Promise<StreamFault | undefined> {
  const state = await reader.state();
  if (state.id !== epoch.streamId) return 'recreated';
  if (state.lastSequence < epoch.position) return 'shortened';
  if (state.firstSequence > epoch.position + 1) return 'gap';
  if (epoch.anchorHash === undefined) return findStartFault(reader, epoch);
  const anchor = await reader.findMessage(epoch.position);
  if (anchor === undefined) return 'anchor_gone';
  return hashMessage(anchor.payload) === epoch.anchorHash ? undefined : 'replaced';
}

/** Checks an epoch without commits: no message is at its position, and its first message must be unchanged. */
async function findStartFault(reader: StreamReader, { position, nextHash }: Epoch): Promise<StreamFault | undefined> {
  // A message there has a sequence that the broker reused, and would be skipped.
  if (position > 0 && (await reader.findMessage(position)) !== undefined) return 'replaced';
  if (nextHash === undefined) return undefined;
  const next = await reader.findMessage(position + 1);
  if (next === undefined) return 'gap';
  return hashMessage(next.payload) === nextHash ? undefined : 'replaced';
}

/** Checks the last message of a secondary table that is ahead of the events: its sequence may have been reused. */
async function findFaultAhead(reader: StreamReader, { position, anchorHash }: Epoch): Promise<StreamFault | undefined> {
  if ((await reader.state()).lastSequence < position) return 'shortened';
  const message = await reader.findMessage(position);
  if (message === undefined) return 'gap';
  return hashMessage(message.payload) === anchorHash ? undefined : 'replaced';
}

/**
 * Reports whether a batch that was pulled right after the position is valid although messages were purged meanwhile: it
 * may have the only copies. An unchanged last message, or none left up to it, proves that no sequence was reused.
 */
async function isBatchStillValid(
  reader: StreamReader,
  epoch: Epoch,
  fault: StreamFault,
  batch: Pick<Batch, 'lastSequence' | 'lastHash'>,
): Promise<boolean> {
  if (fault !== 'gap' && fault !== 'anchor_gone') return false;
  const state = await reader.state();
  if (state.id !== epoch.streamId || state.lastSequence < batch.lastSequence) return false;
  if (state.firstSequence > batch.lastSequence) return true;
  const last = await reader.findMessage(batch.lastSequence);
  return last !== undefined && hashMessage(last.payload) === batch.lastHash;
}

export interface StreamPositionDependencies {
  readonly table: Table;
  readonly reader: StreamReader;
  readonly writer: string;
  readonly findAhead?: (epoch: Epoch) => Epoch | undefined;
  readonly alarm: (fault: StreamFault, figures: Readonly<Record<string, unknown>>) => void;
}

function nextAppId(state: StreamState, known: ReadonlyMap<string, number>): string {
  for (let epochNumber = 1; ; epochNumber += 1) {
    const appId = epochNumber === 1 ? state.id : `${state.id}#${epochNumber}`;
    if (!known.has(appId)) return appId;
  }
}

/** Raises the alarm unless another compactor has taken over: its purges are not losses. Error: `fenced`. */
async function raise(
  { table, writer, alarm }: StreamPositionDependencies,
  fault: StreamFault,
  figures: Readonly<Record<string, unknown>>,
): Promise<void> {
  await table.refresh();
  assertOwner(table.lake(), writer);
  alarm(fault, figures);
}

/** Begins an epoch after `from`, or at the stream's first message. */
async function startEpoch(
  { table, reader, writer }: StreamPositionDependencies,
  fault: StreamFault | undefined,
  from?: number,
): Promise<Epoch> {
  const stream = await reader.state();
  const position = from ?? Math.max(0, stream.firstSequence - 1);
  const next = await reader.findMessage(position + 1);
  let epoch: Epoch | undefined;
  await table.commit((state, lake) => {
    assertOwner(lake, writer);
    // The messages may be in the lake already, under other sequences.
    const dedupeThrough = lake.totals.stored === 0 ? 0 : stream.lastSequence;
    epoch = {
      appId: nextAppId(stream, state.txns),
      streamId: stream.id,
      position,
      ...(next === undefined ? {} : { nextHash: hashMessage(next.payload) }),
      dedupeThrough,
    };
    return {
      cause: 'epoch',
      actions: [{ txn: { appId: epoch.appId, version: position } }],
      epoch,
      metrics: { fault: fault ?? 'none' },
    };
  });
  if (epoch === undefined) throw new AppError('commit_conflict', 'the epoch was not committed');
  return epoch;
}

/**
 * Decides where to read the stream from. A fault raises an alarm and begins a new epoch: all remaining messages are
 * read, and events that the lake has are dropped by their ids.
 */
async function resolveStartPosition(dependencies: StreamPositionDependencies): Promise<Epoch> {
  const { table, reader } = dependencies;
  const epoch = table.lake().epoch;
  if (epoch === undefined) {
    const { firstSequence } = await reader.state();
    if (firstSequence <= 1) return startEpoch(dependencies, undefined);
    await raise(dependencies, 'gap', { position: 0, firstSequence });
    return startEpoch(dependencies, 'gap');
  }
  const ahead = dependencies.findAhead?.(epoch);
  const found =
    (await findStreamFault(reader, epoch)) ?? (ahead === undefined ? undefined : await findFaultAhead(reader, ahead));
  if (found === undefined) return epoch;
  const { restoredFrom } = table.lake();
  // A restore changes the stream on purpose.
  const fault = found === 'recreated' && restoredFrom !== undefined ? 'restored' : found;
  await raise(dependencies, fault, {
    position: epoch.position,
    stream: epoch.streamId,
    ...(restoredFrom === undefined ? {} : { backupOf: restoredFrom }),
  });
  return startEpoch(dependencies, fault);
}

/** Skips a gap right after the position: an alarm, and a new epoch at the next message. */
export async function skipGap(dependencies: StreamPositionDependencies, epoch: Epoch): Promise<void> {
  const { reader } = dependencies;
  const { lastSequence } = await reader.state();
  let next = epoch.position + 1;
  while (next <= lastSequence && (await reader.findMessage(next)) === undefined) next += 1;
  if (next === epoch.position + 1) return;
  await raise(dependencies, 'gap', {
    position: epoch.position,
    firstMissing: epoch.position + 1,
    lastMissing: next - 1,
  });
  await startEpoch(dependencies, 'gap', next - 1);
}

/** Maximum time without a comparison, ms: another client may have purged the anchor. */
const maxIdleMs = 30_000;

/** Creates the record of an idle stream. It never holds for a reader without `arrivals`. */
export function createIdleStream(reader: Pick<StreamReader, 'arrivals'>, maxMs = maxIdleMs) {
  let known: { readonly epoch: Epoch; readonly arrivals: number; readonly sinceMs: number } | undefined;
  const arrivals = (): number => reader.arrivals?.() ?? Number.NaN;
  return {
    /** Number of messages so far: read before the comparison, so that later ones are noticed. */
    arrivals,
    /** Records that the stream ended at the epoch's position; `arrivals` is from before that state. */
    markIdle(epoch: Epoch, before: number) {
      known = { epoch, arrivals: before, sinceMs: performance.now() };
    },
    invalidate() {
      known = undefined;
    },
    isIdle(epoch: Epoch | undefined = known?.epoch) {
      if (known === undefined || known.arrivals !== arrivals() || performance.now() - known.sinceMs >= maxMs)
        return false;
      return epoch?.appId === known.epoch.appId && epoch.position === known.epoch.position;
    },
  };
}

/**
 * Tracks whether the stream is unchanged since its last comparison with the lake: it ended at the lake's position, the
 * next pull returned nothing, and the connection was never lost. Saves an idle compactor several requests per second.
 */
export type IdleStream = ReturnType<typeof createIdleStream>;

interface FollowedStreamDependencies extends Omit<StreamPositionDependencies, 'findAhead'> {
  readonly secondaryTables: readonly SecondaryTable[];
  readonly idleStream: IdleStream;
  readonly streamEnd: { check(): Promise<StreamState> };
  readonly watermark: IdleWatermark;
  readonly logger: Logger;
}

export function createFollowedStream(dependencies: FollowedStreamDependencies) {
  const { table, reader, writer, secondaryTables, idleStream, streamEnd, watermark, logger } = dependencies;
  const ahead = (epoch: Epoch): Epoch | undefined => findAhead(secondaryTables, epoch);
  const follow: StreamPositionDependencies = { ...dependencies, findAhead: ahead };
  const skip = (epoch: Epoch): Promise<void> => skipGap(follow, epoch);
  return {
    findAhead: ahead,
    skipGap: skip,
    distrust: () => idleStream.invalidate(),
    /** Compares the stream with the lake's position unless it is known to be unchanged. Returns the epoch to read. */
    async compare() {
      const known = table.lake().epoch;
      if (known !== undefined && idleStream.isIdle(known)) {
        if (!watermark.isDue()) return known;
        const state = await reader.state();
        // The anchor reveals a stream that has lost its end and reused the sequences.
        if (idleStream.isIdle(known)) await watermark.take(known, state);
        return known;
      }
      const arrivals = idleStream.arrivals();
      const state = await streamEnd.check();
      const epoch = await resolveStartPosition(follow);
      await watermark.take(epoch, state);
      if (state.lastSequence === epoch.position && ahead(epoch) === undefined) idleStream.markIdle(epoch, arrivals);
      return epoch;
    },
    /** Reports whether a batch belongs to the stream that the lake follows. Errors: `fenced`, the reader's. */
    async isOurs(epoch: Epoch, batch: Batch) {
      const other = ahead(epoch);
      if (other?.position === batch.lastSequence && other.anchorHash !== batch.lastHash) return false;
      const fault = await findStreamFault(reader, epoch);
      if (fault === undefined) return true;
      // A compactor that has taken over the lake purges what it has stored: no loss.
      await table.refresh();
      assertOwner(table.lake(), writer);
      if (!(await isBatchStillValid(reader, epoch, fault, batch))) return false;
      logger.error(
        { fault, firstSequence: batch.firstSequence, lastSequence: batch.lastSequence },
        'messages purged by another client while they were read, storing them',
      );
      return true;
    },
    /** Ends a run without a batch. If the stream counts messages that it lacks, its store is damaged at the end. */
    async endIdleRound(epoch: Epoch) {
      // A gap before a received message has begun a new epoch already.
      const isSame = table.lake().epoch?.appId === epoch.appId;
      if (isSame && !idleStream.isIdle(epoch) && ahead(epoch) === undefined) await skip(epoch);
    },
    /** Purges up to the position, unless the stream has changed: then it may hold messages that the lake lacks. */
    async purge(epoch: Epoch) {
      if ((await findStreamFault(reader, epoch)) === undefined) await reader.purgeBelow(epoch.position);
    },
  };
}

export type FollowedStream = ReturnType<typeof createFollowedStream>;
