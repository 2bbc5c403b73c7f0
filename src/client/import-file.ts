import path from 'node:path';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { getSize, isRegularFile, findStamp } from '../runtime/files/file-checks.ts';
import { acquireFileLock } from '../runtime/files/lock.ts';
import { isCompleteGzip } from '../runtime/files/input-file.ts';
import { checkPreviousImport } from './send-batch.ts';
import { createFileSource, isPacked, inputStart, type EventSource } from './event-source.ts';
import { batchMethods, createRetryUntilAnswered, type ImportArea } from './import-area.ts';
import type { ImportRecord } from './import-progress.ts';
import {
  mayBeBehind,
  openImportState,
  refusedPath,
  statePath,
  writeImportState,
  type ImportOptions,
  type ImportState,
} from './import-state.ts';
import { writeRejected } from './batches.ts';
import { runImport, type ImportHooks, type ImportOutcome } from './run-import.ts';

/** Rejects a truncated gzip file: the complete one would be another import. */
async function assertWhole(file: string, { signal }: ImportOptions): Promise<void> {
  if (!isPacked(file) || (await isCompleteGzip(file, signal))) return;
  throw new AppError('file_damaged', `${file} is not a complete gzip file: truncated or corrupted`, {
    hint: 'Retry with the complete file. No event was sent.',
  });
}

async function assertReadable(source: EventSource): Promise<void> {
  const items = source.items(inputStart);
  await items.next();
  await items.return();
}

function openRecord(stateFile: string, refusedFile: string): ImportRecord {
  return {
    async writeState(state) {
      try {
        await writeImportState(stateFile, state);
      } catch (error) {
        if (!isSystemError(error, 'EACCES', 'EPERM', 'EROFS', 'ENOENT', 'ENOTDIR')) throw error;
        throw new AppError('disk', `cannot write the state of the import to ${stateFile}`, {
          cause: error,
          hint: 'Pass another state file with --state.',
        });
      }
    },
    async writeRejected(lines, atByte) {
      const bytes = await writeRejected(refusedFile, lines, atByte);
      await syncFolder(path.dirname(refusedFile));
      return bytes;
    },
  };
}

/** Returns the outcome of a call that sends no events. */
function atRest(file: string, refusedFile: string, state: ImportState | undefined): ImportOutcome {
  const { acknowledgedThrough, finishedAt, lastKeys = [] } = state ?? {};
  const { stored = 0, refused = 0, place = inputStart } = acknowledgedThrough ?? {};
  return {
    file,
    ...(finishedAt === undefined ? {} : { importedAt: finishedAt }),
    stored,
    refused,
    lines: place.line - 1,
    isInterrupted: finishedAt === undefined,
    lastKeys,
    unknownParameters: [],
    ...(refused === 0 ? {} : { refusedFile }),
  };
}

/**
 * Imports a file, resuming an earlier import. Every event is then stored exactly once, or written to the file of
 * rejected events. Errors: `locked` while another process imports the file; `conflict` if the file or the options have
 * changed; `service_refused`, `service_away`; `usage` for a file of another format; `not_found`; `record_damaged`.
 */
export async function importFile(
  file: string,
  area: ImportArea,
  options: ImportOptions,
  hooks: ImportHooks,
): Promise<ImportOutcome> {
  const { stateFile = statePath(file), format, map, nowMs, event } = options;
  const refusedFile = refusedPath(file, stateFile);
  const stamp = findStamp(file);
  if (stamp === undefined)
    throw new AppError('not_found', `file ${file} does not exist`, { hint: 'Pass a file of events.' });
  if (!(await isRegularFile(file)))
    throw new AppError('usage', `${file} is not a regular file, and can be read only once`, {
      hint: "Pass the data of a pipe on standard input: 'tributary import -'.",
    });
  const retryUntilAnswered = createRetryUntilAnswered({ ...options, onWait: hooks.onWait });
  const lock = acquireFileLock(file, 'import');
  try {
    const importState = await openImportState({ file, stateFile, area, options, retryUntilAnswered });
    if (importState === undefined || importState.finishedAt !== undefined)
      return atRest(file, refusedFile, importState);
    const source = createFileSource(file, { format, event, map: new Map(Object.entries(map)) });
    if (importState.sendLimit === 0) {
      await assertWhole(file, options);
      // Rejects an invalid header before the state permits sending.
      await assertReadable(source);
    }
    // Keys depend on content and method; a repeated import has a salt.
    const seed = `${importState.identity.sha256} ${event} ${importState.salt}`;
    const method = batchMethods.get(event) ?? '';
    const { acknowledgedThrough, sendLimit, aheadMs = 0 } = importState;
    const from = { number: acknowledgedThrough.batches, place: acknowledgedThrough.place };
    const earlierMs = mayBeBehind(importState, nowMs())
      ? await checkPreviousImport({ source, area, retryUntilAnswered, method, seed, from, first: sendLimit })
      : undefined;
    // Nothing is written either, so that the next call asks again.
    if (options.signal.aborted) return atRest(file, refusedFile, importState);
    const totals = await runImport({
      source,
      area,
      method,
      seed,
      state: earlierMs === undefined ? importState : { ...importState, unconfirmedSinceMs: earlierMs + aheadMs },
      record: openRecord(stateFile, refusedFile),
      sizeBytes: isPacked(file) ? undefined : await getSize(file),
      ...options,
      hooks,
      assertUnchanged() {
        if (findStamp(file) !== stamp)
          throw new AppError('conflict', `${file} changed during the import`, {
            hint: 'Check which events are in the lake, and import only files that no process writes to.',
          });
      },
    });
    return { file, ...totals, ...(totals.refused === 0 ? {} : { refusedFile }) };
  } finally {
    lock.release();
  }
}
