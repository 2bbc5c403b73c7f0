import path from 'node:path';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { findSize, hashFile } from '../runtime/files/file-checks.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import type { ExportFile } from './export-area.ts';
import type { HttpClient } from './http-client.ts';

export interface DownloadOptions {
  readonly http: HttpClient;
  readonly signal: AbortSignal;
  /** Requests fresh links. */
  readonly renew: () => Promise<readonly ExportFile[]>;
  /** Bytes received or found, of all files. */
  readonly onBytes: (bytes: number) => void;
  readonly onWait: (why: string | undefined) => void;
  /** Timeout without progress of a file, ms. */
  readonly giveUpAfterMs?: number;
}

const firstWaitMs = 500;
const maxWaitMs = 10_000;
const defaultPatienceMs = 120_000;

/** Outcome of one attempt; `changed`: the local part is of another file; `expired`: the link has expired. */
type AttemptResult = 'complete' | 'interrupted' | 'changed' | 'expired';

/** Opens a link, and follows the redirect of a service whose files are in a bucket. */
async function openLink(http: HttpClient, url: string, headers: Readonly<Record<string, string>>) {
  const opened = await http.open({ method: 'GET', url, headers });
  const location = opened.answer.status === 302 ? opened.answer.header('location') : undefined;
  return location === undefined ? opened : await http.open({ method: 'GET', url: location, headers: {} });
}

/** Downloads the missing bytes of a file. */
async function fetchRest(file: ExportFile, target: string, options: DownloadOptions): Promise<AttemptResult> {
  const { http, signal, onBytes } = options;
  let part = await openAppendedFile(target, file.bytes);
  try {
    const from = part.bytes;
    if (from === file.bytes) return 'complete';
    // The ETag is the file's hash: a part is continued only for the same file.
    const range: Record<string, string> = from === 0 ? {} : { range: `bytes=${from}-`, 'if-match': `"${file.sha256}"` };
    const { answer, body } = await openLink(http, file.link, range);
    if (answer.status === 403 || answer.status === 404) return 'expired';
    if (answer.status === 412 || answer.status === 416) return from > 0 ? 'changed' : 'interrupted';
    if (answer.status !== 200 && (from === 0 || answer.status !== 206))
      throw new AppError('service_away', `the download of ${file.name} failed with status ${answer.status}`);
    if (from > 0 && answer.status === 200) {
      // A proxy may ignore ranges: the file restarts.
      await part.close();
      part = await openAppendedFile(target, 0);
      onBytes(-from);
    }
    for await (const piece of body) {
      if (signal.aborted) return 'interrupted';
      if (part.bytes + piece.length > file.bytes) return 'interrupted';
      await part.append(piece);
      onBytes(piece.length);
    }
    await part.sync();
    return part.bytes === file.bytes ? 'complete' : 'interrupted';
  } finally {
    await part.close();
  }
}

/** Verifies a downloaded file, and removes it if it is wrong. */
async function isRight({ sha256, bytes }: ExportFile, place: string): Promise<boolean> {
  if ((await findSize(place)) !== bytes) return false;
  if ((await hashFile(place)) === sha256) return true;
  await removeFile(place);
  return false;
}

/**
 * Downloads a file into a folder, resuming an earlier download, until its size and hash match. Errors: `stopping` when
 * aborted, with the part kept; `service_refused` if the file has expired; `service_away`; `file_damaged` after three
 * mismatches; those of the system.
 */
export async function downloadFile(wanted: ExportFile, folder: string, options: DownloadOptions): Promise<string> {
  const { signal, onWait, onBytes, giveUpAfterMs = defaultPatienceMs } = options;
  const target = path.join(folder, wanted.name);
  const backoff = createBackoff(firstWaitMs, maxWaitMs);
  let [file, wrong] = [wanted, 0];
  let [size, movedAt] = [(await findSize(target)) ?? 0, performance.now()];
  onBytes(Math.min(size, wanted.bytes));
  for (;;) {
    if (signal.aborted) throw new AppError('stopping', `the download of ${file.name} was interrupted`);
    let why: string | undefined;
    try {
      const attemptResult = await fetchRest(file, target, options);
      onWait(undefined);
      if (attemptResult === 'complete') {
        if (await isRight(file, target)) return target;
        onBytes(-file.bytes);
        wrong += 1;
        if (wrong === 3)
          throw new AppError('file_damaged', `${file.name} failed checksum verification three times`, {
            hint: 'Check proxies between you and the service, then retry.',
          });
      } else if (attemptResult === 'expired') {
        const renewed = (await options.renew()).find(({ sha256 }) => sha256 === wanted.sha256);
        if (renewed === undefined || renewed.link === file.link)
          throw new AppError('service_refused', `${file.name} has expired`, {
            hint: 'Create the export again.',
          });
        file = renewed;
        continue;
      } else if (attemptResult === 'changed') {
        onBytes(-Math.min((await findSize(target)) ?? 0, file.bytes));
        await removeFile(target);
      } else why = 'the connection was closed';
    } catch (error) {
      if (!isAppError(error, 'service_away')) throw error;
      why = describeError(error);
    }
    const now = (await findSize(target)) ?? 0;
    if (now !== size) [size, movedAt] = [now, performance.now()];
    if (performance.now() - movedAt > giveUpAfterMs)
      throw new AppError(
        'service_away',
        `no data of ${file.name} received for ${giveUpAfterMs / 1000} s: ${why ?? ''}`,
      );
    if (why === undefined) continue;
    onWait(why);
    await pause(backoff.currentMs(), signal);
    backoff.grow();
  }
}
