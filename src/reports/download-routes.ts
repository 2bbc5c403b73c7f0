import type { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { contentTypeOf } from '../datasets/file-formats.ts';
import type { Clock } from '../runtime/clock.ts';
import { publicKeyHex } from '../runtime/sealed-text.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { applicableRange, checkPreconditions, parseRange } from './preconditions.ts';
import { manifestName, renderManifest } from './manifest.ts';
import { archiveName, fileStem, isExpired, type ReportFile, type ReportJob } from './reports.ts';
import { refusedPageHeaders, renderRefusedPage, wantsPage, type LinkRefusal } from './refused-page.ts';
import { createOpenDownloads, findNamedUser, parseLink, type LinkHolder } from './signed-links.ts';
import type { ManifestKey } from './manifest-key.ts';
import type { SigningKeys } from './signing-keys.ts';
import type { ReportStore } from './store.ts';
import { isFault, type FileFault, type VerifiedFiles } from './verified-files.ts';

export interface DownloadDependencies {
  readonly store: ReportStore;
  readonly keys: SigningKeys;
  readonly holders: LinkHolders;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly files: VerifiedFiles;
  /** The private key that signs manifests. */
  readonly manifestKey: ManifestKey;
}

/** The users, as far as their links need them. */
export interface LinkHolders {
  /** The present mark of a user; undefined when there is none. */
  findMark(idUser: string): string | undefined;
  /** A user that is not found may exist all the same: the access data cannot be read. */
  mayLackUsers(): boolean;
  /** Calls back when users have changed. */
  onChange(listener: () => void): () => void;
}

/** An archive of at most so many bytes is verified before it is begun, which takes a second or so. */
const verifiedAheadBytes = 1024 ** 3;
const accessDenied = { code: 403, message: 'Access denied', data: null };
const unavailable = { code: 500, message: 'Internal Server Error', data: null };
const retryAfterSeconds = 5;
const notFound = { code: 404, message: 'Not Found', data: { error: { detail: 'The file is not found' } } };
const preconditionFailed = {
  code: 412,
  message: 'Precondition Failed',
  data: { error: { detail: 'The file is not the one that If-Match names' } },
};
const damaged = {
  code: 500,
  message: 'Internal Server Error',
  data: { error: { detail: 'The report file is damaged on the disk of the service: create the export again' } },
};

/**
 * Lets a connection stand still for as long as the work takes: to read a large file on a slow disk takes longer than a
 * client may idle.
 */
async function withoutTimeout<T>({ raw, server }: FastifyRequest, work: () => Promise<T>): Promise<T> {
  raw.socket.setTimeout(0);
  try {
    return await work();
  } finally {
    raw.socket.setTimeout(server.server.timeout);
  }
}

/** Refuses a link: a person at a browser is shown a page that says what to do, everybody else the envelope. */
function sendRefusal(request: FastifyRequest, reply: FastifyReply, refusal: LinkRefusal): FastifyReply {
  reply.code(refusal.code);
  if (!wantsPage(request.headers.accept)) return reply.type('application/json; charset=utf-8').send(refusal);
  const page = renderRefusedPage(refusal, request.raw.url ?? '');
  return reply.headers(refusedPageHeaders).type('text/html; charset=utf-8').send(page);
}

function refuseFault(request: FastifyRequest, reply: FastifyReply, state: FileFault['state']): FastifyReply {
  for (const name of ['etag', 'accept-ranges', 'content-disposition']) reply.removeHeader(name);
  return sendRefusal(request, reply, state === 'missing' ? notFound : damaged);
}

async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  job: ReportJob,
  file: ReportFile,
  { store, files }: DownloadDependencies,
): Promise<FastifyReply> {
  const etag = `"${file.sha256}"`;
  reply.header('etag', etag).header('accept-ranges', 'bytes');
  const condition = checkPreconditions(request.headers, etag);
  if (condition === 'failed') return reply.code(412).send(preconditionFailed);
  if (condition === 'not_modified') return reply.code(304).send();
  const range = parseRange(request.method === 'GET' ? applicableRange(request.headers, etag) : undefined, file.bytes);
  if (range.kind === 'unsatisfiable') return reply.code(416).header('content-range', `bytes */${file.bytes}`).send();

  const opened = await withoutTimeout(request, () =>
    files.open({ idReport: job.id, path: store.filePath(job.id, file.name), file }),
  );
  if (isFault(opened)) return refuseFault(request, reply, opened.state);
  const { first, last } = range.kind === 'part' ? range : { first: 0, last: file.bytes - 1 };
  if (range.kind === 'part') reply.code(206).header('content-range', `bytes ${first}-${last}/${file.bytes}`);
  reply
    .type(contentTypeOf(file.name))
    .header('content-disposition', `attachment; filename="${file.name}"`)
    .header('content-length', last - first + 1);
  if (request.method === 'HEAD' || last < first) {
    await opened.close();
    return reply.send();
  }
  const source = opened.createReadStream({ start: first, end: last });
  // Cut short while it is sent: the connection ends, since the client would wait for the rest without end.
  source.once('end', () => void (source.bytesRead < last - first + 1 && reply.raw.destroy()));
  return reply.send(source);
}

