import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { AppError, isAppError } from '../runtime/errors.ts';
import { cutBatches, writeRejected } from './batches.ts';
import { assertSomeValid, checkEvents, readHead, type EventCheck } from './check-events.ts';
import { createInputSource, inputStart, type EventSource } from './event-source.ts';
import { batchMethods, createRetryUntilAnswered, type ImportArea } from './import-area.ts';
import { createImportProgress, type ImportRecord } from './import-progress.ts';
import { defaultTimeFormat, newState, type ImportOptions, type ImportState } from './import-state.ts';
import { sendBatch, type SendDependencies } from './send-batch.ts';

/** Totals of all runs of an import. */
interface ImportTotals {
  readonly stored: number;
  readonly refused: number;
  /** Lines up to the acknowledged position. */
  readonly lines: number;
  readonly isInterrupted: boolean;
  /** Of the last acknowledged batches: once these are in the lake, all are. */
  readonly lastKeys: readonly string[];
  /** Parameters that the service ignores. */
  readonly unknownParameters: readonly string[];
}

export interface ImportOutcome extends ImportTotals {
  readonly file: string;
  /** When the import ended; absent if this call sent events. */
  readonly importedAt?: string;
  readonly refusedFile?: string;
}

export interface ImportPosition {
  readonly stored: number;
  readonly refused: number;
  /** Of an input of known size. */
  readonly percent?: number;
}

export interface ImportHooks {
  readonly onProgress: (position: ImportPosition) => void;
  readonly onWait: (why: string | undefined) => void;
  /** Called if some of the first events are invalid. */
  readonly onCheck?: (check: EventCheck) => void;
}

interface RunImportOptions
  extends
    Pick<SendDependencies, 'area' | 'method' | 'seed'>,
    Pick<ImportOptions, 'parallel' | 'giveUpAfterMs' | 'nowMs' | 'signal'> {
  readonly source: EventSource;
  readonly state: ImportState;
  readonly record: ImportRecord;
  /** Of the unpacked input, if known. */
  readonly sizeBytes: number | undefined;
  readonly hooks: ImportHooks;
  /** Throws if the input has changed since the import began. */
  readonly assertUnchanged?: () => void;
}

type ImportProgress = ReturnType<typeof createImportProgress>;

function positionOf(progress: ImportProgress, sizeBytes: number | undefined): ImportPosition {
  const { stored, refused, acknowledgedThrough } = progress.figures();
  const percent =
    sizeBytes === undefined || sizeBytes === 0 ? {} : { percent: (acknowledgedThrough.place.offset * 100) / sizeBytes };
  return { stored, refused, ...percent };
}

/** Sends batches concurrently until the input ends, the signal aborts or a sender fails. */
async function sendAll(options: RunImportOptions, progress: ImportProgress, unknown: Set<string>): Promise<void> {
  const { source, state, parallel, hooks, sizeBytes } = options;
  const batches = cutBatches(source, {
    number: state.acknowledgedThrough.batches,
    place: state.acknowledgedThrough.place,
  });
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const dependencies: SendDependencies = {
    ...options,
    retryUntilAnswered: createRetryUntilAnswered({
      signal,
      giveUpAfterMs: options.giveUpAfterMs,
      onWait: hooks.onWait,
    }),
    onUnknown: (names) => names.forEach((name) => unknown.add(name)),
    onKey: (key) => progress.recordKey(key),
  };
  const failures: unknown[] = [];
  const work = async (): Promise<void> => {
    try {
      // The generator yields each batch to one sender.
      while (!signal.aborted) {
        const next = await batches.next();
        // An aborted input may end anywhere.
        if (next.done === true || signal.aborted) return;
        const importBatch = next.value;
        const sent = await progress.take(importBatch);
        const sending = { events: importBatch.events, sentAlone: progress.apartOf(importBatch), ...sent };
        const outcome = await sendBatch(dependencies, sending, (lines) => progress.keepApart(importBatch, lines));
        if (outcome === undefined) return;
        progress.settle(importBatch, outcome);
        hooks.onProgress(positionOf(progress, sizeBytes));
      }
    } catch (error) {
      failures.push(error);
      failed.abort();
    }
  };
  await Promise.all(Array.from({ length: parallel }, work));
  await batches.return();
  if (failures.length > 0) throw failures[0];
}

