import type { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { contentTypeOf } from '../datasets/file-formats.ts';
import type { Clock } from '../runtime/clock.ts';
import { publicKeyHex } from '../runtime/encrypted-text.ts';
import { describeError, isStoreError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ObjectStore } from '../runtime/store/object-store.ts';
import { partKey } from './report-records.ts';
import { applicableRange, checkPreconditions, parseRange } from './preconditions.ts';
import { manifestName, renderManifest, type ManifestKey } from './manifest.ts';
import { archiveName, fileStem, isExpired, type ReportFile, type ReportJob } from './reports.ts';
import { refusedPageHeaders, renderLinkErrorPage, wantsPage, type LinkError } from './link-error-page.ts';
import { createOpenDownloads, findNamedUser, parseLink, type LinkHolder, type SigningKeys } from './signed-links.ts';
import type { ReportStore } from './store.ts';
import { isVerificationError, type FileVerificationError, type VerifiedFiles } from './verified-files.ts';

interface DownloadDependencies {
  readonly store: ReportStore;
  readonly keys: SigningKeys;
  readonly holders: LinkHolders;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly files: VerifiedFiles;
  readonly manifestKey: ManifestKey;
  /** Signs the URLs of redirects; undefined: files are streamed. */
  readonly presign: ObjectStore['presign'];
  /** Called before the first byte of a file or an archive. */
  readonly onDownload?: (download: Download) => Promise<void>;
}

/** A download of a file, or of a part of it. */
export interface Download {
  readonly idUser: string;
  readonly idReport: number;
  readonly file: string;
  /** Address of the client, or of a proxy. */
  readonly address: string;
}

/** Lookups of the users of links. */
export interface LinkHolders {
  /** Finds the current mark of a user; undefined if there is none. */
  findSecretFingerprint(idUser: string): string | undefined;
  /** Reports whether a missing user may exist, since the access data cannot be read. */
  mayLackUsers(): boolean;
  onChange(listener: () => void): () => void;
}

/** Archives up to this size are verified before their first byte, which takes about a second. */
const verifiedAheadBytes = 1024 ** 3;
/** Maximum life of the URL of a redirect, s: a client follows it at once, and a removed user keeps it. */
const redirectSeconds = 60;
const accessDenied = { code: 403, message: 'Access denied', data: null };
const unavailable = { code: 500, message: 'Internal Server Error', data: null };
const away = { code: 503, message: 'Service Unavailable', data: null };
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

/** What sends the files of one link. */
interface SendDependencies extends Pick<DownloadDependencies, 'files' | 'presign' | 'logger'> {
  readonly onDownload: (file: string) => Promise<void>;
}

/** Disables the idle timeout of a connection during work: reading a large file may take longer. */
async function withoutTimeout<T>({ raw, server }: FastifyRequest, work: () => Promise<T>): Promise<T> {
  raw.socket.setTimeout(0);
  try {
    return await work();
  } finally {
    raw.socket.setTimeout(server.server.timeout);
  }
}

function sendRefusal(request: FastifyRequest, reply: FastifyReply, refusal: LinkError): FastifyReply {
  reply.code(refusal.code);
  if (!wantsPage(request.headers.accept)) return reply.type('application/json; charset=utf-8').send(refusal);
  const page = renderLinkErrorPage(refusal, request.raw.url ?? '');
  return reply.headers(refusedPageHeaders).type('text/html; charset=utf-8').send(page);
}

/** Refuses a file whose headers may be set already. */
function refuseFile(request: FastifyRequest, reply: FastifyReply, refusal: LinkError): FastifyReply {
  for (const name of ['etag', 'accept-ranges', 'content-disposition']) reply.removeHeader(name);
  return sendRefusal(request, reply, refusal);
}

const refuseFault = (request: FastifyRequest, reply: FastifyReply, state: FileVerificationError['state']) =>
  refuseFile(request, reply, state === 'missing' ? notFound : damaged);

/**
 * Returns the life of the redirect that answers a request, s; 0 if the file is streamed. A client repeats its headers at
 * the bucket, which refuses or learns an Authorization and has other ETags.
 */
function redirectSecondsOf({ method, headers }: FastifyRequest, leftMs: number): number {
  const isOwn = ['authorization', 'if-match', 'if-range'].some((name) => headers[name] !== undefined);
  return method !== 'GET' || isOwn ? 0 : Math.min(redirectSeconds, Math.floor(leftMs / 1000));
}

async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  job: ReportJob,
  file: ReportFile,
  leftMs: number,
  { files, presign, onDownload }: SendDependencies,
): Promise<FastifyReply> {
  const etag = `"${file.sha256}"`;
  reply.header('etag', etag).header('accept-ranges', 'bytes');
  const condition = checkPreconditions(request.headers, etag);
  if (condition === 'failed') return reply.code(412).send(preconditionFailed);
  if (condition === 'not_modified') return reply.code(304).send();
  const range = parseRange(request.method === 'GET' ? applicableRange(request.headers, etag) : undefined, file.bytes);
  if (range.kind === 'unsatisfiable') return reply.code(416).header('content-range', `bytes */${file.bytes}`).send();

  const seconds = presign === undefined ? 0 : redirectSecondsOf(request, leftMs);
  if (presign !== undefined && seconds > 0) {
    const fault = await files.findFault({ job, file }, 'size');
    if (fault !== undefined) return refuseFault(request, reply, fault.state);
    const [fileName, contentType] = [file.name, contentTypeOf(file.name)];
    await onDownload(file.name);
    return reply.redirect(await presign(partKey(job, file.name), { seconds, fileName, contentType }), 302);
  }
  const opened = await withoutTimeout(request, () => files.open({ job, file }));
  if (isVerificationError(opened)) return refuseFault(request, reply, opened.state);
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
  await onDownload(file.name);
  const source = opened.stream({ first, last });
  // A file that was truncated meanwhile ends the connection: the client would wait for the rest.
  source.once('end', () => void (source.bytesRead < last - first + 1 && reply.raw.destroy()));
  return reply.send(source);
}

