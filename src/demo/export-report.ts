import { createWriteStream } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { pause } from '../runtime/async/retry.ts';
import { AppError } from '../runtime/errors.ts';

export interface ExportOptions {
  /** The export area's address, without a trailing slash. */
  readonly api: string;
  readonly idUser: string;
  readonly secret: string;
  readonly signal: AbortSignal;
}

/** Some of the parameters of `create.json` (service.md 2.4); sets are given as comma-separated values. */
export type ExportSpec = Readonly<Record<string, string>>;

/** Polls this often: within the export area's quota of 100 requests a minute. */
const pollEveryMs = 700;

/** Requests an export. Returns its idRawExport. */
export async function createExport(request: ExportSpec, options: ExportOptions): Promise<string> {
  const data = await call('POST', `/api/raw/v1/export/create.json?${new URLSearchParams(request).toString()}`, options);
  return String(data['idRawExport']);
}

/** Waits until a report's files are there; `onProgress` gets each change of its progress. Returns their links. */
export async function waitForReport(
  id: string,
  options: ExportOptions,
  onProgress: (text: string) => void,
): Promise<string[]> {
  let shown = '';
  for (;;) {
    const data = await call('GET', `/api/report/v1/file/get.json?idReportFile=${id}`, options);
    const status = String(data['status']);
    const progress = status === 'In progress' ? `${status}, ${String(data['progress'])}` : status;
    if (progress !== shown) onProgress(progress);
    shown = progress;
    if (status === 'Success!') return (data['files'] as { link: string }[]).map((file) => file.link);
    if (status !== 'In progress') throw new AppError('start_failed', `the export ended with '${status}'`);
    await pause(pollEveryMs, options.signal);
    options.signal.throwIfAborted();
  }
}

/** Downloads links as they are, without credentials, into a folder. Returns the files, in the order of the links. */
export async function downloadLinks(
  links: readonly string[],
  folder: string,
  signal: AbortSignal,
): Promise<{ file: string; bytes: number }[]> {
  const downloads: { file: string; bytes: number }[] = [];
  for (const link of links) {
    const response = await fetch(link, { signal });
    if (response.status !== 200 || response.body === null)
      throw new AppError('not_found', `the link ${new URL(link).pathname} answered ${response.status}`);
    const file = path.join(folder, path.basename(new URL(link).pathname));
    let bytes = 0;
    const counted = Readable.fromWeb(response.body).on('data', (chunk: Uint8Array) => void (bytes += chunk.length));
    await pipeline(counted, createWriteStream(file), { signal });
    downloads.push({ file, bytes });
  }
  return downloads;
}

/** Calls a method of the export area with HTTP Basic; returns the envelope's data. Any answer but 200 is an error. */
async function call(
  method: string,
  pathAndQuery: string,
  options: ExportOptions,
): Promise<Readonly<Record<string, unknown>>> {
  const authorization = `Basic ${Buffer.from(`${options.idUser}:${options.secret}`).toString('base64')}`;
  const response = await fetch(`${options.api}${pathAndQuery}`, {
    method,
    headers: { authorization },
    signal: options.signal,
  });
  const text = await response.text();
  if (response.status !== 200)
    throw new AppError('usage', `${pathAndQuery.split('?')[0]} answered ${response.status}: ${text.slice(0, 400)}`);
  return (JSON.parse(text) as { data: Readonly<Record<string, unknown>> }).data;
}
