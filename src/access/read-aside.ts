import path from 'node:path';
import { Worker } from 'node:worker_threads';
import { AppError } from '../runtime/errors.ts';
import { getSize } from '../runtime/files/file-checks.ts';
import { packageRoot } from '../runtime/files/package-files.ts';
import { readAccess, type AccessReading, type ReadAccessOptions } from './read-access.ts';
import type { ThreadAnswer } from './read-thread.ts';

/** A file up to this size, some 150 apps, is read in less time than a thread takes to start, bytes. */
const smallBytes = 64 * 1024;
/** The compiled entry: threads run from `dist`, also when the rest runs from `src`. */
const threadEntry = path.join(packageRoot, 'dist', 'access', 'read-thread.js');

/** Runs the reading in a thread of its own; undefined when the thread itself failed. */
function askThread(options: ReadAccessOptions): Promise<ThreadAnswer | undefined> {
  return new Promise((resolve) => {
    const thread = new Worker(threadEntry, { workerData: options, execArgv: [] });
    thread.once('message', (answer: ThreadAnswer) => resolve(answer));
    thread.once('error', () => resolve(undefined));
    thread.once('exit', () => resolve(undefined));
  });
}

/**
 * Reads the access file as `readAccess` does, a large one in a thread: with thousands of apps parsing and checking
 * takes a tenth of a second, in which the thread that imports would take no event.
 */
export async function readAccessAside(options: ReadAccessOptions): Promise<AccessReading> {
  if ((await getSize(options.paths.access)) <= smallBytes) return readAccess(options);
  const answer = await askThread(options);
  if (answer === undefined) return readAccess(options);
  if (answer.kind === 'read') return answer.reading;
  if (answer.kind === 'damaged')
    throw new AppError('access_damaged', answer.message, answer.hint === undefined ? {} : { hint: answer.hint });
  throw new Error(answer.message);
}
