import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { createExclusive, ensureFolder, findTextFile } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { listLog } from './log/log-files.ts';

const fileName = 'identity.json';

/** Path of the file in the lake's folder. */
export function identityPath(lakeDir: string): string {
  return path.join(path.resolve(lakeDir), fileName);
}

/** Reads the id out of the file; undefined when there is none. */
async function findId(file: string): Promise<string | undefined> {
  const text = await findTextFile(file);
  if (text === undefined) return undefined;
  try {
    const { id } = parseChecked(text);
    if (typeof id === 'string' && id !== '') return id;
  } catch {
    // Damaged: the log has it as well.
  }
  throw new AppError('record_damaged', `${file} is damaged`, {
    hint: 'Remove it: it is made again from the log of the lake.',
  });
}

/** The id in the log of a lake that was there before the file; undefined when the lake is new. */
async function findIdInLog(tableDir: string): Promise<string | undefined> {
  const { commits, checkpoints } = await listLog(tableDir);
  if (commits.length === 0 && checkpoints.length === 0) return undefined;
  // The SQL engine that reads a checkpoint is not for every process to carry.
  const { loadTableState } = await import('./log/snapshot.ts');
  return (await loadTableState(tableDir)).metaData?.id;
}

/**
 * The id of a lake, which is its table's (`metaData.id`) and goes with it wherever it is copied. Kept in a file beside
 * the table, so that it is known without reading the log; for a lake that is not there yet it is chosen here. Any
 * process may call it at any time: the first to write the file decides.
 */
export async function ensureLakeId(lakeDir: string): Promise<string> {
  const file = identityPath(lakeDir);
  const known = await findId(file);
  if (known !== undefined) return known;
  await ensureFolder(path.dirname(file));
  const id = (await findIdInLog(path.join(path.dirname(file), events.table))) ?? randomUUID();
  await createExclusive(file, renderChecked({ id }));
  return (await findId(file)) ?? id;
}

/** Id of the stream that the lake's log has followed last; undefined while it has followed none. */
export async function findFollowedStream(lakeDir: string): Promise<string | undefined> {
  const tableDir = path.join(path.resolve(lakeDir), events.table);
  const { commits, checkpoints } = await listLog(tableDir);
  if (commits.length === 0 && checkpoints.length === 0) return undefined;
  const { readSnapshot } = await import('./log/snapshot.ts');
  return (await readSnapshot(tableDir)).lake?.epoch?.streamId;
}
