import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import type { RefusedEvent } from './event-source.ts';

/** The line of a refused event: the event is in it byte for byte as it was sent. */
export function renderRefused({ json, ...what }: RefusedEvent): string {
  const text = JSON.stringify(what);
  return json === undefined ? `${text}\n` : `${text.slice(0, -1)},"event":${json}}\n`;
}

/**
 * Writes lines to a file of refused events behind its first bytes, and makes them survive a power cut; its name does once
 * the caller has synced the folder. A file that has nothing is none. Returns its length.
 */
export async function writeRefused(file: string, lines: string, atByte: number): Promise<number> {
  if (lines === '' && atByte === 0) {
    await removeFile(file);
    return 0;
  }
  const refused = await openAppendedFile(file, atByte);
  try {
    await refused.append(lines);
    await refused.sync();
    return refused.bytes;
  } finally {
    await refused.close();
  }
}
