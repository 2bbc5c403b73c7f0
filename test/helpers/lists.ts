import { addSegment, type AddedSegment } from '../../src/admin/lists/add-segment.ts';
import { loadTitles } from '../../src/admin/lists/load-titles.ts';
import type { ListInput } from '../../src/admin/lists/text-lines.ts';
import { createClock } from '../../src/runtime/clock.ts';
import type { SegmentKind } from '../../src/segments/segment-store.ts';

/** Options for loading lists in tests. */
export const listOptions = { clock: createClock(0), memoryMb: 256, signal: new AbortController().signal };

async function* cut(bytes: Uint8Array, pieceBytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += pieceBytes)
    yield await Promise.resolve(bytes.subarray(at, at + pieceBytes));
}

/** Returns a list of some bytes, which arrive in pieces. */
export function listOf(bytes: string | Uint8Array, pieceBytes = 1024 * 1024, name = 'list'): ListInput {
  return { name, pieces: cut(Buffer.from(bytes as string), pieceBytes) };
}

/** Adds a segment; throws if its list is rejected. */
export async function addTestSegment(
  segmentsDir: string,
  segment: { readonly idAccount: number; readonly idSegment: number; readonly kind: SegmentKind },
  ids: readonly string[],
): Promise<AddedSegment> {
  const added = await addSegment(segmentsDir, segment, listOf(ids.join('\n')), listOptions);
  if ('badLines' in added) throw new Error(`refused: ${JSON.stringify(added)}`);
  return added;
}

/** Loads titles given as lines of CSV; throws if they are rejected. */
export async function loadTestTitles(titlesDir: string, lines: readonly string[]): Promise<void> {
  const loaded = await loadTitles(titlesDir, [listOf(lines.join('\n'))], listOptions);
  if (!('titles' in loaded)) throw new Error(`refused: ${JSON.stringify(loaded)}`);
}
