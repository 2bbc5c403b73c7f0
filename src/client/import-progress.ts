import { isDiskFull } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { renderRefused, type Batch } from './batches.ts';
import type { RefusedEvent } from './event-source.ts';
import type { ImportState, Settled } from './import-state.ts';
import type { Place } from './records.ts';
import type { SendOutcome } from './send-batch.ts';

/** Batches that may be sent behind the last one that is settled at rest: what is in doubt after a kill. */
export const windowBatches = 512;
/** The state is written again when so many more are settled, or so much time has passed. */
const writeBatches = 128;
const writeEveryMs = 1000;
const diskPauseMs = 1000;

/** A state at rest, and the file of refused events: what is written is durable. */
export interface ImportRecord {
  writeState(state: ImportState): Promise<void>;
  /** Writes to the file of refused events behind its first bytes, cutting off what is there; returns its length. */
  writeRefused(lines: string, atByte: number): Promise<number>;
}

export interface ImportFigures {
  readonly settled: Settled;
  /** Events, also behind what is settled. */
  readonly stored: number;
  readonly refused: number;
  /** Of the last batches that were acknowledged. */
  readonly lastKeys: readonly string[];
}

/** How far an import is, in memory and at rest. */
export interface ImportProgress {
  figures(): ImportFigures;
  /** Waits until a batch may be sent: the state at rest says so. Since when it may have been sent, and whether before. */
  take(batch: Batch): Promise<{ readonly sinceMs: number; readonly isInDoubt: boolean }>;
  /** Lines of a batch that were refused before. */
  apartOf(batch: Batch): ReadonlySet<number>;
  /** Keeps them, at rest. */
  keepApart(batch: Batch, lines: readonly number[]): Promise<void>;
  settle(batch: Batch, outcome: SendOutcome): void;
  noteKey(key: string): void;
  /** Writes the state as it is now. */
  write(isFinished?: boolean): Promise<void>;
}

export interface ProgressOptions {
  readonly state: ImportState;
  readonly record: ImportRecord;
  /** Requests on their way at a time: the last one that the service has taken is among as many that it has answered. */
  readonly parallel: number;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
  readonly onWait: (why: string | undefined) => void;
}

/** A batch that was taken and is not settled at rest. */
interface Open {
  readonly next: Place;
  readonly sinceMs: number;
  outcome?: { readonly stored: number; readonly refused: readonly RefusedEvent[] };
}

/** Takes in what has no open batch before it; `lines` are those of the refused events. */
function advance(
  settled: Settled,
  open: ReadonlyMap<number, Open>,
): { readonly reached: Settled; readonly lines: string } {
  let { batches, place, stored, refused } = settled;
  let lines = '';
  for (let next = open.get(batches); next?.outcome !== undefined; next = open.get(batches)) {
    place = next.next;
    stored += next.outcome.stored;
    refused += next.outcome.refused.length;
    lines += next.outcome.refused.map(renderRefused).join('');
    batches += 1;
  }
  return { reached: { ...settled, batches, place, stored, refused }, lines };
}

/**
 * Writes one state after the other: when enough is settled, and when somebody asks, who gets one that begins after that.
 */
