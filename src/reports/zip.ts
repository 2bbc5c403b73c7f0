import type { Readable } from 'node:stream';

/** The start of the zip format's calendar: the same entries give the same bytes. */
const entryDate = new Date('1980-01-01T00:00:00Z');

/**
 * Opens a zip of compressed entries, which are read one after the other while the zip is read. An error of an entry ends
 * the zip with it.
 */
export async function openZip(
  entries: readonly (readonly [name: string, source: Readable])[],
): Promise<AsyncIterable<Buffer>> {
  // Loaded on demand: it would slow down the start.
  const { ZipArchive } = await import('archiver');
  const archive = new ZipArchive({ forceUTC: true, zlib: { level: 1 } });
  for (const [name, source] of entries) {
    source.once('error', (error) => archive.destroy(error));
    archive.append(source, { name, date: entryDate, mode: 0o644 });
  }
  archive
    .finalize()
    .catch((error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))));
  return archive;
}
