/**
 * Where the stream is read from, and whether it is still the stream that the lake knows.
 *
 * In: the position and the anchor's hash from the lake's log; the state of the stream. Out: the epoch to read on in, a
 * new one after a fault, and an alarm.
 * Invariant: no message is skipped in silence: a stream that was recreated, shortened, reused or has a gap begins a new
 * epoch, in which every event that the lake may have is looked up by its id.
 * Crash: the position is in the commits only. How far the stream was seen to go (stream-end.ts) is a file that is
 * written whole; a damaged one is as good as none.
 */
import { AppError } from '../../runtime/errors.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { type StreamReader, type StreamState, hashMessage } from '../../stream/stream.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Batch } from '../batch/pull-batch.ts';

/** What can be wrong with the stream when it is compared with the lake's position. */
export type StreamFault = 'recreated' | 'restored' | 'shortened' | 'replaced' | 'anchor_gone' | 'gap' | 'tail_lost';

/** What each fault means, for the operator. */
export const faultExplanations: Readonly<Record<StreamFault, string>> = {
  restored:
    'the lake was restored from a backup and reads another stream than the one it was backed up with: what was acknowledged after the backup is not in it',
  recreated: 'the stream was created anew: messages that were not yet in the lake are gone with the old one',
  shortened: 'the stream ends before the position of the lake: the broker has lost messages',
  replaced:
    'the message at the position of the lake is another one: the broker has lost messages and reused their numbers',
  anchor_gone:
    'the message at the position of the lake is gone: something else purges the stream, or the broker has lost messages',
  gap: 'messages after the position of the lake are gone: something else purges the stream, or the broker has lost messages',
  tail_lost:
    'the stream ends before where it was seen to end: the broker has lost acknowledged messages that the lake did not have yet',
};

/**
 * Compares the stream with the lake's position: sequence numbers are reused after the broker's store is damaged, so the
 * anchor, the message at the position, must still be the same. Undefined: nothing is wrong that can be seen.
 */
export async function findStreamFault(reader: StreamReader, epoch: Epoch): Promise<StreamFault | undefined> {
  const state = await reader.state();
  if (state.id !== epoch.streamId) return 'recreated';
  if (state.lastSequence < epoch.position) return 'shortened';
  if (state.firstSequence > epoch.position + 1) return 'gap';
  if (epoch.anchorHash === undefined) return findStartFault(reader, epoch);
  const anchor = await reader.findMessage(epoch.position);
  if (anchor === undefined) return 'anchor_gone';
  return hashMessage(anchor.payload) === epoch.anchorHash ? undefined : 'replaced';
}

/**
 * The same for an epoch of which nothing is in the lake yet: the message that it begins with must still be the same.
 */
async function findStartFault(reader: StreamReader, { position, nextHash }: Epoch): Promise<StreamFault | undefined> {
  if (nextHash === undefined) return undefined;
  const next = await reader.findMessage(position + 1);
  if (next === undefined) return 'gap';
  return hashMessage(next.payload) === nextHash ? undefined : 'replaced';
}

/**
 * Compares the stream with a table that is ahead of the events: it may have lost that end since, and its numbers may be
 * used again.
 */
async function findFaultAhead(reader: StreamReader, { position, anchorHash }: Epoch): Promise<StreamFault | undefined> {
  if ((await reader.state()).lastSequence < position) return 'shortened';
  const message = await reader.findMessage(position);
  if (message === undefined) return 'gap';
  return hashMessage(message.payload) === anchorHash ? undefined : 'replaced';
}

/**
 * Says whether a batch that was pulled right after the position may be taken in although the stream has lost messages
 * meanwhile: removed, by a purge or by settings that an operator changed, and not replaced. What the batch has may then
 * be all that is left of them. The same last message, or none left up to it, shows that no number was used again.
 */
