import path from 'node:path';
import { membersOf, parseChecksummed, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { ensureFolder, findTextFile, syncFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { findNames, listTree } from '../runtime/files/folder-names.ts';
import { getSize } from '../runtime/files/file-checks.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * The description of a stream in the store of an embedded nats-server: `meta.inf`, its settings as JSON, and
 * `meta.sum`, their checksum. The server writes one after the other at each change of the settings, and skips a stream
 * whose files do not match (https://github.com/nats-io/nats-server/issues/4195): a kill between them would hide every
 * waiting event. An interrupted change was never confirmed, so both files are restored from the earlier copy.
 */
interface Description {
  readonly inf: string;
  readonly sum: string;
}

interface DescribedStream {
  readonly name: string;
  readonly folder: string;
  readonly keptFile: string;
}

async function findStreams(serverFolder: string): Promise<readonly DescribedStream[]> {
  const root = path.join(serverFolder, 'store', 'jetstream');
  const streams: DescribedStream[] = [];
  for (const account of await findNames(root)) {
    for (const name of await findNames(path.join(root, account, 'streams'))) {
      const keptFile = path.join(serverFolder, 'descriptions', `${account}.${name}.json`);
      streams.push({ name, folder: path.join(root, account, 'streams', name), keptFile });
    }
  }
  return streams;
}

/** Returns the creation time of a stream, which distinguishes a recreated one; undefined unless the text is JSON. */
function findCreated(text = ''): unknown {
  try {
    const { Created, created = Created } = membersOf(JSON.parse(text));
    return created;
  } catch {
    return undefined;
  }
}

/** Reports whether a change of the two files was finished: well-formed, and both old or both new. */
function isWhole(files: Partial<Description>, kept: Description | undefined): files is Description {
  if (!/^[0-9a-f]{16}$/.test(files.sum ?? '') || findCreated(files.inf) === undefined) return false;
  return kept === undefined || (files.inf === kept.inf) === (files.sum === kept.sum);
}

async function readDescription({ folder }: DescribedStream): Promise<Partial<Description>> {
  const inf = await findTextFile(path.join(folder, 'meta.inf'));
  const sum = await findTextFile(path.join(folder, 'meta.sum'));
  return { ...(inf === undefined ? {} : { inf }), ...(sum === undefined ? {} : { sum }) };
}

async function findKept({ keptFile }: DescribedStream): Promise<Description | undefined> {
  const text = await findTextFile(keptFile);
  try {
    const { inf, sum } = parseChecksummed(text ?? '');
    return typeof inf === 'string' && typeof sum === 'string' ? { inf, sum } : undefined;
  } catch {
    return undefined;
  }
}

async function keep(stream: DescribedStream, files: Description, kept: Description | undefined): Promise<void> {
  if (kept?.inf === files.inf) return;
  await ensureFolder(path.dirname(stream.keptFile));
  await writeFileDurably(stream.keptFile, renderChecksummed({ ...files }));
}

async function isUnused({ folder }: DescribedStream): Promise<boolean> {
  for (const name of await listTree(folder))
    if (name.endsWith('.blk') && (await getSize(path.join(folder, name))) > 0) return false;
  return true;
}

/** Restores the copy, or removes a stream whose creation was interrupted. The server reports any other damage. */
async function restore(
  stream: DescribedStream,
  { inf }: Partial<Description>,
  savedDescription: Description | undefined,
  logger: Logger,
): Promise<void> {
  const { name, folder } = stream;
  const created = findCreated(inf);
  if (savedDescription !== undefined && (created === undefined || created === findCreated(savedDescription.inf))) {
    await writeFileDurably(path.join(folder, 'meta.inf'), savedDescription.inf);
    await writeFileDurably(path.join(folder, 'meta.sum'), savedDescription.sum);
    logger.warn({ stream: name }, 'nats-server was killed while it changed the stream, restored its previous settings');
  } else if (savedDescription === undefined && (await isUnused(stream))) {
    // With its folder: a folder without a stream makes the server unhealthy.
    await removeTree(folder);
    await syncFolder(path.dirname(folder));
    logger.warn({ stream: name }, 'nats-server was killed while it created the stream, creating it again');
  }
}

/** Keeps, or if `isStopped` restores, the descriptions. Errors are logged: the server reports what it cannot use. */
async function settle(serverFolder: string, logger: Logger, isStopped: boolean): Promise<void> {
  try {
    for (const stream of await findStreams(serverFolder)) {
      const [files, savedDescription] = [await readDescription(stream), await findKept(stream)];
      if (isWhole(files, savedDescription)) await keep(stream, files, savedDescription);
      else if (isStopped) await restore(stream, files, savedDescription, logger);
    }
  } catch (error) {
    logger.warn({ error: describeError(error) }, 'cannot check the stream descriptions of the broker');
  }
}

/** Copies each stream's description, and restores one that a kill has interrupted, of a server that does not run. */
export const restoreStreamMetadata = (serverFolder: string, logger: Logger): Promise<void> =>
  settle(serverFolder, logger, true);

/** Copies each stream's description, of a running server; skips one that is being written. */
export const backUpStreamMetadata = (serverFolder: string, logger: Logger): Promise<void> =>
  settle(serverFolder, logger, false);
