import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { parseChecksummed, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { AppError } from '../runtime/errors.ts';
import { findText, type ObjectStore } from '../runtime/store/object-store.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { listLog } from './log/log-files.ts';

const fileName = 'identity.json';

export function identityPath(lakeDir: string): string {
  return path.join(path.resolve(lakeDir), fileName);
}

async function findId(store: ObjectStore): Promise<string | undefined> {
  const text = await findText(store, fileName);
  if (text === undefined) return undefined;
  try {
    const { id } = parseChecksummed(text);
    if (typeof id === 'string' && id !== '') return id;
  } catch {
    // If the file is damaged, the log has the id too.
  }
  throw new AppError('record_damaged', `${store.nameOf(fileName)} is damaged`, {
    hint: "Remove it: it is recreated from the lake's log.",
  });
}

/** Reads the id from the log of a lake without the file; undefined if the lake is new. */
async function findIdInLog(tableDir: string): Promise<string | undefined> {
  const { commits, checkpoints } = await listLog(tableDir);
  if (commits.length === 0 && checkpoints.length === 0) return undefined;
  // The engine for checkpoints is loaded on demand.
  const { loadTableState } = await import('./log/snapshot.ts');
  return (await loadTableState(tableDir)).metaData?.id;
}

/** Returns `metaData.id` of the events table, from a file without the log. Any process may create that file. */
export async function ensureLakeId(lakeDir: string): Promise<string> {
  const store = openStore(path.resolve(lakeDir));
  const known = await findId(store);
  if (known !== undefined) return known;
  const id = (await findIdInLog(path.join(path.resolve(lakeDir), events.table))) ?? randomUUID();
  await store.create(fileName, Buffer.from(renderChecksummed({ id })));
  return (await findId(store)) ?? id;
}

/** Returns the id of the stream that the log followed last, if any. */
export async function findFollowedStream(lakeDir: string): Promise<string | undefined> {
  const tableDir = path.join(path.resolve(lakeDir), events.table);
  const { commits, checkpoints } = await listLog(tableDir);
  if (commits.length === 0 && checkpoints.length === 0) return undefined;
  const { readSnapshot } = await import('./log/snapshot.ts');
  return (await readSnapshot(tableDir)).lake?.epoch?.streamId;
}
