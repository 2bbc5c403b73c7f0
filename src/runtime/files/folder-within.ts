import { stat } from 'node:fs/promises';
import path from 'node:path';

/** Says whether a folder, which need not be there yet, lies in another or is it; symbolic links are followed. */
export async function isWithin(folder: string, other: string): Promise<boolean> {
  const root = await stat(other, { bigint: true }).catch(() => undefined);
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    const found = await stat(at, { bigint: true }).catch(() => undefined);
    if (at === path.resolve(other) || (root !== undefined && found?.ino === root.ino && found.dev === root.dev))
      return true;
    if (at === path.dirname(at)) return false;
  }
}
