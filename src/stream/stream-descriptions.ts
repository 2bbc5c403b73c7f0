import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { ensureFolder, findTextFile, syncFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { findNames, listTree } from '../runtime/files/folder-names.ts';
import { getSize } from '../runtime/files/file-checks.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * The description of each stream in the store of an embedded nats-server: `meta.inf`, its settings as JSON, and
 * `meta.sum`, the checksum of that. The server writes one after the other, at each change of a stream's settings, and
 * passes over a stream whose two files do not go together (https://github.com/nats-io/nats-server/issues/4195): a kill
 * between them would take every waiting event out of reach. A change that was cut off was never confirmed, so the two
 * files go back to what they were before it.
 */
interface Description {
  readonly inf: string;
  readonly sum: string;
}

/** Where the two files of a stream lie, and the copy of both. */
interface DescribedStream {
  readonly name: string;
  readonly folder: string;
  readonly keptFile: string;
}

const inf = 'meta.inf';
const sum = 'meta.sum';

async function findStreams(serverFolder: string): Promise<readonly DescribedStream[]> {
  const root = path.join(serverFolder, 'store', 'jetstream');
  const streams: DescribedStream[] = [];
  for (const account of await findNames(root)) {
    for (const name of await findNames(path.join(root, account, 'streams'))) {
      streams.push({
        name,
        folder: path.join(root, account, 'streams', name),
        keptFile: path.join(serverFolder, 'descriptions', `${account}.${name}.json`),
      });
    }
  }
  return streams;
}

/** The moment of the stream's creation, by which one that was made anew is another; undefined in what is no JSON. */
function findCreated(text: string): unknown {
  try {
    const { Created, created = Created } = JSON.parse(text) as { Created?: unknown; created?: unknown };
    return created;
  } catch {
    return undefined;
  }
}

/**
 * Reports whether a change of the two files was finished: both have their form, and beside the copy both are as they
 * were, or both are new. That needs no hash of nats-server's: a change that was cut off has left the second file alone.
 */
function isWhole(files: Partial<Description>, kept: Description | undefined): files is Description {
  if (files.inf === undefined || files.sum === undefined) return false;
  if (!/^[0-9a-f]{16}$/.test(files.sum) || findCreated(files.inf) === undefined) return false;
  return kept === undefined || (files.inf === kept.inf) === (files.sum === kept.sum);
}

async function readDescription({ folder }: DescribedStream): Promise<Partial<Description>> {
  const [infText, sumText] = [await findTextFile(path.join(folder, inf)), await findTextFile(path.join(folder, sum))];
  return {
    ...(infText === undefined ? {} : { inf: infText }),
    ...(sumText === undefined ? {} : { sum: sumText }),
  };
}

async function findKept({ keptFile }: DescribedStream): Promise<Description | undefined> {
  const text = await findTextFile(keptFile);
  try {
    const { inf: infText, sum: sumText } = parseChecked(text ?? '') as Partial<Description>;
    return typeof infText === 'string' && typeof sumText === 'string' ? { inf: infText, sum: sumText } : undefined;
  } catch {
    return undefined;
  }
}

async function keep(stream: DescribedStream, files: Description, kept: Description | undefined): Promise<void> {
  if (kept?.inf === files.inf) return;
  await ensureFolder(path.dirname(stream.keptFile));
  await writeFileDurably(stream.keptFile, renderChecked({ ...files }));
}

/** Says whether a stream has never taken a message. */
async function isUnused({ folder }: DescribedStream): Promise<boolean> {
  for (const name of await listTree(folder)) {
    if (name.endsWith('.blk') && (await getSize(path.join(folder, name))) > 0) return false;
  }
  return true;
}

async function restore(
  stream: DescribedStream,
  files: Partial<Description>,
  kept: Description | undefined,
  logger: Logger,
): Promise<void> {
  const { name, folder } = stream;
  const created = files.inf === undefined ? undefined : findCreated(files.inf);
  if (kept !== undefined && (created === undefined || created === findCreated(kept.inf))) {
    await writeFileDurably(path.join(folder, inf), kept.inf);
    await writeFileDurably(path.join(folder, sum), kept.sum);
    logger.warn({ stream: name }, 'nats-server was killed in a change of the stream: the settings before it are back');
  } else if (kept === undefined && (await isUnused(stream))) {
    // Its folder too: the server counts itself as unwell for as long as one has no stream.
    await removeTree(folder);
    await syncFolder(path.dirname(folder));
    logger.warn({ stream: name }, 'nats-server was killed when it created the stream: it is created anew');
  }
  // Else the server says what is wrong: what was damaged in another way is not for us to guess.
}

/**
 * Goes through the streams of a store. One that cannot be read, or a copy for which the disk has no room, is no reason
 * not to start: the server says itself what it cannot use.
 */
async function settle(serverFolder: string, logger: Logger, isStopped: boolean): Promise<void> {
  try {
    for (const stream of await findStreams(serverFolder)) {
      const [files, kept] = [await readDescription(stream), await findKept(stream)];
      if (isWhole(files, kept)) await keep(stream, files, kept);
      else if (isStopped) await restore(stream, files, kept, logger);
    }
  } catch (error) {
    logger.warn({ error: describeError(error) }, "the descriptions of the broker's streams cannot be looked at");
  }
}

/**
 * Keeps a copy of each stream's description in the server's folder, and puts the copy in the place of one that a kill
 * has cut off. For a server that does not run.
 */
export const settleDescriptions = (serverFolder: string, logger: Logger): Promise<void> =>
  settle(serverFolder, logger, true);

/** Keeps a copy of each stream's description, of a server that runs: one that is just being written is left out. */
export const keepDescriptions = (serverFolder: string, logger: Logger): Promise<void> =>
  settle(serverFolder, logger, false);