/** Runs an import from a state. The stored state is valid whenever the import ends. Errors: those of its parts. */
export async function runImport(options: RunImportOptions): Promise<ImportTotals> {
  const { signal, hooks, assertUnchanged } = options;
  const progress = createImportProgress({ ...options, onWait: hooks.onWait });
  const unknown = new Set<string>();
  // A killed run may have written more rejected events than its state names.
  await options.record.writeRejected('', options.state.acknowledgedThrough.refusedBytes);
  try {
    await sendAll(options, progress, unknown);
  } catch (error) {
    // Saves acknowledged batches, which otherwise stay unconfirmed.
    await progress.write().catch(() => undefined);
    throw error;
  }
  assertUnchanged?.();
  await progress.write(!signal.aborted);
  const { acknowledgedThrough, stored, refused, lastKeys } = progress.figures();
  return {
    stored,
    refused,
    lines: acknowledgedThrough.place.line - 1,
    isInterrupted: signal.aborted,
    lastKeys,
    unknownParameters: [...unknown].toSorted(),
  };
}

/** Returns the next piece of an input; undefined at its end, or when aborted: the next piece may take hours. */
async function readNext(pieces: AsyncIterator<Uint8Array>, signal: AbortSignal): Promise<Uint8Array | undefined> {
  if (signal.aborted) return undefined;
  const settled = new AbortController();
  const stopped = once(signal, 'abort', { signal: settled.signal }).then(
    () => undefined,
    () => undefined,
  );
  try {
    const next = await Promise.race([pieces.next(), stopped]);
    return next === undefined || next.done === true ? undefined : next.value;
  } finally {
    settled.abort();
  }
}

async function* readUntil(input: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const pieces = input[Symbol.asyncIterator]();
  for (let piece = await readNext(pieces, signal); piece !== undefined; piece = await readNext(pieces, signal))
    yield piece;
}

/**
 * Imports standard input. An interrupted import cannot resume, since the next input may differ. Errors: those of
 * `importFile`.
 */
export async function importInput(
  input: AsyncIterable<Uint8Array>,
  refusedFile: string,
  area: ImportArea,
  options: Omit<ImportOptions, 'stateFile' | 'again'>,
  hooks: ImportHooks,
): Promise<ImportOutcome> {
  const { idApp, event, format, map, nowMs, signal, timeFormat = defaultTimeFormat, force } = options;
  const reading = { format, event, map: new Map(Object.entries(map)), timeFormat };
  const method = batchMethods.get(event) ?? '';
  let { line } = inputStart;
  const { head, whole } = await readHead(createInputSource(readUntil(input, signal), reading));
  const runChecked = async (): Promise<ImportTotals> => {
    const retryUntilAnswered = createRetryUntilAnswered({ ...options, onWait: hooks.onWait });
    const check = await checkEvents(head, { ...options, area, method, retryUntilAnswered });
    if (check !== undefined && force !== true) assertSomeValid('standard input', check);
    if (check !== undefined && check.refused > 0) hooks.onCheck?.(check);
    return runImport({
      ...options,
      source: whole,
      area,
      method,
      seed: randomUUID(),
      state: newState({ idApp, event, format, map, timeFormat, sha256: '' }, nowMs()),
      record: {
        writeState: async ({ acknowledgedThrough }) => void ({ line } = acknowledgedThrough.place),
        writeRejected: (lines, atByte) => writeRejected(refusedFile, lines, atByte),
      },
      sizeBytes: undefined,
      hooks,
    });
  };
  const totals = await runChecked().catch((error: unknown) => {
    // Their hints suggest a retry, which would send everything again.
    if (!isAppError(error, 'service_away') && !isAppError(error, 'service_refused')) throw error;
    throw new AppError(error.code, error.message, {
      cause: error.cause,
      hint: `Standard input is imported up to line ${line - 1}; later lines were sent in part. Pass the remaining lines as a file, which can be resumed.`,
    });
  });
  return { file: '-', ...totals, ...(totals.refused === 0 ? {} : { refusedFile }) };
}
