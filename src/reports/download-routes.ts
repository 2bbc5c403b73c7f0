import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { ZipArchive } from 'archiver';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../runtime/clock.ts';
import { isSystemError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { parseRange } from './byte-range.ts';
import { archiveName, isExpired, type ReportFile, type ReportJob } from './reports.ts';
import { parseLink } from './signed-links.ts';
import type { SigningKeys } from './signing-keys.ts';
import type { ReportStore } from './store.ts';

export interface DownloadDependencies {
  readonly store: ReportStore;
  readonly keys: SigningKeys;
  readonly clock: Clock;
  readonly logger: Logger;
}

const accessDenied = { code: 403, message: 'Access denied', data: null };
const notFound = { code: 404, message: 'Not Found', data: { error: { detail: 'The file is not found' } } };

/** Opens a part. A symbolic link in its place is none of ours: what it leads to is not given out. */
async function findOpenFile(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ELOOP')) return undefined;
    throw error;
  }
}

/** Whether the client's copy is still the file, by If-None-Match (RFC 9110, 13.1.2). */
function isUnchanged(request: FastifyRequest, etag: string): boolean {
  const header = request.headers['if-none-match'];
  return header !== undefined && header.split(',').some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag);
}

async function sendFile(request: FastifyRequest, reply: FastifyReply, path: string, file: ReportFile): Promise<FastifyReply> {
  const etag = `"${file.sha256}"`;
  reply.header('etag', etag).header('accept-ranges', 'bytes');
  if (isUnchanged(request, etag)) return reply.code(304).send();
  // If-Range: a part is only of use to a client whose other parts are of this very file.
  const ifRange = request.headers['if-range'];
  const header = request.method === 'GET' && (ifRange === undefined || ifRange === etag) ? request.headers.range : undefined;
  const range = parseRange(header, file.bytes);
  if (range.kind === 'unsatisfiable') return reply.code(416).header('content-range', `bytes */${file.bytes}`).send();

  const handle = await findOpenFile(path);
  if (handle === undefined) return reply.code(404).send(notFound);
  const { first, last } = range.kind === 'part' ? range : { first: 0, last: file.bytes - 1 };
  if (range.kind === 'part') reply.code(206).header('content-range', `bytes ${first}-${last}/${file.bytes}`);
  reply
    .type(file.name.endsWith('.gz') ? 'application/gzip' : 'text/csv; charset=utf-8')
    .header('content-disposition', `attachment; filename="${file.name}"`)
    .header('content-length', last - first + 1);
  if (request.method === 'HEAD' || last < first) {
    await handle.close();
    return reply.send();
  }
  return reply.send(handle.createReadStream({ start: first, end: last }));
}

/** Streams one zip of all files. The parts are compressed already, so they are only stored; nothing is written to disk. */
async function sendArchive(request: FastifyRequest, reply: FastifyReply, job: ReportJob, { store, logger }: DownloadDependencies): Promise<FastifyReply> {
  const name = archiveName(job);
  reply.type('application/zip').header('content-disposition', `attachment; filename="${name}"`);
  if (request.method === 'HEAD') return reply.send();
  const archive = new ZipArchive({ store: true, forceZip64: (job.files ?? []).some((file) => file.bytes > 0xffff_0000), forceUTC: true });
  let reading: Readable | undefined;
  // A client that goes away leaves the archive unread: the file must be closed all the same.
  archive.once('close', () => reading?.destroy());
  async function fill(): Promise<void> {
    for (const file of job.files ?? []) {
      const handle = await findOpenFile(store.filePath(job.id, file.name));
      if (handle === undefined) throw new Error(`${file.name} is gone`);
      const source = handle.createReadStream();
      const ended = new Promise<void>((resolve) => source.once('close', resolve));
      reading = source;
      if (archive.destroyed) source.destroy();
      archive.append(source, { name: file.name, date: new Date(job.finishedMs ?? 0), mode: 0o644 });
      await ended;
      if (archive.destroyed) return;
    }
    await archive.finalize();
  }
  fill().catch((error: unknown) => {
    logger.error({ idReport: job.id, error: String(error) }, 'archive of a report cannot be streamed');
    archive.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  return reply.send(archive);
}

/**
 * Adds the download routes: GET and HEAD of `/files/...` under a signed link, with Range, If-Range and ETag. No other
 * authorization is asked for, and none is looked at. A link that was not signed here, or that has ended, answers 403; a
 * request that is gone although its link has not ended, 404.
 */
export function addDownloadRoutes(app: FastifyInstance, dependencies: DownloadDependencies): void {
  const { store, keys, clock } = dependencies;
  app.route({
    method: ['GET', 'HEAD'],
    url: '/files/*',
    async handler(request, reply) {
      reply.header('cache-control', 'private, no-store');
      const target = parseLink(keys, request.raw.url ?? '', clock.nowMs());
      if (target === undefined) return reply.code(403).send(accessDenied);
      const job = await store.find(target.id);
      if (job?.state !== 'success' || isExpired(job, clock.nowMs())) return reply.code(404).send(notFound);
      const file = job.files?.find((candidate) => candidate.name === target.name);
      if (file !== undefined) return sendFile(request, reply, store.filePath(job.id, file.name), file);
      if (target.name === archiveName(job)) return sendArchive(request, reply, job, dependencies);
      return reply.code(404).send(notFound);
    },
  });
}
