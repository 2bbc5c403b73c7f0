import { EventEmitter, once } from 'node:events';
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startWriteProbe, type WriteProbe } from '../../../src/compact/lake-watches.ts';
import { ensureLake, lakePaths } from '../../../src/lake/lake.ts';
import { checkWritable } from '../../../src/lake/write-check.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { acquireLock } from '../../../src/runtime/files/lock.ts';
import { testFolder } from '../../helpers/folder.ts';
import { listFiles } from '../../helpers/folder-bytes.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { silentLogger } from '../../helpers/nats.ts';
import { makeReadOnly } from '../../helpers/read-only.ts';
import { mountSmallDisk } from '../../helpers/small-disk.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);

/**
 * Creates an empty lake under its compactor's lock, and its probe, which reports at once; `tries` counts attempts.
 */
async function createScene(root = testFolder()): Promise<{ lakeDir: string; probe: WriteProbe; tries: () => number }> {
  const lakeDir = path.join(root, 'lake');
  await ensureLake(lakeDir, { clock, retentionMs: 1000 });
  const lock = acquireLock(lakeDir, 'a test');
  let tries = 0;
  const probe = startWriteProbe(
    {
      tryWrite: () => checkWritable(lakeDir, () => lock.assertHeld()).finally(() => void (tries += 1)),
      clock,
      logger: silentLogger,
    },
    { everyMs: 10, lastingMs: 0 },
  );
  onTestFinished(async () => {
    await probe.stop();
    lock.release();
  });
  return { lakeDir, probe, tries: () => tries };
}

/** Waits for a few attempts of the probe. */
async function tryOften(tries: () => number): Promise<void> {
  const enough = tries() + 5;
  await waitFor('it has tried', () => tries() >= enough);
}

describe('a lake without new events', () => {
  it('A lake without new events is reported with a next step while it is not writable, and no longer afterwards', async (context) => {
    const { lakeDir, probe, tries } = await createScene();
    await tryOften(tries);
    const files = listFiles(lakeDir).filter((name) => name !== '.write-probe.tmp');
    const { table } = lakePaths(lakeDir);
    for (const folder of [lakeDir, table, path.join(table, '_delta_log'), path.join(table, '_young')]) {
      const readOnly = makeReadOnly(folder);
      if (readOnly === undefined) context.skip('nothing can be mounted here');
      const what = new RegExp(`^the lake has not been writable since \\d{4}-.*: (EROFS|EACCES).*'${folder}`);
      await waitFor(`${folder} is reported`, () =>
        probe.problems().some((problem) => what.test(problem.message) && problem.action.includes('read-only')),
      );
      readOnly?.undo();
      await waitFor('it is resolved', () => probe.problems().length === 0);
    }
    await probe.stop();
    expect(listFiles(lakeDir)).toEqual(files);
  });

  it('A lake without new events is reported while its disk is full', async (context) => {
    const root = testFolder();
    const disk = mountSmallDisk(path.join(root, 'small'), 1024 * 1024);
    if (disk === undefined) {
      context.skip('a small file system can only be mounted by root');
      return;
    }
    const { probe } = await createScene(path.join(root, 'small'));
    disk.fill(0);
    await waitFor('it is reported', () => probe.problems().some(({ message }) => message.includes('ENOSPC')));
    disk.empty();
    await waitFor('it is resolved', () => probe.problems().length === 0);
    expect(listFiles(root).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });

  it('A lake without new events is not written to once another folder stands in its place', async () => {
    const { lakeDir, probe, tries } = await createScene();
    renameSync(lakeDir, `${lakeDir}-moved`);
    const { young, failed, staging } = lakePaths(lakeDir);
    for (const folder of [path.join(path.dirname(young), '_delta_log'), young, failed, staging])
      mkdirSync(folder, { recursive: true });
    await tryOften(tries);
    expect(listFiles(lakeDir)).toEqual([]);
    // except by an attempt in progress: the supervisor reports it
    await waitFor('nothing is reported', () => probe.problems().length === 0);
    rmSync(lakeDir, { recursive: true });
    renameSync(`${lakeDir}-moved`, lakeDir);
    await tryOften(tries);
    await waitFor('nothing is reported of the lake that is back', () => probe.problems().length === 0);
  });

  it('A lake without new events is reported when a write to it does not return', async () => {
    const disk = new EventEmitter();
    const stuck = once(disk, 'answers');
    const probe = startWriteProbe(
      { tryWrite: async () => void (await stuck), clock, logger: silentLogger },
      { everyMs: 1, lastingMs: 0 },
    );
    await waitFor('it is reported', () => probe.problems().length === 1);
    expect(probe.problems()[0]?.message).toContain('a write has not returned');
    disk.emit('answers');
    await waitFor('it is resolved', () => probe.problems().length === 0);
    await probe.stop();
  });

  it('A lake that is not writable makes its compactor wait when events arrive, and they are stored afterwards', async (context) => {
    const folder = testFolder();
    const stream = createMemoryStream();
    const compactor = await startTestCompact(folder, stream);
    onTestFinished(() => compactor.stop());
    let ended: unknown;
    compactor.failed.catch((error: unknown) => (ended = error));
    const readOnly = makeReadOnly(path.join(folder, 'lake'));
    if (readOnly === undefined) context.skip('nothing can be mounted here');
    stream.publish([eventLine()]);
    const problems = (): string[] => compactor.facts().problems.map(({ message }) => message);
    await waitFor('it is reported', () =>
      problems().some((what) => what.startsWith('no events have been committed from the stream to the lake since')),
    );
    expect(ended).toBeUndefined();
    readOnly?.undo();
    await waitFor('it is committed', () => compactor.facts()['stored'] === 1);
    await waitFor('nothing is wrong any more', () => problems().length === 0);
  });
});
