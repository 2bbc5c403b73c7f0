import { isDiskFull } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { renderRejected, type ImportBatch } from './batches.ts';
import type { RejectedEvent, InputPosition } from './event-source.ts';
import type { ImportState, AcknowledgedPosition } from './import-state.ts';
import type { SendOutcome } from './send-batch.ts';

/** Maximum batches in flight beyond the acknowledged ones; after a crash they are unconfirmed. */
const maxInFlightBatches = 512;
/** Acknowledged batches, and ms, after which the state is written. */
const writeBatches = 128;
const writeEveryMs = 1000;
const diskPauseMs = 1000;

/** Durable storage of the state and of rejected events. */
export interface ImportRecord {
  writeState(state: ImportState): Promise<void>;
  /** Truncates the file of rejected events to `atByte` and appends lines; returns its length. */
  writeRejected(lines: string, atByte: number): Promise<number>;
}

interface ProgressOptions {
  readonly state: ImportState;
  readonly record: ImportRecord;
  /** Concurrent requests: as many of the last keys are kept. */
  readonly parallel: number;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
  readonly onWait: (why: string | undefined) => void;
}

/** A batch that is not yet acknowledged in the stored state. */
interface Open {
  readonly next: InputPosition;
  readonly sinceMs: number;
  outcome?: { readonly stored: number; readonly rejected: readonly RejectedEvent[] };
}

/** Advances the position to the first open batch; `lines` are those of rejected events. */
function advance(acknowledgedThrough: AcknowledgedPosition, open: ReadonlyMap<number, Open>) {
  let { batches, place, stored, refused } = acknowledgedThrough;
  let lines = '';
  for (let next = open.get(batches); next?.outcome !== undefined; next = open.get(batches)) {
    place = next.next;
    stored += next.outcome.stored;
    refused += next.outcome.rejected.length;
    lines += next.outcome.rejected.map(renderRejected).join('');
    batches += 1;
  }
  return { reached: { ...acknowledgedThrough, batches, place, stored, refused }, lines };
}

/** Writes one state at a time. A caller of `write` gets a write that begins after its call. */
function createWriter(writeOnce: (isFinished: boolean) => Promise<void>, { signal, onWait }: ProgressOptions) {
  let writing: Promise<void> | undefined;
  let failure: { readonly error: unknown } | undefined;
  let [writtenAt, unwritten] = [performance.now(), 0];
  /** Waits for space on a full disk: nothing may be sent before it is written. */
  async function writeAtLast(isFinished: boolean): Promise<void> {
    [writtenAt, unwritten] = [performance.now(), 0];
    for (;;) {
      try {
        return await writeOnce(isFinished);
      } catch (error) {
        if (!isDiskFull(error) || signal.aborted) throw error;
        onWait('the disk of the import state is full');
        await pause(diskPauseMs, signal);
      }
    }
  }
  async function write(isFinished = false): Promise<void> {
    // The running write may have begun before the caller's change.
    if (writing !== undefined) await writing.catch(() => undefined);
    writing ??= writeAtLast(isFinished).finally(() => {
      writing = undefined;
    });
    await writing;
  }
  return {
    write,
    recordAcknowledged(): void {
      unwritten += 1;
      const isDue = unwritten >= writeBatches || performance.now() - writtenAt >= writeEveryMs;
      if (!isDue || writing !== undefined) return;
      write().catch((error: unknown) => {
        failure = { error };
      });
    },
    /** Throws the error of a write that no caller has awaited. */
    assertWritable(): void {
      if (failure !== undefined) throw failure.error;
    },
  };
}

/** Creates the progress of an import, in memory and on disk. */
export function createImportProgress(options: ProgressOptions) {
  const { state: initial, record, nowMs, parallel } = options;
  const { unconfirmedSinceMs } = initial;
  const open = new Map<number, Open>();
  const apart = new Map(Object.entries(initial.apart).map(([number, lines]) => [Number(number), lines]));
  let { acknowledgedThrough, lastKeys } = initial;
  let [takenBatches, sendLimit] = [acknowledgedThrough.batches, 0];
  let [stored, refused] = [acknowledgedThrough.stored, acknowledgedThrough.refused];

  /** Returns since when any batch from this one on may have been sent. */
  function sinceOf(from: number): number {
    const times = [...open].filter(([number]) => number >= from).map(([, { sinceMs }]) => sinceMs);
    // Batches of an earlier run that this run has not reached stay unconfirmed.
    if (takenBatches < initial.sendLimit) times.push(initial.sinceMs);
    return Math.min(nowMs(), ...times);
  }

  const writer = createWriter(async (isFinished) => {
    const { reached, lines } = advance(acknowledgedThrough, open);
    const refusedBytes =
      lines === ''
        ? acknowledgedThrough.refusedBytes
        : await record.writeRejected(lines, acknowledgedThrough.refusedBytes);
    const permitted = Math.max(initial.sendLimit, takenBatches + maxInFlightBatches);
    const isOpen = ([number]: readonly [number, unknown]): boolean => number >= reached.batches;
    const next = { ...reached, refusedBytes };
    await record.writeState({
      ...initial,
      acknowledgedThrough: next,
      sendLimit: permitted,
      sinceMs: sinceOf(reached.batches),
      apart: Object.fromEntries([...apart].filter(isOpen)),
      lastKeys,
      ...(isFinished ? { finishedAt: new Date(nowMs()).toISOString() } : {}),
    });
    for (let number = acknowledgedThrough.batches; number < next.batches; number += 1) {
      open.delete(number);
      apart.delete(number);
    }
    [acknowledgedThrough, sendLimit] = [next, permitted];
  }, options);

  return {
    /** `stored` and `refused` include events beyond `acknowledgedThrough`. */
    figures: () => ({ acknowledgedThrough, stored, refused, lastKeys }),
    /**
     * Waits until the stored state permits to send a batch. Returns since when it may have been sent, and whether an
     * earlier run may have.
     */
    async take(importBatch: ImportBatch) {
      while (importBatch.number >= sendLimit) await writer.write();
      writer.assertWritable();
      takenBatches = Math.max(takenBatches, importBatch.number + 1);
      const isBefore = importBatch.number < initial.sendLimit;
      const sinceMs = Math.min(unconfirmedSinceMs ?? Number.POSITIVE_INFINITY, isBefore ? initial.sinceMs : nowMs());
      open.set(importBatch.number, { next: importBatch.next, sinceMs });
      return { sinceMs, isInDoubt: isBefore || unconfirmedSinceMs !== undefined };
    },
    /** Returns the lines of a batch that an earlier attempt has rejected. */
    apartOf: ({ number }: ImportBatch): ReadonlySet<number> => new Set(apart.get(number)),
    /** Stores the lines of a batch that must be sent individually. */
    async keepApart({ number }: ImportBatch, lines: readonly number[]): Promise<void> {
      apart.set(number, lines);
      await writer.write();
    },
    settle({ number, rejected: before }: ImportBatch, outcome: SendOutcome): void {
      const entry = open.get(number);
      if (entry === undefined) return;
      const all = [...before, ...outcome.rejected].toSorted((a, b) => a.line - b.line);
      entry.outcome = { stored: outcome.stored, rejected: all };
      stored += outcome.stored;
      refused += all.length;
      writer.recordAcknowledged();
    },
    recordKey(key: string): void {
      lastKeys = [...lastKeys, key].slice(-parallel);
    },
    write: writer.write,
  };
}
