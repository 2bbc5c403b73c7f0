import { parentPort, workerData } from 'node:worker_threads';
import { isAppError } from '../runtime/errors.ts';
import { buffersOf } from './packed-records.ts';
import { readAccess, type AccessReading, type ReadAccessOptions } from './read-access.ts';

/** What a reading thread answers: the reading, or the error that it ended in, in parts that can be sent. */
export type ThreadAnswer =
  | { readonly kind: 'read'; readonly reading: AccessReading }
  | { readonly kind: 'damaged'; readonly message: string; readonly hint: string | undefined }
  | { readonly kind: 'failed'; readonly message: string };

/** The entry of a thread that reads the access file once, and ends. */
function answer(): { readonly answer: ThreadAnswer; readonly buffers: readonly ArrayBuffer[] } {
  try {
    const reading = readAccess(workerData as ReadAccessOptions);
    return { answer: { kind: 'read', reading }, buffers: [...buffersOf(reading.apps), ...buffersOf(reading.users)] };
  } catch (error) {
    if (isAppError(error, 'access_damaged'))
      return { answer: { kind: 'damaged', message: error.message, hint: error.hint }, buffers: [] };
    return { answer: { kind: 'failed', message: String(error) }, buffers: [] };
  }
}

const { answer: result, buffers } = answer();
parentPort?.postMessage(result, buffers);