/**
 * Streams one zip of all files. The parts are compressed already, or are wanted plain, so they are only stored; nothing is written to disk.
 * The parts are checked before the first byte; of a large archive only their sizes, since to read them all could take
 * minutes, and the checksum of each before its own bytes. One that is damaged then ends the connection, so that no
 * client takes the zip for a whole one.
 */
async function sendArchive(
  request: FastifyRequest,
  reply: FastifyReply,
  job: ReportJob,
  { store, files, logger }: DownloadDependencies,
): Promise<FastifyReply> {
  const parts = (job.files ?? []).map((file) => ({ idReport: job.id, path: store.filePath(job.id, file.name), file }));
  const condition = checkPreconditions(request.headers, undefined);
  if (condition === 'failed') return reply.code(412).send(preconditionFailed);
  if (condition === 'not_modified') return reply.code(304).send();
  const bytes = parts.reduce((sum, { file }) => sum + file.bytes, 0);
  for (const part of parts) {
    // One part that is gone is no reason to say that the archive is not there.
    if (
      (await withoutTimeout(request, () => files.findFault(part, bytes > verifiedAheadBytes ? 'size' : 'wholly'))) !==
      undefined
    )
      return refuseFault(request, reply, 'damaged');
  }
  reply
    .type('application/zip')
    .header('content-disposition', `attachment; filename="${archiveName(job)}"`)
    .header('accept-ranges', 'none');
  if (request.method === 'HEAD') return reply.send();
  // Loaded when an archive is asked for: it would slow the start down.
  const { ZipArchive } = await import('archiver');
  const archive = new ZipArchive({
    store: true,
    forceZip64: parts.some(({ file }) => file.bytes > 0xffff_0000),
    forceUTC: true,
  });
  let reading: Readable | undefined;
  // A client that goes away leaves the archive unread: the file must still be closed.
  archive.once('close', () => reading?.destroy());
  async function fill(): Promise<void> {
    for (const part of parts) {
      const opened = await withoutTimeout(request, () => files.open(part));
      if (isFault(opened)) throw new Error(opened.detail);
      const source = opened.createReadStream();
      const ended = new Promise<void>((resolve) => source.once('close', resolve));
      reading = source;
      if (archive.destroyed) source.destroy();
      archive.append(source, { name: part.file.name, date: new Date(job.finishedMs ?? 0), mode: 0o644 });
      await ended;
      if (archive.destroyed) return;
    }
    await archive.finalize();
  }
  fill().catch((error: unknown) => {
    logger.warn({ idReport: job.id, error: describeError(error) }, 'archive of a report was not sent to its end');
    archive.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  return reply.send(archive);
}

/** Sends the manifest: made of the request's record, the same bytes each time, and never at rest. */
function sendManifest(
  request: FastifyRequest,
  reply: FastifyReply,
  job: ReportJob,
  { manifestKey }: DownloadDependencies,
): FastifyReply {
  const key = manifestKey.current();
  if (key === undefined) return sendRefusal(request, reply.header('retry-after', retryAfterSeconds), unavailable);
  const text = renderManifest(job, key);
  if (text === undefined) return sendRefusal(request, reply, notFound);
  return reply
    .type('application/json; charset=utf-8')
    .header('content-disposition', `attachment; filename="${manifestName(fileStem(job))}"`)
    .send(text);
}

/**
 * Adds the download routes: GET and HEAD of `/files/...` under a signed link, with Range, ETag and the conditions of
 * RFC
 * 9110. No other authorization is needed, and a given one is ignored. A link that was not signed here, that has ended, or
 * whose holder has, answers 403; a request that is gone although its link has not ended, 404; a file that is not what
 * was written, 500 before its first byte. A person at a browser is shown a page of the same status. A download under
 * way ends with its holder.
 */
export function addDownloadRoutes(app: FastifyInstance, dependencies: DownloadDependencies): void {
  const { store, keys, clock, holders } = dependencies;
  const downloads = createOpenDownloads();
  const stopListening = holders.onChange(() => {
    if (!holders.mayLackUsers()) downloads.endWhere(({ idUser, mark }) => holders.findMark(idUser) !== mark);
  });
  app.addHook('onClose', async () => stopListening());

  /** Refuses a link; a user whom the damaged access data may lack is asked to come again. */
  function refuse(request: FastifyRequest, reply: FastifyReply, idUser: string | undefined): FastifyReply {
    const mayBeLive = idUser !== undefined && holders.mayLackUsers() && holders.findMark(idUser) === undefined;
    if (mayBeLive) reply.header('retry-after', retryAfterSeconds);
    return sendRefusal(request, reply, mayBeLive ? unavailable : accessDenied);
  }

  app.route({
    method: ['GET', 'HEAD'],
    url: '/files/*',
    async handler(request, reply) {
      reply.header('cache-control', 'private, no-store');
      const url = request.raw.url ?? '';
      // A link that cannot be verified may be a good one.
      if (!keys.isReadable()) return sendRefusal(request, reply.header('retry-after', retryAfterSeconds), unavailable);
      const target = parseLink(keys, url, clock.nowMs(), (idUser) => holders.findMark(idUser));
      if (target === undefined) return refuse(request, reply, findNamedUser(url));
      const job = await store.find(target.id);
      if (job?.state !== 'success' || isExpired(job, clock.nowMs())) return sendRefusal(request, reply, notFound);
      const mark = holders.findMark(job.idUser);
      const holder: LinkHolder | undefined =
        target.holder ?? (mark === undefined ? undefined : { idUser: job.idUser, mark });
      if (holder === undefined) return refuse(request, reply, job.idUser);
      downloads.add(holder, reply.raw);
      const file = job.files?.find((candidate) => candidate.name === target.name);
      if (file !== undefined) return sendFile(request, reply, job, file, dependencies);
      if (target.name === manifestName(fileStem(job))) return sendManifest(request, reply, job, dependencies);
      if (target.name === archiveName(job)) return sendArchive(request, reply, job, dependencies);
      return sendRefusal(request, reply, notFound);
    },
  });
}

/** Adds the public half of the key that signs manifests: `GET /manifest-key.json`, for everybody. */
export function addManifestRoutes(app: FastifyInstance, manifestKey: ManifestKey): void {
  app.get('/manifest-key.json', () => {
    const key = manifestKey.current();
    // The server answers an error with 500 and Retry-After.
    if (key === undefined) throw new Error('the key of manifests cannot be read');
    return { code: 200, message: 'Ok', data: { algorithm: 'Ed25519', key: publicKeyHex(key) } };
  });
}