/**
 * Streams a zip of all files, stored without compression; nothing is written to disk. The files are verified before the
 * first byte; of a large archive only their sizes, and the checksum of each before its own bytes. A damaged file then
 * ends the connection, so that the zip does not seem complete.
 */
async function sendArchive(
  request: FastifyRequest,
  reply: FastifyReply,
  job: ReportJob,
  { files, logger, onDownload }: SendDependencies,
): Promise<FastifyReply> {
  const parts = (job.files ?? []).map((file) => ({ job, file }));
  const condition = checkPreconditions(request.headers, undefined);
  if (condition === 'failed') return reply.code(412).send(preconditionFailed);
  if (condition === 'not_modified') return reply.code(304).send();
  const bytes = parts.reduce((sum, { file }) => sum + file.bytes, 0);
  for (const part of parts) {
    // A missing part is damage: the archive exists.
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
  await onDownload(archiveName(job));
  // Loaded on demand: it would slow down the start.
  const { ZipArchive } = await import('archiver');
  const archive = new ZipArchive({
    store: true,
    forceZip64: parts.some(({ file }) => file.bytes > 0xffff_0000),
    forceUTC: true,
  });
  let reading: Readable | undefined;
  // A client that disconnects leaves the archive unread: the file must still be closed.
  archive.once('close', () => reading?.destroy());
  async function fill(): Promise<void> {
    for (const part of parts) {
      const opened = await withoutTimeout(request, () => files.open(part));
      if (isVerificationError(opened)) throw new Error(opened.detail);
      const source = opened.stream();
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
    logger.warn({ idReport: job.id, error: describeError(error) }, 'archive download aborted');
    archive.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  return reply.send(archive);
}

/** Sends the manifest, rendered from the request's record: the same bytes each time. */
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
 * Adds GET and HEAD of `/files/...` under a signed link, with Range, ETag and the conditions of RFC 9110; other
 * authorization is ignored. A forged or expired link, or one whose holder was removed, gets a 403; a deleted request a
 * 404; a damaged file a 500 before its first byte; a file in a bucket that does not respond a 503. Browsers get a page
 * of the same status. Downloads end with their holder.
 */
export function addDownloadRoutes(app: FastifyInstance, dependencies: DownloadDependencies): void {
  const { store, keys, clock, holders, logger } = dependencies;
  const downloads = createOpenDownloads();
  const stopListening = holders.onChange(() => {
    if (!holders.mayLackUsers())
      downloads.endWhere(
        ({ idUser, secretFingerprint }) => holders.findSecretFingerprint(idUser) !== secretFingerprint,
      );
  });
  app.addHook('onClose', async () => stopListening());

  /** Refuses a link; asks for a retry if its user may exist in damaged access data. */
  function refuse(request: FastifyRequest, reply: FastifyReply, idUser: string | undefined): FastifyReply {
    const mayBeLive =
      idUser !== undefined && holders.mayLackUsers() && holders.findSecretFingerprint(idUser) === undefined;
    if (mayBeLive) reply.header('retry-after', retryAfterSeconds);
    return sendRefusal(request, reply, mayBeLive ? unavailable : accessDenied);
  }

  async function answer(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    reply.header('cache-control', 'private, no-store');
    const url = request.raw.url ?? '';
    // A link that cannot be verified may be valid.
    if (!keys.isReadable()) return sendRefusal(request, reply.header('retry-after', retryAfterSeconds), unavailable);
    const target = parseLink(keys, url, clock.nowMs(), (idUser) => holders.findSecretFingerprint(idUser));
    if (target === undefined) return refuse(request, reply, findNamedUser(url));
    // Another host may have ended it just now, and returned its link.
    const job = await store.find(target.id, 'newest');
    if (job?.state !== 'success' || isExpired(job, clock.nowMs())) return sendRefusal(request, reply, notFound);
    const secretFingerprint = holders.findSecretFingerprint(job.idUser);
    const holder: LinkHolder | undefined =
      target.holder ?? (secretFingerprint === undefined ? undefined : { idUser: job.idUser, secretFingerprint });
    if (holder === undefined) return refuse(request, reply, job.idUser);
    downloads.add(holder, reply.raw);
    const file = job.files?.find((candidate) => candidate.name === target.name);
    const leftMs = target.expiresSeconds * 1000 - clock.nowMs();
    const { idUser } = holder;
    const sending = {
      ...dependencies,
      onDownload: async (name: string) =>
        dependencies.onDownload?.({ idUser, idReport: job.id, file: name, address: request.ip }),
    };
    if (file !== undefined) return await sendFile(request, reply, job, file, leftMs, sending);
    if (target.name === manifestName(fileStem(job))) return sendManifest(request, reply, job, dependencies);
    if (target.name === archiveName(job)) return await sendArchive(request, reply, job, sending);
    return sendRefusal(request, reply, notFound);
  }

  app.route({
    method: ['GET', 'HEAD'],
    url: '/files/*',
    async handler(request, reply) {
      try {
        return await answer(request, reply);
      } catch (error) {
        if (!isStoreError(error)) throw error;
        logger.warn({ error: describeError(error) }, 'cannot read report file for a download');
        return refuseFile(request, reply.header('retry-after', retryAfterSeconds), away);
      }
    },
  });
}

/** Adds the public key of manifests: `GET /manifest-key.json`, without authorization. */
export function addManifestRoutes(app: FastifyInstance, manifestKey: ManifestKey): void {
  app.get('/manifest-key.json', () => {
    const key = manifestKey.current();
    // The server turns an error into a 500 with Retry-After.
    if (key === undefined) throw new Error('cannot read the manifest key');
    return { code: 200, message: 'Ok', data: { algorithm: 'Ed25519', key: publicKeyHex(key) } };
  });
}
