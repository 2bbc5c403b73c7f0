import { createHttpClient } from '../client/http-client.ts';
import { fetchExport, getManifestKey, type Fetched } from '../client/export-output.ts';
import type { ExportReport } from '../client/export-area.ts';
import { parseManifest } from '../reports/manifest.ts';
import { isAppError, isDiskFull } from '../runtime/errors.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import { readPlain } from '../runtime/files/input-file.ts';
import type { ExportCaller } from './caller.ts';
import type { CommandContext } from './command.ts';
import { formatBytes, formatCount } from './numbers.ts';

/** The output that stands for standard output. */
export const standardOutput = '-';

/** Fetches a finished export, each byte compared with what the service has signed. */
async function fetchFiles(
  caller: ExportCaller,
  report: ExportReport,
  output: string,
  named: string,
  context: CommandContext,
): Promise<Fetched> {
  const { area, url, onWait } = caller;
  const { stop, show } = context;
  // Downloads have connections of their own: they may be slow, and calls are not to wait for them.
  const http = createHttpClient();
  const total = (report.files ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
  let have = 0;
  try {
    const key = await getManifestKey(url, { http });
    return await fetchExport(report, output, (manifest) => parseManifest(manifest, key).files, {
      http,
      signal: stop,
      renew: async () => (await area.get(report.id)).files ?? [],
      onBytes(bytes) {
        have += bytes;
        show?.(`export ${report.id}: ${formatBytes(have)} of ${formatBytes(total)} downloaded`);
      },
      onWait,
    });
  } catch (error) {
    if (stop.aborted || isAppError(error, 'service_away') || isDiskFull(error))
      context.note(
        `tributary: what came is kept: 'tributary export download ${report.id} -o ${named}' goes on from there`,
      );
    throw error;
  } finally {
    http.close();
  }
}

/** Writes a fetched file on standard output, until nobody reads it any more, and removes it. */
async function writeOut(file: string, { write, unread }: CommandContext): Promise<void> {
  try {
    for await (const piece of readPlain(file, false)) {
      if (unread?.aborted === true) return;
      await write?.(piece);
    }
  } finally {
    await removeFile(file);
  }
}

/**
 * Fetches a finished export to its output and answers what it is. On standard output are its bytes alone, once all of
 * them have come and are right; what else there is to say is a note then. `ending` is that of the file, `.csv.gz`.
 */
export async function deliver(
  caller: ExportCaller,
  report: ExportReport,
  { output, ending }: { readonly output: string; readonly ending: string },
  context: CommandContext,
): Promise<void> {
  const { id: idRawExport, data } = report;
  const { version, nextSinceVersion, timestampKeptUntil, timestampWatermark } = data;
  const isOut = output === standardOutput;
  const place = isOut ? `export-${idRawExport}.stdout${ending}` : output;
  const { files, rows, bytes } = await fetchFiles(caller, report, place, output, context);
  context.show?.('');
  const where = isOut ? 'on standard output' : `in ${files.join(', ')}`;
  context.note(`tributary: ${formatCount(rows)} rows, ${formatBytes(bytes)} ${where}`);
  // What is not known, such as the watermark of a loaded dataset, is left out.
  const basis = { version, nextSinceVersion, timestampKeptUntil, timestampWatermark };
  if (!isOut) return context.answer({ url: caller.url, idRawExport, files, rows, bytes, ...basis });
  await writeOut(place, context);
  context.note(`tributary: version ${String(version)}, nextSinceVersion ${String(nextSinceVersion)}`);
}
