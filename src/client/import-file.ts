import path from 'node:path';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { getSize, isRegularFile, findStamp } from '../runtime/files/file-checks.ts';
import { acquireFileLock } from '../runtime/files/lock.ts';
import { isCompleteGzip } from '../runtime/files/input-file.ts';
import { checkPreviousImport } from './send-batch.ts';
import { assertSomeValid, checkedItems, checkEvents, firstItems, type EventCheck } from './check-events.ts';
import { createFileSource, createInputSource, isPacked, inputStart, type EventSource } from './event-source.ts';
import { batchMethods, createRetryUntilAnswered, type ImportArea } from './import-area.ts';
import type { ImportRecord } from './import-progress.ts';
import {
  defaultTimeFormat,
  mayBeBehind,
  openImportState,
  refusedPath,
  statePath,
  timeFormatOf,
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

/** Returns the stamp of a file. Errors: `not_found`; `usage` for a pipe. */
async function getStamp(file: string): Promise<string> {
  const stamp = findStamp(file);
  if (stamp === undefined)
    throw new AppError('not_found', `file ${file} does not exist`, { hint: 'Pass a file of events.' });
  if (await isRegularFile(file)) return stamp;
  throw new AppError('usage', `${file} is not a regular file, and can be read only once`, {
    hint: "Pass the data of a pipe on standard input: 'tributary import -'.",
  });
}

/**
 * Validates the events of a file, or of `input`, and changes nothing. Undefined if aborted. Errors: those of
 * `importFile`.
 */
export async function checkInput(
  file: string,
  input: AsyncIterable<Uint8Array> | undefined,
  area: ImportArea,
  options: ImportOptions,
  { onWait }: Pick<ImportHooks, 'onWait'>,
): Promise<EventCheck | undefined> {
  const { event, map, timeFormat = defaultTimeFormat, format } = options;
  const reading = { format, event, map: new Map(Object.entries(map)), timeFormat };
  if (input === undefined) {
    await getStamp(file);
    await assertWhole(file, options);
  }
  const source = input === undefined ? createFileSource(file, reading) : createInputSource(input, reading);
  const retryUntilAnswered = createRetryUntilAnswered({ ...options, onWait });
  return checkEvents(source, { ...options, area, method: batchMethods.get(event) ?? '', retryUntilAnswered });
}

/** Checks the first events of a new import. Returns false if aborted. Error: `usage` if all are invalid. */
async function checkStart(
  name: string,
  source: EventSource,
  check: Parameters<typeof checkEvents>[1],
  { force, onCheck }: Pick<ImportOptions, 'force'> & Pick<ImportHooks, 'onCheck'>,
): Promise<boolean> {
  const found = await checkEvents(firstItems(source, checkedItems), check);
  if (found === undefined) return false;
  if (force !== true) assertSomeValid(name, found);
  if (found.refused > 0) onCheck?.(found);
  return true;
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
  const stamp = await getStamp(file);
  const retryUntilAnswered = createRetryUntilAnswered({ ...options, onWait: hooks.onWait });
  const lock = acquireFileLock(file, 'import');
  try {
    const importState = await openImportState({ file, stateFile, area, options, retryUntilAnswered });
    if (importState === undefined || importState.finishedAt !== undefined)
      return atRest(file, refusedFile, importState);
    const timeFormat = timeFormatOf(importState.identity);
    const source = createFileSource(file, { format, event, map: new Map(Object.entries(map)), timeFormat });
    const method = batchMethods.get(event) ?? '';
    if (importState.sendLimit === 0) {
      await assertWhole(file, options);
      // Before the state permits sending.
      const check = { ...options, area, method, retryUntilAnswered };
      if (!(await checkStart(file, source, check, { ...options, ...hooks })))
        return atRest(file, refusedFile, importState);
    }
    // Keys depend on content and method; a repeated import has a salt.
    const seed = `${importState.identity.sha256} ${event} ${importState.salt}`;
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
