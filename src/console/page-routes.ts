import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { readPackageFolder } from '../runtime/files/package-files.ts';
import { takesGzip } from '../runtime/http/request-head.ts';

interface PageFile {
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
  readonly etag: string;
}

const types: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json; charset=utf-8',
};

function createPageFile(name: string, plain: Buffer): PageFile {
  return {
    type: types[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream',
    plain,
    gzip: gzipSync(plain, { level: 9 }),
    etag: `"${createHash('sha256').update(plain).digest('hex').slice(0, 32)}"`,
  };
}

/** The console's files by path; empty if the console was not built. */
export type PageFiles = ReadonlyMap<string, PageFile>;

/** Returns a function that reads all files on its first call, so that they are of one build. */
export function openPageFiles(folder = 'dist/console'): () => PageFiles {
  let files: PageFiles | undefined;
  return () =>
    (files ??= new Map(
      [...(readPackageFolder(folder) ?? [])].map(([name, bytes]) => [name, createPageFile(name, bytes)]),
    ));
}

/** Only the service itself may be contacted, nothing inline runs, and other pages cannot embed the console. */
const contentSecurityPolicy = [
  "default-src 'none'",
  ...['script-src', 'style-src', 'connect-src', 'img-src'].map((directive) => `${directive} 'self'`),
  ...['base-uri', 'form-action', 'frame-ancestors'].map((directive) => `${directive} 'none'`),
].join('; ');

const headers = {
  'content-security-policy': contentSecurityPolicy,
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

/** Assets have a hash in their name and are cached permanently. */
const assetPath = /^assets\/[\w.-]+$/;
/** A page of the program in the browser. */
const pagePath = /^(?:[a-z][a-z0-9-]*(?:\/[A-Za-z0-9_-]+)*)?$/;

function sendFile(request: FastifyRequest, reply: FastifyReply, file: PageFile, caching: string): FastifyReply {
  reply.headers({ ...headers, 'cache-control': caching, etag: file.etag, vary: 'accept-encoding' });
  if (request.headers['if-none-match'] === file.etag) return reply.code(304).send();
  const isGzip = takesGzip(request.headers['accept-encoding']);
  if (isGzip) reply.header('content-encoding', 'gzip');
  return reply.type(file.type).send(isGzip ? file.gzip : file.plain);
}

function sendNothing(reply: FastifyReply, text: string): FastifyReply {
  return reply
    .code(404)
    .headers({ ...headers, 'cache-control': 'no-store' })
    .type('text/plain; charset=utf-8')
    .send(text);
}

/**
 * Adds the console's files under `/console/`; `/` redirects there. `describeOrders` returns the JSON that the page New
 * export is made from, `signIn` the ways to sign in besides secrets and passwords.
 */
export function addPageRoutes(
  server: FastifyInstance,
  files: () => PageFiles,
  describeOrders: () => unknown,
  signIn: { readonly oidc: boolean } = { oidc: false },
): void {
  const signInFile = createPageFile('sign-in.json', Buffer.from(JSON.stringify(signIn)));
  let dictionary: PageFile | undefined;

  for (const url of ['/', '/console'])
    server.get(url, (_request, reply) => reply.header('cache-control', 'no-store').redirect('/console/', 302));

  server.get('/console/dictionary.json', (request, reply) => {
    dictionary ??= createPageFile('dictionary.json', Buffer.from(JSON.stringify(describeOrders())));
    return sendFile(request, reply, dictionary, 'no-cache');
  });

  server.get('/console/sign-in.json', (request, reply) => sendFile(request, reply, signInFile, 'no-cache'));

  server.get('/console/*', (request, reply) => {
    // The target as received: encoded characters match no file and no page.
    const path = (request.raw.url ?? '').split('?')[0]?.slice('/console/'.length) ?? '';
    const asset = assetPath.test(path) ? files().get(path) : undefined;
    if (asset !== undefined) return sendFile(request, reply, asset, 'public, max-age=31536000, immutable');
    const index = pagePath.test(path) && !path.startsWith('assets') ? files().get('index.html') : undefined;
    if (index !== undefined) return sendFile(request, reply, index, 'no-store');
    return sendNothing(reply, files().size === 0 ? 'The console was not built: run make build\n' : 'Page not found\n');
  });
}
