/** The format of data (files/data-format.ts) as an object of its state: in a bucket, or in a folder. */
import path from 'node:path';
import { AppError } from '../errors.ts';
import {
  assertUsable,
  dataFormat,
  dataFormatPath,
  parseDataFormat,
  renderDataFormat,
  type DataFormat,
  type NewFormat,
} from '../files/data-format.ts';
import type { ObjectStore, Tag } from './object-store.ts';
import { openStore } from './open-store.ts';

const formatKey = path.basename(dataFormatPath(''));

export interface StoredFormat extends DataFormat {
  readonly tag: Tag;
}

/** Finds the format of a state. Errors: `record_damaged`, those of the store. */
export async function findStoredFormat(state: ObjectStore): Promise<StoredFormat | undefined> {
  const found = await state.get(formatKey);
  if (found === undefined) return undefined;
  const text = Buffer.from(found.bytes).toString('utf8');
  return { ...parseDataFormat(text, state.nameOf(formatKey)), tag: found.tag };
}

/** Writes a format instead of `before`; undefined: there is none. Error: `conflict` if another process has written one. */
export async function writeStoredFormat(
  state: ObjectStore,
  format: NewFormat,
  before: Pick<StoredFormat, 'tag'> | undefined,
): Promise<void> {
  const bytes = Buffer.from(renderDataFormat(format));
  const result =
    before === undefined ? await state.create(formatKey, bytes) : await state.replace(formatKey, bytes, before.tag);
  if (result !== 'exists' && result !== 'conflict') return;
  throw new AppError('conflict', `another process has changed ${state.nameOf(formatKey)}`, {
    hint: 'Stop that one, then repeat the command.',
  });
}

/** Rejects a state as `assertUsable` does. Returns its format; 0 for none. Errors: also those of `findStoredFormat`. */
export async function assertStoredFormat(dataDir: string): Promise<number> {
  const state = openStore(dataDir);
  const found = await findStoredFormat(state);
  if (found !== undefined) assertUsable('the state in', state.nameOf('').replace(/\/+$/, ''), found);
  return found?.format ?? 0;
}

/** Raises an older format of a state, or none, to this program's. Errors: those of `assertStoredFormat`. */
export async function raiseStoredFormat(dataDir: string): Promise<void> {
  if ((await assertStoredFormat(dataDir)) >= dataFormat) return;
  await openStore(dataDir).replace(formatKey, Buffer.from(renderDataFormat({ format: dataFormat })), 'any');
}
