import type * as FileSystem from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Actions on names and bytes in the lake, in order; recorded by the file system below and the stream. */
const actions = vi.hoisted(() => ({ done: [] as string[], lakeDir: '' }));

/** Returns a path below the lake without its random parts; undefined if it is of no flush. */
function nameOf(file: unknown): string | undefined {
  const relative = path.relative(actions.lakeDir, String(file));
  if (actions.lakeDir === '' || relative === '' || relative.startsWith('..')) return undefined;
  // Written by other loops, concurrently with the flush.
  if (/^(snapshot\.sql|stream-end\.json|watermark\.json|\.write-probe)/.test(relative)) return undefined;
  return relative
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uuid>')
    .replaceAll(/\d{20}/g, '<N>')
    .replace(/pending-\d+-/, 'pending-<N>-');
}

function note(verb: string, ...files: readonly unknown[]): void {
  const names = files.map(nameOf);
  if (!names.includes(undefined)) actions.done.push(`${verb} ${names.join(' -> ')}`);
}

vi.mock('node:fs/promises', async (importOriginal) => {
  const real = await importOriginal<typeof FileSystem>();
  return {
    ...real,
    async open(...given: Parameters<typeof real.open>) {
      const handle = await real.open(...given);
      const sync = handle.sync.bind(handle);
      handle.sync = async () => {
        await sync();
        note('fsync', given[0]);
      };
      return handle;
    },
    async link(from: string, to: string) {
      await real.link(from, to);
      note('link', from, to);
    },
    async rename(from: string, to: string) {
      await real.rename(from, to);
      note('rename', from, to);
    },
    async unlink(file: string) {
      await real.unlink(file);
      note('unlink', file);
    },
  };
});

const youngFsync = 'fsync events/_young';

test('A flush is written, fsynced, committed and purged in this order, and in no other', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const reader: StreamReader = {
    ...stream,
    pull: async (...given) => {
      const messages = await stream.pull(...given);
      if (messages.length > 0) actions.done.push('pull from the stream');
      return messages;
    },
    assertOwner: async () => void actions.done.push('ask whose the stream is'),
    purgeBelow: async (sequence) => {
      await stream.purgeBelow(sequence);
      actions.done.push('purge the stream');
    },
  };
  const compactor = await startTestCompact(folder, reader);
  onTestFinished(() => compactor.stop());
  actions.lakeDir = path.join(folder, 'lake');
  stream.publishRaw(`${JSON.stringify(eventLine())}\nno event\n`);
  await waitFor('the row is stored', async () => (await readRows(folder)).length === 1);
  await waitFor('the stream is purged', () => actions.done.includes('purge the stream'));

  const begun = actions.done.indexOf('pull from the stream');
  const flush = actions.done.slice(begun, actions.done.indexOf('purge the stream', begun) + 1);
  // The first cleanup runs concurrently with the first flush, and fsyncs the same folder once more.
  const ofFlush = flush.filter((done, n) => done !== youngFsync || flush[n - 1]?.startsWith('rename ') === true);
  expect(ofFlush).toEqual([
    'pull from the stream',
    'fsync events/_young/.<uuid>.parquet.<uuid>.tmp',
    'rename events/_young/.<uuid>.parquet.<uuid>.tmp -> events/_young/<uuid>.parquet',
    youngFsync,
    'fsync failed/pending-<N>-<uuid>.ndjson',
    'fsync failed',
    'ask whose the stream is',
    'fsync events/_delta_log/.<N>.json.<uuid>.tmp',
    'link events/_delta_log/.<N>.json.<uuid>.tmp -> events/_delta_log/<N>.json',
    'unlink events/_delta_log/.<N>.json.<uuid>.tmp',
    'fsync events/_delta_log',
    'rename failed/pending-<N>-<uuid>.ndjson -> failed/<uuid>.ndjson',
    'purge the stream',
  ]);
});