function createWriter(writeOnce: (isFinished: boolean) => Promise<void>, { signal, onWait }: ProgressOptions) {
  let writing: Promise<void> | undefined;
  let failure: { readonly error: unknown } | undefined;
  let [writtenAt, unwritten] = [performance.now(), 0];
  /** A full disk is waited for: nothing that is not written may be sent. */
  async function writeAtLast(isFinished: boolean): Promise<void> {
    [writtenAt, unwritten] = [performance.now(), 0];
    for (;;) {
      try {
        return await writeOnce(isFinished);
      } catch (error) {
        if (!isDiskFull(error) || signal.aborted) throw error;
        onWait('the disk that the state of the import is on is full');
        await pause(diskPauseMs, signal);
      }
    }
  }
  async function write(isFinished = false): Promise<void> {
    // One that is under way may have begun before what is to be written now.
    if (writing !== undefined) await writing.catch(() => undefined);
    writing ??= writeAtLast(isFinished).finally(() => {
      writing = undefined;
    });
    await writing;
  }
  return {
    write,
    noteSettled(): void {
      unwritten += 1;
      const isDue = unwritten >= writeBatches || performance.now() - writtenAt >= writeEveryMs;
      if (!isDue || writing !== undefined) return;
      write().catch((error: unknown) => {
        failure = { error };
      });
    },
    /** Throws what a write has met that nobody has waited for. */
    assertWritable(): void {
      if (failure !== undefined) throw failure.error;
    },
  };
}

/** Creates the progress of an import that goes on from a state. */
export function createImportProgress(options: ProgressOptions): ImportProgress {
  const { state: begun, record, nowMs, parallel } = options;
  const { doubtSinceMs } = begun;
  const open = new Map<number, Open>();
  const apart = new Map(Object.entries(begun.apart).map(([number, lines]) => [Number(number), lines]));
  let { settled, lastKeys } = begun;
  let [taken, sendable] = [settled.batches, 0];
  let [stored, refused] = [settled.stored, settled.refused];

  /** Since when anything behind a batch may have been sent. */
  function sinceOf(from: number): number {
    const times = [...open].filter(([number]) => number >= from).map(([, { sinceMs }]) => sinceMs);
    // What a run before may have sent and this one has not come to stays in doubt since then.
    if (taken < begun.sendable) times.push(begun.sinceMs);
    return Math.min(nowMs(), ...times);
  }

  const writer = createWriter(async (isFinished) => {
    const { reached, lines } = advance(settled, open);
    const refusedBytes = lines === '' ? settled.refusedBytes : await record.writeRefused(lines, settled.refusedBytes);
    const permitted = Math.max(begun.sendable, taken + windowBatches);
    const isOpen = ([number]: readonly [number, unknown]): boolean => number >= reached.batches;
    const next = { ...reached, refusedBytes };
    await record.writeState({
      ...begun,
      settled: next,
      sendable: permitted,
      sinceMs: sinceOf(reached.batches),
      apart: Object.fromEntries([...apart].filter(isOpen)),
      lastKeys,
      ...(isFinished ? { finishedAt: new Date(nowMs()).toISOString() } : {}),
    });
    for (let number = settled.batches; number < next.batches; number += 1) {
      open.delete(number);
      apart.delete(number);
    }
    [settled, sendable] = [next, permitted];
  }, options);

  return {
    figures: () => ({ settled, stored, refused, lastKeys }),
    async take(batch) {
      while (batch.number >= sendable) await writer.write();
      writer.assertWritable();
      taken = Math.max(taken, batch.number + 1);
      const isBefore = batch.number < begun.sendable;
      const sinceMs = Math.min(doubtSinceMs ?? Number.POSITIVE_INFINITY, isBefore ? begun.sinceMs : nowMs());
      open.set(batch.number, { next: batch.next, sinceMs });
      return { sinceMs, isInDoubt: isBefore || doubtSinceMs !== undefined };
    },
    apartOf: ({ number }) => new Set(apart.get(number)),
    async keepApart({ number }, lines) {
      apart.set(number, lines);
      await writer.write();
    },
    settle({ number, refused: before }, outcome) {
      const entry = open.get(number);
      if (entry === undefined) return;
      const all = [...before, ...outcome.refused].toSorted((a, b) => a.line - b.line);
      entry.outcome = { stored: outcome.stored, refused: all };
      stored += outcome.stored;
      refused += all.length;
      writer.noteSettled();
    },
    noteKey(key) {
      lastKeys = [...lastKeys, key].slice(-parallel);
    },
    write: (isFinished) => writer.write(isFinished),
  };
}
