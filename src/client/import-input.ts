import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { AppError, isAppError } from '../runtime/errors.ts';
import { createInputSource, startPlace } from './event-source.ts';
import type { ImportArea } from './import-area.ts';
import type { ImportOutcome } from './import-file.ts';
import { batchMethods } from './import-methods.ts';
import type { ImportOptions } from './open-import-state.ts';
import { writeRefused } from './refused-file.ts';
import { runImport, type ImportHooks } from './run-import.ts';

/** The next piece of an input; undefined at its end, or at once when the signal ends it: nothing may come for hours. */
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

/** What is to be done about an import that cannot be gone on with. */
function describeRest(lines: number): string {
  return `Up to line ${lines} of standard input everything is settled, and what follows was sent in part: import that as a file, which can be repeated.`;
}

/**
 * Imports what standard input has. It can be read once: an import of it that is interrupted cannot go on, since nobody
 * knows whether the next input begins as this one did. Errors as of `importFile`.
 */
export async function importInput(
  input: AsyncIterable<Uint8Array>,
  refusedFile: string,
  area: ImportArea,
  options: Omit<ImportOptions, 'stateFile' | 'again'>,
  hooks: ImportHooks,
): Promise<ImportOutcome> {
  const { idApp, event, format, map, nowMs, signal } = options;
  let { line } = startPlace;
  const run = runImport({
    ...options,
    source: createInputSource(readUntil(input, signal), { format, event, map: new Map(Object.entries(map)) }),
    area,
    method: batchMethods.get(event) ?? '',
    seed: randomUUID(),
    state: {
      format: 1,
      identity: { idApp, event, format, map, sha256: '' },
      salt: '',
      service: [],
      startedAt: new Date(nowMs()).toISOString(),
      settled: { batches: 0, place: startPlace, stored: 0, refused: 0, refusedBytes: 0 },
      sendable: 0,
      sinceMs: nowMs(),
      apart: {},
      lastKeys: [],
    },
    record: {
      writeState: async ({ settled }) => void ({ line } = settled.place),
      writeRefused: (lines, atByte) => writeRefused(refusedFile, lines, atByte),
    },
    sizeBytes: undefined,
    hooks,
  });
  const totals = await run.catch((error: unknown) => {
    // What they say of files is to repeat the command, which would send all of it a second time.
    if (!isAppError(error, 'service_away') && !isAppError(error, 'service_refused')) throw error;
    throw new AppError(error.code, error.message, { cause: error.cause, hint: describeRest(line - 1) });
  });
  return { file: '-', ...totals, ...(totals.refused === 0 ? {} : { refusedFile }) };
}