export async function isStillWhole(
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

export interface FollowDependencies {
  readonly table: Table;
  readonly reader: StreamReader;
  /** This compactor's claim on the lake. */
  readonly writer: string;
  /** The state of a table that has a batch which the events have not (batch/follower.ts). */
  readonly findAhead?: (epoch: Epoch) => Epoch | undefined;
  /** Tells the operator, loudly, with the figures of the fault. */
  readonly alarm: (fault: StreamFault, figures: Readonly<Record<string, unknown>>) => void;
}

function nextAppId(state: StreamState, known: ReadonlyMap<string, number>): string {
  for (let life = 1; ; life += 1) {
    const appId = life === 1 ? state.id : `${state.id}#${life}`;
    if (!known.has(appId)) return appId;
  }
}

/**
 * Raises the alarm, unless another compactor has taken over meanwhile: what that one has purged is in its lake, and
 * nothing is lost. Error: `fenced`.
 */
async function raise(
  { table, writer, alarm }: FollowDependencies,
  fault: StreamFault,
  figures: Readonly<Record<string, unknown>>,
): Promise<void> {
  await table.refresh();
  assertOwner(table.lake(), writer);
  alarm(fault, figures);
}

/** Begins an epoch after `from`, or at the start of what the stream has. */
async function startEpoch(
  { table, reader, writer }: FollowDependencies,
  fault: StreamFault | undefined,
  from?: number,
): Promise<Epoch> {
  const stream = await reader.state();
  const position = from ?? Math.max(0, stream.firstSequence - 1);
  const next = await reader.findMessage(position + 1);
  let epoch: Epoch | undefined;
  await table.commit((state, lake) => {
    assertOwner(lake, writer);
    // What the stream holds now may be in the lake already, under other numbers. An empty lake has nothing to look up.
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
 * Says from where to read the stream. A fault begins a new epoch: a loud alarm, then everything the stream still has is
 * read from its start, and each event that the lake already has is dropped by its id. Never a silent skip.
 */
export async function followStream(dependencies: FollowDependencies): Promise<Epoch> {
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
  // The stream that the lake knows was left behind on purpose.
  const fault = found === 'recreated' && restoredFrom !== undefined ? 'restored' : found;
  await raise(dependencies, fault, {
    position: epoch.position,
    stream: epoch.streamId,
    ...(restoredFrom === undefined ? {} : { backupOf: restoredFrom }),
  });
  return startEpoch(dependencies, fault);
}

/** Goes past a hole right after the position: an alarm, and a new epoch that begins at the next message there is. */
export async function skipHole(dependencies: FollowDependencies, epoch: Epoch): Promise<void> {
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

/**
 * Knows that the stream is still as it was when it was last compared with the lake: it ended at the lake's position, a
 * pull after that is under way and has brought nothing, and the way on which it would have come was never lost. It saves
 * the broker, and an idle compactor, from several questions a second whose answers are known.
 */
export interface Stillness {
  /** How much has come so far: read before the comparison, so that what comes meanwhile is seen. */
  readonly arrivals: () => number;
  /** A pull after the epoch's position begins, at which the stream ended; `arrivals` are from before that was seen. */
  begin(epoch: Epoch, arrivals: number): void;
  /** Something failed: what is known may be wrong. */
  end(): void;
  /** Says whether it holds, for an epoch, if one is named. */
  holds(epoch?: Epoch): boolean;
}

/**
 * The stream is compared again after so long, milliseconds, whatever was heard of it: somebody may have purged the
 * message at the lake's position.
 */
const longestMs = 30_000;

/** Creates the memory. A reader that does not say what has come knows no stillness. */
export function createStillness(reader: Pick<StreamReader, 'arrivals'>, maxMs = longestMs): Stillness {
  let known: { readonly epoch: Epoch; readonly arrivals: number; readonly sinceMs: number } | undefined;
  const arrivals = (): number => reader.arrivals?.() ?? Number.NaN;
  return {
    arrivals,
    begin(epoch, before) {
      known = { epoch, arrivals: before, sinceMs: performance.now() };
    },
    end() {
      known = undefined;
    },
    holds(epoch = known?.epoch) {
      if (known === undefined || known.arrivals !== arrivals() || performance.now() - known.sinceMs >= maxMs)
        return false;
      return epoch?.appId === known.epoch.appId && epoch.position === known.epoch.position;
    },
  };
}
