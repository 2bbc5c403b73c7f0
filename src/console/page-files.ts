import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { readPackageFolder } from '../runtime/files/package-files.ts';

/** A file as browsers get it. */
export interface PageFile {
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
  /** Strong: another one for other bytes. */
  readonly etag: string;
}

const types: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json; charset=utf-8',
};

/** Makes a file of its bytes; `name` says by its ending what it is. */
export function createPageFile(name: string, plain: Buffer): PageFile {
  return {
    type: types[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream',
    plain,
    gzip: gzipSync(plain, { level: 9 }),
    etag: `"${createHash('sha256').update(plain).digest('hex').slice(0, 32)}"`,
  };
}

/** The files of the console by their paths below it, as `make build` has made them; none where it was not built. */
export type PageFiles = ReadonlyMap<string, PageFile>;

/**
 * Returns what gives the files, read once and whole, when the first is asked for: what is served is of one build, and
 * nothing but its files can be asked for.
 */
export function openPageFiles(folder = 'dist/console'): () => PageFiles {
  let files: PageFiles | undefined;
  return () =>
    (files ??= new Map(
      [...(readPackageFolder(folder) ?? [])].map(([name, bytes]) => [name, createPageFile(name, bytes)]),
    ));
}
